#!/usr/bin/python3
"""The demo: one model, one minute, one slow network; dense against sparse."""

import argparse
import sys
import time

import lab


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", default="200mbit")
    arguments = parser.parse_args()
    common = ["--model", "mlp", "--batch-size", "32", "--threads", "1", "--seed", "1", "--learning-rate", "0.05",
              "--seconds", str(arguments.seconds)]
    cases = [("dense allreduce", ["--strategy", "allreduce"]),
             ("hitopk 1 %", ["--strategy", "hitopk", "--density", "0.01"])]
    begin = time.monotonic()
    runs = []
    for name, strategy in cases:
        print(f"\n{name}: 4 hosts at {arguments.rate}, mlp on Fashion-MNIST, {arguments.seconds:.0f} s", flush=True)
        runs.append(lab.train(common + strategy, rate=arguments.rate, show=True))
    print()
    rows = []
    for (name, _), run in zip(cases, runs):
        s = run.summary
        rows.append([name, f"{100 * s['test_accuracy']:.2f} %", s["steps"], f"{s['step_seconds_median']:.4f}",
                     f"{s['inter_host_bytes_per_step']:.0f}", f"{s['inter_host_bytes_per_step_formula']:.0f}",
                     f"{runs[0].summary['step_seconds_median'] / s['step_seconds_median']:.1f} x"])
    lab.table(["strategy", "test accuracy", "steps", "s/step", "bytes/step, measured", "by formula", "speed-up"], rows)
    print(f"\nThe demo took {time.monotonic() - begin:.0f} s. Bytes are what one host sent to the others.")


if __name__ == "__main__":
    sys.exit(main())
