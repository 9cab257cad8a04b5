"""The two contracts that an attempt may be spoken of in: what differs is the words, and nothing about when they are said.

A worker that asks for its work speaks of its lease; one that work was pushed to speaks with its task token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, Mapping, NoReturn, Optional, Tuple

from ._clock import parse_time
from ._errors import Problem
from ._failures import Category
from ._http import Answer, Transport, encode, segment
from ._models import TaskState
from ._outcome import Outcome, Verdict

Progress = Optional[Tuple[Optional[float], Optional[str]]]


@dataclass(frozen=True)
class Ended:
    """How the handler ended: a result, or a failure when there is a category."""

    result: Any = None
    category: Optional[Category] = None
    reason: str = ""
    retryable: Optional[bool] = None
    code: Optional[str] = None
    stack_trace: Optional[str] = None


@dataclass(frozen=True)
class Call:
    """A request that can be sent again and again."""

    path: str
    body: bytes
    token: Optional[str] = None


@dataclass(frozen=True)
class Heard:
    """What the answer to a heartbeat says: when the lease ends, where that is told, and whether to stop, and within
    what time."""

    expires_at: Optional[datetime] = None
    cancel_reason: Optional[str] = None
    grace_s: Optional[float] = None


class Contract(ABC):
    """One attempt, as its contract speaks of it. What reads an answer raises the coordinator's no as a `Problem`."""

    transport: Transport

    @abstractmethod
    def opening(self) -> Optional[Call]:
        """What has to be said, and agreed to, before the work may begin."""

    @abstractmethod
    def may_begin(self, answer: Answer) -> None: ...

    @abstractmethod
    def heartbeat(self, progress: Progress) -> Call: ...

    @abstractmethod
    def heard(self, answer: Answer) -> Heard: ...

    @abstractmethod
    def report(self, ended: Ended, metrics: Optional[Mapping[str, int]]) -> Call: ...

    @abstractmethod
    def verdict(self, answer: Answer) -> Outcome: ...

    @abstractmethod
    def giving_back(self) -> Call:
        """What is said of an attempt that its worker does not end."""

    @abstractmethod
    def given_back(self, answer: Answer) -> Outcome: ...


class LeaseContract(Contract):
    def __init__(self, transport: Transport, worker_id: str, lease: Mapping[str, Any]) -> None:
        self.transport = transport
        self._path = f"/v1/leases/{segment(lease['leaseId'])}/"
        self._names: Dict[str, Any] = {"workerId": worker_id, "taskId": lease["taskId"]}

    def opening(self) -> Optional[Call]:
        return None

    def may_begin(self, answer: Answer) -> None:
        return None

    def heartbeat(self, progress: Progress) -> Call:
        return self._call("heartbeat", _with_progress(self._names, progress))

    def heard(self, answer: Answer) -> Heard:
        return answer.read(lambda told: Heard(parse_time(told["expiresAt"]), _cancel_reason(told)))

    def report(self, ended: Ended, metrics: Optional[Mapping[str, int]]) -> Call:
        """Metrics and stack traces have no place in this contract."""
        if ended.category is None:
            return self._call("complete", {**self._names, "result": ended.result})
        error = _error(ended)
        return self._call("fail", {**self._names, "reason": error.pop("message"), **error})

    def verdict(self, answer: Answer) -> Outcome:
        try:
            return Outcome(Verdict.COMMITTED, answer.read(_state))
        except Problem as problem:
            is_cancelled = problem.verdict == Verdict.CANCELLED.value
            return Outcome(Verdict.CANCELLED if is_cancelled else _no(problem), error=problem)

    def giving_back(self) -> Call:
        return self._call("release", self._names)

    def given_back(self, answer: Answer) -> Outcome:
        try:
            return Outcome(Verdict.RELEASED, answer.read(_state))
        except Problem as problem:
            return Outcome(_no(problem), error=problem)

    def _call(self, what: str, body: Mapping[str, Any]) -> Call:
        return Call(self._path + what, encode(body))


# What the callback contract calls the states of a task. It does not tell every end by the coordinator from a failure.
_STATES = {
    "SUCCEEDED": TaskState.COMPLETED,
    "FAILED": TaskState.FAILED,
    "CANCELLED": TaskState.DEAD,
    "RETRY_WAIT": TaskState.WAITING,
}
_AUTHORITY_LOST = frozenset(["attempt_mismatch", "task_already_terminal", "task_expired"])


class CallbackContract(Contract):
    """The token is renewed by the answers to heartbeats. It is never logged, and goes to the coordinator alone."""

    def __init__(self, transport: Transport, worker_id: str, envelope: Mapping[str, Any]) -> None:
        self.transport = transport
        self._path = f"/v1/tasks/{segment(envelope['taskId'])}/"
        self._names: Dict[str, Any] = {"workerId": worker_id, "attempt": envelope["attempt"]}
        self._grace_s: float = envelope["cancelGracePeriodMs"] / 1000
        self._token: str = envelope["taskToken"]

    def opening(self) -> Optional[Call]:
        return self._call("started", {**self._names, "startedAt": _time()})

    def may_begin(self, answer: Answer) -> None:
        self._read(answer)

    def heartbeat(self, progress: Progress) -> Call:
        return self._call("heartbeat", _with_progress({**self._names, "heartbeatAt": _time()}, progress))

    def heard(self, answer: Answer) -> Heard:
        told = self._read(answer)
        token = told.get("taskToken")
        if isinstance(token, str):
            self._token = token
        return Heard(None, _cancel_reason(told), self._grace_s)

    def report(self, ended: Ended, metrics: Optional[Mapping[str, int]]) -> Call:
        body: Dict[str, Any] = {**self._names, "completedAt": _time()}
        if ended.category is None:
            body.update(outcome="SUCCEEDED", output=ended.result)
        else:
            is_cancelled = ended.category is Category.CANCELLED
            body.update(outcome="CANCELLED" if is_cancelled else "FAILED", error=_error(ended))
            if ended.stack_trace is not None:
                body["error"]["stackTrace"] = cut(ended.stack_trace)
        if metrics:
            body["metrics"] = dict(metrics)
        return self._call("completed", body)

    def verdict(self, answer: Answer) -> Outcome:
        try:
            return Outcome(Verdict.COMMITTED, _STATES[self._read(answer)["finalState"]])
        except Problem as problem:
            is_cancelled = problem.code in _AUTHORITY_LOST
            return Outcome(Verdict.CANCELLED if is_cancelled else _no(problem), error=problem)
        except LookupError:
            return Outcome(Verdict.UNKNOWN, error=Problem.foreign(answer.status))

    def giving_back(self) -> Call:
        """This contract knows no release. A failure that another attempt may well not meet is the nearest: silence
        would cost the task an attempt as well, and the time until it is noticed."""
        stopping = Ended(None, Category.INFRASTRUCTURE, "the worker is stopping", True, "worker_stopping")
        return self.report(stopping, None)

    def given_back(self, answer: Answer) -> Outcome:
        return self.verdict(answer)

    def _call(self, what: str, body: Mapping[str, Any]) -> Call:
        return Call(self._path + what, encode(body), self._token)

    def _read(self, answer: Answer) -> Mapping[str, Any]:
        """What was acknowledged, or the coordinator's no in the words of this contract."""
        if answer.status == 200:
            return answer.read(_acknowledged)
        self._refuse(answer)

    def _refuse(self, answer: Answer) -> NoReturn:
        told = answer.json()
        error = told.get("error") if isinstance(told, dict) else None
        # Gateways also speak of an `error` and a `message`, but hardly in such words.
        if isinstance(error, str) and "_" in error and error.replace("_", "").isalpha() and error.islower():
            raise Problem(status=answer.status, code=error, detail=str(told.get("message", "")))
        raise Problem.from_body(answer.status, answer.body)


def _acknowledged(told: Any) -> Mapping[str, Any]:
    if told["acknowledged"] is not True:
        raise ValueError("it is not acknowledged")
    return dict(told)


def _with_progress(names: Mapping[str, Any], progress: Progress) -> Dict[str, Any]:
    body = dict(names)
    if progress is not None and progress[0] is not None:
        body["progressPct"] = progress[0]
    if progress is not None and progress[1] is not None:
        body["message"] = cut(progress[1])
    return body


def _error(ended: Ended) -> Dict[str, Any]:
    error: Dict[str, Any] = {"message": cut(ended.reason)}
    if ended.category is not None:
        error["category"] = ended.category.value
    if ended.retryable is not None:
        error["retryable"] = ended.retryable
    if ended.code is not None:
        error["code"] = ended.code
    return error


def _cancel_reason(told: Mapping[str, Any]) -> Optional[str]:
    """Why the handler should stop, if it should."""
    return (told.get("cancelReason") or "cancelled") if told["shouldCancel"] else None


def _no(problem: Problem) -> Verdict:
    """The coordinator's no to a report is a verdict; what somebody else says is none."""
    return Verdict.UNKNOWN if problem.is_foreign else Verdict.REJECTED


def _state(answer: Any) -> TaskState:
    return TaskState(answer["state"])


def _time() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


MAX_MESSAGE_BYTES = 16 * 1024


def cut(text: str) -> str:
    """The text as far as the coordinator takes it, and as far as it can be sent."""
    sendable = text.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES]
    return sendable.decode("utf-8", "ignore")
