#!/usr/bin/python3
"""Loss of examples/python/char_transformer.py on 4 emulated hosts after the same number of steps: dense and hitopk 1 %,
mean of 3 seeds, on text that was not trained on.

Several settings of the optimizer, since each method should be judged at its best: momentum adds up what error feedback
delivers late, so sparse methods want less of it; Adam divides by what arrives in bursts. The last lines compare both in
each setting, and the best mean of each.
"""

import argparse
import json
import statistics

import lab

SETTINGS = {"momentum 0.5": ["--lr", "1.0", "--momentum", "0.5"],
            "momentum 0.9": ["--lr", "0.2", "--momentum", "0.9"],
            "adam": ["--optimizer", "adam", "--lr", "0.003", "--momentum", "0.9"],
            "adam without momentum": ["--optimizer", "adam", "--lr", "0.003", "--momentum", "0"]}
CASES = {"dense": ["--strategy", "allreduce"],
         "hitopk 1 %": ["--strategy", "hitopk", "--density", "0.01"]}
SEEDS = (1, 2, 3)
BAR = 2.0  # percent


def loss(setting, case, seed, steps):
    common = ["--steps", str(steps), "--batch-size", "4", "--threads", "1", "--seed", str(seed)]
    run = lab.example("char_transformer.py", common + SETTINGS[setting] + CASES[case], rate="1gbit")
    return run.summary["validation_loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--setting", choices=SETTINGS, action="append", help="only this one")
    arguments = parser.parse_args()
    settings = arguments.setting or list(SETTINGS)
    rows, means = [], {}
    for setting in settings:
        for case in CASES:
            values = [loss(setting, case, seed, arguments.steps) for seed in SEEDS]
            means[setting, case] = statistics.mean(values)
            rows.append([f"{case}, {setting}"] + [f"{value:.4f}" for value in values + [means[setting, case]]])
            print(json.dumps({"benchmark": "char_loss", "case": case, "setting": setting, "steps": arguments.steps,
                              "validation_loss": values, "mean": means[setting, case]}), flush=True)
    lab.table([f"4 ranks, {arguments.steps} steps", "seed 1", "seed 2", "seed 3", "mean"], rows)
    dense, sparse = CASES
    pairs = [(setting, means[setting, dense], means[setting, sparse]) for setting in settings]
    pairs.append(("best means", min(pair[1] for pair in pairs), min(pair[2] for pair in pairs)))
    for what, ours, theirs in ((what, hitopk, reference) for what, reference, hitopk in pairs):
        gap = 100 * (ours / theirs - 1)
        print(f"{what}: hitopk 1 % against dense {gap:+.2f} % (bar: at most +{BAR} %): {'yes' if gap <= BAR else 'NO'}")


if __name__ == "__main__":
    main()
