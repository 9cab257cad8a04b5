"""Workers and clients for the Lessor work coordinator.

A worker is a handler for a queue; the loop around it (leases, heartbeats, repeats of what got lost, cancellation,
draining) is kept here, as the worker contract asks for it. A `Target` does the same for tasks that are pushed to a
program, with the same handlers. Workers do work, the coordinator decides the truth.
"""

from __future__ import annotations

from ._client import Client
from ._credentials import Credentials
from ._errors import LessorError, NoAnswer, Problem
from ._failures import (
    Cancelled,
    Category,
    Configuration,
    DataQuality,
    Failure,
    Infrastructure,
    LeaseLost,
    Timeout,
    UserCode,
)
from ._models import Backoff, HistoryEvent, Progress, Submit, Submitted, TaskError, TaskInfo, TaskState
from ._outcome import Outcome, Verdict
from ._target import Accepted, Refused, Target
from ._task import Task
from ._worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Backoff",
    "Cancelled",
    "Category",
    "Client",
    "Configuration",
    "Credentials",
    "DataQuality",
    "Failure",
    "HistoryEvent",
    "Infrastructure",
    "LeaseLost",
    "LessorError",
    "NoAnswer",
    "Outcome",
    "Problem",
    "Progress",
    "Refused",
    "Submit",
    "Submitted",
    "Target",
    "Task",
    "TaskError",
    "TaskInfo",
    "TaskState",
    "Timeout",
    "UserCode",
    "Verdict",
    "Worker",
]
