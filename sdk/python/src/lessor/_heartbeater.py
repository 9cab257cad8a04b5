"""Sends the heartbeats of one attempt while its handler runs, and at no other time.

A lost heartbeat decides nothing: the next one is sent sooner. Two things end the attempt: the coordinator's answer that
the lease is gone, and the worker's own clock.
"""

from __future__ import annotations

import threading
from typing import Optional

from ._clock import LeaseClock, now
from ._contract import Contract
from ._errors import Problem
from ._http import Answer, Fault
from ._backoff import FIRST_DELAY_S
from ._task import Task

# Progress is sent at once, but not more often than this.
MIN_INTERVAL_S = 0.5
# A heartbeat that is not answered by then is repeated.
HEARTBEAT_TIMEOUT_S = 10.0


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
        """Stops the heartbeats, because the handler has ended."""
        with self._lock:
            self._ended.set()
        # Wakes the thread if it waits for progress.
        self._task._progressed.set()

    def confirm(self) -> bool:
        """Sends heartbeats until one is answered. Returns whether the lease is valid."""
        delay_s = FIRST_DELAY_S
        while not self._task._is_lost and now() < self._clock.latest_end:
            if self._send_safely():
                return not self._task.lease_lost
            self._ended.wait(delay_s)
            delay_s = min(delay_s * 2, self._interval_s)
        return False

    def _run(self) -> None:
        delay_s = self._interval_s
        last_sent_at = now()
        while not self._ended.is_set() and not self._task._is_lost:
            due = min(last_sent_at + delay_s, self._clock.valid_until)
            if self._task._progressed.wait(max(due - now(), 0.0)) and not self._ended.is_set():
                # Progress is sent early, but not too often.
                self._ended.wait(max(min(last_sent_at + MIN_INTERVAL_S, due) - now(), 0.0))
            if self._ended.is_set():
                return
            if self._clock.is_over:
                self._task._lose("the lease ran out without an answered heartbeat")
                return
            last_sent_at = now()
            if self._send_safely():
                delay_s = self._interval_s
            else:
                delay_s = FIRST_DELAY_S if delay_s == self._interval_s else min(delay_s * 2, self._interval_s)

    def _send_safely(self) -> bool:
        """Sends one heartbeat. Returns whether the coordinator answered. Never raises: without heartbeats the lease would
        be lost."""
        try:
            return self._send()
        except Exception:
            self._task.log.exception("a heartbeat could not be sent, and its progress is dropped")
            return False

    def _send(self) -> bool:
        progress = self._task._take_progress()
        call = self._contract.heartbeat(progress)
        sent_at = now()
        timeout_s = min(HEARTBEAT_TIMEOUT_S, max(self._clock.valid_until - sent_at, self._interval_s))
        try:
            answer = self._contract.transport.try_once(
                "POST", call.path, call.body, timeout_s=timeout_s, token=call.token
            )
        except Fault as fault:
            self._task._restore_progress(progress)
            self._task.log.debug("a heartbeat was not answered: %s", fault)
            return False
        with self._lock:
            # An answer that arrives after the handler has ended changes nothing.
            return self._ended.is_set() or self._apply(answer, sent_at)

    def _apply(self, answer: Answer, sent_at: float) -> bool:
        """Applies an answer to the task. Returns whether it came from the coordinator."""
        try:
            lease = self._contract.parse_heartbeat_answer(answer)
        except Problem as problem:
            if problem.is_foreign:
                return False
            if problem.status == 410:
                self._task._lose("the coordinator says that the lease is over")
            else:
                self._task.log.error("a heartbeat was rejected: %s", problem)
                self._task._lose(f"a heartbeat was rejected: {problem}")
            return True
        self._clock.extend(sent_at, lease.expires_at)
        if lease.cancel_reason is not None:
            if lease.grace_s is not None:
                self._clock.limit_to_grace(lease.grace_s)
            self._task._cancel(lease.cancel_reason)
        return True
