"""The worker's own clock, and how long a lease surely lives by it.

A worker must stop before its lease ends, not after, and it cannot read the coordinator's clock. So every span is
counted from a moment before the coordinator can have begun to count: when the request was sent, not when its answer
came. The wall clock plays no part.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any, Mapping, Optional

# Linux alone has a clock that also counts while the machine is suspended. Without it a lease would seem to live on
# through a suspend.
_BOOT_CLOCK: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None)

# A lease is granted for a tenth more than its length, because the coordinator records no extension that is younger
# than that. After an answered heartbeat only the length itself is sure.
_GRANTED_TENTHS = 11
_SURE_TENTHS = 10


def now() -> float:
    """Seconds on a clock that never goes back."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def parse_time(text: str) -> datetime:
    """Reads RFC 3339 in UTC. The standard library of 3.9 reads neither a `Z` nor nanoseconds."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return moment.replace(microsecond=int(fraction[:6].ljust(6, "0"))) if fraction else moment


class LeaseClock:
    """How long one lease surely lives, by the worker's own clock."""

    def __init__(self, lease: Mapping[str, Any], asked_at: float, heard_at: float) -> None:
        """`asked_at` is when the worker first asked for what turned out to be this lease."""
        granted_at = parse_time(lease["grantedAt"])
        self._expires_at: Optional[datetime] = parse_time(lease["expiresAt"])
        self._length_s = (self._expires_at - granted_at).total_seconds()
        # What is sure from an answered heartbeat on.
        self._sure_s = self._length_s * _SURE_TENTHS / _GRANTED_TENTHS
        timeout_ms: Optional[int] = lease.get("timeoutMs")
        self._limited_to = None if timeout_ms is None else granted_at + timedelta(milliseconds=timeout_ms)
        self._heard_at = heard_at
        self.valid_until = asked_at + self._length_s
        # The lease is over by then, whatever is heard.
        self._ends_at: Optional[float] = None

    @classmethod
    def pushed(cls, heartbeat_timeout_s: float, begin_within_s: float, heard_at: float) -> "LeaseClock":
        """Of a task that was pushed and has to begin within some time. From then on the lease lives for
        `heartbeat_timeout_s` after each answered call."""
        clock = cls.__new__(cls)
        clock._expires_at = None
        clock._length_s = clock._sure_s = heartbeat_timeout_s
        clock._limited_to = None
        clock._heard_at = heard_at
        clock.valid_until = heard_at + begin_within_s
        clock._ends_at = None
        return clock

    def begun(self, sent_at: float) -> None:
        """The attempt began with a call that was first sent then."""
        self._heard_at = now()
        self.valid_until = sent_at + self._length_s

    def stopping(self, grace_s: float) -> None:
        """The handler was told to stop, and has so long for it."""
        if self._ends_at is None:
            self._ends_at = now() + grace_s
        self.valid_until = min(self.valid_until, self._ends_at)

    @property
    def is_over(self) -> bool:
        return now() >= self.valid_until

    @property
    def needs_confirming(self) -> bool:
        """Whether so much of the lease may be gone on arrival that a heartbeat has to show that it lives."""
        return self.valid_until - now() < self._length_s / 2

    @property
    def latest_end(self) -> float:
        """The lease is over by then unless a heartbeat was answered, however late it was granted."""
        return self._heard_at + self._length_s

    def extended(self, sent_at: float, expires_at: Optional[datetime]) -> None:
        """A heartbeat that was sent then found the lease alive, until `expires_at` where that is told."""
        if expires_at is None or self._limited_to is None or expires_at < self._limited_to:
            self.valid_until = max(self.valid_until, sent_at + self._sure_s)
        else:
            before = self._expires_at or expires_at
            self._limit(sent_at, (expires_at - before).total_seconds())
        if self._ends_at is not None:
            self.valid_until = min(self.valid_until, self._ends_at)
        self._expires_at = expires_at

    def _limit(self, sent_at: float, gained_s: float) -> None:
        """The attempt's time limit ends the lease, so only what was gained is added to what was sure before."""
        self.valid_until = min(self.valid_until + gained_s, sent_at + self._length_s)
        if self.is_over:
            # How much of the time is gone cannot be known. The lease lives, so the most that can be left is what was
            # left when it arrived.
            self.valid_until = self.latest_end
