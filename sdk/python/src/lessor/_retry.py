"""Pauses between repeats: they grow, are left to chance in part, and end.

Only a fault on the way is repeated: no connection, a reset, a time-out, or an answer that decided nothing (full, not
serving). An answer that decided something is never a reason to ask again.
"""

from __future__ import annotations

import random
from typing import Optional

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
# Longest that the coordinator, or whoever answers in its place, may ask to wait.
MAX_RETRY_AFTER_S = 30.0
# Enough for a coordinator to be restarted: the pauses add up to more than a minute.
MAX_TRIES = 20

# Answers that decide nothing: too slow, full, broken or not serving, or a gateway that does not reach it.
UNDECIDED = frozenset([408, 429, 500, 502, 503, 504])


class Pauses:
    """The pauses of one request."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S
        self._tries = 0

    def after(self, retry_after_s: Optional[float]) -> Optional[float]:
        """How long to wait after a failed try; nothing when there have been enough. The coordinator's own word on
        when to come back is kept, within a bound."""
        self._tries += 1
        if self._tries >= MAX_TRIES:
            return None
        pause_s = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, MAX_PAUSE_S)
        return max(pause_s, min(retry_after_s or 0.0, MAX_RETRY_AFTER_S))
