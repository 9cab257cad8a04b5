"""One attempt, from the arrival of its lease to the coordinator's verdict.

Heartbeats keep the lease while the handler runs. Then the attempt is reported: once, repeated byte for byte only after a
fault, and never after the lease is lost.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import threading
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ._clock import LeaseClock, now
from ._contract import Call, Contract, Ended
from ._errors import LessorError, NoAnswer, Problem
from ._failures import Cancelled, Category, Failure
from ._heartbeater import Heartbeater
from ._http import ANSWER_TIMEOUT_S, Answer, Fault, encode
from ._outcome import Outcome, Verdict
from ._task import Task

MAX_RESULT_BYTES = 1024 * 1024
# The coordinator takes bodies of 64 levels, and the report around the result is one of them.
MAX_RESULT_LEVELS = 63
# How long the release of one lease may take.
RELEASE_TIMEOUT_S = 2.0

Handler = Callable[[Task], Any]
OnOutcome = Callable[[Task, Outcome], None]


def check_handler(function: Handler) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError("a handler runs in a thread of its own and is a plain function, not a coroutine")


class Attempt:
    def __init__(self, contract: Contract, assignment: Mapping[str, Any], clock: LeaseClock) -> None:
        self._contract = contract
        self._clock = clock
        self.task = Task(assignment, clock)
        self._heartbeater = Heartbeater(contract, self.task, clock, assignment["heartbeatIntervalMs"] / 1000)
        # Acquired by the report or by the release: only one of them is sent.
        self._closing = threading.Lock()
        # Whether the handler was called.
        self.has_begun = False

    def run(self, handler: Handler, on_outcome: Optional[OnOutcome]) -> None:
        """Runs the attempt to its end and calls the hook with the outcome. Never raises."""
        try:
            self.notify(on_outcome, self._run_to_outcome(handler))
        except Exception:
            self.task.log.exception("the worker itself failed during the attempt")
            # Nothing sends heartbeats any more: another worker need not wait until the lease expires.
            with contextlib.suppress(Exception):
                self.notify(on_outcome, self.release("an error of the worker itself", RELEASE_TIMEOUT_S))

    def notify(self, on_outcome: Optional[OnOutcome], outcome: Optional[Outcome]) -> None:
        if outcome is None or on_outcome is None:
            return
        try:
            on_outcome(self.task, outcome)
        except Exception:
            self.task.log.exception("on_outcome raised")

    def _run_to_outcome(self, handler: Handler) -> Optional[Outcome]:
        """`None` if the lease was released meanwhile."""
        try:
            may_begin = self._start()
        except LessorError as error:
            return self._not_started(error) if self._closing.acquire(blocking=False) else None
        if not may_begin:
            return self._lost() if self._closing.acquire(blocking=False) else None
        self._heartbeater.start()
        self.has_begun = True
        try:
            ended = self._call_handler(handler)
        except Exception as error:
            # For example an exception that cannot be printed. A release would cost the task no attempt, and it would come
            # back for ever.
            self.task.log.exception("the handler's end cannot be described")
            ended = Ended(None, Category.USER_CODE, f"the handler's end cannot be described: {type(error).__name__}")
        finally:
            self._heartbeater.end()
        if not self._closing.acquire(blocking=False):
            return None
        return self._lost() if self.task.lease_lost else self._report(ended)

    def release(self, reason: str, timeout_s: float) -> Optional[Outcome]:
        """Cancels the handler and releases the lease, unless the attempt is reporting already. There is one try: a lease
        that is not released expires."""
        if not self._closing.acquire(blocking=False):
            return None
        self._heartbeater.end()
        self.task._lose(reason)
        call = self._contract.release()
        try:
            answer = self._contract.transport.try_once(
                "POST", call.path, call.body, timeout_s=timeout_s, token=call.token
            )
        except Fault as fault:
            return Outcome(Verdict.UNKNOWN, error=NoAnswer(str(fault)))
        return self._contract.parse_release_answer(answer)

    def _start(self) -> bool:
        """Whether the work may begin: the coordinator agrees if the contract asks for it, and the lease is valid."""
        start = self._contract.start()
        if start is not None:
            sent_at = now()
            answer = self._call(start)
            try:
                self._contract.parse_start_answer(answer)
            except Problem as problem:
                if problem.is_foreign:
                    raise
                self.task._lose(f"the coordinator refused the start of the attempt: {problem}")
                return False
            self._clock.begin(sent_at)
        return not self._clock.needs_confirmation or self._heartbeater.confirm()

    def _call_handler(self, handler: Handler) -> Ended:
        """Runs the handler and returns how it ended."""
        try:
            result = handler(self.task)
        except Failure as failure:
            if not isinstance(failure, Cancelled):
                self.task.log.warning("failed, %s: %s", failure.category.value, failure)
            return Ended(
                None,
                failure.category,
                failure.reason,
                failure.retryable,
                failure.code,
                partial_progress=failure.partial_progress,
            )
        except Exception as error:
            self.task.log.exception("the handler raised")
            return _raised(error)
        except BaseException as error:
            # SystemExit in a handler ends the attempt, not the worker.
            self.task.log.exception("the handler tried to end the process")
            return _raised(error)
        ended = _checked(result)
        if ended.category is not None:
            self.task.log.warning("failed, %s: %s", ended.category.value, ended.reason)
        return ended

    def _report(self, ended: Ended) -> Outcome:
        call = self._build_report(ended)
        try:
            answer = self._call(call)
        except NoAnswer as error:
            self.task.log.error("the report was not answered while the lease was valid: %s", error)
            return Outcome(Verdict.UNKNOWN, error=error)
        outcome = self._contract.parse_verdict(answer)
        if outcome.verdict is Verdict.COMMITTED and outcome.state is not None:
            self.task.log.debug("committed, the task is %s", outcome.state.value)
        elif outcome.verdict is Verdict.CANCELLED:
            self.task._lose("the coordinator discarded the report")
            self.task.log.warning("canceled: the lease was lost, and the result is discarded")
        elif outcome.verdict is Verdict.REJECTED:
            self.task.log.error("rejected: this is a bug or a misuse of the protocol: %s", outcome.error)
        else:
            self.task.log.error("another server answered the report: %s", outcome.error)
        return outcome

    def _build_report(self, ended: Ended) -> Call:
        try:
            return self._contract.report(ended, self.task._metrics)
        except Exception as error:
            # Without a report the lease would have to expire.
            self.task.log.exception("the report could not be written")
            reason = f"the report could not be written: {type(error).__name__}: {error}"
            return self._contract.report(Ended(None, Category.CONFIGURATION, reason, code="report_not_written"), None)

    def _call(self, call: Call) -> Answer:
        return self._contract.transport.call(
            "POST",
            call.path,
            call.body,
            answer_timeout_s=ANSWER_TIMEOUT_S,
            until=self._clock.valid_until,
            token=call.token,
        )

    def _not_started(self, error: LessorError) -> Outcome:
        self.task._lose("the coordinator did not answer whether the attempt may begin")
        self.task.log.error("the attempt did not begin, because the coordinator did not answer: %s", error)
        return Outcome(Verdict.UNKNOWN, error=error)

    def _lost(self) -> Outcome:
        self.task._lose("the lease ran out")
        self.task.log.warning("the lease is lost (%s), and the result is discarded", self.task.cancel_reason)
        return Outcome(Verdict.LOST)


def _raised(error: BaseException) -> Ended:
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Ended(None, Category.USER_CODE, f"{type(error).__name__}: {error}", stack_trace=trace)


def _checked(result: Any) -> Ended:
    """The result, or a failure if the coordinator would not accept it."""
    try:
        text = encode({"result": result})
        size_bytes = len(text) - len(b'{"result":}')
        if size_bytes > MAX_RESULT_BYTES:
            reason = f"the result has {size_bytes} bytes as JSON, and at most {MAX_RESULT_BYTES} are accepted"
            return Ended(None, Category.CONFIGURATION, reason, code="result_too_large")
        _check_strictly(text)
    except (TypeError, ValueError, RecursionError) as error:
        return Ended(None, Category.CONFIGURATION, f"the result is not JSON: {error}", code="result_not_json")
    return Ended(result)


def _check_strictly(report: bytes) -> None:
    """Raises for JSON that the coordinator refuses: repeated keys, numbers that no double holds, text that is not Unicode,
    and nesting that is too deep."""
    read = json.loads(report, parse_int=float, object_pairs_hook=_without_repeats)
    json.dumps(read, allow_nan=False, ensure_ascii=False).encode()
    levels, containers = 0, _containers([read["result"]])
    while containers:
        levels += 1
        if levels > MAX_RESULT_LEVELS:
            raise ValueError(f"it is nested deeper than {MAX_RESULT_LEVELS} levels")
        containers = [inner for outer in containers for inner in _containers(outer)]


def _containers(values: Union[List[Any], Dict[str, Any]]) -> List[Any]:
    inside = values.values() if isinstance(values, dict) else values
    return [value for value in inside if isinstance(value, (dict, list))]


def _without_repeats(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("two keys of an object are the same as text")
    return read
