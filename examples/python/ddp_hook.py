#!/usr/bin/env python3
"""A script that trains in DistributedDataParallel, as it was, but for the lines marked with Virga: gradients now travel
by a strategy of Virga instead of Gloo's allreduce. Everything else of DDP stays.

    torchrun -r 1 -t 1 --nproc_per_node 2 ddp_hook.py
    virga run -n 2 python3 ddp_hook.py
    virga lab --hosts 4 --rate 200mbit -- env GLOO_SOCKET_IFNAME=e0 python3 ddp_hook.py --threads 1
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
import virga.torch as virga  # Virga
from images import FASHION_MNIST, MODELS, Split
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains lenet5 on Fashion-MNIST in DDP with a hook of Virga")
    parser.add_argument("--data", default=FASHION_MNIST, help="folder with the four gzipped IDX files")
    parser.add_argument("--strategy", choices=virga.strategies(), default="hitopk")
    parser.add_argument("--density", type=float, default=0.01, help="kept / all gradients")
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    parser.add_argument("--steps", type=int, default=200, help="at most; one epoch ends it, too")
    parser.add_argument("--threads", type=int, default=0, help="for computing; 0: as torch chooses")
    return parser.parse_args()


def loader(options: argparse.Namespace, rank: int, world: int) -> DataLoader:
    split = Split(options.data, "train", "lenet5")
    dataset = TensorDataset(*split.load(torch.arange(len(split))))
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, drop_last=True)
    return DataLoader(dataset, options.batch_size, sampler=sampler, drop_last=True)


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # started without a launcher: alone
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    ddp = DistributedDataParallel(MODELS["lenet5"][0]())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)

    job = virga.init()  # Virga: the same ranks, found by the same environment
    virga.attach(ddp, strategy=options.strategy, density=options.density)  # Virga

    total = torch.zeros(1)
    for step, (x, y) in enumerate(loader(options, rank, world), 1):
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if step == options.steps:
            break

    dist.all_reduce(total)
    if rank == 0:
        print(json.dumps({"strategy": options.strategy, "ranks": world, "steps": step,
                          "train_loss": total.item() / world / step,
                          "inter_host_bytes": job.inter_host_bytes / step}), flush=True)
    virga.shutdown()  # Virga
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
