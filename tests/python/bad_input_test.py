"""Wrong use: a Python exception that says what to do, and the interpreter ends as it should."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
import torch
import virga.torch as virga
from models import batch, loss, mlp
from ranks import PACKAGE, environment, on, python, run

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


def test_a_timeout_that_is_none_is_refused():
    for name in ("meeting_timeout", "operation_timeout"):
        for seconds in (float("inf"), float("nan"), 0, -1.0, 1e18):
            with pytest.raises(virga.InvalidArgument, match=f"{name} is .*above 0 and at most 1000000"):
                virga.init(**{name: seconds})
        with pytest.raises(virga.InvalidArgument, match=f"{name} takes seconds as a number, not 'soon'"):
            virga.init(**{name: "soon"})
    with pytest.raises(virga.InvalidArgument, match="settings takes a dict.*not list"):
        virga.init(settings=["lr"])
    assert not virga.is_initialized()


def longest_timeout():
    virga.init(meeting_timeout=1e6, operation_timeout=1e6)
    virga.barrier()
    return "met"


def test_the_longest_timeout_is_none_that_has_passed():
    for rank in run("longest_timeout", 2, VIRGA_OPERATION_TIMEOUT_SECONDS=""):
        assert rank.value == "met", rank


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
    for rank in run("init_again_after_shutdown", 4):  # some leave while others have only just met
        assert rank.status == 0 and rank.value == "refused", rank


def test_an_import_alone_ends_quietly():
    code = "import virga.torch as v, torch; v.init(); r = v.Replica(torch.nn.Linear(2, 2)); print('done')"
    done = subprocess.run(python("-c", code), env=environment(), timeout=60, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_package_without_its_library_says_what_to_do(tmp_path):
    source = pathlib.Path(PACKAGE) / "virga"
    shutil.copytree(source, tmp_path / "virga", ignore=shutil.ignore_patterns("_core*", "__pycache__"))
    done = subprocess.run(python("-c", "import virga.torch"), env=environment(PYTHONPATH=str(tmp_path)), timeout=60,
                          capture_output=True, text=True, check=False)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    expected = (f"ImportError: Virga's library is not built for this Python ({version}): use build/release/python, "
                "./dev python or pip install .")
    assert done.returncode == 1 and done.stderr.endswith(expected + "\n"), done.stderr
