"""What loops do to a replica: accumulate, clip, freeze, tie, cast, join, skip, save, resume."""

import copy
import io
import pickle

import pytest
import torch
import virga.torch as virga
from models import batch, flat, gradients, local_gradients, loss, mlp
from ranks import on


def everybody(tensor):
    """Of all ranks, [ranks, ...]."""
    return virga.allgather(tensor.detach().contiguous())


def assert_same_everywhere(tensor, what):
    parts = everybody(tensor)
    for rank, part in enumerate(parts):
        assert torch.equal(part, parts[0]), f"{what}: rank {rank} differs from rank 0"


def dense(model, optimizer=None, **options):
    return virga.Replica(model, optimizer, strategy="allreduce", **options)


def mean_of_all(model, world, step):
    return sum(local_gradients(model, batch(rank, step)) for rank in range(world)) / world


# ---- gradients after backward ----------------------------------------------------------------------------------------


@on(ranks=2)
def test_parameters_and_buffers_become_those_of_rank_0(job):
    torch.manual_seed(10 + job.rank)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    model[1].running_mean.fill_(float(job.rank + 1))
    replica = dense(model)
    assert_same_everywhere(flat(model.parameters()), "parameters")
    assert torch.equal(model[1].running_mean, torch.ones(4))
    replica.close()


@on(ranks=2)
def test_gradients_are_the_mean_when_backward_returns(job):
    model = mlp()
    replica = dense(model, bucket_bytes=64)
    loss(model, batch(job.rank, 0)).backward()
    torch.testing.assert_close(gradients(model), mean_of_all(model, 2, 0), rtol=0, atol=1e-7)
    replica.close()


@on(ranks=2)
def test_clipping_sees_the_mean(job):
    model = mlp()
    replica = dense(model)
    loss(model, batch(job.rank, 0)).backward()
    expected = mean_of_all(model, 2, 0).norm()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    torch.testing.assert_close(norm, expected, rtol=1e-5, atol=0)
    assert_same_everywhere(norm.reshape(1), "norm")
    torch.testing.assert_close(gradients(model).norm(), torch.tensor(0.01), rtol=1e-3, atol=0)
    replica.close()


@on(ranks=2)
def test_no_sync_accumulates_the_sum(job):
    model = mlp()
    replica = dense(model)
    for none in (True, False, True):
        model.zero_grad(set_to_none=none)
        with replica.no_sync():
            for step in (0, 1):
                loss(model, batch(job.rank, step)).backward()
        local = sum(local_gradients(model, batch(job.rank, step)) for step in (0, 1))
        torch.testing.assert_close(gradients(model), local, rtol=0, atol=1e-6)
        loss(model, batch(job.rank, 2)).backward()
        expected = sum(mean_of_all(model, 2, step) for step in (0, 1, 2))
        torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-6)
    assert replica.stats()["steps"] == 3
    replica.close()


@on(ranks=2)
def test_no_sync_holds_to_its_end_when_nested_and_when_left_by_an_exception(job):
    model = mlp()
    replica = dense(model)
    with replica.no_sync():
        with pytest.raises(ZeroDivisionError):
            with replica.no_sync():
                1 / 0
        loss(model, batch(job.rank, 0)).backward()
    assert replica.stats()["steps"] == 0
    loss(model, batch(job.rank, 1)).backward()
    assert replica.stats()["steps"] == 1
    replica.close()


@on(ranks=2)
def test_zero_grad_of_both_kinds_keeps_the_flat_storage(job):
    model = mlp()
    replica = dense(model)
    where = set()
    for step, none in enumerate((True, False, True, False, True)):
        model.zero_grad(set_to_none=none)
        loss(model, batch(job.rank, step)).backward()
        torch.testing.assert_close(gradients(model), mean_of_all(model, 2, step), rtol=0, atol=1e-7)
        where.add(tuple(parameter.grad.data_ptr() for parameter in model.parameters()))
    assert len(where) == 1, "gradients moved"
    pointers = next(iter(where))
    for parameter, here, following in zip(model.parameters(), pointers, pointers[1:]):
        assert following - here == 4 * parameter.numel(), "gradients do not lie one behind the other"
    replica.close()


@on(ranks=2)
def test_parameter_groups_have_their_own_rates(job):
    model = mlp()
    before = flat(model.parameters())
    optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.5},
                                 {"params": model[2].parameters()}], lr=0.25)
    replica = dense(model, optimizer)
    expected = mean_of_all(model, 2, 0)
    loss(model, batch(job.rank, 0)).backward()
    optimizer.step()
    first = sum(parameter.numel() for parameter in model[0].parameters())
    rates = torch.cat([torch.full((first,), 0.5), torch.full((expected.numel() - first,), 0.25)])
    torch.testing.assert_close(flat(model.parameters()), before - rates * expected, rtol=0, atol=1e-6)
    replica.close()


@on(ranks=2)
def test_frozen_parameters_stay_and_are_not_sent(job):
    model = mlp()
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.detach().clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    replica = dense(model, optimizer)
    for step in range(3):
        optimizer.zero_grad()
        loss(model, batch(job.rank, step)).backward()
        optimizer.step()
    assert model[0].weight.grad is None
    assert torch.equal(everybody(model[0].weight)[job.rank], everybody(frozen)[0])
    replica.end_epoch()
    replica.close()


@on(ranks=2)
def test_a_parameter_frozen_later_gets_no_gradient(job):
    model = mlp()
    replica = dense(model)
    model[2].bias.requires_grad_(False)
    loss(model, batch(job.rank, 0)).backward()
    assert model[2].bias.grad is None
    model[2].bias.requires_grad_(True)
    model.zero_grad()
    loss(model, batch(job.rank, 0)).backward()
    assert torch.count_nonzero(model[2].bias.grad) > 0, "a parameter that is trained again got no gradient"
    torch.testing.assert_close(gradients(model), mean_of_all(model, 2, 0), rtol=0, atol=1e-7)
    replica.close()


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)

    def forward(self, x, head):
        return getattr(self, head)(torch.tanh(self.body(x)))


@on(ranks=2)
def test_what_only_some_ranks_use_is_averaged_over_all(job):
    """Rank 0 uses one head, rank 1 the other: each gradient counts with zero from the rank that has none."""
    model = TwoHeads()
    replica = dense(model, bucket_bytes=16)
    for step in range(3):
        model.zero_grad()
        expected = 0
        for rank, head in enumerate(("left", "right")):
            x, y = batch(rank, step)
            alone = copy.deepcopy(model)
            torch.nn.functional.mse_loss(alone(x, head), y).backward()
            expected = expected + gradients(alone) / 2
        x, y = batch(job.rank, step)
        torch.nn.functional.mse_loss(model(x, ("left", "right")[job.rank]), y).backward()
        torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-7)
        assert_same_everywhere(gradients(model), "gradients")
    replica.close()


@on(ranks=2)
def test_what_no_rank_uses_is_zero(job):
    model = TwoHeads()
    replica = dense(model)
    x, y = batch(job.rank, 0)
    torch.nn.functional.mse_loss(model(x, "left"), y).backward()
    assert torch.count_nonzero(gradients(model.right)) == 0
    assert torch.count_nonzero(gradients(model.left)) > 0
    replica.close()


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.output = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.embedding(tokens))


@on(ranks=2)
def test_tied_weights_get_the_sum_of_their_uses_once(job):
    model = Tied()
    alone = copy.deepcopy(model)
    replica = dense(model)
    tokens = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])]
    expected = 0
    for mine in tokens:
        alone.zero_grad()
        torch.nn.functional.cross_entropy(alone(mine), mine).backward()
        expected = expected + alone.embedding.weight.grad.clone() / 2
    torch.nn.functional.cross_entropy(model(tokens[job.rank]), tokens[job.rank]).backward()
    torch.testing.assert_close(model.embedding.weight.grad, expected, rtol=0, atol=1e-6)
    replica.close()


@on(ranks=2)
def test_sparse_gradients_of_embeddings_arrive_dense(job):
    model = torch.nn.Embedding(7, 3, sparse=True)
    replica = dense(model)
    model(torch.tensor([job.rank])).sum().backward()
    expected = torch.zeros(7, 3)
    expected[:2] = 0.5
    assert torch.equal(model.weight.grad.to_dense(), expected)
    replica.close()


@on(ranks=2)
def test_a_parameter_used_twice_in_one_pass_is_complete_before_it_leaves(job):
    model = torch.nn.Linear(3, 3)
    replica = dense(model)
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(job.rank))
    model(torch.tanh(model(x))).sum().backward()
    expected = 0
    for rank in range(2):
        alone = copy.deepcopy(model)
        alone.zero_grad()
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(rank))
        alone(torch.tanh(alone(x))).sum().backward()
        expected = expected + gradients(alone) / 2
    torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-6)
    replica.close()


@on(ranks=2)
def test_channels_last_and_scalar_parameters(job):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4, 1), torch.nn.PReLU())
    model = model.to(memory_format=torch.channels_last)
    assert not model[0].weight.is_contiguous()
    model.register_parameter("scale", torch.nn.Parameter(torch.tensor(2.0)))
    replica = dense(model)
    assert_same_everywhere(flat(model.parameters()), "parameters")

    def backward(which, rank):
        which.zero_grad()
        x = torch.randn(2, 3, 3, 3, generator=torch.Generator().manual_seed(rank))
        (which(x) * which.scale).sum().backward()

    expected = 0
    for rank in range(2):
        alone = copy.deepcopy(model)
        backward(alone, rank)
        expected = expected + gradients(alone) / 2
    for _ in range(2):
        backward(model, job.rank)
        torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-5)
        assert model[0].weight.grad.stride() == model[0].weight.stride()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    replica.end_epoch()
    replica.close()


@on(ranks=2)
def test_types_may_change_after_construction(job):
    model = mlp()
    replica = dense(model)
    for dtype, tolerance in ((torch.bfloat16, 0.02), (torch.float64, 1e-6), (torch.float32, 1e-6)):
        model.to(dtype)
        model.zero_grad()
        expected = 0
        for rank in range(2):
            alone = copy.deepcopy(model)
            alone.zero_grad()
            loss(alone, [part.to(dtype) for part in batch(rank, 0)]).backward()
            expected = expected + gradients(alone) / 2
        for _ in range(2):
            model.zero_grad(set_to_none=False)
            loss(model, [part.to(dtype) for part in batch(job.rank, 0)]).backward()
            assert all(parameter.grad.dtype == dtype for parameter in model.parameters())
            torch.testing.assert_close(gradients(model), expected, rtol=0, atol=tolerance)
            assert_same_everywhere(gradients(model), f"gradients of {dtype}")
    replica.close()


@on(ranks=2)
def test_a_model_of_mixed_types_trains(job):
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3).double())

    class Cast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner[2](torch.tanh(self.inner[0](x)).double())

    cast = Cast()
    optimizer = torch.optim.SGD(cast.parameters(), lr=0.1)
    replica = virga.Replica(cast, optimizer, strategy="hitopk", density=0.2)
    for step in range(5):
        optimizer.zero_grad()
        x, y = batch(job.rank, step)
        torch.nn.functional.mse_loss(cast(x), y.double()).backward()
        optimizer.step()
    replica.end_epoch()
    replica.close()


# ---- buffers ---------------------------------------------------------------------------------------------------------


def normalised(job, mode):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    model[1].running_var.fill_(float(job.rank + 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replica = dense(model, optimizer, sync_buffers=mode)
    started = everybody(model[1].running_var)
    for step in range(2):
        optimizer.zero_grad()
        loss(model, batch(job.rank, step)).backward()
        optimizer.step()
    trained = everybody(model[1].running_mean)
    replica.end_epoch()
    ended = everybody(model[1].running_mean), everybody(model[1].num_batches_tracked)
    replica.close()
    return started, trained, ended


@on(ranks=2)
def test_buffers_are_synchronised_when_asked(job):
    started, trained, ended = normalised(job, "start")
    assert torch.equal(started[0], started[1]) and not torch.equal(trained[0], trained[1])
    assert torch.equal(ended[0], trained)
    started, trained, ended = normalised(job, "epoch")
    assert torch.equal(started[0], started[1]) and not torch.equal(trained[0], trained[1])
    assert torch.equal(ended[0][1], trained[0]) and torch.equal(ended[1], torch.tensor([2, 2]))
    started, trained, ended = normalised(job, "never")
    assert not torch.equal(started[0], started[1]) and torch.equal(ended[0], trained)


@on(ranks=2)
def test_unknown_ways_to_synchronise_buffers_are_refused(job):
    with pytest.raises(virga.InvalidArgument, match="start, epoch, never"):
        virga.Replica(mlp(), sync_buffers="sometimes")


# ---- two replicas ----------------------------------------------------------------------------------------------------


@on(ranks=2)
def test_a_gan_of_two_replicas(job):
    def make():
        torch.manual_seed(3)
        return mlp(4, 8, 6), mlp(6, 8, 1)

    def noise(rank, step):
        return torch.randn(8, 4, generator=torch.Generator().manual_seed(50 * step + rank))

    generator, discriminator = make()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, discriminator)]
    replicas = [dense(model, optimizer) for model, optimizer in zip((generator, discriminator), optimizers)]
    alone_g, alone_d = make()
    for step in range(4):
        discriminator.zero_grad()
        real, _ = batch(job.rank, step)
        (discriminator(generator(noise(job.rank, step)).detach()).mean() - discriminator(real).mean()).backward()
        optimizers[1].step()
        generator.zero_grad()
        with replicas[1].no_sync():
            (-discriminator(generator(noise(job.rank, step))).mean()).backward()
        optimizers[0].step()
        for model in (alone_g, alone_d):
            model.zero_grad()
        fake = torch.cat([noise(rank, step) for rank in range(2)])
        real = torch.cat([batch(rank, step)[0] for rank in range(2)])
        (alone_d(alone_g(fake).detach()).mean() - alone_d(real).mean()).backward()
        with torch.no_grad():
            for parameter in alone_d.parameters():
                parameter -= 0.1 * parameter.grad
        (-alone_d(alone_g(fake)).mean()).backward()
        with torch.no_grad():
            for parameter in alone_g.parameters():
                parameter -= 0.1 * parameter.grad
    torch.testing.assert_close(flat(generator.parameters()), flat(alone_g.parameters()), rtol=0, atol=1e-6)
    torch.testing.assert_close(flat(discriminator.parameters()), flat(alone_d.parameters()), rtol=0, atol=1e-6)
    for replica in replicas:
        replica.end_epoch()
        replica.close()


# ---- the model stays what it was -------------------------------------------------------------------------------------


@on(ranks=2)
def test_the_model_is_untouched(job):
    model = mlp()
    keys, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # the first one of its class makes torch wrap step()
    methods = (model.forward.__func__, torch.Tensor.backward, torch.optim.SGD.step)
    replica = virga.Replica(model, optimizer)
    loss(model, batch(job.rank, 0)).backward()
    optimizer.step()
    assert list(model.state_dict()) == keys and [type(module) for module in model.modules()] == kinds
    assert methods == (model.forward.__func__, torch.Tensor.backward, torch.optim.SGD.step)
    assert all(type(parameter) is torch.nn.Parameter for parameter in model.parameters())
    x, _ = batch(0, 0)
    expected = model(x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert torch.equal(other(x), expected)
        loss(other, batch(job.rank, 0)).backward()  # a copy trains alone: no rank waits for another here
    fresh = mlp()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), expected)
    assert replica.stats()["steps"] == 1
    replica.close()


@on(ranks=2)
def test_a_closed_replica_leaves_the_model_alone(job):
    model = mlp()
    replica = dense(model)
    loss(model, batch(job.rank, 0)).backward()
    replica.close()
    replica.close()
    model.zero_grad()
    loss(model, batch(job.rank, 1)).backward()
    torch.testing.assert_close(gradients(model), local_gradients(model, batch(job.rank, 1)), rtol=0, atol=1e-7)
    for method in (replica.state_dict, lambda: replica.set_strategy("topk")):
        with pytest.raises(virga.Unavailable, match="closed"):
            method()


@on(ranks=2)
def test_evaluation_sends_nothing(job):
    model = mlp()
    replica = dense(model)
    with torch.no_grad():
        model(batch(job.rank, 0)[0])
    model.eval()
    x = batch(job.rank, 0)[0].requires_grad_()
    torch.autograd.grad(model(x).sum(), x)  # as for adversarial examples
    assert replica.stats()["steps"] == 0
    model.train()
    loss(model, batch(job.rank, 0)).backward()
    assert replica.stats()["steps"] == 1
    replica.close()
