"""Runs functions of a test file on the ranks of a real job, each rank a process.

Promises that need no job of their own share one: starting Python and torch on every rank costs more than checking.

    @on(ranks=2)
    def test_something(job):            # runs on both ranks; an exception on any of them is the test's failure
        ...

    ranks = run("crash", ranks=3)       # a job of its own: crash() of this file, which calls virga.init() by itself
    assert ranks[1].status == 1

The build tree is that of VIRGA_BUILD, else build/release; the package is its own unless VIRGA_PACKAGE says where. This
file is also the program that the ranks run.
"""

import faulthandler
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("VIRGA_BUILD", ROOT / "build" / "release"))
PACKAGE = os.environ.get("VIRGA_PACKAGE", str(BUILD / "python"))  # the folder that the package virga lies in
VIRGA = str(BUILD / "bin" / "virga")
SECONDS = 60  # for one promise, and for a job of its own

# What a rank's exit status is written by: a crash after the last line of Python must not go unnoticed.
_SHELL = '"$@" >"$0/$RANK.log" 2>&1; status=$?; echo $status >"$0/$RANK.status"; exit $status'


class Rank(NamedTuple):
    """What became of a rank. ``status``: its exit status, 128 + n for signal n, None if it did not end in time."""

    status: Optional[int]
    output: str  # stdout and stderr
    value: Any  # what its function returned


def environment(**more: str) -> Dict[str, str]:
    """For a process that imports virga: no launcher's variables but those given."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "OMPI_", "PMIX_", "TORCHELASTIC_", "VIRGA_"))
            and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return {**kept, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1", "VIRGA_BUILD": str(BUILD),
            "VIRGA_PACKAGE": PACKAGE, "VIRGA_OPERATION_TIMEOUT_SECONDS": "30", **more}


def python(*arguments: str) -> List[str]:
    return [sys.executable, "-B", *arguments]


def _launch(ranks: int, hosts: int, timeout: float, arguments: Sequence[str], folder: str, **more: str) -> List[Rank]:
    kind = ["run", "-n", str(ranks)]
    if hosts > 1:
        kind = ["lab", "--hosts", str(hosts), "--ranks-per-host", str(ranks // hosts)]
    command = [VIRGA, *kind, "--timeout", str(timeout), "--grace", str(timeout), "sh", "-c", _SHELL, folder,
               *python(__file__, folder, *arguments)]
    subprocess.run(command, env=environment(**more), timeout=timeout + 30, stdout=subprocess.DEVNULL, check=False)
    return [_read(pathlib.Path(folder), rank) for rank in range(ranks)]


def _read(folder: pathlib.Path, rank: int) -> Rank:
    def text(kind: str) -> str:
        path = folder / f"{rank}.{kind}"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    status, value = text("status"), text("value")
    return Rank(int(status) if status else None, text("log"), json.loads(value) if value else None)


def run(function: str, ranks: int, *, hosts: int = 1, timeout: float = SECONDS, **more: str) -> List[Rank]:
    """Calls a function of the calling test file on all ranks of a job of its own. ``more``: environment variables."""
    caller = sys._getframe(1).f_globals["__name__"]
    with tempfile.TemporaryDirectory() as folder:
        return _launch(ranks, hosts, timeout, [caller, function], folder, **more)


# ---- promises that share a job ---------------------------------------------------------------------------------------

_outcomes: Dict[Tuple[str, int, int], Dict[str, Optional[str]]] = {}


def on(ranks: int, hosts: int = 1) -> Callable:
    """Marks a test that runs on every rank of a job; ``job`` is what ``virga.init()`` has returned. All tests of a
    file with the same numbers share the job; torch's seed is 1 on all ranks at the beginning of each."""

    def decorate(function: Callable) -> Callable:
        def test(request):
            if hosts > 1 and os.geteuid() != 0:
                pytest.skip("the lab needs root")
            key = (request.module.__name__, ranks, hosts)
            if key not in _outcomes:
                mine = [item.originalname for item in request.session.items
                        if item.module is request.module and getattr(item.function, "crew", None) == (ranks, hosts)]
                _outcomes[key] = _run_all(*key, mine)
            error = _outcomes[key][request.node.originalname]
            if error is not None:
                pytest.fail(error, pytrace=False)

        test.__name__, test.__doc__ = function.__name__, function.__doc__
        test.crew, test.on_rank = (ranks, hosts), function
        return test

    return decorate


def _run_all(module: str, ranks: int, hosts: int, names: List[str]) -> Dict[str, Optional[str]]:
    """A job ends at the first promise that is broken; another one goes on behind it."""
    outcomes: Dict[str, Optional[str]] = {}
    while len(outcomes) < len(names):
        left = names[len(outcomes):]
        with tempfile.TemporaryDirectory() as folder:
            results = _launch(ranks, hosts, SECONDS + 5 * len(left), [module, "--promises", *left], folder)
        kept = min(result.output.count("\npromise kept") for result in results)
        outcomes.update(dict.fromkeys(left[:kept]))
        if kept < len(left):
            outcomes[left[kept]] = _story(results)
        elif any(result.status != 0 for result in results):
            outcomes[left[-1]] = "after the last promise:\n" + _story(results)
    return outcomes


def _story(results: Sequence[Rank]) -> str:
    return "\n".join(f"---- rank {rank}, exit status {result.status}:\n{result.output[-6000:]}"
                     for rank, result in enumerate(results))


# ---- on a rank -------------------------------------------------------------------------------------------------------


def _keep_promises(module, names: Sequence[str]) -> None:
    import torch
    import virga.torch as virga
    job = virga.init()
    for name in names:
        torch.manual_seed(1)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        getattr(module, name).on_rank(job)
        virga.barrier()
        print(f"\npromise kept: {name}", flush=True)
    faulthandler.cancel_dump_traceback_later()


def main(folder: str, module_name: str, function: str, *names: str) -> None:
    sys.path.insert(0, os.path.dirname(__file__))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # started in the background, a process ignores it
    import torch
    torch.set_num_threads(1)
    module = importlib.import_module(module_name)
    if function == "--promises":
        _keep_promises(module, names)
        return
    torch.manual_seed(1)
    value = getattr(module, function)()
    path = pathlib.Path(folder) / f"{os.environ['RANK']}.value"
    path.write_text(json.dumps(value), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
