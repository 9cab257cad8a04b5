"""One lease from its arrival to the coordinator's verdict.

The handler runs, heartbeats keep the lease while it does, and how it ended is reported: once, repeated with the same
words only where a fault lay on the way, and never after the lease is lost.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ._clock import LeaseClock
from ._errors import NoAnswer, Problem
from ._failures import Cancelled, Category, Configuration, Failure
from ._heart import Heart, cut
from ._http import ANSWER_TIMEOUT_S, Fault, Transport, encode, segment
from ._models import TaskState
from ._outcome import Outcome, Verdict
from ._task import Task

MAX_RESULT_BYTES = 1024 * 1024

Handler = Callable[[Task], Any]


class Attempt:
    def __init__(
        self, transport: Transport, worker_id: str, lease: Mapping[str, Any], asked_at: float, heard_at: float
    ) -> None:
        self._transport = transport
        self._worker_id = worker_id
        self._clock = LeaseClock(lease, asked_at, heard_at)
        self.task = Task(lease, self._clock)
        self._heart = Heart(transport, worker_id, self.task, self._clock, lease["heartbeatIntervalMs"] / 1000)
        self._path = f"/v1/leases/{segment(self.task.lease_id)}/"
        self._names: Dict[str, Any] = {"workerId": worker_id, "taskId": self.task.id}
        # Whoever gets it may speak to the coordinator about how the attempt ended: its thread, or a drain.
        self._word = threading.Lock()

    def run(self, handler: Handler) -> Optional[Outcome]:
        """To the end. Nothing when the lease was given back meanwhile."""
        if self._clock.needs_confirming and not self._heart.confirm():
            return self._lost() if self._word.acquire(blocking=False) else None
        self._heart.start()
        try:
            call, body = self._ask(handler)
        finally:
            self._heart.end()
        if not self._word.acquire(blocking=False):
            return None
        return self._lost() if self.task.lease_lost else self._report(call, body)

    def release(self, reason: str, timeout_s: float) -> Optional[Outcome]:
        """Tells the handler to stop and gives the lease back, unless the attempt is reporting already. One try: what
        gets lost expires by itself."""
        if not self._word.acquire(blocking=False):
            return None
        self._heart.end()
        self.task._lose(reason)
        try:
            answer = self._transport.once("POST", self._path + "release", encode(self._names), timeout_s=timeout_s)
        except Fault as fault:
            return Outcome(Verdict.UNKNOWN, error=NoAnswer(str(fault)))
        try:
            return Outcome(Verdict.RELEASED, answer.read(_state))
        except Problem as problem:
            return Outcome(Verdict.UNKNOWN if problem.is_foreign else Verdict.REJECTED, error=problem)

    def _ask(self, handler: Handler) -> Tuple[str, bytes]:
        """Runs the handler, and says which report follows from how it ended."""
        try:
            result = handler(self.task)
            return "complete", self._completion(result)
        except Failure as failure:
            if not isinstance(failure, Cancelled):
                self.task.log.warning("failed, %s: %s", failure.category.value, failure)
            return "fail", self._failure(failure.category, failure.reason, failure.retryable, failure.code)
        except Exception as error:
            self.task.log.exception("the handler raised")
            return "fail", self._failure(Category.USER_CODE, f"{type(error).__name__}: {error}")
        except BaseException as error:
            # SystemExit in a handler ends the attempt, not the worker.
            self.task.log.exception("the handler wanted to end the process")
            return "fail", self._failure(Category.USER_CODE, f"{type(error).__name__}: {error}")

    def _completion(self, result: Any) -> bytes:
        try:
            size_bytes = len(encode({"result": result})) - len(b'{"result":}')
            body = encode({**self._names, "result": result})
        except (TypeError, ValueError, RecursionError) as error:
            raise Configuration(f"the result is not JSON: {error}", code="result_not_json") from error
        if size_bytes > MAX_RESULT_BYTES:
            raise Configuration(
                f"the result has {size_bytes} bytes as JSON, and at most {MAX_RESULT_BYTES} are taken",
                code="result_too_large",
            )
        return body

    def _failure(
        self, category: Category, reason: str, retryable: Optional[bool] = None, code: Optional[str] = None
    ) -> bytes:
        body: Dict[str, Any] = {**self._names, "reason": cut(reason), "category": category.value}
        if retryable is not None:
            body["retryable"] = retryable
        if code is not None:
            body["code"] = code
        return encode(body)

    def _report(self, call: str, body: bytes) -> Outcome:
        try:
            answer = self._transport.call(
                "POST",
                self._path + call,
                body,
                answer_timeout_s=ANSWER_TIMEOUT_S,
                until=self._clock.valid_until,
            )
        except NoAnswer as error:
            self.task.log.error("the report was not answered while the lease lived: %s", error)
            return Outcome(Verdict.UNKNOWN, error=error)
        try:
            state = answer.read(_state)
        except Problem as problem:
            return self._refused(problem)
        self.task.log.debug("committed, the task is %s", state.value)
        return Outcome(Verdict.COMMITTED, state)

    def _refused(self, problem: Problem) -> Outcome:
        if problem.is_foreign:
            self.task.log.error("somebody else answered the report: %s", problem)
            return Outcome(Verdict.UNKNOWN, error=problem)
        if problem.verdict == Verdict.CANCELLED.value:
            self.task._lose("the coordinator discarded the report")
            self.task.log.warning("cancelled: the lease was lost, and the result is discarded")
            return Outcome(Verdict.CANCELLED, error=problem)
        self.task.log.error("rejected, which is a bug or a misuse of the protocol: %s", problem)
        return Outcome(Verdict.REJECTED, error=problem)

    def _lost(self) -> Outcome:
        self.task._lose("the lease ran out")
        self.task.log.warning("the lease is lost (%s), and the result is discarded", self.task.cancel_reason)
        return Outcome(Verdict.LOST)


def _state(answer: Any) -> TaskState:
    return TaskState(answer["state"])
