"""What docs/migration.md puts on the right side runs as it stands there, on two ranks."""

import re
import tempfile

import pytest
import torch
import virga.torch as virga
from models import batch, loss, mlp
from ranks import ROOT, on
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
COMMANDS = ("torchrun", "mpirun", "srun", "virga run")
ONCE_A_PROCESS = ("job = virga.init()", "virga.shutdown()")  # every job of these tests calls them


def snippets():
    """All code in the last column of the page's tables."""
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert all(len(row) == 2 for row in rows), [row for row in rows if len(row) != 2]
    found = [code for row in rows for code in re.findall(r"`([^`]+)`", row[1])]
    return sorted({code for code in found if not code.startswith(COMMANDS)} - set(ONCE_A_PROCESS))


def names(job, folder):
    """What the page takes for granted."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scope = {"torch": torch, "virga": virga, "job": job, "model": model, "optimizer": optimizer, "t": torch.ones(2, 3),
             "x": batch(job.rank, 0)[0], "dataset": TensorDataset(torch.ones(4, 1)), "path": f"{folder}/state",
             "DistributedSampler": DistributedSampler, "scaler": torch.cuda.amp.GradScaler(enabled=False)}
    return scope


def run(code, job):
    with tempfile.TemporaryDirectory() as folder:
        scope = names(job, folder)
        if not code.startswith("replica = "):
            scope["replica"] = virga.Replica(scope["model"], scope["optimizer"])
            torch.save(scope["replica"].state_dict(), scope["path"])
        if "handle." in code:
            scope["handle"] = virga.allreduce(scope["t"], async_op=True)
        scope["loss"] = loss(scope["model"], batch(job.rank, 0))
        exec(code + (" pass" if code.endswith(":") else ""), scope)
        scope["loss"] = loss(scope["model"], batch(job.rank, 0))
        scope["loss"].backward()
        scope["replica"].end_epoch()
        scope["replica"].close()


@on(ranks=2)
def test_every_line_runs(job):
    codes = snippets()
    assert len(codes) > 25, codes
    for code in codes:
        try:
            run(code, job)
        except Exception as error:
            raise AssertionError(f"docs/migration.md says: {code}") from error


@on(ranks=2)
def test_a_line_that_is_wrong_would_be_noticed(job):
    for wrong in ("replica.nosync()", "replica = virga.Replica(model, optimizer, denseness=0.1)"):
        with pytest.raises((AttributeError, TypeError)):
            run(wrong, job)
