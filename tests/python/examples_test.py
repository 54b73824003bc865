"""The examples, at small size: alone, by every launcher, on an emulated cluster."""

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile

import pytest
import torch
from ranks import PACKAGE, ROOT, VIRGA, environment, python

EXAMPLES = ROOT / "examples" / "python"
sys.path.insert(0, str(EXAMPLES))
sys.path.insert(0, PACKAGE)
import char_transformer  # noqa: E402
import images  # noqa: E402
from virga.torch.replica import parameters_sha256  # noqa: E402

SMALL = {
    "fashion_mnist.py": ["--model", "lenet5", "--steps", "6", "--test-samples", "250", "--threads", "1"],
    "char_transformer.py": ["--steps", "6", "--width", "16", "--context", "16", "--layers", "1", "--threads", "1",
                            "--validation-windows", "64"],
    "ddp_hook.py": ["--steps", "6", "--threads", "1"],
}
LAB = [VIRGA, "lab", "--hosts", "2", "--rate", "1gbit", "--timeout", "100"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def torchrun(folder: str):
    """Two ranks. torch 1.13 under Python 3.11 can't leave both streams alone: stdout is teed."""
    return python("-m", "torch.distributed.run", "--nproc_per_node", "2", "--redirects", "1", "--tee", "1",
                  "--log_dir", folder, "--master_port", free_port(), "--no_python")


def mpirun():
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]


def last_line(launcher, *command: str):
    """What rank 0 says at the end."""
    done = subprocess.run([*launcher, *command], env=environment(), timeout=120, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    lines = [line[line.index("{"):] for line in done.stdout.splitlines() if "{" in line]
    return json.loads(lines[-1])


def run(launcher, name: str, *options: str):
    return last_line(launcher, *python(str(EXAMPLES / name), *SMALL[name], *options))


@functools.lru_cache(maxsize=None)
def loss_of_one_process(name: str) -> float:
    """On batches of 16, dense."""
    result = run([], name, "--strategy", "allreduce", "--batch-size", "16")
    assert (result["ranks"], result["steps"]) == (1, 6)
    return result["train_loss"]


def assert_two_ranks_train_as_one_process(launcher, name: str):
    result = run(launcher, name, "--strategy", "allreduce", "--batch-size", "8")
    assert (result["ranks"], result["steps"]) == (2, 6)
    assert result["train_loss"] == pytest.approx(loss_of_one_process(name), rel=1e-5)
    return result


@pytest.mark.parametrize("name", SMALL)
def test_started_by_virga_run(name):
    assert_two_ranks_train_as_one_process([VIRGA, "run", "-n", "2", "--timeout", "100"], name)


@pytest.mark.parametrize("name", SMALL)
def test_started_by_torchrun(name):
    with tempfile.TemporaryDirectory() as folder:
        assert_two_ranks_train_as_one_process(torchrun(os.path.join(folder, "logs")), name)


@pytest.mark.parametrize("name", ["fashion_mnist.py", "char_transformer.py"])
def test_started_by_mpirun(name):
    assert_two_ranks_train_as_one_process(mpirun(), name)


@needs_root
@pytest.mark.parametrize("name", ["fashion_mnist.py", "char_transformer.py"])
def test_in_the_lab(name):
    assert_two_ranks_train_as_one_process([*LAB, "env", "GLOO_SOCKET_IFNAME=e0"], name)


@needs_root
def test_the_gradients_of_ddp_travel_by_the_hook():
    result = assert_two_ranks_train_as_one_process([*LAB, "env", "GLOO_SOCKET_IFNAME=e0"], "ddp_hook.py")
    assert result["inter_host_bytes"] == pytest.approx(4 * 61706, rel=0.02)  # a ring of two: each sends all of it


@needs_root
def test_resnet18_sends_what_the_strategy_says():
    result = last_line(LAB, *python(str(EXAMPLES / "fashion_mnist.py"), "--steps", "2", "--batch-size", "2",
                                    "--threads", "1", "--test-samples", "0"))
    assert (result["ranks"], result["hosts"], result["parameters"]) == (2, 2, 11173962)
    assert result["test_accuracy"] is None
    assert result["inter_host_bytes"] == pytest.approx(result["inter_host_bytes_formula"], rel=0.01)


@pytest.mark.parametrize("name", images.MODELS)
def test_networks_begin_as_those_of_virga_train(name):
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "run.jsonl")
        command = [VIRGA, "train", "--model", name, "--seed", "7", "--lr", "0", "--steps", "1", "--batch-size", "1",
                   "--test-samples", "0", "--threads", "1", "--metrics", metrics]
        subprocess.run(command, env=environment(), timeout=60, stdout=subprocess.DEVNULL, check=True)
        with open(metrics, encoding="utf-8") as file:
            expected = json.loads(file.readlines()[-1])["parameters_sha256"]
    torch.manual_seed(7)
    assert parameters_sha256(images.MODELS[name][0]()) == expected


def test_batches_are_dealt_out_without_overlap():
    two = [images.batches(100, 8, rank, 2, seed=3) for rank in range(2)]
    one = images.batches(100, 16, 0, 1, seed=3)
    for _ in range(15):  # more than two epochs of six steps
        together = torch.cat([next(source) for source in two])
        assert torch.equal(together, next(one)) and len(set(together.tolist())) == 16
    with pytest.raises(ValueError, match="do not fill"):
        next(images.batches(15, 8, 0, 2, seed=3))


def test_the_text_is_all_of_the_bible_or_any_file(tmp_path):
    text = char_transformer.read_text(char_transformer.BIBLE)
    assert b"\nGe1:1 In the beginning God created the heaven and the earth.\n" in text
    assert text.endswith(b"\nRev22:21 The grace of our Lord Jesus Christ be with you all. Amen.\n")
    assert text.count(b"\n") == 31103  # a heading and as many verses as there are
    (tmp_path / "own.txt").write_bytes(b"abracadabra")
    numbers, characters = char_transformer.encode(char_transformer.read_text(str(tmp_path / "own.txt")))
    assert characters == 5 and numbers.tolist() == [0, 1, 4, 0, 2, 0, 3, 0, 1, 4, 0]
    x, y = char_transformer.windows(numbers, torch.tensor([0, 2]), 3)
    assert x.tolist() == [[0, 1, 4], [4, 0, 2]] and y.tolist() == [[1, 4, 0], [0, 2, 0]]


def test_the_transformer_sees_nothing_of_the_future():
    torch.manual_seed(1)
    model = char_transformer.CharTransformer(characters=5, context=8, width=8, heads=2, layers=2)
    text = torch.randint(5, (1, 8))
    later = text.clone()
    later[0, 5:] = (later[0, 5:] + 1) % 5
    changed = (model(text) != model(later)).any(dim=2)[0]
    assert not changed[:5].any() and changed[5:].all()
