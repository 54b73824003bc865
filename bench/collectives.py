#!/usr/bin/python3
"""Collectives: ours against Gloo, Open MPI as it comes, and the best of Open MPI's algorithms.

All run in one lab in turn, round after round, so that a noisy machine troubles all; each figure is the median over
rounds of a run's median, from a common start to the last rank's end. Between hosts they stand beside the bound: what
the busiest link must carry, at the goodput beta of one plain TCP stream in the same lab. Then predictions (see
predictions.py). Prints tables, and writes docs/benchmarks.md with them and every bar.
"""

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import typing

import lab
import predictions

PAGE = os.path.join(lab.ROOT, "docs", "benchmarks.md")
RATE = "1gbit"
MODEL = 44_000_000  # bytes of ResNet-18's gradients in fp32, about
SIZES = [1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, MODEL, 1 << 26]
BROADCAST = 8_000_000


class Case(typing.NamedTuple):
    """What is measured in one lab."""

    op: str
    sizes: typing.List[int]
    hosts: int
    ranks_per_host: int
    ours: typing.List[str]  # algorithms; "" is the library's own choice
    repetitions: int  # of a large size

    def count(self, size):
        """Repetitions: the shorter one takes, the more."""
        return max(self.repetitions, min(100, (1 << 24) // size))

    def title(self):
        layout = f"{self.hosts} hosts" if self.hosts > 1 else "1 host"
        ranks = "1 rank" if self.ranks_per_host == 1 else f"{self.ranks_per_host} ranks"
        return f"{self.op}, {layout} x {ranks}" + (f" at {RATE}" if self.hosts > 1 else "")

    def wire_bytes(self, size):
        """What a host must send at least, and for a broadcast also what it must receive."""
        return size if self.op == "broadcast" else 2 * (self.hosts - 1) / self.hosts * size


FLAT = Case("allreduce", [MODEL], 4, 1, [""], 3)
HIERARCHICAL = Case("allreduce", [MODEL], 2, 2, ["hierarchical"], 3)
PAIR = Case("allreduce", SIZES, 1, 2, [""], 7)
FOUR = Case("allreduce", [size for size in SIZES if size >= 1 << 20], 1, 4, [""], 7)
BROADCASTS = [Case("broadcast", [BROADCAST], hosts, 1, ["chain", "binomial"], 5) for hosts in (2, 4, 6, 8)]

# --- Running ---


def ours(case, size, algorithm, repetitions):
    choice = ["--algorithm", algorithm] if algorithm else []
    return {"file": True, "command": [lab.VIRGA, "bench", "collective", "--op", case.op, "--bytes", str(size),
                                      "--repetitions", str(repetitions)] + choice}


def peer(case, script):
    return {"command": [lab.SYSTEM_PYTHON, "-B", os.path.join(lab.PEERS, script), "--op", case.op,
                        "--bytes", *map(str, case.sizes), "--repetitions", *map(str, map(case.count, case.sizes))]}


def steps_of(case):
    steps = [{"name": f"ours {algorithm} {size}", **ours(case, size, algorithm, case.count(size))}
             for algorithm in case.ours for size in case.sizes]
    steps += [{"name": "gloo", **peer(case, "gloo_collective.py")}, {"name": "mpi", **peer(case, "mpi_collective.py")}]
    if case.hosts > 1:
        steps.append({"name": "beta", "command": [lab.SYSTEM_PYTHON, "-B", os.path.join(lab.PEERS, "tcp_stream.py")]})
    if case is HIERARCHICAL:  # the difference is what repetitions cost, without set-up and goodbyes
        steps += [{"name": f"bytes {count}", **ours(case, MODEL, "hierarchical", count)} for count in (2, 12)]
    return steps


class Figures:
    """What one lab has shown, in seconds."""

    def __init__(self, case, rounds):
        self.case = case
        self.runs = lab.in_turn(steps_of(case), rounds, case.hosts, case.ranks_per_host, RATE)

    def by_algorithm(self, name, size):
        """{algorithm: median over rounds} of a step for one size."""
        rows = [row for run in self.runs[name] for row in run["result"] if row["bytes"] == size]
        for row in rows:
            if not row["correct"]:
                raise SystemExit(f"{self.case.title()}: {name} has a wrong result: {row}")
        times = {}
        for row in rows:
            times.setdefault(row["algorithm"], []).append(row["seconds_median"])
        return {algorithm: statistics.median(seconds) for algorithm, seconds in times.items()}

    def ours(self, size, algorithm=None):
        algorithm = self.case.ours[0] if algorithm is None else algorithm
        (name, seconds), = self.by_algorithm(f"ours {algorithm} {size}", size).items()
        return name, seconds

    def gloo(self, size):
        return self.by_algorithm("gloo", size)["gloo"]

    def mpi_default(self, size):
        return self.by_algorithm("mpi", size)["default"]

    def mpi_best(self, size):
        """(name, seconds); Open MPI's own choice takes part."""
        return min(self.by_algorithm("mpi", size).items(), key=lambda pair: pair[1])

    def beta(self):
        """Bytes a second."""
        return statistics.median(run["result"]["goodput_bytes_per_second"] for run in self.runs["beta"])

    def bound(self, size):
        return self.case.wire_bytes(size) / self.beta()

    def wire_ratio(self):
        """Bytes that a host's device has sent for one operation, over the formula."""
        few, many = (statistics.median(sum(run["bytes_sent"]) for run in self.runs[f"bytes {count}"])
                     for count in (2, 12))
        return (many - few) / 10 / self.case.hosts / self.case.wire_bytes(MODEL)


# --- Showing ---

HEADER = ["bytes", "ours", "ms", "Gloo", "Open MPI", "Open MPI's best", "by", "bound", "Gloo / ours",
          "Open MPI / ours", "best / ours", "bound / ours"]


def rows_of(figures):
    """Times in milliseconds."""
    rows = []
    for size in figures.case.sizes:
        for algorithm in figures.case.ours:
            name, mine = figures.ours(size, algorithm)
            best_name, best = figures.mpi_best(size)
            gloo, default = figures.gloo(size), figures.mpi_default(size)
            bound = figures.bound(size) if figures.case.hosts > 1 else None
            rows.append([size, name] + [f"{1000 * seconds:.3g}" for seconds in (mine, gloo, default, best)] +
                        [best_name, f"{1000 * bound:.3g}" if bound else "-", f"{gloo / mine:.2f}",
                         f"{default / mine:.2f}", f"{best / mine:.2f}", f"{bound / mine:.3f}" if bound else "-"])
    return rows


def not_slower(figures, name):
    """The bar at the size where it is nearest or missed."""
    def margin(size):
        return min(figures.gloo(size), figures.mpi_best(size)[1]) / figures.ours(size)[1]
    worst = min(figures.case.sizes, key=margin)
    return [f"{name}, not slower than the better of Gloo and Open MPI at any size", "1.00",
            f"{margin(worst):.2f}, at {worst} bytes", margin(worst) >= 1]


def bars(flat, hierarchical, pair, four, broadcasts):
    """Rows of: what, bar, measured, whether it is met."""
    def bar(what, limit, value, met):
        return [what, limit, f"{value:.3f}", met]
    mine = flat.ours(MODEL)[1]
    across = hierarchical.ours(MODEL)[1] / hierarchical.bound(MODEL)
    pairs_gloo = pair.gloo(MODEL) / pair.ours(MODEL)[1]
    chain, binomial = ([figures.ours(BROADCAST, name)[1] for figures in broadcasts] for name in ("chain", "binomial"))
    fraction, gloo, best = flat.bound(MODEL) / mine, flat.gloo(MODEL) / mine, flat.mpi_best(MODEL)[1] / mine
    wire, varies, tree = hierarchical.wire_ratio(), max(chain) / min(chain) - 1, binomial[-1] / chain[-1]
    four_hosts, two_hosts = "allreduce 44 MB, 4 hosts x 1 rank", "allreduce 44 MB, 2 hosts x 2 ranks, hierarchical"
    return [
        bar(f"{four_hosts}: bound / ours", "at least 0.93", fraction, fraction >= 0.93),
        bar(f"{four_hosts}: Gloo / ours", "at least 1", gloo, gloo >= 1),
        bar(f"{four_hosts}: Open MPI's best / ours", "at least 1.35", best, best >= 1.35),
        bar(f"{two_hosts}: ours / bound of 2 hosts", "at most 1.1", across, across <= 1.1),
        bar(f"{two_hosts}: bytes between hosts / formula", "0.95 to 1.05", wire, 0.95 <= wire <= 1.05),
        bar("allreduce 44 MB, 1 host x 2 ranks: Gloo / ours", "at least 4", pairs_gloo, pairs_gloo >= 4),
        not_slower(pair, "allreduce 64 KB to 64 MB, 1 host x 2 ranks"),
        not_slower(four, "allreduce 1 to 64 MB, 1 host x 4 ranks"),
        bar("broadcast 8 MB, chain: slowest / fastest of 2 to 8 hosts - 1", "under 0.15", varies, varies < 0.15),
        bar("broadcast 8 MB, 8 hosts: binomial tree / chain", "at least 2.3", tree, tree >= 2.3),
    ]


def markdown(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1)] + rows
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def machine():
    """Rows of what the figures depend on."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [["CPU", f"{cpu}, {os.cpu_count()} cores"],
            ["memory", f"{memory:.0f} GiB"], ["kernel", f"{platform.system()} {platform.release()}"],
            ["Gloo", "torch " + first_line(lab.SYSTEM_PYTHON, "-c", "import torch; print(torch.__version__)")],
            ["Open MPI", first_line("mpirun", "--version")], ["date", datetime.date.today().isoformat()]]


PREFACE = """# Benchmarks

Generated by `./dev bench collectives`, {rounds} rounds: write nothing here by hand.

Collectives: ours against Gloo (`torch.distributed`), Open MPI as it comes, and the best of Open MPI's algorithms, of
which all are tried. They run in one emulated cluster in turn, round after round. Each figure is the median over rounds
of a run's median: from a moment at which all ranks begin together until the last one ends. The bound is what the
busiest link must carry at the goodput beta of one plain TCP stream, measured in the same rounds. Every emulated host
has one link, shaped both ways; Open MPI uses TCP between hosts and shared memory inside. All ranks of all hosts share
this one machine's cores.

"""


PREDICTIONS = """
## Predicted against measured time

With nothing but the file that `virga probe` writes, on {hosts} hosts of a rank each, at rates at which two cores carry
eight hosts: {sizes}; sparse ones all at {slow}.

"""


def page(tables, predicted, bar_rows, rounds):
    text = PREFACE.format(rounds=rounds) + markdown(["machine", ""], machine()) + "\n## Bars\n\n"
    text += markdown(["bar", "limit", "measured", "met"], bar_rows)
    for title, rows in tables:
        text += f"\n## {title}\n\nTimes in milliseconds.\n\n{markdown(HEADER, rows)}"
    text += PREDICTIONS.format(hosts=", ".join(map(str, predictions.HOSTS)), sizes=", ".join(
        f"vectors of {' and '.join(sizes)} at {rate}" for rate, sizes in predictions.SIZES.items()),
                               slow=predictions.SLOW)
    text += markdown(predictions.HEADER, predictions.rows_by_algorithm(predicted))
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    tables, everything = [], []
    for case in [FLAT, HIERARCHICAL, PAIR, FOUR] + BROADCASTS:
        figures = Figures(case, rounds)
        everything.append(figures)
        title = case.title() + (f", beta {figures.beta() / 1e6:.1f} MB/s" if case.hosts > 1 else "")
        tables.append((title, rows_of(figures)))
        print(f"\n{title}; times in milliseconds")
        lab.table(HEADER, tables[-1][1])
    predicted = predictions.measure_all(1)
    print("\npredicted against measured time")
    lab.table(predictions.HEADER, predictions.rows_by_algorithm(predicted))
    all_bars = bars(*everything[:4], everything[4:]) + predictions.bars(predicted)
    bar_rows = [row[:3] + ["yes" if row[3] else "NO"] for row in all_bars]
    print()
    lab.table(["bar", "limit", "measured", "met"], bar_rows)
    page(tables, predicted, bar_rows, rounds)


if __name__ == "__main__":
    main()
