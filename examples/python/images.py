"""Fashion-MNIST and networks for it: what fashion_mnist.py, ddp_hook.py and the benchmarks train. Needs torch alone.

The networks are those of `virga train` by the same names: the same layers, from the same seed the same initial values.
"""

import gzip
import struct
from typing import Iterator, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import nn

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"  # of Debian's dataset-fashion-mnist
MEAN, DEVIATION = 0.2860, 0.3530  # of its training pixels in 0..1


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


def lenet5() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them: the identity, or a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(),
            convolution(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs))
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = x if self.shortcut is None else self.shortcut(x)
        return self.body(x).add_(side).relu_()


def resnet(widths: Sequence[int], blocks: int) -> nn.Module:
    """A 3x3 stem, then for each width so many blocks; the first of every width but the first halves the image."""
    layers = [convolution(3, widths[0], 3, 1), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    inputs = widths[0]
    for width in widths:
        for _ in range(blocks):
            layers.append(BasicBlock(inputs, width, 1 if inputs == width else 2))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


# name -> (how it is made, channels, height and width of its input)
MODELS = {
    "mlp": (mlp, 1, 28),
    "lenet5": (lenet5, 1, 28),
    "resnet20": (lambda: resnet([16, 32, 64], 3), 3, 32),
    "resnet18": (lambda: resnet([64, 128, 256, 512], 2), 3, 32),
}


def read_idx(path: str) -> torch.Tensor:
    """A gzipped IDX file of bytes, as a uint8 tensor of the shape that the file says."""
    with gzip.open(path) as file:
        zeros, kind, dimensions = struct.unpack(">HBB", file.read(4))
        if zeros or kind != 8:
            raise ValueError(f"{path} is no IDX file of bytes")
        sizes = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(sizes)


class Split:
    """One split of the dataset ("train" or "t10k"), as a model by this name wants it."""

    def __init__(self, folder: str, name: str, model: str):
        self.images = read_idx(f"{folder}/{name}-images-idx3-ubyte.gz")
        self.labels = read_idx(f"{folder}/{name}-labels-idx1-ubyte.gz").long()
        _, self.channels, self.size = MODELS[model]

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, indices: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Images [n, channels, size, size], normalised, scaled and repeated over the channels; labels [n]."""
        x = self.images[indices].unsqueeze(1).float().div_(255).sub_(MEAN).div_(DEVIATION)
        if x.shape[-1] != self.size:
            x = F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        return x.expand(-1, self.channels, -1, -1), self.labels[indices]


def batches(count: int, batch_size: int, rank: int, world: int, seed: int) -> Iterator[torch.Tensor]:
    """The samples of this rank's batches, epoch after epoch without end. What all ranks together train on in a step
    depends on world * batch_size only; the last incomplete step of an epoch is dropped."""
    epoch, step = 0, world * batch_size
    if count < step:
        raise ValueError(f"{count} samples do not fill one step of {world} ranks with {batch_size} each")
    while True:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1000003 + epoch))
        for first in range(rank * batch_size, count // step * step, step):
            yield order[first:first + batch_size]
        epoch += 1


@torch.no_grad()
def count_right(model: nn.Module, split: Split, samples: int, rank: int, world: int) -> torch.Tensor:
    """How many of the first samples the model gets right, [1]; this rank's part: every world-th batch."""
    model.eval()
    right = torch.zeros(1)
    for indices in torch.arange(min(samples, len(split))).split(250)[rank::world]:
        x, y = split.load(indices)
        right += (model(x).argmax(1) == y).sum()
    model.train()
    return right
