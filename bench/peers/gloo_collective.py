#!/usr/bin/python3
"""The peer: collectives of Gloo, by torch.distributed, on CPU tensors of fp32.

Run it once per rank with RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, as `virga lab` does.
Rank 0 prints a list of rows as one line of JSON.

    virga lab --hosts 4 --ranks-per-host 1 --rate 1gbit -- \
        /usr/bin/python3 bench/peers/gloo_collective.py --op allreduce --bytes 44000000
"""

import json
import os

# Gloo must not pick its interface by the host's name: inside the lab the wire is e0.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "e0" if os.path.exists("/sys/class/net/e0") else "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import trial as trials  # noqa: E402


def slowest(numbers):
    tensor = torch.from_numpy(numbers)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def prepare(trial):
    """The operation as a function. Tensors are made before the clock runs; they share the trial's memory."""
    data = torch.from_numpy(trial.data)
    part = None if trial.part is None else torch.from_numpy(trial.part)
    pieces = list(data.chunk(trial.ranks))
    return {"allreduce": lambda: dist.all_reduce(data),
            "broadcast": lambda: dist.broadcast(data, trials.ROOT_RANK),
            "reduce": lambda: dist.reduce(data, trials.ROOT_RANK),
            "allgather": lambda: dist.all_gather(pieces, part),
            "alltoall": lambda: dist.all_to_all_single(data, part)}[trial.op]


def main():
    options = trials.parse("Collectives of Gloo")
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    hosts = ranks // int(os.environ["LOCAL_WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    rows = []
    for size, repetitions in options.sizes:
        trial = trials.Trial(options.op, size, rank, ranks)
        rows += trials.measure(trial, {"gloo": prepare(trial)}, slowest, repetitions, hosts)
    if rank == 0:
        print(json.dumps(rows), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
