"""How an attempt ended for its worker."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional

from ._errors import LessorError
from ._models import TaskState


class Verdict(str, enum.Enum):
    """The first three are the coordinator's verdicts; the others say why there is none."""

    # The report is accepted and the attempt is over.
    COMMITTED = "COMMITTED"
    # The attempt had lost its authority; its result was discarded.
    CANCELLED = "CANCELLED"
    # The report itself was invalid: a bug, or misuse of the protocol.
    REJECTED = "REJECTED"
    # The lease was lost before the report, so nothing was reported.
    LOST = "LOST"
    # No answer came while the lease was valid; the coordinator knows the state of the task.
    UNKNOWN = "UNKNOWN"
    # The worker stopped and released the lease.
    RELEASED = "RELEASED"


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    # The task's state, if the coordinator said so.
    state: Optional[TaskState] = None
    # Why the report was refused or not answered.
    error: Optional[LessorError] = None
