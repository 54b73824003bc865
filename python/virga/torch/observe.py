"""What a replica tells of its steps: means, a Chrome trace, TensorBoard scalars."""

import json
import time
from typing import Any, Dict, List, Optional

_SUMS = ("step_seconds", "compute_seconds", "wait_seconds", "select_seconds")


class Observer:
    """Told by a replica when it waits and when a step ends. Times are of the steady clock."""

    def __init__(self, replica):
        self._replica = replica
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._steps = 0
        self._bytes_before = replica._job.inter_host_bytes
        self._last_end = time.monotonic()
        self._wait_begin = self._last_end
        self._trace_path: Optional[str] = None
        self._trace_left = 0
        self._clock_offset = 0.0
        self._events: List[Dict[str, Any]] = []
        self._lanes: Dict[str, int] = {}
        self._writer: Any = None
        self._every = 0

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
            for name, value in self.stats(reset=False).items():
                self._writer.add_scalar(f"virga/{name}", value, self._replica._steps)

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
            self._sums = dict.fromkeys(_SUMS, 0.0)
            self._steps, self._bytes_before = 0, sent
        return result

    def log_to(self, writer: Any, every: int) -> None:
        self._writer, self._every = writer, max(int(every), 1)

    def trace(self, path: str, steps: int) -> None:
        self._trace_path, self._trace_left, self._events = path, int(steps), []
        self._clock_offset = self._replica._job.core.clock_offset()

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
            with open(self._trace_path, "w", encoding="utf-8") as file:
                json.dump({"traceEvents": self._lane_names() + self._events, "displayTimeUnit": "ms"}, file)
            self._events = []

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

    def discount(self, count): self._bytes_before += count
    def reset(self): pass
    def close(self): pass
