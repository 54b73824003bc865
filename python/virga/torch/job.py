"""This process's place in the job. There is one job a process."""

import atexit
import weakref
from typing import Any, Dict, Mapping, Optional

from virga import _core
from virga.errors import from_core, invalid


class Job:
    """What a rank knows of its job; ``init()`` makes the one there is.

    ``rank``: this process, 0 .. ``world_size`` - 1. ``local_rank``: the same among the ranks of its machine, 0 ..
    ``local_world_size`` - 1; what picks a GPU. ``host``: its machine, 0 .. ``hosts`` - 1.
    """

    def __init__(self, core: "_core.Job"):
        self.core = core
        self.rank: int = core.rank
        self.world_size: int = core.world_size
        self.local_world_size: int = core.local_world_size
        self.hosts: int = core.hosts
        self.host: int = core.host_of(core.rank)
        self.local_rank: int = sum(core.host_of(lower) == self.host for lower in range(core.rank))
        self._users: "weakref.WeakSet" = weakref.WeakSet()  # what must be closed before the job

    @property
    def inter_host_bytes(self) -> int:
        """Payload bytes that this rank has sent to other machines so far."""
        return self.core.inter_host_bytes()

    def require_equal(self, what: str, value: str) -> None:
        """Raises ``Mismatch`` on every rank, naming ranks and values, unless all ranks give the same value."""
        self.core.require_equal(what, value)

    def dump(self) -> str:
        """The last operations of this rank and whom it waits for; SIGUSR1 prints the same."""
        return self.core.dump()

    def add_user(self, user) -> None:
        """``user.close()`` is called before the job ends."""
        self._users.add(user)

    def close(self) -> None:
        """What ``shutdown()`` calls: closes what uses the job, then leaves it."""
        for user in list(self._users):
            user.close()
        self.core.close()

    def __repr__(self) -> str:
        return f"<virga job: rank {self.rank} of {self.world_size}, host {self.host} of {self.hosts}>"


_job: Optional[Job] = None
_left = False  # a job of several ranks
_MOST_SECONDS = 1e6  # eleven days; the library's clock counts nanoseconds in 64 bits


def init(*, meeting_timeout: float = 60.0, operation_timeout: float = 60.0,
         settings: Optional[Mapping[str, Any]] = None) -> Job:
    """Joins the job that the launcher's environment describes (torchrun, mpirun, srun, ``virga run``; without one, a
    job of this process alone) and waits until all ranks have come.

    Timeouts are in seconds, above 0 and at most a million; VIRGA_RENDEZVOUS_TIMEOUT_SECONDS and
    VIRGA_OPERATION_TIMEOUT_SECONDS override them.
    ``settings`` (compared as text) must be equal on all ranks, for options of your script that would otherwise go
    unnoticed.

    Raises ``InvalidArgument`` for wrong arguments, a wrong environment or a second call (also after ``shutdown()``: a
    process takes part in one job of several ranks), ``DeadlineExceeded`` naming the ranks that did not come,
    ``Mismatch`` naming ranks and the setting that differs.
    """
    global _job
    if _job is not None:
        raise invalid("virga.init() was called already in this process; virga.shutdown() ends the job")
    if _left:
        raise invalid("this process has left its job; ranks meet once, so start the script anew for another job")
    if settings is not None and not isinstance(settings, Mapping):
        raise invalid(f"settings takes a dict of what must be equal on all ranks, not {type(settings).__name__}")
    pairs = [(str(key), str(value)) for key, value in (settings or {}).items()]
    meeting, operation = _seconds("meeting_timeout", meeting_timeout), _seconds("operation_timeout", operation_timeout)
    _job = Job(_core.Job(pairs, meeting, operation))
    return _job


def _seconds(name: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise invalid(f"{name} takes seconds as a number, not {value!r}") from None
    if not 0 < seconds <= _MOST_SECONDS:  # also false for NaN
        raise invalid(f"{name} is {value!r}; seconds must be above 0 and at most {_MOST_SECONDS:.0f}")
    return seconds


def is_initialized() -> bool:
    """Whether this process is in a job."""
    return _job is not None


def current() -> Job:
    """The job; raises ``Unavailable`` before init()."""
    if _job is None:
        raise from_core("unavailable", "this process is in no job: call virga.init() first", -1)
    return _job


def shutdown() -> None:
    """Leaves the job. Called by itself when the interpreter ends. Replicas are closed with it: later backward passes
    communicate no more, so each rank would train by itself. In the middle of a step it ends the job on all ranks."""
    global _job, _left
    job, _job = _job, None
    if job is not None:
        _left = job.world_size > 1
        job.close()


def strategies() -> Dict[str, str]:
    """The names of all strategies and what each does."""
    return dict(_core.strategies())


def strategy_options(strategy: str, density: float, value_dtype: str, error_feedback: bool) -> Dict[str, Any]:
    """What is chosen about a strategy, in the order in which the library takes it."""
    return {"strategy": strategy, "density": float(density), "value_dtype": value_dtype,
            "error_feedback": bool(error_feedback)}


atexit.register(shutdown)
