"""The worker's monotonic clock, and how long a lease is certainly valid by it.

A worker must stop before its lease ends, not after, and it cannot read the coordinator's clock. So every duration is
counted from a time before the coordinator can have begun to count: when the request was sent, not when its answer came.
The wall clock plays no part.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any, Mapping, Optional

# Only Linux has a clock that also advances while the machine is suspended. Otherwise a lease would seem to survive a
# suspend.
_BOOT_CLOCK: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None)

# The coordinator grants a lease for a tenth more than its length, because it does not record heartbeats that are more
# recent than that. After an answered heartbeat only the length itself is certain.
_GRANTED_TENTHS = 11
_CERTAIN_TENTHS = 10


def now() -> float:
    """Seconds on the monotonic clock."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def parse_time(text: str) -> datetime:
    """Parses RFC 3339 in UTC. The standard library of 3.9 parses neither a `Z` nor nanoseconds."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return moment.replace(microsecond=int(fraction[:6].ljust(6, "0"))) if fraction else moment


class LeaseClock:
    """How long one lease is certainly valid, by the worker's own clock."""

    def __init__(self, lease: Mapping[str, Any], asked_at: float, received_at: float) -> None:
        """`asked_at` is when the worker first sent the poll."""
        granted_at = parse_time(lease["grantedAt"])
        self._expires_at: Optional[datetime] = parse_time(lease["expiresAt"])
        self._length_s = (self._expires_at - granted_at).total_seconds()
        # How long the lease is certainly valid after an answered heartbeat was sent.
        self._certain_s = self._length_s * _CERTAIN_TENTHS / _GRANTED_TENTHS
        timeout_ms: Optional[int] = lease.get("timeoutMs")
        self._limited_to = None if timeout_ms is None else granted_at + timedelta(milliseconds=timeout_ms)
        self._received_at = received_at
        self.valid_until = asked_at + self._length_s
        # The lease ends then, whatever heartbeats say.
        self._ends_at: Optional[float] = None

    @classmethod
    def pushed(cls, heartbeat_timeout_s: float, begin_within_s: float, received_at: float) -> "LeaseClock":
        """The clock of a task that was pushed and must begin within `begin_within_s`. From then on the lease is valid
        for `heartbeat_timeout_s` after each answered call."""
        clock = cls.__new__(cls)
        clock._expires_at = None
        clock._length_s = clock._certain_s = heartbeat_timeout_s
        clock._limited_to = None
        clock._received_at = received_at
        clock.valid_until = received_at + begin_within_s
        clock._ends_at = None
        return clock

    def begin(self, sent_at: float) -> None:
        """Begins the attempt of a pushed task, with a call that was first sent at `sent_at`."""
        self._received_at = now()
        self.valid_until = sent_at + self._length_s

    def limit_to_grace(self, grace_s: float) -> None:
        """Limits the lease to the time that the handler has to stop."""
        if self._ends_at is None:
            self._ends_at = now() + grace_s
        self.valid_until = min(self.valid_until, self._ends_at)

    @property
    def is_over(self) -> bool:
        return now() >= self.valid_until

    @property
    def needs_confirmation(self) -> bool:
        """Whether more than half of the lease may be gone on arrival, so that a heartbeat must confirm it first."""
        return self.valid_until - now() < self._length_s / 2

    @property
    def latest_end(self) -> float:
        """The lease is over by then without an answered heartbeat, however late it was granted."""
        return self._received_at + self._length_s

    def extend(self, sent_at: float, expires_at: Optional[datetime]) -> None:
        """Extends the lease: a heartbeat that was sent at `sent_at` found it valid, until `expires_at` if known."""
        if expires_at is None or self._limited_to is None or expires_at < self._limited_to:
            self.valid_until = max(self.valid_until, sent_at + self._certain_s)
        else:
            before = self._expires_at or expires_at
            self._limit(sent_at, (expires_at - before).total_seconds())
        if self._ends_at is not None:
            self.valid_until = min(self.valid_until, self._ends_at)
        self._expires_at = expires_at

    def _limit(self, sent_at: float, gained_s: float) -> None:
        """The attempt's time limit ends the lease, so only what was gained is added to what was certain before."""
        self.valid_until = min(self.valid_until + gained_s, sent_at + self._length_s)
        if self.is_over:
            # How much of the time is gone cannot be known. The lease is valid, so at most as much can be left as was
            # left when it arrived.
            self.valid_until = self.latest_end
