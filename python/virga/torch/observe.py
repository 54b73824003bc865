"""What a replica tells of its steps: means, a Chrome trace, TensorBoard scalars."""

import json
import logging
import operator
import os
import time
from typing import Any, Dict, List, Optional, Union

from virga.errors import invalid

_log = logging.getLogger("virga")
_SUMS = ("step_seconds", "compute_seconds", "wait_seconds", "select_seconds")


class Observer:
    """Told by a replica when it waits and when a step ends. Times are of the steady clock.

    A file or a writer that fails while training goes on is told to the log, not raised: the other ranks are in the
    middle of the step.
    """

    def __init__(self, replica):
        self._replica = replica
        self.reset()
        self._wait_begin = self._last_end
        self._trace_path = ""
        self._trace_left = 0  # steps
        self._clock_offset = 0.0
        self._events: List[Dict[str, Any]] = []
        self._lanes: Dict[str, int] = {}
        self._writer: Any = None
        self._every = 0

    def reset(self) -> None:
        """Means begin anew: what was counted is of another strategy."""
        self._clear(self._replica._job.inter_host_bytes)
        self._last_end = time.monotonic()

    def _clear(self, bytes_so_far: int) -> None:
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._steps, self._bytes_before = 0, bytes_so_far

    def discount(self, bytes_sent: int) -> None:
        """What was just sent to other hosts is no step's but a measurement's."""
        self._bytes_before += bytes_sent

    def wait_begins(self) -> None:
        self._wait_begin = time.monotonic()

    def step_ends(self) -> None:
        end = time.monotonic()
        self._steps += 1
        self._sums["step_seconds"] += end - self._last_end
        self._sums["compute_seconds"] += self._wait_begin - self._last_end
        self._sums["wait_seconds"] += end - self._wait_begin
        self._sums["select_seconds"] += self._replica._exchange.select_seconds
        if self._trace_left > 0:
            self._record(end)
        self._last_end = end
        if self._writer is not None and self._replica._steps % self._every == 0:
            self._write_scalars()

    def _write_scalars(self) -> None:
        step = self._replica._steps
        try:
            for name, value in self.stats(reset=False).items():
                self._writer.add_scalar(f"virga/{name}", value, step)
        except Exception as error:  # whatever a writer raises
            _log.error("scalars of step %d were not written: %s: %s", step, type(error).__name__, error)

    def stats(self, reset: bool) -> Dict[str, float]:
        replica, steps = self._replica, max(self._steps, 1)
        sent = replica._job.inter_host_bytes
        result: Dict[str, float] = {name: total / steps for name, total in self._sums.items()}
        result["inter_host_bytes"] = (sent - self._bytes_before) / steps
        result["inter_host_bytes_formula"] = replica._exchange.inter_host_bytes_formula
        result["density"] = replica._exchange.density
        result["steps"] = replica._steps
        result["skipped_steps"] = replica._skipped
        if reset:
            self._clear(sent)
        return result

    def log_to(self, writer: Any, every: int) -> None:
        """``writer``: what has ``add_scalar``; None ends it. Raises ``InvalidArgument``."""
        if writer is not None and not callable(getattr(writer, "add_scalar", None)):
            raise invalid(f"log_to() takes a writer with add_scalar(), such as TensorBoard's SummaryWriter, not "
                          f"{type(writer).__name__}")
        self._writer, self._every = writer, _at_least_one(every, "every")

    def trace(self, path: Union[str, "os.PathLike[str]"], steps: int) -> None:
        """A trace that is under way ends here and is written. Raises ``InvalidArgument``, ``OSError`` for a file that
        can't be written."""
        if not isinstance(path, (str, os.PathLike)):
            raise invalid(f"trace() takes the path of a file, not {type(path).__name__}")
        steps = _at_least_one(steps, "steps")
        with open(path, "a", encoding="utf-8"):  # fails here, not after the last step
            pass
        self.close()
        self._trace_path, self._trace_left, self._events = os.path.abspath(path), steps, []
        self._clock_offset = self._replica._job.core.clock_offset()

    def close(self) -> None:
        """Writes what there is of a trace that has not seen all its steps. A second call does nothing."""
        if self._trace_left > 0:
            self._write_trace()

    def _record(self, end: float) -> None:
        self._event("compute", "training", self._last_end, self._wait_begin)
        self._event("wait", "training", self._wait_begin, end)
        for bucket, (first, last, elements, begin, stop, select_begin, select_end) in enumerate(
                self._replica._exchange.bucket_times()):
            names = [name for name, _ in self._replica._parameters[first:last]]
            self._record_bucket(f"bucket {bucket}", {"elements": elements, "parameters": f"{names[0]} .. {names[-1]}"},
                                begin, stop, select_begin, select_end)
        self._trace_left -= 1
        if self._trace_left == 0:
            self._write_trace()

    def _write_trace(self) -> None:
        events, self._events, self._trace_left = self._lane_names() + self._events, [], 0
        try:
            with open(self._trace_path, "w", encoding="utf-8") as file:
                json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
        except OSError as error:
            _log.error("the trace was not written: %s", error)

    def _record_bucket(self, lane: str, args: Dict[str, Any], begin: float, end: float, select_begin: float,
                       select_end: float) -> None:
        """Times are of the library's clock."""
        offset = self._clock_offset
        self._event("exchange", lane, begin + offset, end + offset, args)
        if select_end > 0:
            self._event("select", lane, select_begin + offset, select_end + offset)
            self._event("send and add", lane, select_end + offset, end + offset)

    def _event(self, name: str, lane: str, begin: float, end: float, args: Optional[Dict[str, Any]] = None) -> None:
        self._events.append({"name": name, "ph": "X", "pid": self._replica._job.rank,
                             "tid": self._lanes.setdefault(lane, len(self._lanes)), "ts": begin * 1e6,
                             "dur": (end - begin) * 1e6, "args": args or {}})

    def _lane_names(self) -> List[Dict[str, Any]]:
        """Lanes are numbers in this format; a name is an event of its own."""
        rank = self._replica._job.rank
        names = [{"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}]
        return names + [{"name": "thread_name", "ph": "M", "pid": rank, "tid": number, "args": {"name": lane}}
                        for lane, number in self._lanes.items()]


def _at_least_one(value: Any, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise invalid(f"{name} is a whole number, not {value!r}") from None
    if number < 1:
        raise invalid(f"{name} is {number}; it must be at least 1")
    return number
