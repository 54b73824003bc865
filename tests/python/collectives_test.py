"""Collectives on tensors: values, memory, types, groups, what is refused."""

import os
import re

import pytest
import torch
import virga.torch as virga
from ranks import on, run


def mine(job, elements=1000, dtype=torch.float32, rank=None):
    """Whole numbers: sums are exact in any order."""
    generator = torch.Generator().manual_seed(job.rank if rank is None else rank)
    return torch.randint(-100, 100, (elements,), generator=generator).to(dtype)


def total(job, elements=1000, ranks=None):
    return sum(mine(job, elements, rank=rank) for rank in (range(job.world_size) if ranks is None else ranks))


@on(ranks=3)
def test_allreduce_sums_and_averages_in_place(job):
    for elements in (0, 1, 2, 7, 1000, 70001):
        tensor = mine(job, elements)
        where = tensor.data_ptr()
        assert virga.allreduce(tensor) is tensor
        assert tensor.data_ptr() == where and torch.equal(tensor, total(job, elements))
    tensor = virga.allreduce(mine(job), op="mean")
    torch.testing.assert_close(tensor, total(job) / 3)
    shaped = mine(job, 24).view(2, 3, 4)
    assert virga.allreduce(shaped).shape == (2, 3, 4)


REDUCTIONS = {"sum": lambda all: all.sum(0), "mean": lambda all: all.sum(0) / len(all),
              "min": lambda all: all.min(0).values, "max": lambda all: all.max(0).values}


@on(ranks=3)
def test_every_type_and_reduction(job):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        for op, reduce in REDUCTIONS.items():
            if op == "mean" and not dtype.is_floating_point:
                continue
            # halves are added up in float32 and rounded once a member: whole numbers this small need no rounding
            every = torch.stack([mine(job, 101, rank=rank) for rank in range(3)]).clamp(-40, 40).double()
            expected = reduce(every)
            tensor = every[job.rank].to(dtype)
            shard = virga.reduce_scatter(tensor, op)
            assert virga.allreduce(tensor, op).dtype == dtype
            tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-6) if op == "mean" else 0
            torch.testing.assert_close(tensor.double(), expected, rtol=tolerance, atol=tolerance)
            begin, end = [(0, 34), (34, 68), (68, 101)][job.rank]
            assert torch.equal(shard, tensor[begin:end]), (dtype, op)
    large = virga.allreduce(torch.full((3,), 2**40 + job.rank))
    assert large.tolist() == [3 * 2**40 + 3] * 3, "int64 went through a float"


@on(ranks=3)
def test_tensors_that_are_not_contiguous(job):
    base = torch.zeros(10, 20)
    base[:, ::2] = mine(job, 100).view(10, 10)
    strided = base[:, ::2]
    virga.allreduce(strided)
    assert torch.equal(strided.reshape(-1), total(job, 100))
    assert torch.count_nonzero(base[:, 1::2]) == 0, "elements beside the view were written"
    turned = mine(job, 12).view(3, 4).t()
    virga.broadcast(turned, root=1)
    assert torch.equal(turned, mine(job, 12, rank=1).view(3, 4).t())
    gathered = virga.allgather(mine(job, 12).view(3, 4).t())
    for rank, part in enumerate(gathered):
        assert torch.equal(part, mine(job, 12, rank=rank).view(3, 4).t())
    assert virga.reduce_scatter(mine(job, 12).view(3, 4).t()).numel() == 4


@on(ranks=3)
def test_tensors_that_are_conjugated_or_negated_only_in_name(job):
    """On rank 1 they are; elsewhere bytes are values."""

    def conjugated():
        lazy = torch.complex(mine(job), mine(job)).conj()
        return lazy if job.rank == 1 else lazy.resolve_conj()

    def negated():
        lazy = torch.complex(mine(job), mine(job)).conj().imag
        assert lazy.is_neg()
        return lazy if job.rank == 1 else lazy.resolve_neg()

    from_0 = torch.complex(mine(job, rank=0), -mine(job, rank=0))
    from_1 = torch.complex(mine(job, rank=1), -mine(job, rank=1))
    assert torch.equal(virga.broadcast(conjugated(), root=1), from_1)
    received = conjugated()
    virga.broadcast(received, root=0, async_op=True).wait()
    assert torch.equal(received, from_0)
    assert torch.equal(virga.allgather(conjugated())[1], from_1)
    assert torch.equal(virga.broadcast(negated(), root=1), -mine(job, rank=1))
    assert torch.equal(virga.allreduce(negated()), -total(job))
    assert torch.equal(virga.reduce_scatter(negated()[:3]), -total(job)[job.rank:job.rank + 1])
    summed = virga.allreduce_sparse(negated(), virga.Residual(1000), 1.0, value_dtype="fp32")
    assert torch.equal(summed, -total(job))


@on(ranks=3)
def test_parameters_that_require_gradients(job):
    parameter = torch.nn.Parameter(mine(job))
    virga.allreduce(parameter)
    assert torch.equal(parameter.detach(), total(job)) and parameter.requires_grad and parameter.grad_fn is None


@on(ranks=3)
def test_broadcast_of_any_type_from_any_root(job):
    kinds = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
    for root, dtype in enumerate(kinds):
        root %= 3
        tensor = mine(job, 33, dtype)
        virga.broadcast(tensor, root=root)
        assert torch.equal(tensor, mine(job, 33, dtype, rank=root)), dtype
    scalar = torch.tensor(float(job.rank))
    assert virga.broadcast(scalar, root=2).item() == 2
    virga.broadcast(torch.zeros(0))


@on(ranks=3)
def test_allgather_of_any_type(job):
    for dtype in (torch.float32, torch.float16, torch.int32, torch.bool):
        gathered = virga.allgather(mine(job, 6, dtype).view(2, 3))
        assert gathered.shape == (3, 2, 3) and gathered.dtype == dtype
        for rank in range(3):
            assert torch.equal(gathered[rank].reshape(-1), mine(job, 6, dtype, rank=rank))
    assert virga.allgather(torch.zeros(0, 4)).shape == (3, 0, 4)
    assert virga.allgather(torch.tensor(job.rank)).tolist() == [0, 1, 2]


@on(ranks=3)
def test_reduce_scatter_gives_each_its_shard(job):
    for elements in (0, 1, 2, 3, 10, 1001):
        tensor = mine(job, elements)
        shard = virga.reduce_scatter(tensor)
        base, extra = divmod(elements, 3)
        begin = base * job.rank + min(job.rank, extra)
        assert torch.equal(shard, total(job, elements)[begin:begin + base + (1 if job.rank < extra else 0)])
        assert torch.equal(tensor, mine(job, elements)), "the input changed"


@on(ranks=3)
def test_many_at_once_and_out_of_order(job):
    tensors = [mine(job, elements) for elements in (100000, 1, 5000, 0, 77)]
    works = [virga.allreduce(tensor, async_op=True) for tensor in tensors]
    gathered = virga.allgather(torch.tensor(job.rank), async_op=True)
    sent = virga.broadcast(mine(job, 9), root=1, async_op=True)
    scattered = virga.reduce_scatter(mine(job, 9), async_op=True)
    for work, tensor in reversed(list(zip(works, tensors))):
        assert work.wait() is tensor and torch.equal(tensor, total(job, tensor.numel()))
        assert work.done()
        work.wait()  # a second time costs nothing
    assert torch.equal(scattered.wait(), total(job, 9)[3 * job.rank:3 * job.rank + 3])
    assert torch.equal(sent.wait(), mine(job, 9, rank=1))
    assert gathered.wait().tolist() == [0, 1, 2]


@on(ranks=3)
def test_work_that_is_dropped_holds_its_memory(job):
    for _ in range(3):
        virga.allreduce(torch.ones(200000), async_op=True)
    assert virga.allreduce(torch.ones(3)).tolist() == [3, 3, 3]


@on(ranks=3)
def test_a_strided_tensor_arrives_when_waited_for(job):
    base = torch.zeros(8, 2)
    base[:, 0] = mine(job, 8)
    virga.allreduce(base[:, 0], async_op=True).wait()
    assert torch.equal(base[:, 0], total(job, 8)) and torch.count_nonzero(base[:, 1]) == 0


@on(ranks=3)
def test_groups(job):
    pair = virga.new_group([2, 0] if job.rank == 0 else [0, 2])  # sorted: no matter how it was given
    assert pair.ranks == [0, 2] and pair.size == 2 and 0 in pair and 1 not in pair
    if job.rank in pair:
        assert torch.equal(virga.allreduce(mine(job), group=pair), total(job, ranks=(0, 2)))
        torch.testing.assert_close(virga.allreduce(mine(job), "mean", group=pair), total(job, ranks=(0, 2)) / 2)
        assert virga.allgather(torch.tensor(job.rank), group=pair).tolist() == [0, 2]
        assert virga.broadcast(torch.tensor(job.rank), root=2, group=pair).item() == 2
        shard = virga.reduce_scatter(mine(job, 10), group=pair)
        assert torch.equal(shard, total(job, 10, (0, 2))[(5 if job.rank == 2 else 0):][:5])
        residual = virga.Residual(100, group=pair)
        summed = virga.allreduce_sparse(mine(job, 100), residual, density=1.0, value_dtype="fp32")
        assert torch.equal(summed, total(job, 100, (0, 2)))
        virga.barrier(group=pair)
    else:
        for call in (lambda: virga.allreduce(mine(job), group=pair), lambda: virga.barrier(group=pair),
                     lambda: virga.allgather(mine(job), group=pair), lambda: virga.Residual(10, group=pair)):
            with pytest.raises(virga.InvalidArgument, match="not a member"):
                call()
    for bad in ([], [0, 0], [3], [-1]):
        with pytest.raises(virga.InvalidArgument):
            virga.new_group(bad)
    alone = virga.new_group([job.rank])
    assert torch.equal(virga.allreduce(mine(job), group=alone), mine(job))


@on(ranks=3)
def test_sparse_allreduce_sends_the_largest_and_keeps_the_rest(job):
    group = virga.new_group([0, 1, 2])
    residual = virga.Residual(50, group=group)
    whole, received = torch.zeros(50), torch.zeros(50)
    for step in range(20):
        tensor = torch.randn(50, generator=torch.Generator().manual_seed(10 * step + job.rank))
        whole += virga.allreduce(tensor.clone())
        sent = virga.allreduce_sparse(tensor, residual, density=0.1, value_dtype="fp32")
        assert sent is tensor and 5 <= torch.count_nonzero(sent) <= 15
        parts = virga.allgather(sent)
        assert torch.equal(parts[0], parts[1]) and torch.equal(parts[0], parts[2])
        received += sent
    received += virga.allreduce_sparse(torch.zeros(50), residual, density=1.0, value_dtype="fp32")
    torch.testing.assert_close(received, whole, rtol=0, atol=1e-4)
    everything = virga.allreduce_sparse(mine(job, 64), virga.Residual(64), 1.0, "mean", value_dtype="fp32")
    torch.testing.assert_close(everything, total(job, 64) / 3)


@on(ranks=3)
def test_what_is_refused_before_anything_is_sent(job):
    whole = torch.zeros(4)
    residual = virga.Residual(4)
    refused = {
        "takes float32, float64, .* int64, not bool": lambda: virga.allreduce(whole.bool()),
        "int64, not complex64": lambda: virga.reduce_scatter(whole.to(torch.complex64)),
        "float32, not float64": lambda: virga.allreduce_sparse(whole.double(), residual),
        "no mean of int32": lambda: virga.allreduce(whole.int(), op="mean"),
        "travel as fp16, not sum of float64": lambda: virga.allreduce(whole.double(), wire="fp16"),
        "not list": lambda: virga.allreduce([1.0]),
        "sum, mean, min, max": lambda: virga.allreduce(whole, op="prod"),
        "travel as fp16, not max of float32": lambda: virga.allreduce(whole, op="max", wire="fp16"),
        "fp32": lambda: virga.allreduce(whole, wire="int8"),
        "root 3": lambda: virga.broadcast(whole, root=3),
        "root -1": lambda: virga.broadcast(whole, root=-1),
        "needs a virga.Residual": lambda: virga.allreduce_sparse(whole, None),
        "4 elements for a tensor of 5": lambda: virga.allreduce_sparse(torch.zeros(5), residual),
        r"outside \(0, 1\]": lambda: virga.allreduce_sparse(whole, residual, density=0.0),
        "known are fp32, fp16, bf16": lambda: virga.allreduce_sparse(whole, residual, value_dtype="fp8"),
        "takes a tensor": lambda: virga.broadcast([1.0]),
        "a tensor, not": lambda: virga.allgather(3),
        "wire takes a text": lambda: virga.allreduce(whole, wire=torch.float16),
        "value_dtype takes a text": lambda: virga.allreduce_sparse(whole, residual, value_dtype=torch.float16),
        "density takes a number": lambda: virga.allreduce_sparse(whole, residual, "few"),
        "unknown reduction 'None'": lambda: virga.allreduce(whole, op=None),
        "root is a whole number, not 0.0": lambda: virga.broadcast(whole, 0.0),
        "root is a whole number, not '0'": lambda: virga.broadcast(whole, "0"),
        "a residual of -3 elements": lambda: virga.Residual(-3),
        "elements of a residual is a whole number, not 'x'": lambda: virga.Residual("x"),
        r"virga.new_group\(\) returns, not list": lambda: virga.allreduce(whole, group=[0, 1]),
        r"virga.new_group\(\) returns, not int": lambda: virga.barrier(group=1),
        "a member of a group is a whole number, not 'a'": lambda: virga.new_group(["a"]),
        "list of ranks, not int": lambda: virga.new_group(1),
        "allreduce takes a dense tensor": lambda: virga.allreduce(whole.to_sparse()),
        "allgather takes a dense tensor": lambda: virga.allgather(whole.to_sparse()),
    }
    for message, call in refused.items():
        with pytest.raises(virga.InvalidArgument, match=message):
            call()
    for asynchronous in (lambda: virga.allreduce(whole.bool(), async_op=True),
                         lambda: virga.broadcast(whole, root=7, async_op=True)):
        with pytest.raises(virga.InvalidArgument):
            asynchronous()
    assert torch.equal(virga.allreduce(torch.ones(2)), torch.full((2,), 3.0)), "the job must live on"


def disagree():
    """What KIND says differs on rank 1; every rank returns what it heard."""
    job = virga.init()
    other = job.rank == 1
    virga.barrier()  # all have come before one leaves
    whole = torch.zeros(2, 6)
    kinds = {
        "gathered shape": lambda: virga.allgather(whole.t() if other else whole),
        "gathered dtype": lambda: virga.allgather(whole.int() if other else whole),
        "sent dtype": lambda: virga.broadcast(whole.int() if other else whole),
        "reduction": lambda: virga.allreduce(whole, op="mean" if other else "sum"),
        "reduced dtype": lambda: virga.allreduce(whole.int() if other else whole),
        "root": lambda: virga.broadcast(whole, root=job.rank),
    }
    with pytest.raises(virga.Mismatch) as caught:
        kinds[os.environ["KIND"]]()
        virga.barrier()  # a root may have sent all it had before anybody could object
    return str(caught.value)


@pytest.mark.parametrize("kind", ["gathered shape", "gathered dtype", "sent dtype", "reduction", "reduced dtype",
                                  "root"])
def test_what_members_disagree_on_is_noticed(kind):
    expected = {
        "root": "root 0 here, 1 there|root 1 here, 0 there",
        "reduction": "reduction sum here, average there|reduction average here, sum there",
        "reduced dtype": "dtype fp32 here, int32 there|dtype int32 here, fp32 there",
    }.get(kind, r"options \(sizes of parts, [a-z ,]*\) 0x[0-9a-f]+ here, 0x[0-9a-f]+ there")
    for rank in run("disagree", 2, KIND=kind):
        assert rank.status == 0, rank
        assert re.search(expected, rank.value), rank.value


@on(ranks=4, hosts=2)
def test_on_two_hosts(job):
    assert job.hosts == 2 and job.local_rank == job.rank % 2 and job.local_world_size == 2 and job.host == job.rank // 2
    before = job.inter_host_bytes
    assert torch.equal(virga.allreduce(mine(job, 5000)), total(job, 5000))
    assert job.inter_host_bytes > before
    rounded = virga.allreduce(mine(job, 5000) / 7, wire="fp16")
    torch.testing.assert_close(rounded, total(job, 5000) / 7, rtol=2e-3, atol=2e-2)
    parts = virga.allgather(rounded)
    assert all(torch.equal(part, rounded) for part in parts)
    assert torch.equal(virga.broadcast(mine(job), root=3), mine(job, rank=3))
    summed = virga.allreduce_sparse(mine(job, 5000), virga.Residual(5000), 1.0, value_dtype="fp32")
    assert torch.equal(summed, total(job, 5000))
