"""Why a call to the coordinator did not bring what was asked for."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional


class LessorError(Exception):
    """Whatever this package raises to callers of the client and to whoever runs a worker."""


class NoAnswer(LessorError):
    """Nobody answered, also when asked again. Whether the request was done is not known."""


class Problem(LessorError):
    """The coordinator said no. `code` is stable, for programs; `detail` is for people."""

    def __init__(
        self,
        *,
        status: int,
        code: str,
        detail: str = "",
        title: str = "",
        field: Optional[str] = None,
        task_id: Optional[str] = None,
        verdict: Optional[str] = None,
    ) -> None:
        super().__init__(f"{detail or title} ({code}, HTTP {status})")
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title
        self.field = field
        self.task_id = task_id
        self.verdict = verdict

    @property
    def is_not_found(self) -> bool:
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        return self.status == 409

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else than Lessor answered."""
        return self.code == "foreign_answer"

    @property
    def is_full(self) -> bool:
        return self.status == 429

    @classmethod
    def from_body(cls, status: int, body: bytes) -> "Problem":
        """Reads problem+json; what something in between answered instead keeps its status and no code of ours."""
        try:
            told: Any = json.loads(body)
        except ValueError:
            told = None
        if not isinstance(told, dict) or not isinstance(told.get("code"), str):
            return cls.foreign(status)
        return cls.from_json(told, status)

    @classmethod
    def foreign(cls, status: int) -> "Problem":
        return cls(status=status, code="foreign_answer", detail="the answer is not Lessor's; is the URL right?")

    @classmethod
    def from_json(cls, told: Mapping[str, Any], status: int = 0) -> "Problem":
        return cls(
            status=status or int(told.get("status", 0)),
            code=str(told.get("code", "")),
            detail=str(told.get("detail", "")),
            title=str(told.get("title", "")),
            field=told.get("field"),
            task_id=told.get("taskId"),
            verdict=told.get("verdict"),
        )
