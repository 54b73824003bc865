"""Backward passes that are not like the others: failed, nested, of two replicas at once, of a changed model."""

import time

import pytest
import torch
import virga.torch as virga
from models import batch, flat, gradients, local_gradients, loss, mlp
from ranks import on, run
from torch.utils.checkpoint import checkpoint

SPARSE = {"strategy": "topk", "density": 0.1, "value_dtype": "fp32"}


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def mean_of_all(model, ranks, step):
    return sum(local_gradients(model, batch(rank, step)) for rank in range(ranks)) / ranks


def same_everywhere(tensor):
    parts = virga.allgather(tensor.detach())
    return all(torch.equal(parts[0], part) for part in parts)


# ---- a pass that raises ----------------------------------------------------------------------------------------------


class OutOfMemory(RuntimeError):
    pass


def out_of_memory(_gradient):
    raise OutOfMemory


@on(ranks=2)
def test_a_pass_that_failed_before_anything_left_can_be_tried_again(job):
    for strategy in ("allreduce", "topk"):
        model = mlp()
        replica = virga.Replica(model, strategy=strategy, density=1.0, value_dtype="fp32")
        for step in range(3):
            hidden = model[0](batch(job.rank, step)[0])
            hidden.register_hook(out_of_memory)  # the last layer's gradients are there, the first's are not
            with pytest.raises(OutOfMemory):
                model[2](model[1](hidden)).sum().backward()
            model.zero_grad()
            expected = mean_of_all(model, 2, step)
            loss(model, batch(job.rank, step)).backward()
            torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-6)
        assert replica.stats()["steps"] == 3
        replica.set_strategy("fp16")
        replica.close()


def fails_when_some_has_left():
    job = virga.init(operation_timeout=30)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    virga.Replica(model, strategy="allreduce", bucket_bytes=4096)
    begin = time.monotonic()
    with pytest.raises(OutOfMemory if job.rank == 1 else virga.Error) as caught:
        hidden = model[0](torch.ones(2, 64))
        if job.rank == 1:
            hidden.register_hook(out_of_memory)
        model[3](model[2](model[1](hidden))).sum().backward()
    seconds = time.monotonic() - begin
    with pytest.raises(virga.Error) as again:  # caught or not, this rank can't go on as if nothing had been
        model(torch.ones(2, 64)).sum().backward()
    return [str(caught.value), str(again.value), seconds]


def test_a_pass_that_failed_when_some_had_left_ends_the_job_on_all_ranks():
    ranks = run("fails_when_some_has_left", 2)
    assert "rank 1" in ranks[0].value[0] and "backward" in ranks[0].value[0], ranks
    for rank in ranks:
        assert "rank 1" in rank.value[1] and rank.value[2] < 15, rank


# ---- passes inside passes --------------------------------------------------------------------------------------------


def through_blocks(blocks, x, reentrant):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=reentrant)
    return x


@on(ranks=2)
def test_checkpointing_that_is_not_reentrant_is_one_step(job):
    blocks = torch.nn.ModuleList([mlp(6, 10, 6) for _ in range(3)])
    for strategy in ("allreduce", "topk"):
        replica = virga.Replica(blocks, strategy=strategy, density=1.0, value_dtype="fp32", bucket_bytes=64)
        blocks.zero_grad()
        through_blocks(blocks, batch(job.rank, 0)[0], False).sum().backward()
        assert replica.stats()["steps"] == 1 and same_everywhere(gradients(blocks))
        replica.close()


@on(ranks=2)
def test_reentrant_checkpointing_is_refused_and_says_what_to_do(job):
    blocks = torch.nn.ModuleList([mlp(6, 10, 6) for _ in range(3)])
    replica = virga.Replica(blocks, strategy="allreduce")
    x = batch(job.rank, 0)[0].requires_grad_()
    with pytest.raises(virga.InvalidArgument, match="use_reentrant=False"):
        through_blocks(blocks, x, True).sum().backward()
    blocks.zero_grad()
    with replica.no_sync():
        through_blocks(blocks, x, True).sum().backward()  # where nothing is sent, it works
    assert replica.stats()["steps"] == 0
    replica.close()


# ---- two replicas ----------------------------------------------------------------------------------------------------


@on(ranks=2)
def test_a_second_replica_of_the_same_parameters_is_refused(job):
    model = mlp()
    first = virga.Replica(model, strategy="allreduce")
    for again in (model, torch.nn.Sequential(model, torch.nn.Linear(3, 1))):
        with pytest.raises(virga.InvalidArgument, match=r"close\(\)"):
            virga.Replica(again, strategy="allreduce")
    first.close()
    second = virga.Replica(model, strategy="allreduce")
    expected = mean_of_all(model, 2, 0)
    loss(model, batch(job.rank, 0)).backward()
    torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-6)
    second.close()


@on(ranks=2)
def test_two_replicas_in_one_pass(job):
    encoder, decoder = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
    both = torch.nn.Sequential(encoder, decoder)
    replicas = [virga.Replica(model, strategy="allreduce") for model in both]
    x = batch(job.rank, 0)[0]
    expected = sum(flat(torch.autograd.grad(both(batch(rank, 0)[0]).pow(2).sum(), list(both.parameters())))
                   for rank in range(2)) / 2
    both(x).pow(2).sum().backward()
    torch.testing.assert_close(gradients(both), expected, rtol=0, atol=1e-5)
    for replica in replicas:
        replica.close()


def replicas_cross():
    job = virga.init(operation_timeout=20)
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    virga.Replica(first, strategy="allreduce")
    virga.Replica(second, strategy="allreduce")
    x = torch.ones(1, 3)
    with pytest.raises(virga.Mismatch) as caught:
        (second(first(x)) if job.rank == 0 else first(second(x))).sum().backward()
        virga.barrier()
    return str(caught.value)


def test_replicas_whose_steps_cross_are_a_mismatch_not_a_wrong_sum():
    for rank in run("replicas_cross", 2):
        assert rank.value and "allreduce" in rank.value, rank


# ---- models that change ----------------------------------------------------------------------------------------------


@on(ranks=2)
def test_what_is_frozen_later_stays_as_it_is(job):
    for options in ({"strategy": "allreduce"}, SPARSE):
        model = mlp()
        optimizer = sgd(model)
        replica = virga.Replica(model, optimizer, **options)

        def step(number):
            optimizer.zero_grad(set_to_none=number % 2 == 0)
            loss(model, batch(job.rank, number)).backward()
            optimizer.step()

        for number in range(4):
            step(number)
        model[0].requires_grad_(False)
        before = flat(model[0].parameters()), flat(model[2].parameters())
        optimizer.zero_grad(set_to_none=True)
        for number in range(4, 8):
            step(number)
        assert torch.equal(flat(model[0].parameters()), before[0]), options
        assert not torch.equal(flat(model[2].parameters()), before[1])
        model[0].requires_grad_(True)
        step(8)
        assert not torch.equal(flat(model[0].parameters()), before[0])
        replica.end_epoch()
        replica.close()


@on(ranks=2)
def test_what_is_trained_only_later_is_refused(job):
    def unfrozen(model):
        model[0].weight.requires_grad_(True)

    def added(model):
        model.add_module("more", torch.nn.Linear(3, 3))

    def parametrised(model):
        torch.nn.utils.weight_norm(model[2])

    for change, name in ((unfrozen, "0.weight"), (added, "more.weight"), (parametrised, "2.weight_g")):
        model = mlp()
        model[0].weight.requires_grad_(False)
        replica = virga.Replica(model, strategy="allreduce")
        change(model)
        with pytest.raises(virga.InvalidArgument, match=f"'{name}'.*make a new one"):
            loss(model, batch(job.rank, 0)).backward()
        replica.close()
        model.zero_grad()
        replica = virga.Replica(model, strategy="allreduce")
        loss(model, batch(job.rank, 0)).backward()
        assert same_everywhere(gradients(model))
        replica.close()


@on(ranks=2)
def test_a_type_may_change_whatever_is_called(job):
    """Before torch 2.1 the hooks are on nodes that a change of type replaces."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp()
            self.attention = torch.nn.MultiheadAttention(6, 2)  # uses parameters of a child that it never calls

        def training_step(self, x):
            return self.inner(self.attention(x, x, x)[0]).sum()

    model = Model()
    replica = virga.Replica(model, strategy="allreduce")
    for number, kind in enumerate((torch.float64, torch.float32, torch.float64)):
        model.to(kind)
        model.zero_grad(set_to_none=True)
        model.training_step(batch(job.rank, 0)[0].to(kind)).backward()
        assert replica.stats()["steps"] == number + 1 and same_everywhere(gradients(model))
    replica.close()


@on(ranks=2)
def test_a_model_with_a_replica_can_be_traced(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    x = batch(job.rank, 0)[0]
    torch.testing.assert_close(torch.jit.trace(model, x)(x), model(x))
    replica.close()


def moved_to_shared_memory():
    virga.init()
    model = mlp()
    virga.Replica(model, strategy="allreduce")
    for number in range(3):
        model.zero_grad(set_to_none=False)
        try:
            loss(model, batch(0, number)).backward()
        except virga.InvalidArgument as error:
            return str(error)
        if number == 1:
            model.share_memory()
    return None


def test_gradients_that_move_to_shared_memory_are_an_error_not_a_crash():
    for rank in run("moved_to_shared_memory", 2):
        assert rank.status == 0 and "shared memory" in rank.value, rank


@on(ranks=2)
def test_a_replica_that_is_closed_in_a_pass_says_so(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    hidden = model[0](batch(job.rank, 0)[0])
    hidden.register_hook(lambda gradient: replica.close())
    with pytest.raises(virga.Unavailable, match="closed"):
        model[2](model[1](hidden)).sum().backward()
    with pytest.raises(virga.Unavailable, match="closed"):
        replica.stats()


# ---- wrong arguments -------------------------------------------------------------------------------------------------


@on(ranks=2)
def test_what_is_not_a_model_or_an_optimizer_is_refused(job):
    model = mlp()
    optimizer = sgd(model)
    wrapped = torch.nn.DataParallel(mlp())
    wrong = (((optimizer, model), "torch.nn.Module"), ((model.parameters(), optimizer), "torch.nn.Module"),
             ((model, "hitopk"), "optimizer"), ((wrapped,), ".module"))
    for arguments, text in wrong:
        with pytest.raises(virga.InvalidArgument, match=text):
            virga.Replica(*arguments)
    for bad in (0, -1, 2.5, None):
        with pytest.raises(virga.InvalidArgument, match="bucket_bytes"):
            virga.Replica(model, bucket_bytes=bad)
