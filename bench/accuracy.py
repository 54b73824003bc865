#!/usr/bin/python3
"""Test accuracy of lenet5 on 4 ranks after 3 epochs, mean of 3 seeds: dense and hitopk, with and without feedback."""

import json
import statistics

import lab

CASES = [
    ("dense", ["--strategy", "allreduce"]),
    ("hitopk 1 %", ["--strategy", "hitopk", "--density", "0.01"]),
    ("hitopk 0.1 %", ["--strategy", "hitopk", "--density", "0.001"]),
    ("hitopk 0.1 %, no error feedback", ["--strategy", "hitopk", "--density", "0.001", "--no-error-feedback"]),
]


def main():
    rows, means = [], {}
    for name, strategy in CASES:
        common = ["--model", "lenet5", "--epochs", "3", "--batch-size", "32", "--threads", "1",
                  "--learning-rate", "0.05", "--warmup-steps", "100"]
        runs = [lab.train(common + ["--seed", str(seed)] + strategy, rate="1gbit") for seed in (1, 2, 3)]
        accuracies = [100 * run.summary["test_accuracy"] for run in runs]
        means[name] = statistics.mean(accuracies)
        rows.append([name] + [f"{a:.2f}" for a in accuracies] + [f"{means[name]:.2f}"])
        print(json.dumps({"benchmark": "accuracy", "case": name, "test_accuracy_percent": accuracies,
                          "mean": means[name]}), flush=True)
    lab.table(["lenet5, 4 ranks, 3 epochs", "seed 1", "seed 2", "seed 3", "mean"], rows)
    print(f"hitopk 1 % is {means['dense'] - means['hitopk 1 %']:+.2f} points below dense (bar: within 0.5)")
    feedback = means["hitopk 0.1 %"] - means["hitopk 0.1 %, no error feedback"]
    print(f"at 0.1 %, error feedback is worth {feedback:+.2f} points")


if __name__ == "__main__":
    main()
