#!/usr/bin/python3
"""Step time of ResNet-18, batch 16, on 4 emulated hosts of one rank: ours against PyTorch DDP over Gloo.

Same model, batch, threads and kind of lab. Rounds of ours and the peer's alternate, so that a noisy machine troubles
both; each figure is the median over rounds of a run's median step. DDP's bucket size is the best of those tried. The
column 'free network' is the peer's step over our computation alone: no communication library can get past that ratio
on this machine.
"""

import argparse
import json

import lab

# (rate, our strategy, the peer's hook, the bar)
PAIRS = [
    ("200mbit", ["--strategy", "hitopk", "--density", "0.01"], "none", 5.0),
    ("200mbit", ["--strategy", "hitopk", "--density", "0.01"], "fp16", 1.8),
    ("1gbit", ["--strategy", "allreduce"], "none", 1.3),
    ("1gbit", ["--strategy", "fp16"], "fp16", 1.2),
]


def common(arguments):
    return ["--model", arguments.model, "--batch-size", "16", "--steps", str(arguments.steps), "--seed", "1",
            "--threads", "1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18", help="the bars are for resnet18")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--bucket-mb", type=int, nargs="+", default=[25], help="DDP bucket sizes to try")
    arguments = parser.parse_args()
    ours, peers = {}, {}
    for _ in range(arguments.rounds):
        for rate, strategy, hook, _bar in PAIRS:
            key = (rate, strategy[1])
            if len(ours.setdefault(key, [])) < arguments.rounds:
                ours[key].append(lab.train(common(arguments) + ["--test-samples", "0"] + strategy, rate=rate))
            for size in arguments.bucket_mb:
                peers.setdefault((rate, hook, size), []).append(
                    lab.ddp(common(arguments) + ["--hook", hook, "--bucket-cap-mb", str(size)], rate=rate))
    rows = []
    for rate, strategy, hook, bar in PAIRS:
        mine = lab.median_of(ours[(rate, strategy[1])], "step_seconds_median")
        size, peer = min(((size, lab.median_of(peers[(rate, hook, size)], "step_seconds_median"))
                          for size in arguments.bucket_mb), key=lambda pair: pair[1])
        compute = lab.median_of(ours[(rate, strategy[1])], "compute_seconds_median")
        rows.append([rate, strategy[1], f"{mine:.3f}", f"DDP {hook} ({size} MB buckets)", f"{peer:.3f}",
                     f"{peer / mine:.2f}", f"{peer / compute:.2f}", f"{bar}", "yes" if peer / mine >= bar else "NO"])
        print(json.dumps({"benchmark": "step_time", "rate": rate, "ours": strategy[1], "ours_step_seconds": mine,
                          "ours_compute_seconds": compute,
                          "peer": f"ddp {hook}", "peer_step_seconds": peer, "ratio": peer / mine, "bar": bar}))
    lab.table(["rate", "ours", "s/step", "peer", "s/step", "ratio", "free network", "bar", "met"], rows)


if __name__ == "__main__":
    main()
