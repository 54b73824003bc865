"""Ranks that die, signals, forks: a Python exception that names the rank in time; never a hang, never a crash."""

import os
import signal
import sys
import threading
import time

import pytest
import torch
import virga.torch as virga
from models import batch, gradients, loss, mlp
from ranks import run

LIMIT = 15  # seconds within which a rank hears what became of another


# ---- a rank that fails -----------------------------------------------------------------------------------------------


def trained(job, steps, fail):
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    virga.Replica(model, bucket_bytes=4096)

    def raise_in_backward(_gradient):
        if job.rank == 1:
            fail()

    for step in range(steps):
        model.zero_grad()
        hidden = model[0](torch.randn(4, 64))
        if step == 2:
            hidden.register_hook(raise_in_backward)
        model[3](model[2](model[1](hidden))).sum().backward()


def rank_fails(action):
    """What the others get, and how many seconds after."""
    job = virga.init()
    path = os.path.join(sys.argv[1], "failed_at")

    def fail():
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(str(time.monotonic()))
        os.rename(path + ".new", path)
        action()

    try:
        trained(job, 50, fail)
    except virga.Error as error:
        with open(path, encoding="utf-8") as file:
            seconds = time.monotonic() - float(file.read())
        return [type(error).__name__, error.rank, str(error), seconds]
    return None


def raises():
    def action():
        raise KeyError("a bug of the script's")
    return rank_fails(action)


def is_killed():
    return rank_fails(lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.parametrize("how, status", [("raises", 1), ("is_killed", 128 + signal.SIGKILL)])
def test_the_others_hear_of_a_rank_that_fails_in_mid_step(how, status):
    ranks = run(how, 3)
    assert ranks[1].status == status, ranks[1]
    if how == "raises":
        assert "a bug of the script's" in ranks[1].output, "the rank's own error must not be hidden"
    for other in (ranks[0], ranks[2]):
        assert other.status == 0 and other.value is not None, other
        _, culprit, text, seconds = other.value
        assert culprit == 1 and "rank 1" in text, other
        assert seconds < LIMIT, other


def leaves_early():
    job = virga.init()
    model = mlp()
    virga.Replica(model, strategy="allreduce")
    loss(model, batch(job.rank, 0)).backward()
    if job.rank == 1:
        return "left"
    with pytest.raises(virga.Error) as caught:
        loss(model, batch(job.rank, 1)).backward()
    with pytest.raises(virga.Error):
        virga.barrier()  # the job has ended: the same again, at once
    return str(caught.value)


def test_a_rank_that_leaves_without_shutdown_between_steps():
    ranks = run("leaves_early", 2)
    assert [rank.status for rank in ranks] == [0, 0], ranks
    assert "rank 1" in ranks[0].value, ranks


def fewer_backward_passes():
    """Rank 1 goes on to another operation where rank 0 makes a step: named, not hung."""
    job = virga.init()
    model = mlp()
    virga.Replica(model, strategy="allreduce")
    with pytest.raises(virga.Error) as caught:
        if job.rank == 0:
            loss(model, batch(0, 0)).backward()
        else:
            virga.broadcast(torch.zeros(5))
        virga.barrier()
    return [type(caught.value).__name__, str(caught.value)]


def test_ranks_that_do_different_things_are_told():
    for rank in run("fewer_backward_passes", 2):
        assert rank.value is not None and rank.value[0] in ("Mismatch", "Aborted"), rank
        assert "broadcast" in rank.value[1] and "allreduce" in rank.value[1], rank


def roots_differ():
    """All send and nobody receives: the shared memory between ranks is full when the job ends."""
    job = virga.init()
    virga.barrier()
    with pytest.raises(virga.Error) as caught:
        virga.broadcast(torch.ones(3_000_000), root=job.rank)
        virga.barrier()
    return str(caught.value)


@pytest.mark.parametrize("repetition", range(4))
def test_a_job_that_fails_with_much_in_flight_ends_without_a_crash(repetition):
    ranks = run("roots_differ", 4)
    assert [rank.status for rank in ranks] == [0] * 4, (repetition, ranks)
    assert all("root" in rank.value for rank in ranks), ranks


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


def interrupt_soon():
    """Ctrl-C while the main thread is in the call that follows; whether it is in it yet makes no difference."""
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()


def interrupted(call, others):
    job = virga.init()
    model = mlp()
    replica = virga.Replica(model, strategy="topk")
    begin = time.monotonic()
    try:
        if job.rank == 1:
            interrupt_soon()
            call(model, replica)
        else:
            others(model, replica)
    except KeyboardInterrupt:
        return ["KeyboardInterrupt", time.monotonic() - begin]
    except virga.Error as error:
        return [str(error), time.monotonic() - begin]
    return None


def step(model, _replica):
    loss(model, batch(0, 0)).backward()


def until_the_job_ends(_model, _replica):
    """Never takes part in what rank 1 waits for."""
    myself = virga.new_group([0])
    while True:
        virga.barrier(group=myself)


def interrupted_in_backward():
    return interrupted(step, until_the_job_ends)


def interrupted_in_a_collective():
    return interrupted(lambda model, replica: virga.allreduce(torch.zeros(9)), until_the_job_ends)


def interrupted_in_set_strategy():
    return interrupted(lambda model, replica: replica.set_strategy("hitopk"), until_the_job_ends)


@pytest.mark.parametrize("where", ["backward", "a_collective", "set_strategy"])
def test_ctrl_c_in(where):
    ranks = run(f"interrupted_in_{where}", 2)
    assert [rank.status for rank in ranks] == [0, 0], ranks
    assert ranks[1].value[0] == "KeyboardInterrupt" and ranks[1].value[1] < LIMIT, ranks
    assert "rank 1" in ranks[0].value[0] and ranks[0].value[1] < LIMIT, ranks


def interrupted_in_init():
    if os.environ["RANK"] == "0":
        interrupt_soon()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            virga.init()
        assert not virga.is_initialized()
        return time.monotonic() - begin
    return None  # never comes


def test_ctrl_c_while_ranks_are_missing():
    rank = run("interrupted_in_init", 2)[0]
    assert rank.status == 0 and rank.value < LIMIT, rank


def ctrl_c_ends_the_script():
    job = virga.init()
    if job.rank == 1:
        interrupt_soon()
        step(model := mlp(), virga.Replica(model))
        virga.barrier()
    else:
        virga.Replica(mlp())
        until_the_job_ends(None, None)


def test_ctrl_c_that_nobody_catches_ends_all():
    begin = time.monotonic()
    ranks = run("ctrl_c_ends_the_script", 2)
    assert ranks[1].status in (1, 130) and "KeyboardInterrupt" in ranks[1].output, ranks
    assert ranks[0].status == 1 and "rank 1" in ranks[0].output, ranks
    assert time.monotonic() - begin < 2 * LIMIT


# ---- forks -----------------------------------------------------------------------------------------------------------


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((6,), float(index)), torch.ones(3)


def loads_in_workers():
    job = virga.init()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    replica = virga.Replica(model, optimizer, strategy="hitopk", density=0.1)
    seen = 0
    for _ in range(2):
        for data in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2):
            optimizer.zero_grad()
            loss(model, data).backward()
            optimizer.step()
            seen += len(data[0])
    replica.end_epoch()
    return [job.rank, seen, bool(torch.isfinite(gradients(model)).all())]


def test_workers_of_a_data_loader_work_beside_a_replica():
    ranks = run("loads_in_workers", 2)
    assert [rank.value for rank in ranks] == [[0, 48, True], [1, 48, True]], ranks
    assert all(rank.status == 0 for rank in ranks), ranks


def in_child(action):
    """Forks; returns the child's exit status. The child ends as a script does: through the interpreter's exit."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs is killed by SIGALRM
        action()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def uses_virga_in_a_child():
    job = virga.init()
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    loss(model, batch(job.rank, 0)).backward()

    def action():
        for call in (virga.barrier, lambda: virga.allreduce(torch.zeros(3)), replica.end_epoch,
                     lambda: replica.set_strategy("topk"), lambda: loss(model, batch(0, 0)).backward(),
                     lambda: virga.Replica(mlp())):
            try:
                call()
                print("no error")
                os._exit(3)
            except virga.Unavailable as error:
                if "forked" not in str(error):
                    print(f"unclear: {error}")
                    os._exit(4)

    status = in_child(action)
    status_of_a_silent_child = in_child(lambda: None)

    def shut_down():
        virga.shutdown()

    status_of_a_tidy_child = in_child(shut_down)
    loss(model, batch(job.rank, 1)).backward()  # the job lives on
    replica.end_epoch()
    return [status, status_of_a_silent_child, status_of_a_tidy_child]


def test_a_forked_child_that_uses_virga_gets_an_error_and_exits():
    ranks = run("uses_virga_in_a_child", 2)
    for rank in ranks:
        assert rank.status == 0 and rank.value == [0, 0, 0], rank.output
