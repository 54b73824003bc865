"""Wrong use, dying ranks, signals, forks: a Python exception that says what to do; never a hang, never a crash."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import virga.torch as virga
from models import batch, gradients, loss, mlp
from ranks import environment, on, python, run

LIMIT = 15  # seconds within which a rank hears what became of another


# ---- refused, and the job lives on -----------------------------------------------------------------------------------


@on(ranks=3)
def test_models_that_differ_are_named_with_rank_and_first_difference(job):
    def different():
        model = mlp(hidden=11 if job.rank == 2 else 10)
        virga.Replica(model)

    with pytest.raises(virga.Mismatch) as caught:
        different()
    text = str(caught.value)
    assert "rank 2" in text and "0.weight" in text and "[11, 6]" in text and "[10, 6]" in text, text


@on(ranks=3)
def test_every_kind_of_difference_is_found(job):
    def more(model):
        model.add_module("more", torch.nn.Linear(2, 2))
        return model

    def frozen(model):
        model[2].bias.requires_grad_(False)
        return model

    def buffered(model):
        model.register_buffer("seen", torch.zeros(3))
        return model

    kinds = {"more.weight": more, "frozen": frozen, "float64": lambda model: model.double(), "seen": buffered}
    for text, change in kinds.items():
        for who in (0, 1):
            model = mlp()
            with pytest.raises(virga.Mismatch) as caught:
                virga.Replica(change(model) if job.rank == who else model)
            assert text in str(caught.value), (text, who, str(caught.value))


@on(ranks=2)
def test_options_that_differ_are_named(job):
    for mine, text in (({"strategy": ("topk", "hitopk")[job.rank]}, "topk"),
                       ({"density": (0.1, 0.2)[job.rank]}, "density"),
                       ({"value_dtype": ("fp16", "bf16")[job.rank]}, "value_dtype"),
                       ({"error_feedback": bool(job.rank)}, "error_feedback"),
                       ({"non_finite": ("error", "keep")[job.rank]}, "non-finite"),
                       ({"sync_buffers": ("start", "never")[job.rank]}, "sync_buffers")):
        with pytest.raises(virga.Mismatch, match=text):
            virga.Replica(mlp(), **mine)


@on(ranks=2)
def test_an_optimizer_of_another_model_is_refused(job):
    with pytest.raises(virga.InvalidArgument, match="optimizer holds 4 parameters that are not the model's"):
        virga.Replica(mlp(), torch.optim.SGD(mlp().parameters(), lr=0.1))


@on(ranks=2)
def test_a_model_without_anything_to_train_is_refused(job):
    with pytest.raises(virga.InvalidArgument, match="no trainable parameter"):
        virga.Replica(torch.nn.ReLU())
    with pytest.raises(virga.InvalidArgument, match="weight.*complex"):
        virga.Replica(torch.nn.Linear(2, 2, bias=False).to(torch.complex64))


@on(ranks=2)
def test_an_unknown_strategy_lists_the_known(job):
    with pytest.raises(virga.InvalidArgument, match="unknown strategy 'smoke'; known are allreduce, fp16"):
        virga.Replica(mlp(), strategy="smoke")
    for options in ({"density": 0.0}, {"density": 1.1}, {"density": float("nan")}, {"value_dtype": "int8"},
                    {"bucket_bytes": 0}, {"bucket_bytes": -1}):
        with pytest.raises((virga.InvalidArgument, TypeError)):
            virga.Replica(mlp(), **options)


@on(ranks=2)
def test_a_second_init_is_refused(job):
    with pytest.raises(virga.InvalidArgument, match="already"):
        virga.init()
    assert virga.is_initialized()


@on(ranks=2)
def test_after_all_this_the_job_still_trains(job):
    model = mlp()
    replica = virga.Replica(model, strategy="allreduce")
    loss(model, batch(job.rank, 0)).backward()
    replica.end_epoch()
    replica.close()


def test_before_init_everything_says_so():
    model = mlp()
    calls = (lambda: virga.Replica(model), virga.barrier, lambda: virga.allreduce(torch.zeros(1)),
             lambda: virga.new_group([0]), lambda: virga.Residual(3))
    for call in calls:
        with pytest.raises(virga.Unavailable, match=r"virga.init\(\)"):
            call()
    virga.shutdown()  # nothing to end: no error


def test_errors_are_of_python_s_kinds_too():
    assert issubclass(virga.InvalidArgument, ValueError) and issubclass(virga.Error, RuntimeError)


# ---- the environment -------------------------------------------------------------------------------------------------


def test_a_wrong_environment_is_named(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(virga.InvalidArgument, match="RANK=3"):
        virga.init()
    assert not virga.is_initialized()


def missing_rank():
    if os.environ["RANK"] == "1":
        return None
    begin = time.monotonic()
    with pytest.raises(virga.DeadlineExceeded) as caught:
        virga.init(meeting_timeout=2.0)
    return [str(caught.value), time.monotonic() - begin]


def test_a_rank_that_does_not_come_is_named():
    text, seconds = run("missing_rank", 2)[0].value
    assert "1" in text and 2 <= seconds < LIMIT, (text, seconds)


def settings_differ():
    try:
        virga.init(settings={"data": "a" if os.environ["RANK"] == "0" else "b"})
    except virga.Mismatch as error:
        return str(error)
    return None


def test_settings_that_differ_are_named():
    for rank in run("settings_differ", 2):
        assert rank.value and "data" in rank.value, rank


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


# ---- the end ---------------------------------------------------------------------------------------------------------


def used_after_shutdown():
    job = virga.init()
    model = mlp()
    replica = virga.Replica(model, strategy="topk")
    loss(model, batch(job.rank, 0)).backward()
    work = virga.allreduce(torch.zeros(3), async_op=True)
    residual = virga.Residual(4)
    virga.shutdown()
    virga.shutdown()
    assert not virga.is_initialized()
    loss(model, batch(job.rank, 0)).backward()  # the replica is closed: this trains alone
    for call in (virga.barrier, lambda: virga.allreduce(torch.zeros(3)), lambda: virga.Replica(mlp()),
                 lambda: virga.allreduce_sparse(torch.zeros(4), residual), lambda: job.dump(),
                 lambda: job.inter_host_bytes, lambda: job.require_equal("a", "b"), replica.end_epoch,
                 replica.state_dict, replica.stats):
        with pytest.raises(virga.Unavailable):
            call()
    with contextlib.suppress(virga.Aborted):  # it may have ended before the job did
        work.wait()
    return "ok"


def test_after_shutdown_everything_says_so():
    for rank in run("used_after_shutdown", 2):
        assert rank.status == 0 and rank.value == "ok", rank


def ends_in_mid_step():
    """Work that is under way, a replica whose buckets are under way, a step that was never waited for."""
    job = virga.init()
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    virga.Replica(model, bucket_bytes=4096)
    hidden = model[0](torch.randn(4, 64))

    def fail(_gradient):
        virga.allreduce(torch.zeros(1 << 20), async_op=True)
        raise ValueError("left in mid step")

    hidden.register_hook(fail)
    model[3](model[2](model[1](hidden))).sum().backward()


def test_leaving_in_mid_step_ends_without_a_crash():
    begin = time.monotonic()
    for rank in run("ends_in_mid_step", 2):
        assert rank.status == 1 and "left in mid step" in rank.output, rank
    assert time.monotonic() - begin < 2 * LIMIT


def init_again_after_shutdown():
    virga.init()
    virga.shutdown()
    with pytest.raises(virga.InvalidArgument, match="start the script anew"):
        virga.init()
    return "refused"


def test_ranks_meet_once():
    for rank in run("init_again_after_shutdown", 2):
        assert rank.status == 0 and rank.value == "refused", rank


def test_an_import_alone_ends_quietly():
    code = "import virga.torch as v, torch; v.init(); r = v.Replica(torch.nn.Linear(2, 2)); print('done')"
    done = subprocess.run(python("-c", code), env=environment(), timeout=60, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
