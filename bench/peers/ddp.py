#!/usr/bin/python3
"""The peer: PyTorch DistributedDataParallel over Gloo on the same job as `virga train`.

Same model (same layers, same number of parameters), same data, same scaling and normalisation, same order of samples
in kind (a seeded permutation dealt out batch by batch), same SGD. Run it once per rank with RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT set, as `virga lab` does. Rank 0 prints one line of JSON.

    virga lab --hosts 4 --ranks-per-host 1 --rate 200mbit -- \
        /usr/bin/python3 bench/peers/ddp.py --model resnet18 --batch-size 16 --steps 20 --threads 1 --hook fp16

Needs python3-torch and python3-numpy.
"""

import argparse
import gzip
import json
import os
import statistics
import struct
import time

# Gloo must not pick its interface by the host's name: inside the lab the wire is e0.
INTERFACE = "e0" if os.path.exists("/sys/class/net/e0") else "lo"
os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACE)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
MEAN, DEVIATION = 0.2860, 0.3530


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(),
            convolution(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs))
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        side = x if self.shortcut is None else self.shortcut(x)
        return self.body(x).add_(side).relu_()


def convolution(inputs, outputs, kernel, stride):
    layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def resnet(widths, blocks):
    layers = [convolution(3, widths[0], 3, 1), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    inputs = widths[0]
    for width in widths:
        for _ in range(blocks):
            layers.append(BasicBlock(inputs, width, 1 if inputs == width else 2))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


# name -> (how it is made, channels, size)
MODELS = {
    "mlp": (mlp, 1, 28),
    "lenet5": (lenet5, 1, 28),
    "resnet20": (lambda: resnet([16, 32, 64], 3), 3, 32),
    "resnet18": (lambda: resnet([64, 128, 256, 512], 2), 3, 32),
}


def read_idx(path):
    with gzip.open(path) as file:
        zeros, kind, dimensions = struct.unpack(">HBB", file.read(4))
        if zeros or kind != 8:
            raise ValueError(f"{path} is no IDX file of bytes")
        sizes = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        return np.frombuffer(file.read(), np.uint8).reshape(sizes)


class Split:
    """One split of the dataset: batches of normalised images, scaled and repeated over channels as the model wants."""

    def __init__(self, folder, prefix, channels, size):
        self.images = torch.from_numpy(read_idx(f"{folder}/{prefix}-images-idx3-ubyte.gz").copy())
        self.labels = torch.from_numpy(read_idx(f"{folder}/{prefix}-labels-idx1-ubyte.gz").astype(np.int64))
        self.channels, self.size = channels, size

    def load(self, indices):
        x = self.images[indices].unsqueeze(1).float().div_(255).sub_(MEAN).div_(DEVIATION)
        if x.shape[-1] != self.size:
            x = F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        return x.expand(-1, self.channels, -1, -1), self.labels[indices]


def batches(count, batch_size, rank, world, seed):
    """This rank's batches, epoch after epoch; the last incomplete global batch of an epoch is dropped."""
    epoch = 0
    while True:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1000003 + epoch))
        for first in range(rank * batch_size, count // (world * batch_size) * world * batch_size, world * batch_size):
            yield order[first:first + batch_size]
        epoch += 1


def wrap(model, options):
    ddp = DistributedDataParallel(model, bucket_cap_mb=options.bucket_cap_mb, gradient_as_bucket_view=True,
                                  static_graph=True, broadcast_buffers=False)
    if options.hook == "fp16":
        ddp.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    return ddp


def is_over(options, step, begin):
    """Rank 0's clock decides for all, or ranks would stop at different steps."""
    if options.seconds is None:
        return step >= options.steps
    flag = torch.tensor([float(time.perf_counter() - begin >= options.seconds)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def train(ddp, split, options, rank, world):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=options.momentum,
                                weight_decay=options.weight_decay)
    source = batches(len(split.labels), options.batch_size, rank, world, options.seed)
    seconds, losses = [], []
    begin = time.perf_counter()
    while not is_over(options, len(seconds) - options.warmup_steps, begin):
        start = time.perf_counter()
        x, y = split.load(next(source))
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        if len(seconds) == options.warmup_steps:
            begin = time.perf_counter()
    return seconds[options.warmup_steps:], losses


@torch.no_grad()
def evaluate(model, split, rank, world):
    """Accuracy over the whole split; every rank takes every world-th batch."""
    model.eval()
    right = torch.zeros(1, dtype=torch.int64)
    for indices in torch.arange(len(split.labels)).split(250)[rank::world]:
        x, y = split.load(indices)
        right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    return right.item() / len(split.labels)


def parse():
    parser = argparse.ArgumentParser(description="PyTorch DDP over Gloo on the job of `virga train`")
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet18")
    parser.add_argument("--data", default=FASHION_MNIST, help="folder with the four IDX .gz files")
    parser.add_argument("--batch-size", type=int, default=16, help="per rank")
    parser.add_argument("--hook", choices=["none", "fp16"], default="none")
    parser.add_argument("--bucket-cap-mb", type=float, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, help="stop by rank 0's clock instead of by --steps")
    parser.add_argument("--warmup-steps", type=int, default=2, help="first steps, left out of steps, time and median")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true", help="also measure the test accuracy at the end")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(options.seed)
    make, channels, size = MODELS[options.model]
    model = make()
    ddp = wrap(model, options)
    seconds, losses = train(ddp, Split(options.data, "train", channels, size), options, rank, world)
    result = {
        "system": "ddp-gloo", "torch": torch.__version__, "model": options.model, "hook": options.hook,
        "ranks": world, "threads": options.threads, "batch_size": options.batch_size,
        "bucket_cap_mb": options.bucket_cap_mb, "parameters": sum(p.numel() for p in model.parameters()),
        "steps": len(seconds), "step_seconds_median": statistics.median(seconds) if seconds else None,
        "train_loss": statistics.fmean(losses[-20:]),
    }
    if options.evaluate:
        result["test_accuracy"] = evaluate(model, Split(options.data, "t10k", channels, size), rank, world)
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
