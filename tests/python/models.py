"""Small models and data that several tests train on."""

from typing import List, Sequence, Tuple

import torch


def mlp(inputs: int = 6, hidden: int = 10, outputs: int = 3) -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, outputs))


def batch(rank: int, step: int, rows: int = 8, inputs: int = 6, outputs: int = 3) -> Tuple[torch.Tensor, torch.Tensor]:
    """What this rank sees in this step, [rows, inputs] and [rows, outputs]; every rank can make every rank's."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, inputs, generator=generator), torch.randn(rows, outputs, generator=generator)


def loss(model: torch.nn.Module, data: Tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return ((model(data[0]) - data[1]) ** 2).mean()


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])


def gradients(model: torch.nn.Module) -> torch.Tensor:
    return flat([torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()])


def local_gradients(model: torch.nn.Module, data: Tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Of this model on this data, flat; touches no ``.grad``."""
    parameters: List[torch.Tensor] = list(model.parameters())
    return flat(torch.autograd.grad(loss(model, data), parameters))
