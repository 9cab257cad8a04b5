"""The messages of an attempt, which differ between the lease contract and the callback contract. When they are sent does
not differ.

A worker that polls names its lease; a push target authenticates with its task token.
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
    partial_progress: Any = None


@dataclass(frozen=True)
class Call:
    """A request that can be sent any number of times."""

    path: str
    body: bytes
    token: Optional[str] = None


@dataclass(frozen=True)
class LeaseAnswer:
    """The answer to a heartbeat: when the lease ends, if the contract says so, and whether the handler should stop."""

    expires_at: Optional[datetime] = None
    cancel_reason: Optional[str] = None
    grace_s: Optional[float] = None


class Contract(ABC):
    """The messages of one attempt. The `parse_` methods raise a refusal of the coordinator as a `Problem`."""

    transport: Transport

    @abstractmethod
    def start(self) -> Optional[Call]:
        """The request that the coordinator must accept before the work may begin, if the contract has one."""

    @abstractmethod
    def parse_start_answer(self, answer: Answer) -> None: ...

    @abstractmethod
    def heartbeat(self, progress: Progress) -> Call: ...

    @abstractmethod
    def parse_heartbeat_answer(self, answer: Answer) -> LeaseAnswer: ...

    @abstractmethod
    def report(self, ended: Ended, metrics: Optional[Mapping[str, int]]) -> Call: ...

    @abstractmethod
    def parse_verdict(self, answer: Answer) -> Outcome: ...

    @abstractmethod
    def release(self) -> Call:
        """The request that gives up an attempt which its worker does not finish."""

    @abstractmethod
    def parse_release_answer(self, answer: Answer) -> Outcome: ...


class LeaseContract(Contract):
    def __init__(self, transport: Transport, worker_id: str, lease: Mapping[str, Any]) -> None:
        self.transport = transport
        self._path = f"/v1/leases/{segment(lease['leaseId'])}/"
        self._names: Dict[str, Any] = {"workerId": worker_id, "taskId": lease["taskId"]}

    def start(self) -> Optional[Call]:
        return None

    def parse_start_answer(self, answer: Answer) -> None:
        return None

    def heartbeat(self, progress: Progress) -> Call:
        return self._call("heartbeat", _with_progress(self._names, progress))

    def parse_heartbeat_answer(self, answer: Answer) -> LeaseAnswer:
        return answer.parse(lambda body: LeaseAnswer(parse_time(body["expiresAt"]), _cancel_reason(body)))

    def report(self, ended: Ended, metrics: Optional[Mapping[str, int]]) -> Call:
        body: Dict[str, Any] = dict(self._names)
        if metrics:
            body["metrics"] = dict(metrics)
        if ended.category is None:
            return self._call("complete", {**body, "result": ended.result})
        error = _error(ended)
        if ended.partial_progress is not None:
            body["partialProgress"] = ended.partial_progress
        return self._call("fail", {**body, "reason": error.pop("message"), **error})

    def parse_verdict(self, answer: Answer) -> Outcome:
        try:
            return Outcome(Verdict.COMMITTED, answer.parse(_state))
        except Problem as problem:
            is_cancelled = problem.verdict == Verdict.CANCELLED.value
            return Outcome(Verdict.CANCELLED if is_cancelled else _no(problem), error=problem)

    def release(self) -> Call:
        return self._call("release", self._names)

    def parse_release_answer(self, answer: Answer) -> Outcome:
        try:
            return Outcome(Verdict.RELEASED, answer.parse(_state))
        except Problem as problem:
            return Outcome(_no(problem), error=problem)

    def _call(self, what: str, body: Mapping[str, Any]) -> Call:
        return Call(self._path + what, encode(body))


# The callback contract's names for task states. It does not distinguish every end by the coordinator from a failure.
_STATES = {
    "SUCCEEDED": TaskState.COMPLETED,
    "FAILED": TaskState.FAILED,
    "CANCELLED": TaskState.DEAD,
    "RETRY_WAIT": TaskState.WAITING,
}
_AUTHORITY_LOST = frozenset(["attempt_mismatch", "task_already_terminal", "task_expired"])


class CallbackContract(Contract):
    """Answers to heartbeats renew the token. It is never logged and is sent to the coordinator only."""

    def __init__(self, transport: Transport, worker_id: str, envelope: Mapping[str, Any]) -> None:
        self.transport = transport
        self._path = f"/v1/tasks/{segment(envelope['taskId'])}/"
        self._names: Dict[str, Any] = {"workerId": worker_id, "attempt": envelope["attempt"]}
        self._grace_s: float = envelope["cancelGracePeriodMs"] / 1000
        self._token: str = envelope["taskToken"]

    def start(self) -> Optional[Call]:
        return self._call("started", {**self._names, "startedAt": _time()})

    def parse_start_answer(self, answer: Answer) -> None:
        self._parse(answer)

    def heartbeat(self, progress: Progress) -> Call:
        return self._call("heartbeat", _with_progress({**self._names, "heartbeatAt": _time()}, progress))

    def parse_heartbeat_answer(self, answer: Answer) -> LeaseAnswer:
        body = self._parse(answer)
        token = body.get("taskToken")
        if isinstance(token, str):
            self._token = token
        return LeaseAnswer(None, _cancel_reason(body), self._grace_s)

    def report(self, ended: Ended, metrics: Optional[Mapping[str, int]]) -> Call:
        body: Dict[str, Any] = {**self._names, "completedAt": _time()}
        if ended.category is None:
            body.update(outcome="SUCCEEDED", output=ended.result)
        else:
            is_cancelled = ended.category is Category.CANCELLED
            body.update(outcome="CANCELLED" if is_cancelled else "FAILED", error=_error(ended))
            if ended.partial_progress is not None:
                body["partialProgress"] = ended.partial_progress
        if metrics:
            body["metrics"] = dict(metrics)
        return self._call("completed", body)

    def parse_verdict(self, answer: Answer) -> Outcome:
        try:
            return Outcome(Verdict.COMMITTED, _STATES[self._parse(answer)["finalState"]])
        except Problem as problem:
            is_cancelled = problem.code in _AUTHORITY_LOST
            return Outcome(Verdict.CANCELLED if is_cancelled else _no(problem), error=problem)
        except LookupError:
            return Outcome(Verdict.UNKNOWN, error=Problem.foreign(answer.status))

    def release(self) -> Call:
        """This contract has no release. A retryable failure is the nearest: silence would cost the task an attempt too,
        and the time until the coordinator notices."""
        stopping = Ended(None, Category.INFRASTRUCTURE, "the worker is stopping", True, "worker_stopping")
        return self.report(stopping, None)

    def parse_release_answer(self, answer: Answer) -> Outcome:
        return self.parse_verdict(answer)

    def _call(self, what: str, body: Mapping[str, Any]) -> Call:
        return Call(self._path + what, encode(body), self._token)

    def _parse(self, answer: Answer) -> Mapping[str, Any]:
        """The acknowledgement. Raises the refusal of this contract as a `Problem`."""
        if answer.status == 200:
            return answer.parse(_acknowledged)
        self._refuse(answer)

    def _refuse(self, answer: Answer) -> NoReturn:
        body = answer.json()
        error = body.get("error") if isinstance(body, dict) else None
        # Gateways also answer with an `error` and a `message`, but hardly with such a code.
        if isinstance(error, str) and "_" in error and error.replace("_", "").isalpha() and error.islower():
            raise Problem(status=answer.status, code=error, detail=str(body.get("message", "")))
        raise Problem.from_body(answer.status, answer.body)


def _acknowledged(body: Any) -> Mapping[str, Any]:
    if body["acknowledged"] is not True:
        raise ValueError("it is not acknowledged")
    return dict(body)


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
    if ended.stack_trace is not None:
        error["stackTrace"] = cut(ended.stack_trace)
    return error


def _cancel_reason(body: Mapping[str, Any]) -> Optional[str]:
    """Why the handler should stop, if it should."""
    return (body.get("cancelReason") or "cancelled") if body["shouldCancel"] else None


def _no(problem: Problem) -> Verdict:
    """A refusal by the coordinator is a verdict; the answer of another server is not."""
    return Verdict.UNKNOWN if problem.is_foreign else Verdict.REJECTED


def _state(answer: Any) -> TaskState:
    return TaskState(answer["state"])


def _time() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


MAX_MESSAGE_BYTES = 16 * 1024


def cut(text: str) -> str:
    """Truncates a text to the length that the coordinator accepts."""
    sendable = text.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES]
    return sendable.decode("utf-8", "ignore")
