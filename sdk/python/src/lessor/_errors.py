"""Errors of calls to the coordinator."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional


class LessorError(Exception):
    """The base class of the errors that clients and workers raise."""


class NoAnswer(LessorError):
    """No answer, even after retries. The request may or may not have been carried out."""


class Problem(LessorError):
    """The coordinator refused the request. `code` is stable, for programs; `detail` is for people."""

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
    def is_purged(self) -> bool:
        """Whether the task has ended and is no longer kept."""
        return self.code == "task_purged"

    @property
    def is_conflict(self) -> bool:
        return self.status == 409

    @property
    def is_foreign(self) -> bool:
        """Whether a server other than Lessor answered."""
        return self.code == "foreign_answer"

    @property
    def is_full(self) -> bool:
        return self.status == 429

    @classmethod
    def from_body(cls, status: int, body: bytes) -> "Problem":
        """Parses problem+json. The answer of another server, such as a gateway, keeps its status."""
        try:
            parsed: Any = json.loads(body)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict) or not isinstance(parsed.get("code"), str):
            return cls.foreign(status)
        return cls.from_json(parsed, status)

    @classmethod
    def foreign(cls, status: int) -> "Problem":
        return cls(status=status, code="foreign_answer", detail="the answer is not Lessor's; is the URL right?")

    @classmethod
    def from_json(cls, body: Mapping[str, Any], status: int = 0) -> "Problem":
        return cls(
            status=status or int(body.get("status", 0)),
            code=str(body.get("code", "")),
            detail=str(body.get("detail", "")),
            title=str(body.get("title", "")),
            field=body.get("field"),
            task_id=body.get("taskId"),
            verdict=body.get("verdict"),
        )
