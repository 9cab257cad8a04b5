"""The JSON types of tasks: as submitted, and as the coordinator shows them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Dict, Mapping, Optional, Tuple

from ._clock import parse_time
from ._failures import Category


class TaskState(str, enum.Enum):
    WAITING = "WAITING"
    LEASED = "LEASED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DEAD = "DEAD"

    @property
    def is_final(self) -> bool:
        return self in (TaskState.COMPLETED, TaskState.FAILED, TaskState.DEAD)


@dataclass(frozen=True)
class Backoff:
    """How long a failed task waits before its next attempt. Missing fields follow the defaults."""

    initial_ms: Optional[int] = None
    factor: Optional[float] = None
    max_ms: Optional[int] = None
    jitter: Optional[float] = None


@dataclass(frozen=True)
class Submit:
    """A task to be done. Only `queue` and `payload` are required."""

    queue: str
    payload: Any
    # Lower is sooner.
    priority: Optional[int] = None
    delay_ms: Optional[int] = None
    # The same key with the same payload and properties gives the same task; with others it is a conflict.
    dedup_key: Optional[str] = None
    max_attempts: Optional[int] = None
    backoff: Optional[Backoff] = None
    # What a worker must offer to get the task.
    properties: Optional[Mapping[str, str]] = None
    deadline: Optional[datetime] = None
    # How long one attempt may take.
    timeout_ms: Optional[int] = None
    # How long a lease lives without a heartbeat.
    lease_ms: Optional[int] = None
    run_id: Optional[str] = None
    asset_id: Optional[str] = None
    task_key: Optional[str] = None
    # A JSON object for the worker.
    resources: Optional[Mapping[str, Any]] = None

    def to_json(self) -> Dict[str, Any]:
        return {"payload": self.payload, **_present(self)}


class TaskContext:
    """The fields that describe a task to its worker. A pushed task has defaults for those that the submitter left out."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.run_id: Optional[str] = body.get("runId")
        self.asset_id: Optional[str] = body.get("assetId")
        self.task_key: Optional[str] = body.get("taskKey")
        self.resources: Any = body.get("resources")


@dataclass(frozen=True)
class Submitted:
    task_id: str
    state: TaskState
    # False if the dedup key found an existing task.
    is_new: bool


@dataclass(frozen=True)
class TaskError:
    """The failure of an attempt, as its worker reported it."""

    category: Category
    message: str
    code: Optional[str] = None


@dataclass(frozen=True)
class Progress:
    at: datetime
    progress_pct: Optional[float] = None
    message: Optional[str] = None


@dataclass(frozen=True)
class TaskInfo:
    """A task as people and services see it."""

    task_id: str
    queue: str
    state: TaskState
    # Why the task is DEAD or, when it is FAILED, the category of its error.
    reason: Optional[str]
    reason_detail: Optional[str]
    # How often the task was leased.
    attempt: int
    # How many of these leases count against max_attempts: all but those that were given back.
    used_attempts: int
    max_attempts: int
    priority: int
    payload: Any
    result: Any
    error: Optional[TaskError]
    properties: Mapping[str, str]
    dedup_key: Optional[str]
    created_at: datetime
    finished_at: Optional[datetime]
    # The worker, while the task is LEASED.
    worker_id: Optional[str]
    cancel_reason: Optional[str]
    redrive_of: Optional[str]
    progress: Optional[Progress]
    # The whole answer, including fields of a newer coordinator.
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "TaskInfo":
        error, progress = body.get("error"), body.get("progress")
        return cls(
            task_id=body["taskId"],
            queue=body["queue"],
            state=TaskState(body["state"]),
            reason=body.get("reason"),
            reason_detail=body.get("reasonDetail"),
            attempt=body["attempt"],
            used_attempts=body["usedAttempts"],
            max_attempts=body["maxAttempts"],
            priority=body["priority"],
            payload=body.get("payload"),
            result=body.get("result"),
            error=error and TaskError(Category(error["category"]), error["message"], error.get("code")),
            properties=body.get("properties") or {},
            dedup_key=body.get("dedupKey"),
            created_at=parse_time(body["createdAt"]),
            finished_at=_optional_time(body.get("finishedAt")),
            worker_id=(body.get("lease") or {}).get("workerId"),
            cancel_reason=(body.get("cancelRequested") or {}).get("reason"),
            redrive_of=body.get("redriveOf"),
            progress=progress
            and Progress(parse_time(progress["at"]), progress.get("progressPct"), progress.get("message")),
            raw=body,
        )


@dataclass(frozen=True)
class HistoryEvent:
    """One record of the ledger about a task."""

    position: int
    at: datetime
    type: str
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "HistoryEvent":
        return cls(body["position"], parse_time(body["at"]), body["type"], body)


def _optional_time(text: Optional[str]) -> Optional[datetime]:
    return None if text is None else parse_time(text)


def _present(value: Any) -> Dict[str, Any]:
    """The fields that are given, under their names on the wire."""
    pairs: Tuple[Tuple[str, Any], ...] = tuple((f.name, getattr(value, f.name)) for f in fields(value))
    return {_camel(name): _plain(given) for name, given in pairs if given is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return _present(value) if isinstance(value, Backoff) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
