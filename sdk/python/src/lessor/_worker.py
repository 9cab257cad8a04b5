"""A worker: handlers for queues, and the loop that polls for leases, runs handlers and reports.

On SIGTERM or SIGINT the worker drains: it takes no more tasks, gives running handlers a grace period, and releases the
leases that are left.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Mapping, Optional, TypeVar

from ._attempt import RELEASE_TIMEOUT_S, Attempt, Handler, OnOutcome, check_handler
from ._clock import LeaseClock, now
from ._contract import LeaseContract
from ._credentials import Credentials
from ._drain import StopRequests, random_worker_id, release_all
from ._http import Fault, Transport
from ._poll import Poll
from ._backoff import RetryBackoff
from ._task import logger

MAX_POLL_TASKS = 100
DEFAULT_WAIT_MS = 10_000
DEFAULT_GRACE_MS = 30_000

H = TypeVar("H", bound=Handler)


class Worker:
    """`concurrency` handlers run at a time, each in a thread of its own.

    `on_outcome` is called with the outcome of each attempt: COMMITTED, CANCELLED, REJECTED, or why there is no verdict.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        tenant: Optional[str] = None,
        workspace: Optional[str] = None,
        credentials: Optional[Credentials] = None,
        worker_id: Optional[str] = None,
        concurrency: int = 1,
        properties: Optional[Mapping[str, str]] = None,
        wait_ms: int = DEFAULT_WAIT_MS,
        grace_ms: int = DEFAULT_GRACE_MS,
        on_outcome: Optional[OnOutcome] = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"a worker runs at least one handler at a time, not {concurrency}")
        self.worker_id = worker_id or random_worker_id()
        self._transport = Transport(url, tenant, workspace, credentials)
        self._concurrency = concurrency
        self._properties = properties
        self._wait_ms = wait_ms
        self._grace_ms = grace_ms
        self._on_outcome = on_outcome
        self._handlers: Dict[str, Handler] = {}
        self._changed = threading.Condition()
        self._running: Dict[str, Attempt] = {}
        self._is_draining = False
        self._error: Optional[BaseException] = None
        self._stop_requests = StopRequests()

    def handler(self, queue: str) -> Callable[[H], H]:
        """Makes a function the handler of a queue. Its return value is the task's result, its exception the failure."""

        def register(function: H) -> H:
            if queue in self._handlers:
                raise ValueError(f"the queue {queue} has a handler already")
            check_handler(function)
            self._handlers[queue] = function
            return function

        return register

    def run(self) -> None:
        """Works until SIGTERM, SIGINT or `stop`; once. Signals are only received in the main thread."""
        if not self._handlers:
            raise ValueError("a worker needs a handler")
        poll = Poll(self._transport, self.worker_id, list(self._handlers), self._properties, self._wait_ms)
        poller = threading.Thread(target=self._poll, args=(poll,), name="lessor-poll", daemon=True)
        try:
            with self._stop_requests.stop_on_signals():
                logger.info("the worker %s has started: %s", self.worker_id, ", ".join(self._handlers))
                poller.start()
                self._stop_requests.sleep_until(lambda: self._stop_requests.count >= 1 or self._error is not None, None)
                self._drain(poll, poller)
        finally:
            self._transport.close()
            self._stop_requests.close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Makes the worker drain, from any thread; a second call ends the grace period."""
        self._stop_requests.stop()

    def _poll(self, poll: Poll) -> None:
        backoff = RetryBackoff()
        try:
            while not poll.is_stopped:
                with self._changed:
                    while len(self._running) >= self._concurrency and not poll.is_stopped:
                        self._changed.wait()
                    free = self._concurrency - len(self._running)
                if poll.is_stopped:
                    return
                try:
                    leases = poll.try_once(min(free, MAX_POLL_TASKS))
                except Fault as fault:
                    backoff = self._wait_before_retry(poll, backoff, fault)
                    continue
                backoff = RetryBackoff()
                received_at = now()
                for lease in leases:
                    self._begin(self._attempt(lease, poll.asked_at, received_at))
        except BaseException as error:
            # The coordinator refuses the poll itself, and no retry would change that.
            self._error = error
            self._stop_requests.wake()

    def _wait_before_retry(self, poll: Poll, backoff: RetryBackoff, fault: Fault) -> RetryBackoff:
        if poll.is_stopped:
            return backoff
        delay_s = backoff.next_delay_s(fault.retry_after_s)
        if delay_s is None:
            # A worker outlives any outage: the backoff starts again, and the log says so.
            backoff = RetryBackoff()
            delay_s = backoff.next_delay_s(fault.retry_after_s) or 0.0
            logger.error("the coordinator at %s does not answer: %s", self._transport.url, fault)
        else:
            logger.warning("a poll got no answer and is repeated: %s", fault)
        with self._changed:
            self._changed.wait_for(lambda: poll.is_stopped, delay_s)
        return backoff

    def _begin(self, attempt: Attempt) -> None:
        task = attempt.task
        with self._changed:
            if self._is_draining or task.queue not in self._handlers or task.lease_id in self._running:
                is_wanted = False
            else:
                is_wanted = True
                self._running[task.lease_id] = attempt
        if is_wanted:
            name = f"lessor-task-{task.id}"
            threading.Thread(target=self._work, args=(attempt,), name=name, daemon=True).start()
        elif task.lease_id not in self._running:
            attempt.release("the worker is stopping", RELEASE_TIMEOUT_S)

    def _work(self, attempt: Attempt) -> None:
        try:
            attempt.run(self._handlers[attempt.task.queue], self._on_outcome)
        finally:
            with self._changed:
                self._running.pop(attempt.task.lease_id, None)
                self._changed.notify_all()
            self._stop_requests.wake()

    def _attempt(self, lease: Mapping[str, Any], asked_at: float, received_at: float) -> Attempt:
        contract = LeaseContract(self._transport, self.worker_id, lease)
        return Attempt(contract, lease, LeaseClock(lease, asked_at, received_at))

    def _drain(self, poll: Poll, poller: threading.Thread) -> None:
        with self._changed:
            self._is_draining = True
            poll.stop()
            self._changed.notify_all()
        logger.info("the worker %s is draining: %d handlers running", self.worker_id, len(self._running))
        end = now() + self._grace_ms / 1000
        poller.join(RELEASE_TIMEOUT_S)
        for lease in poll.take_unanswered(RELEASE_TIMEOUT_S):
            self._attempt(lease, poll.asked_at, now()).release("", RELEASE_TIMEOUT_S)
        self._stop_requests.sleep_until(lambda: not self._running or self._stop_requests.count >= 2, end)
        release_all(list(self._running.values()), self._on_outcome)
