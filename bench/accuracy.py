#!/usr/bin/python3
"""Test accuracy of lenet5 on 4 ranks after 3 epochs, mean of 3 seeds: dense and hitopk, with and without feedback.

Two settings of the optimizer, since each method should be judged at its best: momentum adds up what error feedback
delivers late, so sparse methods want less of it. The last lines compare the best mean of each.
"""

import argparse
import concurrent.futures
import json
import statistics

import lab

SETTINGS = {"momentum 0.9": ["--learning-rate", "0.05", "--momentum", "0.9"],
            "momentum 0.5": ["--learning-rate", "0.2", "--momentum", "0.5"]}
CASES = {"dense": ["--strategy", "allreduce"],
         "hitopk 1 %": ["--strategy", "hitopk", "--density", "0.01"],
         "hitopk 0.1 %": ["--strategy", "hitopk", "--density", "0.001"],
         "hitopk 0.1 %, no error feedback": ["--strategy", "hitopk", "--density", "0.001", "--no-error-feedback"]}
SEEDS = (1, 2, 3)


def accuracy(job):
    setting, case, seed = job
    common = ["--model", "lenet5", "--epochs", "3", "--batch-size", "32", "--threads", "1", "--warmup-steps", "100"]
    run = lab.train(common + ["--seed", str(seed)] + SETTINGS[setting] + CASES[case], rate="1gbit")
    return 100 * run.summary["test_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, action="append", help="only this one")
    settings = parser.parse_args().setting or list(SETTINGS)
    jobs = [(setting, case, seed) for setting in settings for case in CASES for seed in SEEDS]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # two labs at once: accuracy does not depend on time
        results = dict(zip(jobs, pool.map(accuracy, jobs)))
    rows, best = [], {}
    for setting in settings:
        for case in CASES:
            values = [results[(setting, case, seed)] for seed in SEEDS]
            mean = statistics.mean(values)
            best[case] = max(best.get(case, 0), mean)
            rows.append([f"{case}, {setting}"] + [f"{value:.2f}" for value in values + [mean]])
            print(json.dumps({"benchmark": "accuracy", "case": case, "setting": setting,
                              "test_accuracy_percent": values, "mean": mean}))
    lab.table(["lenet5, 4 ranks, 3 epochs", "seed 1", "seed 2", "seed 3", "mean"], rows)
    gap = best["hitopk 1 %"] - best["dense"]
    print(f"hitopk 1 % against dense, best means: {gap:+.2f} points (bar: at least -0.5)")
    feedback = best["hitopk 0.1 %"] - best["hitopk 0.1 %, no error feedback"]
    print(f"at 0.1 %, error feedback is worth {feedback:+.2f} points, best means")


if __name__ == "__main__":
    main()
