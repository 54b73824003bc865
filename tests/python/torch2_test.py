"""What only torch 2 has: compiled modules, a scaler for the CPU, hooks on tensors and on optimizers."""

import copy
import io
import pickle
import subprocess

import pytest
import torch
import torch.distributed as dist
import virga.torch as virga
from models import batch, flat, gradients, local_gradients, loss, mlp
from ranks import environment, on, python

pytestmark = pytest.mark.skipif(torch.__version__.split(".")[0] < "2", reason="what torch 2 has")


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def mean_of_all(model, world, step):
    return sum(local_gradients(model, batch(rank, step)) for rank in range(world)) / world


def compiled_is_eager(job, **options):
    model = mlp()
    compiled = torch.compile(model, **options)
    optimizer = sgd(compiled)
    replica = virga.Replica(compiled, optimizer, strategy="allreduce")
    for step in range(4):
        expected = mean_of_all(model, job.world_size, step)
        optimizer.zero_grad()
        loss(compiled, batch(job.rank, step)).backward()
        torch.testing.assert_close(gradients(model), expected)
        optimizer.step()
    replica.end_epoch()
    assert replica.stats()["steps"] == 4
    replica.close()


@on(ranks=2)
def test_a_compiled_module_trains(job):
    compiled_is_eager(job, backend="eager")


@on(ranks=2)
def test_a_module_compiled_with_its_backward_trains(job):
    compiled_is_eager(job, backend="aot_eager")


@on(ranks=2)
def test_a_module_compiled_to_machine_code_trains(job):
    compiled_is_eager(job)


@on(ranks=2)
def test_a_module_compiled_after_the_replica_was_made_trains(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    compiled = torch.compile(model, backend="aot_eager")
    expected = mean_of_all(model, job.world_size, 0)
    loss(compiled, batch(job.rank, 0)).backward()
    torch.testing.assert_close(gradients(model), expected)
    replica.close()


@on(ranks=2)
def test_a_whole_step_compiled_trains(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, strategy="allreduce")

    @torch.compile(backend="aot_eager")
    def step_of(inputs, outputs):
        return loss(model, (inputs, outputs))

    expected = mean_of_all(model, job.world_size, 0)
    step_of(*batch(job.rank, 0)).backward()
    torch.testing.assert_close(gradients(model), expected)
    replica.close()


@on(ranks=2)
def test_a_scaler_of_the_cpu_skips_on_all_ranks(job):
    model = mlp()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    replica = virga.Replica(model, optimizer, strategy="allreduce", scaler=scaler)
    for step in range(3):
        before = flat(model.parameters())
        expected = mean_of_all(model, job.world_size, step)
        optimizer.zero_grad()
        inputs, outputs = batch(job.rank, step)
        if step == 1 and job.rank == 1:
            inputs = inputs * float("inf")
        scaler.scale(loss(model, (inputs, outputs))).backward()
        scaler.step(optimizer)
        scaler.update()
        change = flat(model.parameters()) - before
        torch.testing.assert_close(change, torch.zeros_like(change) if step == 1 else -0.1 * expected,
                                   rtol=1e-4, atol=1e-6)
    assert scaler.get_scale() == 512.0
    replica.end_epoch()
    replica.close()


@on(ranks=2)
def test_mixed_precision_of_the_cpu(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    for step in range(2):
        expected = mean_of_all(model, job.world_size, step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(model, batch(job.rank, step))
        value.backward()
        torch.testing.assert_close(gradients(model), expected, rtol=0.1, atol=0.02)
        optimizer.step()
    replica.end_epoch()
    replica.close()


@on(ranks=2)
def test_hooks_of_others_stay(job):
    """On tensors they see the local gradient, whichever was registered first; on optimizers the mean."""
    model = mlp()
    optimizer = sgd(model)
    first = next(model.parameters())
    seen = []
    before = first.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    after = first.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    at_step = []
    optimizer.register_step_pre_hook(lambda *_: at_step.append(gradients(model)))
    optimizer.register_step_post_hook(lambda *_: at_step.append(None))
    mine = local_gradients(model, batch(job.rank, 0))
    expected = mean_of_all(model, job.world_size, 0)
    loss(model, batch(job.rank, 0)).backward()
    optimizer.step()
    assert len(seen) == 2
    for gradient in seen:
        torch.testing.assert_close(gradient.reshape(-1), mine[:first.numel()])
    torch.testing.assert_close(at_step[0], expected)
    assert at_step[1:] == [None]
    before.remove()
    after.remove()
    replica.close()


@on(ranks=2)
def test_the_model_is_copied_pickled_and_saved_as_without(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    loss(model, batch(job.rank, 0)).backward()
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    loaded = mlp()
    loaded.load_state_dict(torch.load(saved, weights_only=True))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        assert torch.equal(flat(other.parameters()), flat(model.parameters()))
        other.zero_grad()
        mine = local_gradients(other, batch(job.rank, 1))
        loss(other, batch(job.rank, 1)).backward()  # nothing of it travels
        torch.testing.assert_close(gradients(other), mine)
    assert replica.stats()["steps"] == 1
    replica.close()


@on(ranks=2)
def test_attached_to_ddp(job):
    with_gloo(job, lambda model: torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0002))


@on(ranks=2)
def test_attached_to_ddp_that_is_compiled_inside(job):
    with_gloo(job, lambda model: torch.nn.parallel.DistributedDataParallel(torch.compile(model, backend="aot_eager")))


def with_gloo(job, wrapped):
    store = dist.TCPStore("127.0.0.1", _port_of_rank_0(job), job.world_size, job.rank == 0)
    dist.init_process_group("gloo", store=store, rank=job.rank, world_size=job.world_size)
    model = mlp()
    ddp = wrapped(model)
    virga.attach(ddp, strategy="allreduce")
    optimizer = sgd(ddp)
    for step in range(4):
        expected = mean_of_all(model, job.world_size, step)
        optimizer.zero_grad()
        loss(ddp, batch(job.rank, step)).backward()
        torch.testing.assert_close(gradients(model), expected)
        optimizer.step()
    virga.barrier()
    dist.destroy_process_group()


def _port_of_rank_0(job):
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = torch.tensor([float(probe.getsockname()[1])])
    virga.broadcast(port)
    return int(port)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((6,), float(index)), torch.zeros(3)


@on(ranks=2)
def test_workers_of_a_data_loader_feed_training(job):
    model = mlp()
    optimizer = sgd(model)
    replica = virga.Replica(model, optimizer, strategy="allreduce")
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    for _ in range(2):
        for data in loader:
            optimizer.zero_grad()
            loss(model, data).backward()
            optimizer.step()
    assert replica.stats()["steps"] == 8
    replica.end_epoch()
    replica.close()


@pytest.mark.parametrize("first, second", [("torch", "virga.torch"), ("virga.torch", "torch"),
                                           ("virga._core", "torch")])
def test_imported_in_any_order(first, second):
    """torch brings libraries of its own: none may take the place of ours, or ours of torch's."""
    script = (f"import {first}, {second}, virga.torch as virga, torch, torch.distributed as dist\n"
              "job = virga.init()\n"
              "model = torch.nn.Linear(3, 2)\n"
              "replica = virga.Replica(model, strategy='topk', density=0.5)\n"
              "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
              "model(torch.ones(4, 3)).sum().backward()\n"
              "print(replica.stats()['steps'])\n")
    done = subprocess.run(python("-c", script), env=environment(), timeout=60, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
