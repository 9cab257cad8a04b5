"""One lease from its arrival to the coordinator's verdict.

The handler runs, heartbeats keep the lease while it does, and how it ended is reported: once, repeated with the same
words only where a fault lay on the way, and never after the lease is lost.
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
# How long giving back what its worker does not end may take.
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
        # Whoever gets it may speak to the coordinator about how the attempt ended: its thread, or a drain.
        self._word = threading.Lock()
        # Whether the handler was called.
        self.has_begun = False

    def work(self, handler: Handler, on_outcome: Optional[OnOutcome]) -> None:
        """To the end, and whoever wants to know is told it. Never raises."""
        try:
            self.tell(on_outcome, self.run(handler))
        except Exception:
            self.task.log.exception("the attempt ended in an error of the worker itself")
            # Nobody beats for it any more: another worker need not wait until the lease has run out.
            with contextlib.suppress(Exception):
                self.tell(on_outcome, self.release("an error of the worker itself", RELEASE_TIMEOUT_S))

    def tell(self, on_outcome: Optional[OnOutcome], outcome: Optional[Outcome]) -> None:
        if outcome is None or on_outcome is None:
            return
        try:
            on_outcome(self.task, outcome)
        except Exception:
            self.task.log.exception("on_outcome raised")

    def run(self, handler: Handler) -> Optional[Outcome]:
        """To the end. Nothing when the lease was given back meanwhile."""
        try:
            lives = self._open()
        except LessorError as error:
            return self._unopened(error) if self._word.acquire(blocking=False) else None
        if not lives:
            return self._lost() if self._word.acquire(blocking=False) else None
        self._heartbeater.start()
        self.has_begun = True
        try:
            ended = self._ask(handler)
        except Exception as error:
            # An exception that cannot be shown, for one. Giving the task back would cost it nothing, and it would come
            # again for ever.
            self.task.log.exception("how the handler ended cannot be told")
            ended = Ended(None, Category.USER_CODE, f"how it ended cannot be told: {type(error).__name__}")
        finally:
            self._heartbeater.end()
        if not self._word.acquire(blocking=False):
            return None
        return self._lost() if self.task.lease_lost else self._report(ended)

    def release(self, reason: str, timeout_s: float) -> Optional[Outcome]:
        """Tells the handler to stop and gives the lease back, unless the attempt is reporting already. One try: what
        gets lost expires by itself."""
        if not self._word.acquire(blocking=False):
            return None
        self._heartbeater.end()
        self.task._lose(reason)
        call = self._contract.giving_back()
        try:
            answer = self._contract.transport.once(
                "POST", call.path, call.body, timeout_s=timeout_s, token=call.token
            )
        except Fault as fault:
            return Outcome(Verdict.UNKNOWN, error=NoAnswer(str(fault)))
        return self._contract.given_back(answer)

    def _open(self) -> bool:
        """Whether the work may begin: the coordinator agrees where its contract wants to be asked, and the lease
        lives."""
        opening = self._contract.opening()
        if opening is not None:
            sent_at = now()
            answer = self._call(opening)
            try:
                self._contract.may_begin(answer)
            except Problem as problem:
                if problem.is_foreign:
                    raise
                self.task._lose(f"the coordinator says that it may not begin: {problem}")
                return False
            self._clock.begun(sent_at)
        return not self._clock.needs_confirming or self._heartbeater.confirm()

    def _ask(self, handler: Handler) -> Ended:
        """Runs the handler, and says how it ended."""
        try:
            result = handler(self.task)
        except Failure as failure:
            if not isinstance(failure, Cancelled):
                self.task.log.warning("failed, %s: %s", failure.category.value, failure)
            return Ended(None, failure.category, failure.reason, failure.retryable, failure.code)
        except Exception as error:
            self.task.log.exception("the handler raised")
            return _raised(error)
        except BaseException as error:
            # SystemExit in a handler ends the attempt, not the worker.
            self.task.log.exception("the handler wanted to end the process")
            return _raised(error)
        ended = _checked(result)
        if ended.category is not None:
            self.task.log.warning("failed, %s: %s", ended.category.value, ended.reason)
        return ended

    def _report(self, ended: Ended) -> Outcome:
        call = self._words(ended)
        try:
            answer = self._call(call)
        except NoAnswer as error:
            self.task.log.error("the report was not answered while the lease lived: %s", error)
            return Outcome(Verdict.UNKNOWN, error=error)
        outcome = self._contract.verdict(answer)
        if outcome.verdict is Verdict.COMMITTED and outcome.state is not None:
            self.task.log.debug("committed, the task is %s", outcome.state.value)
        elif outcome.verdict is Verdict.CANCELLED:
            self.task._lose("the coordinator discarded the report")
            self.task.log.warning("cancelled: the lease was lost, and the result is discarded")
        elif outcome.verdict is Verdict.REJECTED:
            self.task.log.error("rejected, which is a bug or a misuse of the protocol: %s", outcome.error)
        else:
            self.task.log.error("somebody else answered the report: %s", outcome.error)
        return outcome

    def _words(self, ended: Ended) -> Call:
        try:
            return self._contract.report(ended, self.task._metrics)
        except Exception as error:
            # A failure that says so beats silence, which lasts until the lease has run out.
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

    def _unopened(self, error: LessorError) -> Outcome:
        self.task._lose("the coordinator did not say that it may begin")
        self.task.log.error("the attempt did not begin, because nobody answered: %s", error)
        return Outcome(Verdict.UNKNOWN, error=error)

    def _lost(self) -> Outcome:
        self.task._lose("the lease ran out")
        self.task.log.warning("the lease is lost (%s), and the result is discarded", self.task.cancel_reason)
        return Outcome(Verdict.LOST)


def _raised(error: BaseException) -> Ended:
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Ended(None, Category.USER_CODE, f"{type(error).__name__}: {error}", stack_trace=trace)


def _checked(result: Any) -> Ended:
    """The result as the coordinator takes it, or a failure that says why it would not."""
    try:
        text = encode({"result": result})
        size_bytes = len(text) - len(b'{"result":}')
        if size_bytes > MAX_RESULT_BYTES:
            reason = f"the result has {size_bytes} bytes as JSON, and at most {MAX_RESULT_BYTES} are taken"
            return Ended(None, Category.CONFIGURATION, reason, code="result_too_large")
        _check_strictly(text)
    except (TypeError, ValueError, RecursionError) as error:
        return Ended(None, Category.CONFIGURATION, f"the result is not JSON: {error}", code="result_not_json")
    return Ended(result)


def _check_strictly(report: bytes) -> None:
    """Raises for what can be written as JSON and is refused all the same: keys that are the same as text, numbers that
    no double holds, text that is not Unicode, and what is nested too deep."""
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
