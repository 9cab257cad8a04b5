"""Heartbeats of one attempt, sent while its handler runs and at no other time.

A heartbeat that gets lost decides nothing: the next one is sent sooner, and that is all. Two things end the attempt:
the coordinator's word that the lease is gone, and the worker's own clock.
"""

from __future__ import annotations

import threading
from typing import Optional

from ._clock import LeaseClock, now
from ._contract import Contract
from ._errors import Problem
from ._http import Answer, Fault
from ._retry import FIRST_PAUSE_S
from ._task import Task

# Progress goes out at once, but not more often than this.
MIN_INTERVAL_S = 0.5
# A heartbeat that is not answered by then is repeated.
BEAT_TIMEOUT_S = 10.0


class Heartbeater:
    def __init__(self, contract: Contract, task: Task, clock: LeaseClock, interval_s: float):
        self._contract = contract
        self._task = task
        self._clock = clock
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._lock = threading.Lock()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"lessor-heartbeater-{self._task.id}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The handler has ended: no heartbeat is sent after this."""
        with self._lock:
            self._ended.set()
        # Wakes the thread if it waits for progress.
        self._task._progressed.set()

    def confirm(self) -> bool:
        """Beats until it is known whether the lease lives; says whether it does."""
        pause_s = FIRST_PAUSE_S
        while not self._task._is_lost and now() < self._clock.latest_end:
            if self._beat():
                return not self._task.lease_lost
            self._ended.wait(pause_s)
            pause_s = min(pause_s * 2, self._interval_s)
        return False

    def _run(self) -> None:
        pause_s = self._interval_s
        beaten_at = now()
        while not self._ended.is_set() and not self._task._is_lost:
            due = min(beaten_at + pause_s, self._clock.valid_until)
            if self._task._progressed.wait(max(due - now(), 0.0)) and not self._ended.is_set():
                # Progress is news, but not worth a flood.
                self._ended.wait(max(min(beaten_at + MIN_INTERVAL_S, due) - now(), 0.0))
            if self._ended.is_set():
                return
            if self._clock.is_over:
                self._task._lose("the lease ran out without an answered heartbeat")
                return
            beaten_at = now()
            if self._beat():
                pause_s = self._interval_s
            else:
                pause_s = FIRST_PAUSE_S if pause_s == self._interval_s else min(pause_s * 2, self._interval_s)

    def _beat(self) -> bool:
        """One heartbeat; says whether it was answered. Never raises: without heartbeats the lease would be lost."""
        try:
            return self._send()
        except Exception:
            self._task.log.exception("a heartbeat could not be sent, and its progress is dropped")
            return False

    def _send(self) -> bool:
        progress = self._task._take_progress()
        call = self._contract.heartbeat(progress)
        sent_at = now()
        timeout_s = min(BEAT_TIMEOUT_S, max(self._clock.valid_until - sent_at, self._interval_s))
        try:
            answer = self._contract.transport.once(
                "POST", call.path, call.body, timeout_s=timeout_s, token=call.token
            )
        except Fault as fault:
            self._task._restore_progress(progress)
            self._task.log.debug("a heartbeat was not answered: %s", fault)
            return False
        with self._lock:
            # An answer that came after the handler had ended changes nothing any more.
            return self._ended.is_set() or self._obey(answer, sent_at)

    def _obey(self, answer: Answer, sent_at: float) -> bool:
        """Does what the coordinator says; says whether it was the coordinator who said it."""
        try:
            heard = self._contract.heard(answer)
        except Problem as problem:
            if problem.is_foreign:
                return False
            if problem.status == 410:
                self._task._lose("the coordinator says that the lease is over")
            else:
                self._task.log.error("a heartbeat was rejected: %s", problem)
                self._task._lose(f"a heartbeat was rejected: {problem}")
            return True
        self._clock.extended(sent_at, heard.expires_at)
        if heard.cancel_reason is not None:
            if heard.grace_s is not None:
                self._clock.stopping(heard.grace_s)
            self._task._cancel(heard.cancel_reason)
        return True
