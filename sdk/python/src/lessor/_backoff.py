"""Delays between retries: exponential, with jitter and an upper bound.

Only faults are retried: no connection, a reset, a timeout, or an answer that decided nothing (overloaded, not serving).
An answer that decided something is never a reason to ask again.
"""

from __future__ import annotations

import random
from typing import Optional

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0
# Longest `Retry-After` that is honored.
MAX_RETRY_AFTER_S = 30.0
# Enough for a coordinator to restart: the delays add up to more than a minute.
MAX_TRIES = 20

# Answers that decide nothing: the coordinator is too slow, overloaded, broken or not serving, a gateway does not reach it,
# or the outputs of an execution are not in the content store yet (424).
UNDECIDED = frozenset([408, 424, 429, 500, 502, 503, 504])


class RetryBackoff:
    """The delays of one request."""

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S
        self._tries = 0

    def next_delay_s(self, retry_after_s: Optional[float]) -> Optional[float]:
        """The delay after a failed try, at least as long as the server asked for; `None` after the last try."""
        self._tries += 1
        if self._tries >= MAX_TRIES:
            return None
        delay_s = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, MAX_DELAY_S)
        return max(delay_s, min(retry_after_s or 0.0, MAX_RETRY_AFTER_S))
