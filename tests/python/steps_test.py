"""Steps that are not like the others: skipped, uneven, resumed, of another strategy, of a scaled loss."""

import contextlib
import copy
import io

import pytest
import torch
import virga.torch as virga
from models import batch, flat, gradients, local_gradients, loss, mlp
from ranks import on, run

SPARSE = {"strategy": "topk", "density": 0.1, "value_dtype": "fp32"}


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def train(model, optimizer, steps, rank):
    for step in steps:
        optimizer.zero_grad()
        loss(model, batch(rank, step)).backward()
        optimizer.step()


# ---- nothing is lost -------------------------------------------------------------------------------------------------


class Linear(torch.nn.Module):
    """Its gradient is what it is given, whatever the parameters are."""

    def __init__(self, elements=40):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(elements))

    def backward(self, gradient):
        self(gradient).backward()

    def forward(self, gradient):
        return (self.weight * gradient).sum()


def gradient_of(rank, step, elements=40):
    return torch.randn(elements, generator=torch.Generator().manual_seed(100 * step + rank))


def apply(model, optimizer, gradient):
    optimizer.zero_grad()
    model.backward(gradient)
    optimizer.step()


def residuals_sum(replica):
    """What all ranks hold back, as a flat gradient; for topk, where every rank's residual is the whole vector."""
    return virga.allreduce(torch.cat(replica.state_dict()["residuals"]))


@on(ranks=3)
def test_sent_and_held_back_is_all(job):
    model = Linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    replica = virga.Replica(model, optimizer, **SPARSE)
    total = torch.zeros(40)
    for step in range(6):
        apply(model, optimizer, gradient_of(job.rank, step))
        total += sum(gradient_of(rank, step) for rank in range(3)) / 3
        torch.testing.assert_close(-model.weight.detach() + residuals_sum(replica), total, rtol=0, atol=1e-5)
        assert not torch.allclose(-model.weight.detach(), total, rtol=0, atol=1e-3), "everything was sent"
    replica.close()


@on(ranks=3)
def test_changing_the_strategy_loses_nothing(job):
    zero = torch.zeros(40)
    for first in ("topk", "hitopk"):
        model = Linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        replica = virga.Replica(model, optimizer, strategy=first, density=0.1, value_dtype="fp32")
        total = torch.zeros(40)
        strategies = iter((("hitopk", 0.05), ("topk", 0.05), ("allreduce", 0.05)))
        for step in range(8):
            apply(model, optimizer, gradient_of(job.rank, step))
            total += sum(gradient_of(rank, step) for rank in range(3)) / 3
            if step in (2, 4, 7):
                name, density = next(strategies)
                replica.set_strategy(name, density=density, value_dtype="fp32")
        apply(model, optimizer, zero)
        torch.testing.assert_close(-model.weight.detach(), total, rtol=0, atol=1e-5)
        apply(model, optimizer, zero)
        torch.testing.assert_close(-model.weight.detach(), total, rtol=0, atol=1e-5)
        assert replica.stats()["density"] == 1
        replica.end_epoch()
        replica.close()


@on(ranks=2)
def test_a_strategy_that_is_refused_leaves_the_old_one(job):
    model = Linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    replica = virga.Replica(model, optimizer, **SPARSE)
    apply(model, optimizer, gradient_of(job.rank, 0))
    before = replica.state_dict()
    for bad in ({"strategy": "smoke"}, {"strategy": "topk", "density": 0.0}, {"strategy": "topk", "density": 1.5},
                {"strategy": "hitopk", "value_dtype": "int8"}):
        with pytest.raises(virga.InvalidArgument):
            replica.set_strategy(**bad)
    with pytest.raises(virga.Mismatch):
        replica.set_strategy("topk", density=(0.1, 0.2)[job.rank])
    after = replica.state_dict()
    assert all(torch.equal(a, b) for a, b in zip(before.pop("residuals"), after.pop("residuals"))) and before == after
    apply(model, optimizer, gradient_of(job.rank, 1))
    total = sum(gradient_of(rank, step) for rank in range(2) for step in range(2)) / 2
    torch.testing.assert_close(-model.weight.detach() + residuals_sum(replica), total, rtol=0, atol=1e-5)
    replica.close()


@on(ranks=2)
def test_the_strategy_can_not_change_in_mid_step(job):
    model = mlp()
    replica = virga.Replica(model, **SPARSE)
    seen = []

    def in_backward(_gradient):
        for call in (lambda: replica.set_strategy("allreduce"), replica.state_dict):
            with pytest.raises(virga.InvalidArgument, match="middle of a step"):
                call()
            seen.append(1)

    x, y = batch(job.rank, 0)
    hidden = model[0](x)
    hidden.register_hook(in_backward)  # the last layer's gradients are there by then
    ((model[2](torch.tanh(hidden)) - y) ** 2).mean().backward()
    assert len(seen) == 2
    replica.close()


# ---- resuming --------------------------------------------------------------------------------------------------------


def resume_is_exact(job, options):
    model = mlp()
    straight = copy.deepcopy(model)
    replica = virga.Replica(straight, optimizer := sgd(straight), **options)
    train(straight, optimizer, range(10), job.rank)
    replica.close()
    replica = virga.Replica(model, optimizer := sgd(model), **options)
    train(model, optimizer, range(6), job.rank)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), replica.state_dict()], file)
    replica.close()
    file.seek(0)
    states = torch.load(file)
    torch.manual_seed(77)
    model = mlp()
    model.load_state_dict(states[0])
    optimizer = sgd(model)
    optimizer.load_state_dict(states[1])
    replica = virga.Replica(model, optimizer, **options)
    replica.load_state_dict(states[2])
    assert replica.stats()["steps"] == 6
    train(model, optimizer, range(6, 10), job.rank)
    assert torch.equal(flat(model.parameters()), flat(straight.parameters())), "the resumed run left the straight one"
    assert replica.stats()["steps"] == 10
    replica.close()


@on(ranks=3)
def test_resuming_is_exact(job):
    for strategy in virga.strategies():
        resume_is_exact(job, {"strategy": strategy, "density": 0.1, "bucket_bytes": 100})


@on(ranks=2)
def test_resuming_right_after_a_change_of_strategy_loses_nothing(job):
    model = Linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    replica = virga.Replica(model, optimizer, **SPARSE)
    apply(model, optimizer, gradient_of(job.rank, 0))
    replica.set_strategy("allreduce")
    state = replica.state_dict()
    replica.close()
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    replica.load_state_dict(state)
    apply(model, optimizer, torch.zeros(40))
    total = sum(gradient_of(rank, 0) for rank in range(2)) / 2
    torch.testing.assert_close(-model.weight.detach(), total, rtol=0, atol=1e-5)
    replica.close()


@on(ranks=2)
def test_wrong_states_are_refused(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, **SPARSE)
    train(model, optimizer, range(2), job.rank)
    state = replica.state_dict()
    other = virga.allgather(torch.cat(state["residuals"]))[1 - job.rank]
    assert not torch.equal(other, torch.cat(state["residuals"])), "ranks should hold different residuals"
    wrong = [{}, {"version": 9}, {"strategy": "hitopk"}, {"density": 0.2}, {"value_dtype": "fp16"},
             {"rank": 1 - job.rank}, {"world_size": 3}, {"residuals": []},
             {"residuals": [residual[1:] for residual in state["residuals"]]},
             {"residuals": [residual * float("nan") for residual in state["residuals"]]}]
    carried = ((-1, torch.zeros(3)), (0, torch.zeros(10 ** 6)), (10 ** 9, torch.zeros(1)), (0, torch.ones(1) / 0))
    wrong += [{"carried": [one]} for one in carried]
    for change in wrong:
        with pytest.raises((virga.InvalidArgument, virga.NonFinite)):
            replica.load_state_dict({**state, **change} if change else {})
    after = replica.state_dict()
    assert all(torch.equal(a, b) for a, b in zip(state["residuals"], after["residuals"]))
    replica.load_state_dict(state)
    replica.close()


# ---- uneven batches --------------------------------------------------------------------------------------------------


def joined(job, batches, **options):
    model = mlp()
    alone, optimizer = copy.deepcopy(model), sgd(model)
    replica = virga.Replica(model, optimizer, **options)
    alone_optimizer = sgd(alone)
    for epoch in range(2):
        with replica.join():
            train(model, optimizer, range(batches[job.rank]), job.rank)
        replica.end_epoch()
        for step in range(max(batches)):
            grads = [local_gradients(alone, batch(rank, step)) for rank in range(len(batches)) if step < batches[rank]]
            begin = 0
            for parameter in alone.parameters():
                part = (sum(grads) / len(batches))[begin:begin + parameter.numel()]
                parameter.grad, begin = part.view(parameter.shape).clone(), begin + parameter.numel()
            alone_optimizer.step()
    stats = replica.stats()
    replica.close()
    return model, alone, stats


@on(ranks=3)
def test_join_lets_ranks_have_fewer_batches_or_none(job):
    for batches in ([4, 2, 0], [0, 3, 5], [2, 2, 2], [0, 0, 0]):
        torch.manual_seed(1)
        model, alone, stats = joined(job, batches, strategy="allreduce", bucket_bytes=64)
        torch.testing.assert_close(flat(model.parameters()), flat(alone.parameters()), rtol=0, atol=1e-6)
        assert stats["steps"] == 2 * max(batches)


@on(ranks=3)
def test_join_with_a_sparse_strategy(job):
    joined(job, [3, 1, 4], **SPARSE)  # end_epoch() inside holds ranks to equal bits


@on(ranks=3)
def test_join_leaves_the_same_momentum_whatever_was_clipped(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    with replica.join():
        for step in range((1, 4, 2)[job.rank]):
            optimizer.zero_grad()
            loss(model, batch(job.rank, step)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
    replica.end_epoch()
    train(model, optimizer, [5], job.rank)
    replica.end_epoch()
    replica.close()


@on(ranks=3)
def test_learning_rates_that_differ_are_found_at_the_end_of_an_epoch(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(model, optimizer, range(2), job.rank)
    scheduler.step()
    replica.end_epoch()
    if job.rank == 1:
        scheduler.step()
    with pytest.raises(virga.Mismatch, match=r"optimizer's settings.*\blr\b"):
        replica.end_epoch()
    replica.close()


@on(ranks=2)
def test_join_needs_the_optimizer(job):
    replica = virga.Replica(mlp(), strategy="allreduce")
    with pytest.raises(virga.InvalidArgument, match="optimizer"):
        with replica.join():
            pass
    replica.close()


# ---- loss scaling and what is not finite -----------------------------------------------------------------------------


class Scaler:
    """What a GradScaler does, on the CPU, where torch 1.13 has none."""

    def __init__(self, value=1024.0):
        self.value, self.skipped = value, 0

    def get_scale(self):
        return self.value

    def scale(self, loss_value):
        return loss_value * self.value

    def step(self, optimizer):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.overflow = not all(torch.isfinite(grad).all() for grad in grads)
        if self.overflow:
            self.skipped += 1
            return
        for grad in grads:
            grad.div_(self.value)
        optimizer.step()

    def update(self):
        self.value *= 0.5 if self.overflow else 2.0


def train_scaled(model, optimizer, scaler, steps, rank, poison=()):
    for step in steps:
        optimizer.zero_grad()
        value = loss(model, batch(rank, step))
        if (rank, step) in poison:
            value = value * float("inf")
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()


@on(ranks=2)
def test_a_scale_that_changes_leaves_residuals_what_they_mean(job):
    for options in (SPARSE, {"strategy": "hitopk", "density": 0.1}, {"strategy": "allreduce"}):
        torch.manual_seed(1)
        model = mlp()
        plain = copy.deepcopy(model)
        replica = virga.Replica(plain, optimizer := sgd(plain), **options)
        train(plain, optimizer, range(6), job.rank)
        replica.close()
        scaler = Scaler()
        replica = virga.Replica(model, optimizer := sgd(model), scaler=scaler, **options)
        train_scaled(model, optimizer, scaler, range(6), job.rank)
        assert scaler.value == 1024.0 * 64 and scaler.skipped == 0
        assert torch.equal(flat(model.parameters()), flat(plain.parameters())), "powers of two must change no bit"
        replica.close()


@on(ranks=2)
def test_an_overflow_on_one_rank_is_found_on_all(job):
    for options in (SPARSE, {"strategy": "hitopk", "density": 0.1}, {"strategy": "allreduce"}, {"strategy": "fp16"}):
        torch.manual_seed(1)
        model, scaler = mlp(), Scaler()
        replica = virga.Replica(model, optimizer := sgd(model), scaler=scaler, **options)
        train_scaled(model, optimizer, scaler, range(5), job.rank, poison=[(1, 2)])
        assert scaler.skipped == 1, options
        assert torch.isfinite(flat(model.parameters())).all()
        replica.end_epoch()
        replica.close()


@on(ranks=2)
def test_a_rank_that_ran_out_of_batches_steps_as_the_scaler_does(job):
    model, scaler = mlp(), Scaler()
    alone, alone_optimizer = copy.deepcopy(model), None
    replica = virga.Replica(model, optimizer := sgd(model), scaler=scaler, strategy="allreduce")
    with replica.join():
        train_scaled(model, optimizer, scaler, range((5, 2)[job.rank]), job.rank, poison=[(0, 3)])
    assert scaler.skipped == 1
    replica.end_epoch()
    for state in optimizer.state.values():
        parts = virga.allgather(state["momentum_buffer"])
        assert torch.equal(parts[0], parts[1]), "momentum differs"
    replica.close()


def poisoned(job, policy, **options):
    model = mlp()
    replica = virga.Replica(model, optimizer := sgd(model), non_finite=policy, **options)
    train(model, optimizer, range(2), job.rank)
    before = flat(model.parameters())
    optimizer.zero_grad()
    value = loss(model, batch(job.rank, 2))
    (value * float("nan") if job.rank == 1 else value).backward()
    return model, replica, optimizer, before


@on(ranks=2)
def test_skip_step_skips_on_all_ranks(job):
    for options in (SPARSE, {"strategy": "hitopk"}, {"strategy": "allreduce"}, {"strategy": "fp16"}):
        model, replica, optimizer, before = poisoned(job, "skip-step", **options)
        assert all(parameter.grad is None for parameter in model.parameters()), options
        optimizer.step()
        assert torch.equal(flat(model.parameters()), before), options
        assert replica.stats()["skipped_steps"] == 1
        train(model, optimizer, range(3, 5), job.rank)
        assert torch.isfinite(flat(model.parameters())).all()
        assert not torch.equal(flat(model.parameters()), before)
        replica.end_epoch()
        replica.close()


@on(ranks=2)
def test_a_step_that_is_skipped_after_a_change_of_strategy_loses_nothing(job):
    for strategy in ("allreduce", "topk"):
        model = Linear()
        replica = virga.Replica(model, optimizer := torch.optim.SGD(model.parameters(), lr=1.0),
                                non_finite="skip-step", **SPARSE)
        apply(model, optimizer, gradient_of(job.rank, 0))
        unsent = residuals_sum(replica)
        replica.set_strategy(strategy, density=1.0, value_dtype="fp32")
        poison = torch.zeros(model.weight.numel())
        poison[0] = float("inf")
        apply(model, optimizer, poison)
        before = model.weight.detach().clone()
        apply(model, optimizer, torch.zeros(model.weight.numel()))
        sent = (before - model.weight.detach()).view(-1)
        assert unsent.abs().sum() > 0
        torch.testing.assert_close(sent[1:], unsent.view(-1)[1:], rtol=0, atol=1e-5)
        replica.close()


@on(ranks=2)
def test_keep_leaves_it_in_the_gradients_of_all_ranks(job):
    for options in (SPARSE, {"strategy": "hitopk"}, {"strategy": "allreduce"}, {"strategy": "fp16"}):
        model, replica, _, _ = poisoned(job, "keep", **options)
        assert not torch.isfinite(gradients(model)).all(), options
        replica.close()


@on(ranks=2)
def test_unknown_policies_are_refused(job):
    with pytest.raises(virga.InvalidArgument, match="error, skip-step, keep"):
        virga.Replica(mlp(), non_finite="ignore")


def non_finite_stops_everybody():
    job = virga.init()
    with contextlib.suppress(virga.NonFinite):
        poisoned(job, "error", **SPARSE)
        return "no error"
    return "NonFinite"


def test_by_default_what_is_not_finite_stops_all_ranks_before_the_update():
    ranks = run("non_finite_stops_everybody", 3)
    assert [rank.value for rank in ranks] == ["NonFinite"] * 3, [rank.output for rank in ranks]
    assert [rank.status for rank in ranks] == [0, 0, 0]


# ---- end of an epoch -------------------------------------------------------------------------------------------------


@on(ranks=3)
def test_end_epoch_names_the_rank_that_has_gone_astray(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    first = replica.end_epoch()
    assert replica.end_epoch() == first, "a second call in the same step"
    with torch.no_grad():
        if job.rank == 2:
            model[0].bias[0] += 1
    with pytest.raises(virga.Mismatch, match="2"):
        replica.end_epoch()
    replica.close()
