#!/usr/bin/python3
"""Predicted against measured time: every algorithm of every operation, in labs of several hosts.

In each lab `virga probe` first measures the links; with nothing but its file `virga bench collective` then predicts,
and measures. Prints how far predictions are off, and how much slower than the best algorithm the chosen one is.
"""

import argparse
import os
import statistics
import tempfile

import lab

HOSTS = [2, 3, 4, 6, 8]
# Sizes by the rate of the links: what an emulated link lets through at once must be little against the sizes.
SIZES = {"50mbit": ["16K", "256K"], "300mbit": ["4M", "32M"]}
REPETITIONS = {"50mbit": 9, "300mbit": 3}
SLOW = "50mbit"  # where sparse ones are measured, whatever their size: the link is what they are for
OPS = ["allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather", "scatter", "alltoall",
       "neighbor_exchange", "barrier", "sparse_allreduce"]
# Their results differ: the choice between them is the user's.
NOT_CHOSEN = ["sparse_allreduce"]


def bench(op, sizes, repetitions, cluster):
    return {"name": f"{op} {sizes[0]}", "file": True,
            "command": [lab.VIRGA, "bench", "collective", "--op", op, "--bytes", ",".join(sizes), "--algorithm", "all",
                        "--repetitions", str(repetitions), "--cluster", cluster]}


def sizes_of(op, rate):
    if op == "barrier":
        return ["0"] if rate == SLOW else []
    if op == "sparse_allreduce":
        return sum(SIZES.values(), []) if rate == SLOW else []
    return SIZES[rate]


def steps(ops, rate, cluster):
    probe = {"name": "probe", "command": [lab.VIRGA, "probe", "--write", cluster], "silent": True}
    return [probe] + [bench(op, sizes_of(op, rate), REPETITIONS[rate], cluster) for op in ops if sizes_of(op, rate)]


def measure(hosts, rate, ops, rounds):
    """Rows of one lab: what `virga bench collective` writes, its times being medians over rounds."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = os.path.join(folder, "cluster.toml")
        runs = lab.in_turn(steps(ops, rate, cluster), rounds, hosts, 1, rate, timeout=3600)
    found = {}
    for name, events in runs.items():
        for row in (row for event in events if name != "probe" for row in event["result"]):
            if not row["correct"]:
                raise SystemExit(f"a wrong result: {row}")
            found.setdefault((row["op"], row["hosts"], row["bytes"], row["algorithm"]), []).append(row)
    return [{**rows[0], **{key: statistics.median(row[key] for row in rows)
                           for key in ("seconds_median", "predicted_seconds")}} for rows in found.values()]


def measure_all(rounds, hosts=HOSTS, rates=SIZES, ops=OPS):
    return [row for count in hosts for rate in rates for row in measure(count, rate, ops, rounds)]


def error(row):
    return abs(row["predicted_seconds"] / row["seconds_median"] - 1)


def percentile(values, fraction):
    return sorted(values)[min(int(fraction * len(values)), len(values) - 1)]


def regrets(rows):
    """{(op, hosts, bytes): how many times as long as the best one measured the chosen algorithm took}"""
    cases = {}
    for row in rows:
        if row["op"] not in NOT_CHOSEN:
            cases.setdefault((row["op"], row["hosts"], row["bytes"]), []).append(row)
    return {case: max(row["seconds_median"] for row in of_case if row["chosen"]) /
                  min(row["seconds_median"] for row in of_case) for case, of_case in cases.items()}


HEADER = ["operation", "algorithm", "cases", "median error", "90th percentile", "worst", "worst at"]


def rows_by_algorithm(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row["op"], row["algorithm"]), []).append(row)
    listed = []
    for (op, algorithm), group in groups.items():
        errors = [error(row) for row in group]
        worst = max(group, key=error)
        listed.append([op, algorithm, len(group), f"{statistics.median(errors):.3f}", f"{percentile(errors, 0.9):.3f}",
                       f"{error(worst):.3f}", f"{worst['hosts']} hosts, {worst['bytes']} bytes"])
    return listed


def bars(rows):
    """Rows of: what, bar, measured, whether it is met."""
    errors = [error(row) for row in rows]
    median, high = statistics.median(errors), percentile(errors, 0.9)
    (op, hosts, size), regret = max(regrets(rows).items(), key=lambda pair: pair[1])
    what = f"predicted against measured time, {len(rows)} cases"
    return [[f"{what}: median error", "under 0.10", f"{median:.3f}", median < 0.10],
            [f"{what}: 90th percentile", "under 0.25", f"{high:.3f}", high < 0.25],
            ["chosen algorithm / best one measured", "at most 1.15",
             f"{regret:.2f}, {op} of {size} bytes, {hosts} hosts", regret <= 1.15]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--rates", nargs="+", default=SIZES, choices=SIZES)
    parser.add_argument("--ops", nargs="+", default=OPS, choices=OPS)
    parser.add_argument("--each", action="store_true", help="print every case")
    options = parser.parse_args()
    rows = measure_all(options.rounds, options.hosts, options.rates, options.ops)
    if options.each:
        lab.table(["case", "measured", "predicted", "error", ""],
                  [[f"{row['op']} {row['algorithm']}, {row['hosts']} hosts, {row['bytes']}",
                    f"{row['seconds_median'] * 1e3:.3f}", f"{row['predicted_seconds'] * 1e3:.3f}", f"{error(row):.3f}",
                    "chosen" if row["chosen"] else ""] for row in rows])
        print()
    lab.table(HEADER, rows_by_algorithm(rows))
    print()
    lab.table(["bar", "limit", "measured", "met"],
              [row[:3] + ["yes" if row[3] else "NO"] for row in bars(rows)])


if __name__ == "__main__":
    main()
