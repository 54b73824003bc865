#!/usr/bin/env python3
"""Trains a small GPT-like model to predict a text character by character, alone or on any number of ranks.

    python3 char_transformer.py --steps 500
    python3 char_transformer.py --text anything.txt --width 256 --layers 6 --context 128
    virga run -n 2 python3 char_transformer.py --strategy allreduce
    virga lab --hosts 4 --rate 200mbit -- python3 char_transformer.py --strategy hitopk --threads 1

Without --text it is the King James Bible of Debian's bible-kjv-text. Lines that Virga asks for are marked. Rank 0
prints; the last line is a JSON object.
"""

import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import time
from typing import Tuple

import torch
import torch.nn.functional as F
import virga.torch as virga  # Virga
from torch import nn

BIBLE = "/usr/lib/bible.data"
LZW_MAGIC = b"\x1f\x9d\x90"  # of `compress`, which gzip reads, too


class CharTransformer(nn.Module):
    """Characters [n, length] to logits [n, length, characters]; length is at most ``context``. The embedding is the
    output layer, too: a tied weight is sent once."""

    def __init__(self, characters: int, context: int, width: int, heads: int, layers: int):
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
                                       norm_first=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, characters, bias=False)
        for embedding in (self.characters, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.output.weight = self.characters.weight
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        x = self.characters(text) + self.positions.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=self.future[:length, :length])
        return self.output(self.norm(x))


def read_text(path: str) -> bytes:
    """A text file, or the Bible's data file: a header, then pieces of the text, each compressed by itself."""
    data = pathlib.Path(path).read_bytes()
    if not data.startswith(b"EC02Compressed Data File"):
        return data
    pieces, = struct.unpack_from(">I", data, 88)
    offsets = struct.unpack_from(f">{pieces + 1}I", data, 92)
    return b"".join(
        subprocess.run(["gzip", "-dc"], input=LZW_MAGIC + data[begin:end], stdout=subprocess.PIPE, check=True).stdout
        for begin, end in zip(offsets, offsets[1:]))


def encode(text: bytes) -> Tuple[torch.Tensor, int]:
    """The text as numbers 0..n-1 of its characters [length], and n."""
    raw = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    known, numbers = torch.unique(raw, return_inverse=True)
    return numbers, len(known)


def windows(text: torch.Tensor, starts: torch.Tensor, context: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """From each start, ``context`` characters and those that follow each of them: two tensors [n, context]."""
    taken = text[starts.unsqueeze(1) + torch.arange(context + 1)]
    return taken[:, :-1], taken[:, 1:]


def batch(text: torch.Tensor, step: int, rank: int, world: int, options) -> Tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of a step's windows, which depend on seed, step and world * batch_size only."""
    draw = torch.Generator().manual_seed(options.seed * 1000003 + step)
    starts = torch.randint(len(text) - options.context, (world * options.batch_size,), generator=draw)
    mine = starts[rank * options.batch_size:(rank + 1) * options.batch_size]
    return windows(text, mine, options.context)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def validation_loss(model: nn.Module, text: torch.Tensor, options) -> float:
    """Mean over windows spread evenly over a text that was not trained on; the same on all ranks."""
    starts = torch.linspace(0, len(text) - options.context - 1, options.validation_windows).long()
    parts = [loss_of(model, *windows(text, part, options.context)).item() * len(part) for part in starts.split(64)]
    return sum(parts) / options.validation_windows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a character model as one rank of a job")
    parser.add_argument("--text", default=BIBLE, help="any text file")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=64, help="how many characters it sees")
    parser.add_argument("--strategy", choices=virga.strategies(), default="hitopk")
    parser.add_argument("--density", type=float, default=0.01, help="kept / all gradients")
    parser.add_argument("--batch-size", type=int, default=16, help="windows of one rank in a step")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--warmup-steps", type=int, default=50, help="of linear warm-up of the learning rate")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--lr", type=float, default=1.0, help="adam wants less: 0.003")
    parser.add_argument("--momentum", type=float, default=0.5, help="of adam: beta 1; sparse gradients want less")
    parser.add_argument("--clip", type=float, default=1.0, help="bound of the norm of the mean gradient")
    parser.add_argument("--seed", type=int, default=1, help="of initial values and windows")
    parser.add_argument("--threads", type=int, default=0, help="for computing; 0: as torch chooses")
    parser.add_argument("--validation-windows", type=int, default=512)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    job = virga.init(settings=vars(options))  # Virga
    torch.manual_seed(options.seed)
    text, characters = encode(read_text(options.text))
    train, validation = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    model = CharTransformer(characters, options.context, options.width, options.heads, options.layers)
    if options.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=options.lr, betas=(options.momentum, 0.999))
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / options.warmup_steps))
    replica = virga.Replica(model, optimizer, strategy=options.strategy, density=options.density)  # Virga

    losses, seconds = [], []
    for step in range(1, options.steps + 1):
        begin = time.perf_counter()
        x, y = batch(train, step, job.rank, job.world_size, options)
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()  # gradients travel meanwhile; then they are the mean over all ranks
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)  # of the mean: the same on all ranks
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        if job.rank == 0 and (step % 50 == 0 or step == options.steps):
            print(f"step {step} of {options.steps}: loss {statistics.fmean(losses[-50:]):.4f}, "
                  f"{statistics.median(seconds):.4f} s a step", flush=True)

    digest = replica.end_epoch()  # Virga: raises unless all ranks hold the same parameters
    mean_loss = virga.allreduce(torch.tensor([statistics.fmean(losses[-50:])]), op="mean").item()  # Virga
    if job.rank == 0:
        print(json.dumps({
            "strategy": options.strategy, "ranks": job.world_size, "hosts": job.hosts, "characters": characters,
            "parameters": sum(p.numel() for p in model.parameters()), "steps": options.steps, "train_loss": mean_loss,
            "validation_loss": validation_loss(model, validation, options),
            "step_seconds_median": statistics.median(seconds), "parameters_sha256": digest, **replica.stats(),
        }), flush=True)


if __name__ == "__main__":
    main()
