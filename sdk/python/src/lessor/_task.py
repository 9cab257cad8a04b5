"""A task as its handler sees it."""

from __future__ import annotations

import logging
import math
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, Mapping, MutableMapping, Optional, SupportsFloat, SupportsInt, Tuple

from ._clock import LeaseClock, now, parse_time
from ._failures import Cancelled, LeaseLost, text
from ._models import TaskContext

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

logger = logging.getLogger("lessor")

# Largest value of a metric.
MAX_METRIC = 2**64 - 1


class TaskLog(_Adapter):
    """Adds the attempt to each log line."""

    def __init__(self, task_id: str, attempt: int) -> None:
        super().__init__(logger, {"task_id": task_id, "attempt": attempt})
        self._prefix = f"task {task_id} attempt {attempt}"

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> Tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return f"{self._prefix}: {msg}", kwargs


class Task(TaskContext):
    """One attempt at a task, and the lease that allows it.

    `fencing_token` is higher for every later lease: hand it to systems that can refuse an older one.
    """

    def __init__(self, lease: Mapping[str, Any], clock: LeaseClock) -> None:
        super().__init__(lease)
        self.id: str = lease["taskId"]
        self.queue: str = lease["queue"]
        self.payload: Any = lease["payload"]
        self.attempt: int = lease["attempt"]
        self.fencing_token: int = lease["fencingToken"]
        self.deadline: Optional[datetime] = parse_time(lease["deadline"]) if lease.get("deadline") else None
        self.timeout_ms: Optional[int] = lease.get("timeoutMs")
        # What an earlier attempt had done when it failed, if its failure said so.
        self.partial_progress: Any = lease.get("partialProgress")
        # Opaque. With the worker's id it gives the right to report on this attempt. For a pushed task it is the dispatch
        # id, which gives no right.
        self.lease_id: str = lease["leaseId"]
        self.log = TaskLog(self.id, self.attempt)
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._reason: Optional[str] = None
        self._is_lost = False
        self._progress: Optional[Tuple[Optional[float], Optional[str]]] = None
        self._progressed = threading.Event()
        self._metrics: Optional[Dict[str, int]] = None

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: the task was cancelled, the lease is lost, or the worker ends."""
        return self._stop.is_set() or self.lease_lost

    @property
    def cancel_reason(self) -> Optional[str]:
        """Why the handler should stop, once it should."""
        if self._reason is None and self.lease_lost:
            return "the lease ran out"
        return self._reason

    @property
    def lease_lost(self) -> bool:
        """Whether the right to report on this attempt is gone. From then on, do nothing in the task's name."""
        return self._is_lost or self._clock.is_over

    def checkpoint(self) -> None:
        """Raises `Cancelled` (`LeaseLost` when the lease is lost) if the handler should stop."""
        if self.lease_lost:
            raise LeaseLost(self.cancel_reason or "the lease is lost")
        if self._stop.is_set():
            raise Cancelled(self._reason or "cancelled")

    def wait(self, seconds: float) -> bool:
        """Sleeps, but wakes early if the handler should stop. Returns whether it should."""
        until = now() + seconds
        while not self.cancelled:
            remaining_s = min(until, self._clock.valid_until) - now()
            if remaining_s <= 0 and now() >= until:
                return False
            self._stop.wait(max(remaining_s, 0.0))
        return True

    def progress(self, pct: Optional[SupportsFloat] = None, message: Optional[object] = None) -> None:
        """Shows people the progress of the attempt, from 0 to 100; other values are clamped. It is sent with a heartbeat
        and decides nothing."""
        share = math.nan if pct is None else float(pct)
        body = None if math.isnan(share) else min(max(share, 0.0), 100.0)
        with self._lock:
            self._progress = (body, None if message is None else text(message))
        self._progressed.set()

    def metrics(
        self,
        *,
        cpu_time_ms: Optional[SupportsInt] = None,
        peak_memory_bytes: Optional[SupportsInt] = None,
        io_read_bytes: Optional[SupportsInt] = None,
        io_write_bytes: Optional[SupportsInt] = None,
    ) -> None:
        """Sets the metrics of the attempt, which are sent with its report. They are for people and decide
        nothing. Fractions are dropped."""
        body = {
            "cpuTimeMs": cpu_time_ms,
            "peakMemoryBytes": peak_memory_bytes,
            "ioReadBytes": io_read_bytes,
            "ioWriteBytes": io_write_bytes,
        }
        self._metrics = {name: _metric(name, value) for name, value in body.items() if value is not None}

    def _cancel(self, reason: str) -> None:
        with self._lock:
            if self._reason is None:
                self._reason = reason
        self._stop.set()

    def _lose(self, reason: str) -> None:
        self._is_lost = True
        self._cancel(reason)

    def _take_progress(self) -> Optional[Tuple[Optional[float], Optional[str]]]:
        with self._lock:
            self._progressed.clear()
            taken, self._progress = self._progress, None
            return taken

    def _restore_progress(self, unsent: Optional[Tuple[Optional[float], Optional[str]]]) -> None:
        with self._lock:
            if self._progress is None:
                self._progress = unsent

    def __repr__(self) -> str:
        return f"<Task {self.id} of {self.queue}, attempt {self.attempt}>"


def _metric(name: str, value: SupportsInt) -> int:
    number = int(value)
    if not 0 <= number <= MAX_METRIC:
        raise ValueError(f"{name} is from 0 to {MAX_METRIC}, not {number}")
    return number
