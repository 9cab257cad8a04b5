"""Stops a worker: by a signal or a call. It waits for running handlers and releases the rest."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import threading
from contextlib import contextmanager
from types import FrameType
from typing import Callable, Iterator, List, Optional

from ._attempt import RELEASE_TIMEOUT_S, Attempt, OnOutcome
from ._clock import now
from ._outcome import Verdict


class StopRequests:
    """Counts the requests to stop, and sleeps until something changes."""

    def __init__(self) -> None:
        # A byte wakes the sleeping thread. A signal handler may write to a socket, but must not take a lock.
        self._wakes, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._wakes.setblocking(False)
        self.count = 0

    def stop(self) -> None:
        self.count += 1
        self.wake()

    def wake(self) -> None:
        try:
            self._waker.send(b"w")
        except OSError:
            # The thread is awake already, or has ended.
            pass

    def sleep_until(self, is_done: Callable[[], bool], end: Optional[float]) -> None:
        while not is_done():
            remaining_s = None if end is None else end - now()
            if remaining_s is not None and remaining_s <= 0:
                return
            select.select([self._wakes], [], [], remaining_s)
            try:
                self._wakes.recv(1024)
            except BlockingIOError:
                pass

    @contextmanager
    def stop_on_signals(self) -> Iterator[None]:
        """Makes SIGTERM and SIGINT stop the worker, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, frame: Optional[FrameType]) -> None:
            self.stop()

        # The interpreter calls a handler when the main thread gets to it, which a sleeping one does not: it may have
        # gone to sleep just then, or another thread took the signal. The byte wakes it.
        waker = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(waker)

    def close(self) -> None:
        self._wakes.close()
        self._waker.close()


def release_all(attempts: List[Attempt], on_outcome: Optional[OnOutcome]) -> None:
    """Releases the remaining attempts of a worker that stops; they share the timeout."""
    end = now() + RELEASE_TIMEOUT_S
    for attempt in attempts:
        outcome = attempt.release("the worker is stopping", max(end - now(), 0.001))
        if outcome is None:
            attempt.task.log.warning("stopped before the report was answered")
        elif outcome.verdict not in (Verdict.RELEASED, Verdict.COMMITTED):
            attempt.task.log.warning("the lease was not released and will expire: %s", outcome.error)
        attempt.notify(on_outcome, outcome)


def random_worker_id() -> str:
    """Begins with the host name, for people who look for a worker."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
