#!/usr/bin/python3
"""The peer: collectives of Open MPI on vectors of fp32, by its own choice and by every algorithm of its coll_tuned.

Run it once per rank of a lab; it starts mpirun on the first and itself under mpirun. Rank 0 prints a list of rows as
one line of JSON: "default" is what Open MPI chooses, other names are those of `ompi_info --param coll tuned --level 9`,
with the bytes of a segment behind a slash where an algorithm has segments.

    virga lab --hosts 4 --ranks-per-host 1 --rate 1gbit -- \
        /usr/bin/python3 bench/peers/mpi_collective.py --op allreduce --bytes 44000000
"""

import ctypes
import json
import os
import sys

import trial as trials

# Open MPI's name for an operation, its algorithms by their number from 1 on, those that have segments, and what sizes
# of those are worth trying.
TUNED = {
    "allreduce": ("allreduce", ["basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring",
                                "rabenseifner"], ["segmented_ring"], [1 << 16, 1 << 18, 1 << 20, 1 << 22]),
    "broadcast": ("bcast", ["basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial",
                            "knomial", "scatter_allgather", "scatter_allgather_ring"],
                  ["chain", "pipeline", "split_binary_tree", "binary_tree", "binomial", "knomial"],
                  [1 << 15, 1 << 17, 1 << 19]),
    "reduce": ("reduce", ["linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"],
               ["chain", "pipeline", "binary", "binomial", "in-order_binary"], [1 << 15, 1 << 17, 1 << 19]),
    "allgather": ("allgather", ["linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc"], [], []),
    "alltoall": ("alltoall", ["linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"], [], []),
}


class Tuning:
    """Open MPI's parameters from inside (MPI_T, which mpi4py lacks): a communicator made after a change follows it."""

    def __init__(self):
        self.mpi = ctypes.CDLL("libmpi.so.40")
        self.call("MPI_T_init_thread", 0, ctypes.byref(ctypes.c_int()))

    def call(self, function, *arguments):
        status = getattr(self.mpi, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} returned {status}")

    def set(self, name, value):
        index, handle, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        self.call("MPI_T_cvar_get_index", name.encode(), ctypes.byref(index))
        self.call("MPI_T_cvar_handle_alloc", index, None, ctypes.byref(handle), ctypes.byref(count))
        self.call("MPI_T_cvar_write", handle, ctypes.byref(ctypes.c_int(value)))
        self.call("MPI_T_cvar_handle_free", ctypes.byref(handle))


def communicators(world, op):
    """One for each way to carry out ``op``, by its name."""
    name, algorithms, segmented, segment_sizes = TUNED[op]
    tuning = Tuning()
    result = {"default": world.Dup()}
    for number, algorithm in enumerate(algorithms, 1):
        if algorithm == "two_proc" and world.size != 2:
            continue
        for size in segment_sizes if algorithm in segmented else [0]:
            tuning.set(f"coll_tuned_{name}_algorithm", number)
            tuning.set(f"coll_tuned_{name}_algorithm_segmentsize", size)
            result[f"{algorithm}/{size}" if size else algorithm] = world.Dup()
    return result


def prepare(trial, comm, mpi):
    """The operation as a function."""
    data, part, root = [trial.data, mpi.FLOAT], [trial.part, mpi.FLOAT], trials.ROOT_RANK
    at_root = comm.rank == root
    return {"allreduce": lambda: comm.Allreduce(mpi.IN_PLACE, data),
            "broadcast": lambda: comm.Bcast(data, root),
            "reduce": lambda: comm.Reduce(mpi.IN_PLACE if at_root else data, data if at_root else None, mpi.SUM, root),
            "allgather": lambda: comm.Allgather(part, data),
            "alltoall": lambda: comm.Alltoall(part, data)}[trial.op]


def measure(options):
    from mpi4py import MPI  # starts MPI, so not where mpirun has yet to be started
    world = MPI.COMM_WORLD
    hosts = world.size // int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])

    def slowest(numbers):
        world.Allreduce(MPI.IN_PLACE, [numbers, MPI.DOUBLE], MPI.MAX)
        return numbers.tolist()

    rows = []
    ways = communicators(world, options.op)
    for size, repetitions in options.sizes:
        trial = trials.Trial(options.op, size, world.rank, world.size)
        runs = {name: prepare(trial, comm, MPI) for name, comm in ways.items()}
        rows += trials.measure(trial, runs, slowest, repetitions, hosts)
    if world.rank == 0:
        print(json.dumps(rows), flush=True)


def main():
    options = trials.parse("Collectives of Open MPI")
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        measure(options)
        return 0
    import mpirun
    return mpirun.run([sys.executable, "-B", *sys.argv], {"coll_tuned_use_dynamic_rules": 1})


if __name__ == "__main__":
    sys.exit(main())
