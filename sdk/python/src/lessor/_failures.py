"""The failures of attempts, with the categories that the coordinator's retry policy uses.

A handler raises one of these to say what kind of error it met. Any other exception is USER_CODE. Whether there is
another attempt is the coordinator's decision alone.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Optional


class Category(str, enum.Enum):
    USER_CODE = "USER_CODE"
    DATA_QUALITY = "DATA_QUALITY"
    INFRASTRUCTURE = "INFRASTRUCTURE"
    CONFIGURATION = "CONFIGURATION"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"


def text(value: object) -> str:
    """A text as it is, also of a kind of its own, and of anything else what it says."""
    return value if isinstance(value, str) else str(value)


class Failure(Exception):
    """The attempt failed. Without `retryable`, the category decides whether another one may help."""

    category: ClassVar[Category] = Category.USER_CODE

    def __init__(
        self,
        reason: object,
        *,
        retryable: Optional[bool] = None,
        code: Optional[str] = None,
        partial_progress: Any = None,
    ) -> None:
        """`reason` is a text, or something with one, such as the exception that was met. The next attempt receives
        `partial_progress`: any JSON value, at most 64 KiB of text."""
        super().__init__(reason)
        self.reason = text(reason)
        self.retryable = None if retryable is None else bool(retryable)
        self.code = None if code is None else text(code)
        self.partial_progress = partial_progress


class UserCode(Failure):
    """The handler's own code is at fault."""


class DataQuality(Failure):
    """The payload, or the data that it names, is invalid."""

    category = Category.DATA_QUALITY


class Infrastructure(Failure):
    """A machine, a network or another service is at fault."""

    category = Category.INFRASTRUCTURE


class Configuration(Failure):
    """Someone has to set something right first."""

    category = Category.CONFIGURATION


class Timeout(Failure):
    """Something took too long."""

    category = Category.TIMEOUT


class Cancelled(Failure):
    """The handler stopped because it was asked to."""

    category = Category.CANCELLED


class LeaseLost(Cancelled):
    """The right to report on this attempt is gone: stop, and do nothing more in the task's name."""
