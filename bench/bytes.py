#!/usr/bin/python3
"""Bytes between hosts a step, as the lab's own devices count them, beside the formula in docs/algorithms.md.

Two runs that differ only in their number of steps: the difference is what steps cost, without set-up and goodbyes.
"""

import json

import lab

CASES = [
    ("allreduce", []),
    ("fp16", []),
    ("topk", ["--density", "0.01"]),
    ("hitopk", ["--density", "0.01"]),
]


def main():
    rows = []
    for ranks_per_host in (1, 2):
        for strategy, extra in CASES:
            def run(steps):
                return lab.train(["--model", "mlp", "--batch-size", "16", "--threads", "1", "--test-samples", "0",
                                  "--strategy", strategy, "--steps", str(steps)] + extra,
                                 ranks_per_host=ranks_per_host, rate="1gbit")
            short, long = run(10), run(40)
            counted = (sum(long.bytes_sent()) - sum(short.bytes_sent())) / 30 / 4
            formula = long.summary["inter_host_bytes_per_step_formula"]
            rows.append([f"mlp, 4 hosts x {ranks_per_host}", strategy, f"{counted:.0f}", f"{formula:.0f}",
                         f"{counted / formula:.3f}"])
            print(json.dumps({"benchmark": "bytes", "ranks_per_host": ranks_per_host, "strategy": strategy,
                              "counted_bytes_per_step": counted, "formula_bytes_per_step": formula,
                              "ratio": counted / formula}))
    lab.table(["job", "strategy", "counted", "formula", "ratio (bar 0.95 to 1.05)"], rows)


if __name__ == "__main__":
    main()
