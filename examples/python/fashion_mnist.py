#!/usr/bin/env python3
"""Trains ResNet-18 (or a smaller network) on Fashion-MNIST, alone or on any number of ranks.

    python3 fashion_mnist.py --model lenet5 --epochs 1
    torchrun --nnodes 4 --nproc_per_node 1 --node_rank N --master_addr HOST fashion_mnist.py --density 0.01
    mpirun -np 4 python3 fashion_mnist.py
    virga run -n 2 python3 fashion_mnist.py
    virga lab --hosts 4 --rate 200mbit -- python3 fashion_mnist.py --steps 20 --threads 1

Debian's torchrun 1.13 wants -r 1 -t 1, too. Lines that Virga asks for are marked. Rank 0 prints; the last line is a
JSON object.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
import virga.torch as virga  # Virga
from images import FASHION_MNIST, MODELS, Split, batches, count_right


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains on Fashion-MNIST as one rank of a job")
    parser.add_argument("--model", choices=MODELS, default="resnet18")
    parser.add_argument("--data", default=FASHION_MNIST, help="folder with the four gzipped IDX files")
    parser.add_argument("--strategy", choices=virga.strategies(), default="hitopk")
    parser.add_argument("--density", type=float, default=0.01, help="kept / all gradients")
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="end after so many steps instead")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=1, help="of initial values and order of samples")
    parser.add_argument("--threads", type=int, default=0, help="for computing; 0: as torch chooses")
    parser.add_argument("--test-samples", type=int, default=10000, help="judge by so many of the test set")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    job = virga.init(settings=vars(options))  # Virga: who and how many we are; raises if ranks were started differently
    torch.manual_seed(options.seed)
    model = MODELS[options.model][0]()
    train = Split(options.data, "train", options.model)
    steps = options.steps or options.epochs * (len(train) // (options.batch_size * job.world_size))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum,
                                weight_decay=options.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    replica = virga.Replica(model, optimizer, strategy=options.strategy, density=options.density)  # Virga

    source = batches(len(train), options.batch_size, job.rank, job.world_size, options.seed)
    losses, seconds = [], []
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        x, y = train.load(next(source))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # gradients travel meanwhile; then they are the mean over all ranks
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        if job.rank == 0 and (step % 50 == 0 or step == steps):
            print(f"step {step} of {steps}: loss {statistics.fmean(losses[-50:]):.4f}, "
                  f"{statistics.median(seconds):.4f} s a step", flush=True)

    digest = replica.end_epoch()  # Virga: raises unless all ranks hold the same parameters
    mean_loss = virga.allreduce(torch.tensor([statistics.fmean(losses[-50:])]), op="mean").item()  # Virga
    test = Split(options.data, "t10k", options.model)
    right = virga.allreduce(count_right(model, test, options.test_samples, job.rank, job.world_size)).item()  # Virga
    if job.rank == 0:
        print(json.dumps({
            "model": options.model, "strategy": options.strategy, "ranks": job.world_size, "hosts": job.hosts,
            "parameters": sum(p.numel() for p in model.parameters()), "steps": steps, "train_loss": mean_loss,
            "test_accuracy": right / min(options.test_samples, len(test)) if options.test_samples else None,
            "step_seconds_median": statistics.median(seconds), "parameters_sha256": digest, **replica.stats(),
        }), flush=True)


if __name__ == "__main__":
    main()
