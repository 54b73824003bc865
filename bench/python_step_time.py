#!/usr/bin/python3
"""Step time of the Python package, batch 16, on 4 emulated hosts of one rank: ours against PyTorch DDP over Gloo, and
against `virga train`.

examples/python/fashion_mnist.py stands for ours, bench/peers/ddp.py for the peer and, with `--hook virga`, for
`virga.attach()`. Same model, data, batch, threads and kind of lab. Runs of ours and the others alternate, so that a
noisy machine troubles all; each figure is the median over rounds of a run's median step. The column 'free network' is
the peer's step over our computation alone: no communication library can get past that ratio on this machine.

PyTorch's PowerSGD hook can end such a run by an error of Gloo's: its messages are sent from callbacks, in an order
that ranks do not agree on. The table then says so.
"""

import argparse
import functools
import json
import re
import statistics

import lab

SPARSE = ["--strategy", "hitopk", "--density", "0.01"]


def example(rate, strategy, common):
    return lab.example("fashion_mnist.py", common + ["--test-samples", "0"] + strategy, rate=rate)


def train(rate, strategy, common):
    return lab.train(common + ["--test-samples", "0"] + strategy, rate=rate)


def ddp(rate, options, common):
    return lab.ddp(common + options, rate=rate, timeout=180)


# name -> how it is run
RUNS = {
    "fashion_mnist.py hitopk": functools.partial(example, "200mbit", SPARSE),
    "virga train hitopk": functools.partial(train, "200mbit", SPARSE),
    "DDP + attach hitopk": functools.partial(ddp, "200mbit", ["--hook", "virga"]),
    "DDP": functools.partial(ddp, "200mbit", ["--hook", "none"]),
    "DDP fp16": functools.partial(ddp, "200mbit", ["--hook", "fp16"]),
    "DDP PowerSGD": functools.partial(ddp, "200mbit", ["--hook", "powersgd"]),
    "fashion_mnist.py allreduce, 1 Gbit/s": functools.partial(example, "1gbit", ["--strategy", "allreduce"]),
    "DDP, 1 Gbit/s": functools.partial(ddp, "1gbit", ["--hook", "none"]),
}
# ours, the other, how many times as long the other must take at least; None: no bar
PAIRS = [
    ("fashion_mnist.py hitopk", "DDP", 4.5),
    ("fashion_mnist.py hitopk", "DDP fp16", 1.7),
    ("fashion_mnist.py allreduce, 1 Gbit/s", "DDP, 1 Gbit/s", 1.2),
    ("fashion_mnist.py hitopk", "virga train hitopk", 1 / 1.1),
    ("DDP + attach hitopk", "DDP fp16", 1.0),
    ("DDP + attach hitopk", "DDP PowerSGD", None),
]


class Case:
    """The runs of one name. Only PowerSGD's may fail: then they are not tried again."""

    def __init__(self, name):
        self.name = name
        self.runs = []
        self.failure = None

    def run(self, common):
        if self.failure is not None:
            return
        try:
            self.runs.append(RUNS[self.name](common))
        except lab.RunFailed as error:
            if "PowerSGD" not in self.name:
                raise
            self.failure = first_error(str(error))

    def median(self, key):
        return lab.median_of(self.runs, key)


def first_error(output):
    """What ended a run: an error of a rank, rather one that is not about the loss of another rank."""
    errors = re.findall(r"(?:\w*Error|what\(\)): (?!Got the following)(.*)", output)
    own = [error for error in errors if "Connection closed" not in error and "reset by peer" not in error]
    return (own + errors + [output])[0]


def compute_seconds(case):
    """Of the example: a step without what it waits for the network, the median over rounds of the means of runs."""
    return statistics.median(run.summary["compute_seconds"] for run in case.runs)


def row_of(ours, other, bar):
    """One line of the table."""
    mine = ours.median("step_seconds_median")
    wanted = "-" if bar is None else f"{bar:.2f}"
    record = {"benchmark": "python_step_time", "ours": ours.name, "ours_step_seconds": mine, "peer": other.name,
              "bar": bar}
    if other.failure is not None:
        print(json.dumps({**record, "peer_failed": other.failure}))
        return [ours.name, f"{mine:.3f}", other.name, "CRASHED", "-", "-", wanted, "-"]
    peer = other.median("step_seconds_median")
    against_ddp = ours.name.startswith("fashion") and other.name.startswith("DDP")
    free = peer / compute_seconds(ours) if against_ddp else None
    print(json.dumps({**record, "peer_step_seconds": peer, "ratio": peer / mine, "free_network_ratio": free}))
    met = "-" if bar is None else "yes" if peer / mine >= bar else "NO"
    return [ours.name, f"{mine:.3f}", other.name, f"{peer:.3f}", f"{peer / mine:.2f}",
            "-" if free is None else f"{free:.2f}", wanted, met]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18", help="the bars are for resnet18; mlp is bound by the network")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    common = ["--model", arguments.model, "--batch-size", "16", "--steps", str(arguments.steps), "--seed", "1",
              "--threads", "1"]
    cases = {name: Case(name) for name in RUNS}
    for _ in range(arguments.rounds):
        for case in cases.values():
            case.run(common)
    rows = [row_of(cases[ours], cases[other], bar) for ours, other, bar in PAIRS]
    header = [f"{arguments.model}, 200 Mbit/s", "s/step", "the other", "s/step", "ratio", "free network", "bar", "met"]
    lab.table(header, rows)
    for case in cases.values():
        if case.failure is not None:
            print(f"{case.name} crashed: {case.failure}")


if __name__ == "__main__":
    main()
