"""How an attempt ended for its worker."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional

from ._errors import LessorError
from ._models import TaskState


class Verdict(str, enum.Enum):
    """The first three are the coordinator's answers; the others say why there is none."""

    # The report is accepted and the attempt is over.
    COMMITTED = "COMMITTED"
    # The attempt had no authority any more; its result was thrown away.
    CANCELLED = "CANCELLED"
    # The report itself was invalid: a bug, or misuse of the protocol.
    REJECTED = "REJECTED"
    # The lease was lost before anything was reported, so nothing was.
    LOST = "LOST"
    # No answer came while the lease lived; the coordinator knows what became of the task.
    UNKNOWN = "UNKNOWN"
    # The worker stopped and gave the lease back.
    RELEASED = "RELEASED"


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    # What became of the task, where the coordinator said so.
    state: Optional[TaskState] = None
    # Why the report was refused or not answered.
    error: Optional[LessorError] = None
