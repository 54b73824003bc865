"""What training comes to, against references that this file computes by itself for all ranks."""

import copy
import math

import pytest
import torch
import virga.torch as virga
from models import batch, flat, local_gradients, loss, mlp
from ranks import on

STEPS = 12


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def train(job, model, **options):
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, batch(job.rank, step)).backward()
        optimizer.step()
    digest = replica.end_epoch()  # raises unless parameters are the same bits on all ranks
    assert len(digest) == 64
    replica.close()
    return flat(model.parameters())


def train_alone(model, world):
    """One process on the batches of all ranks, one behind the other."""
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        batches = [batch(rank, step) for rank in range(world)]
        loss(model, tuple(torch.cat(parts) for parts in zip(*batches))).backward()
        optimizer.step()
    return flat(model.parameters())


def dense_is_one_process(job):
    model = mlp()
    expected = train_alone(copy.deepcopy(model), job.world_size)
    trained = train(job, model, strategy="allreduce")
    torch.testing.assert_close(trained, expected, rtol=0, atol=1e-6)


@on(ranks=2)
def test_dense_on_two_ranks_is_one_process_on_both_batches(job):
    dense_is_one_process(job)


@on(ranks=3)
def test_dense_on_three_ranks_is_one_process_on_all_batches(job):
    dense_is_one_process(job)


@on(ranks=4, hosts=2)
def test_dense_on_two_hosts_is_one_process_on_all_batches(job):
    dense_is_one_process(job)


@on(ranks=4, hosts=2)
def test_fp16_between_hosts_is_dense_rounded(job):
    model = mlp()
    expected = train_alone(copy.deepcopy(model), job.world_size)
    trained = train(job, model, strategy="fp16")
    torch.testing.assert_close(trained, expected, rtol=0, atol=5e-3)
    assert not torch.allclose(trained, expected, rtol=0, atol=1e-7), "nothing was rounded: fp16 did not travel as fp16"


# ---- sparse: a reference that simulates all ranks ------------------------------------------------------------------


def buckets_of(model, bucket_bytes):
    """Ranges of the flat gradient, from the back, each closed as soon as it holds bucket_bytes of fp32."""
    sizes = [parameter.numel() for parameter in model.parameters()]
    ranges, end = [], sum(sizes)
    begin = end
    for index in reversed(range(len(sizes))):
        begin -= sizes[index]
        if 4 * (end - begin) >= bucket_bytes or index == 0:
            ranges.append((begin, end))
            end = begin
    return ranges


def shards_of(begin, end, count):
    base, extra = divmod(end - begin, count)
    borders = [begin + base * shard + min(shard, extra) for shard in range(count + 1)]
    return list(zip(borders, borders[1:]))


def select(residual, gradient, density):
    """Adds the gradient to the residual, takes the largest out and returns them, the rest zero."""
    residual += gradient
    count = max(1, min(residual.numel(), math.floor(density * residual.numel() + 0.5)))
    chosen = torch.zeros_like(residual)
    indices = residual.abs().topk(count).indices
    chosen[indices] = residual[indices]
    residual[indices] = 0
    return chosen


class SimulatedTopK:
    """Every rank selects by itself in every bucket."""

    def __init__(self, model, hosts, density, bucket_bytes):
        self.density, self.members = density, [rank for host in hosts for rank in host]
        self.ranges = buckets_of(model, bucket_bytes)
        total = sum(parameter.numel() for parameter in model.parameters())
        self.residuals = [torch.zeros(total) for _ in self.members]

    def contributions(self, gradients):
        return [gradient / len(gradients) for gradient in gradients]

    def mean(self, gradients):
        result = torch.zeros_like(gradients[0])
        contributions = self.contributions(gradients)
        for begin, end in self.ranges:
            for residual, contribution in zip(self.residuals, contributions):
                result[begin:end] += select(residual[begin:end], contribution[begin:end], self.density)
        return result


class SimulatedHiTopK(SimulatedTopK):
    """Every host sums its ranks and selects in every shard of every bucket."""

    def __init__(self, model, hosts, density, bucket_bytes):
        super().__init__(model, hosts, density, bucket_bytes)
        self.hosts, self.residuals = hosts, self.residuals[:len(hosts)]
        self.ranges = [shard for begin, end in self.ranges for shard in shards_of(begin, end, len(hosts[0]))]

    def contributions(self, gradients):
        return [sum(gradients[rank] for rank in host) / len(gradients) for host in self.hosts]


def sparse_is_the_reference(job, strategy, density, bucket_bytes):
    hosts = [[rank for rank in range(job.world_size) if job.core.host_of(rank) == host] for host in range(job.hosts)]
    model = mlp()
    alone = copy.deepcopy(model)
    simulated = {"topk": SimulatedTopK, "hitopk": SimulatedHiTopK}[strategy](alone, hosts, density, bucket_bytes)
    optimizer = sgd(alone)
    for step in range(STEPS):
        gradients = [local_gradients(alone, batch(rank, step)) for rank in range(job.world_size)]
        torch.nn.utils.vector_to_parameters(simulated.mean(gradients), parts := [p.clone() for p in alone.parameters()])
        for parameter, part in zip(alone.parameters(), parts):
            parameter.grad = part.detach()
        optimizer.step()
    trained = train(job, model, strategy=strategy, density=density, value_dtype="fp32", bucket_bytes=bucket_bytes)
    torch.testing.assert_close(trained, flat(alone.parameters()), rtol=0, atol=1e-6)


@on(ranks=3)
def test_topk_is_the_reference(job):
    sparse_is_the_reference(job, "topk", 0.1, 1 << 20)


@on(ranks=3)
def test_topk_in_many_buckets_is_the_reference(job):
    sparse_is_the_reference(job, "topk", 0.1, 4)


@on(ranks=2)
def test_hitopk_on_one_host_is_the_reference(job):
    sparse_is_the_reference(job, "hitopk", 0.1, 1 << 20)


@on(ranks=3)
def test_hitopk_with_uneven_shards_is_the_reference(job):
    sparse_is_the_reference(job, "hitopk", 0.05, 100)


@on(ranks=4, hosts=2)
def test_hitopk_on_two_hosts_is_the_reference(job):
    assert job.hosts == 2
    sparse_is_the_reference(job, "hitopk", 0.1, 1 << 20)


@on(ranks=4, hosts=2)
def test_topk_on_two_hosts_is_the_reference(job):
    sparse_is_the_reference(job, "topk", 0.1, 100)


@on(ranks=3)
def test_every_strategy_and_dtype_leaves_equal_bits_and_learns(job):
    for strategy in virga.strategies():
        for value_dtype in ("fp32", "fp16", "bf16"):
            torch.manual_seed(1)
            model = mlp()
            before = loss(model, batch(0, 0)).item()
            train(job, model, strategy=strategy, density=0.3, value_dtype=value_dtype)
            assert loss(model, batch(0, 0)).item() < before, (strategy, value_dtype)


@on(ranks=2)
def test_without_error_feedback_what_is_not_sent_is_lost(job):
    model = torch.nn.Linear(20, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    replica = virga.Replica(model, optimizer, strategy="topk", density=0.05, value_dtype="fp32", error_feedback=False)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.arange(1.0, 21.0)).sum().backward()
        optimizer.step()
    assert torch.count_nonzero(model.weight) == 1, "only the largest element may ever have been sent"
    assert all(torch.count_nonzero(residual) == 0 for residual in replica.state_dict()["residuals"])
    replica.close()


def test_alone_it_is_a_job_of_one():
    job = virga.init()
    try:
        assert (job.rank, job.world_size, job.hosts) == (0, 1, 1)
        torch.manual_seed(1)
        model = mlp()
        expected = train_alone(copy.deepcopy(model), 1)
        torch.testing.assert_close(train(job, model, strategy="allreduce"), expected, rtol=0, atol=1e-7)
    finally:
        virga.shutdown()
    assert not virga.is_initialized()
    with pytest.raises(virga.Unavailable, match="virga.init"):
        virga.barrier()
