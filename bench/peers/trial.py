"""What the peers of our collectives share: the operations with their input and their right result, and the timing.

All ranks begin a repetition at the same moment, by the one clock of the machine that they share, and it ends with the
last of them. Every result is checked, outside the time.
"""

import argparse
import os
import statistics
import time

import numpy

ROOT_RANK = 0  # of broadcast and reduce
WARM_UP = 2  # repetitions before those that count
OPS = ["allreduce", "broadcast", "reduce", "allgather", "alltoall"]


class Trial:
    """One rank's part in an operation on fp32.

    ``data``, a vector of ``size`` bytes, is what an operation works on in place, or its result; ``part`` is what it
    sends where that is another vector (allgather: a rank's share; alltoall: as many bytes as ``data``). Raises
    ValueError if there the ranks can't share the bytes evenly.
    """

    def __init__(self, op, size, rank, ranks):
        self.op, self.size, self.rank, self.ranks = op, size, rank, ranks
        pattern = (numpy.arange(size // 4) % 251 + 1).astype(numpy.float32)  # small integers: sums are exact
        own = pattern * (rank + 1)
        self.data = numpy.empty_like(pattern)
        self.start, self.part, self.expected = own, None, pattern * (ranks * (ranks + 1) // 2)
        if op == "reduce" and rank != ROOT_RANK:
            self.expected = None  # what is left on the others is unspecified
        elif op == "broadcast":
            self.start, self.expected = own if rank == ROOT_RANK else 0, pattern * (ROOT_RANK + 1)
        elif op == "allgather":
            shares = [share * (i + 1) for i, share in enumerate(numpy.split(pattern, ranks))]
            self.start, self.part, self.expected = 0, shares[rank], numpy.concatenate(shares)
        elif op == "alltoall":
            share = numpy.split(pattern, ranks)[rank]
            self.start, self.part, self.expected = 0, own, numpy.concatenate([share * (i + 1) for i in range(ranks)])

    def time(self, run, start):
        """Seconds from ``start()`` to the end of ``run()`` on this rank, and whether it left what it should."""
        self.data[:] = self.start
        begin = start()
        run()
        seconds = time.perf_counter() - begin
        return seconds, self.expected is None or numpy.array_equal(self.data, self.expected)


class CommonStart:
    """A moment at which all ranks begin. It is far enough ahead for all to have heard of it: twice the time that this
    took the slowest last time. ``slowest``: takes a vector of numbers and returns their maxima over all ranks.
    """

    def __init__(self, slowest):
        self.slowest, self.patience = slowest, 1e-3

    def __call__(self):
        begin = time.perf_counter()
        latest, patience = self.slowest(numpy.array([begin, self.patience]))
        self.patience = time.perf_counter() - begin
        start = latest + 2 * patience
        while time.perf_counter() < start:
            os.sched_yield()
        return start


def measure(trial, runs, slowest, repetitions, hosts):
    """Times every one of ``runs`` (name: function) once a repetition, in turn; returns a row for each.

    ``slowest``: see CommonStart.
    """
    start = CommonStart(slowest)
    seconds = {name: [] for name in runs}
    wrong = dict.fromkeys(runs, 0.0)
    for _ in range(WARM_UP + repetitions):
        for name, run in runs.items():
            took, right = trial.time(run, start)
            seconds[name].append(took)
            wrong[name] += not right
    rows = []
    for name in runs:
        *times, mistakes = slowest(numpy.array(seconds[name][WARM_UP:] + [wrong[name]]))
        rows.append({"op": trial.op, "algorithm": name, "bytes": trial.size, "ranks": trial.ranks,
                     "hosts": hosts, "seconds_median": statistics.median(times), "correct": mistakes == 0})
    return rows


def parse(description):
    """The options, with (bytes, repetitions) in ``sizes``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--op", choices=OPS, default="allreduce")
    parser.add_argument("--bytes", type=int, nargs="+", required=True,
                        help="of the vector; allgather: of what every rank ends with, alltoall: of what it sends")
    parser.add_argument("--repetitions", type=int, nargs="+", default=[5], help="of all sizes, or of each")
    options = parser.parse_args()
    counts = options.repetitions * (len(options.bytes) if len(options.repetitions) == 1 else 1)
    if len(counts) != len(options.bytes):
        parser.error("--repetitions takes one number, or one for each of --bytes")
    options.sizes = list(zip(options.bytes, counts))
    return options
