"""attach(): a model that stays in DistributedDataParallel."""

import copy
import gc
import sys
import threading

import pytest
import torch
import torch.distributed
import virga.torch as virga
from models import batch, flat, gradients, loss, mlp
from ranks import on
from torch.nn.parallel import DistributedDataParallel

STEPS = 8


def start_gloo(job):
    """DDP's own group of all ranks; they meet in a file in the folder of this run."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/gloo", rank=job.rank,
                                             world_size=job.world_size)


def deep(layers=4, width=330):
    """Parameters of 2 MB: DDP's first bucket takes one MiB whatever it is told."""
    parts = [torch.nn.Linear(6, width)]
    for index in range(layers):
        parts += [torch.nn.Tanh(), torch.nn.Linear(width + index, width + index + 1)]
    return torch.nn.Sequential(*parts, torch.nn.Tanh(), torch.nn.Linear(width + layers, 3))


def train(model, rank, steps=STEPS):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss(model, batch(rank, step)).backward()
        optimizer.step()
    return flat(model.parameters())


def wrapped(model, bucket_bytes=25 << 20, **options):
    return DistributedDataParallel(model, bucket_cap_mb=bucket_bytes / (1 << 20), **options)


@on(ranks=2)
def test_dense_is_what_ddp_computes(job):
    start_gloo(job)
    for bucket_bytes in (25 << 20, 1 << 19, 4):
        torch.manual_seed(1)
        model = deep()
        plain = train(wrapped(copy.deepcopy(model), bucket_bytes), job.rank)
        ddp = wrapped(model, bucket_bytes)
        virga.attach(ddp, strategy="allreduce")
        torch.testing.assert_close(train(ddp, job.rank), plain, rtol=0, atol=1e-6)


@on(ranks=3)
def test_dense_on_three_ranks_is_what_ddp_computes(job):
    start_gloo(job)
    model = deep()
    plain = train(wrapped(copy.deepcopy(model)), job.rank)
    ddp = wrapped(model, 1 << 19)
    virga.attach(ddp, strategy="allreduce")
    torch.testing.assert_close(train(ddp, job.rank), plain, rtol=0, atol=1e-6)


@on(ranks=3)
def test_sparse_leaves_equal_bits(job):
    start_gloo(job)
    for strategy in ("topk", "hitopk", "fp16"):
        torch.manual_seed(1)
        ddp = wrapped(deep(), 1 << 19)
        virga.attach(ddp, strategy=strategy, density=0.1)
        parts = virga.allgather(train(ddp, job.rank))
        assert all(torch.equal(part, parts[0]) for part in parts), strategy


@on(ranks=3)
def test_one_bucket_of_topk_is_what_a_replica_computes(job):
    """The same order of parameters in memory, so the same selection: a model of one parameter."""
    start_gloo(job)
    options = {"strategy": "topk", "density": 0.1, "value_dtype": "fp32"}
    model = torch.nn.Linear(6, 3, bias=False)
    other = copy.deepcopy(model)
    ddp = wrapped(model)
    virga.attach(ddp, **options)
    replica = virga.Replica(other, **options)
    assert torch.equal(train(ddp, job.rank), train(other, job.rank))
    replica.close()


class Constant(torch.nn.Module):
    """Its gradient is what it is given. Parameters are used one after the other and backward completes them from the
    last to the first."""

    def __init__(self, sizes):
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(size)) for size in sizes])

    def forward(self, gradient):
        total = gradient.new_zeros(())
        pieces = gradient.split([part.numel() for part in self.parts])
        for part, piece in zip(self.parts, pieces):
            total = torch.tanh(total) * 0 + total + (part * piece).sum()
        return total


def gradient_of(rank, step, elements):
    return torch.randn(elements, generator=torch.Generator().manual_seed(100 * step + rank))


def held_back(attached, parameters):
    """By parameter, what this rank has not sent: of its buckets, and of those that are no more."""
    where = {id(parameter): torch.zeros(parameter.numel()) for parameter in parameters}
    for members, _, exchange in attached._exchanges.values():
        begin = 0
        flat_residual = torch.cat([torch.zeros(0)] + [values for values in residuals_of(exchange)])
        for parameter in members:
            where[id(parameter)] += flat_residual[begin:begin + parameter.numel()]
            begin += parameter.numel()
    for parameter, values in attached._carried.items():
        where[id(parameter)] += values
    return torch.cat([where[id(parameter)] for parameter in parameters])


def residuals_of(exchange):
    from virga.torch.recall import copy_of
    return [copy_of(address, count) for _, address, count in exchange.residuals()]


@on(ranks=2)
def test_rebuilt_buckets_keep_their_residuals(job):
    start_gloo(job)
    # One bucket to begin with, then several, from the last parameter on.
    for kilo in ([300, 70, 500, 110, 400], [300, 70, 500, 110, 200, 400]):
        sizes = [1000 * size for size in kilo]
        model = Constant(sizes)
        ddp = wrapped(model, 1 << 20)
        attached = virga.attach(ddp, strategy="topk", density=0.1, value_dtype="fp32")
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        total, layouts = torch.zeros(sum(sizes)), set()
        for step in range(5):
            optimizer.zero_grad()
            ddp(gradient_of(job.rank, step, sum(sizes))).backward()
            optimizer.step()
            layouts.add(tuple(attached._exchanges))
            total += sum(gradient_of(rank, step, sum(sizes)) for rank in range(2)) / 2
            waiting = virga.allreduce(held_back(attached, list(model.parameters())))
            applied = -flat(model.parameters())
            assert not torch.allclose(applied, total, rtol=0, atol=1e-3), "everything was sent"
            torch.testing.assert_close(applied + waiting, total, rtol=0, atol=1e-5)
        assert len(layouts) == 2, "DDP was to rebuild its buckets"


@on(ranks=2)
def test_many_buckets_of_a_larger_model(job):
    start_gloo(job)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)])  # 6 MiB
    ddp = DistributedDataParallel(model, bucket_cap_mb=1)
    attached = virga.attach(ddp, strategy="hitopk", density=0.01)
    for step in range(3):
        ddp.zero_grad()
        ddp(torch.randn(4, 512)).pow(2).mean().backward()
        parts = virga.allgather(torch.stack([p.grad.double().sum() for p in model.parameters()]))
        assert torch.equal(parts[0], parts[1])
    assert len(attached._exchanges) >= 5


@on(ranks=2)
def test_ddp_s_no_sync_and_unused_parameters(job):
    start_gloo(job)

    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = torch.nn.Linear(6, 3), torch.nn.Linear(6, 3)

        def forward(self, x):
            return self.left(x) if self.training else self.right(x)

    model = Heads()
    plain = wrapped(copy.deepcopy(model), find_unused_parameters=True)
    ddp = wrapped(model, find_unused_parameters=True)
    virga.attach(ddp, strategy="allreduce")
    for which in (plain, ddp):
        with which.no_sync():
            loss(which, batch(job.rank, 0)).backward()
        loss(which, batch(job.rank, 1)).backward()
    torch.testing.assert_close(gradients(ddp), gradients(plain), rtol=0, atol=1e-6)


@on(ranks=2)
def test_not_a_number_reaches_all_ranks(job):
    start_gloo(job)
    for strategy in virga.strategies():
        ddp = wrapped(mlp())
        virga.attach(ddp, strategy=strategy)
        value = loss(ddp, batch(job.rank, 0))
        (value * float("nan") if job.rank == 1 else value).backward()
        assert not torch.isfinite(gradients(ddp)).all(), strategy


@on(ranks=2)
def test_wrong_use_is_refused(job):
    start_gloo(job)
    with pytest.raises(virga.InvalidArgument, match="Replica"):
        virga.attach(mlp())
    ddp = wrapped(mlp())
    with pytest.raises(virga.InvalidArgument, match="known are "):
        virga.attach(ddp, strategy="smoke")
    for bad in ({"density": 0.0}, {"density": 2.0}, {"value_dtype": "int8"}):
        with pytest.raises(virga.InvalidArgument):
            virga.attach(ddp, strategy="topk", **bad)
    with pytest.raises(virga.Mismatch, match="density"):
        virga.attach(ddp, strategy="topk", density=(0.1, 0.2)[job.rank])
    alone = torch.distributed.new_group([0]), torch.distributed.new_group([1])
    with pytest.raises(virga.InvalidArgument, match="rank"):
        virga.attach(DistributedDataParallel(mlp(), process_group=alone[job.rank]))
    virga.attach(ddp, strategy="allreduce")  # what was refused has left nothing behind
    loss(ddp, batch(job.rank, 0)).backward()
    with pytest.raises(RuntimeError):
        virga.attach(ddp, strategy="allreduce")


@on(ranks=2)
def test_a_model_that_is_gone_leaves_no_thread(job):
    start_gloo(job)
    before = set(threading.enumerate())  # that of a model of an earlier test may end meanwhile
    for _ in range(3):
        ddp = wrapped(mlp())
        attached = virga.attach(ddp, strategy="hitopk")
        loss(ddp, batch(job.rank, 0)).backward()
        thread = attached._thread
        del ddp, attached
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()
    assert not [thread for thread in threading.enumerate() if thread.name == "virga-ddp" and thread not in before]


@on(ranks=2)
def test_two_models_side_by_side(job):
    start_gloo(job)
    models = [wrapped(mlp()), wrapped(mlp())]
    for model, strategy in zip(models, ("topk", "allreduce")):
        virga.attach(model, strategy=strategy)
    (loss(models[0], batch(job.rank, 0))).backward()
    (loss(models[1], batch(job.rank, 0))).backward()
    for model in models:
        parts = virga.allgather(gradients(model))
        assert torch.equal(parts[0], parts[1])
