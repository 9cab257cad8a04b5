"""How long a lease surely lives, by the worker's own clock."""

from __future__ import annotations

import unittest
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Optional

from lessor._clock import LeaseClock, now, parse_time

GRANTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def lease(length_s: float, timeout_ms: Optional[int] = None) -> Dict[str, Any]:
    lease = {"grantedAt": GRANTED.isoformat()[:19] + "Z", "expiresAt": shown(length_s)}
    return lease if timeout_ms is None else {**lease, "timeoutMs": timeout_ms}


def shown(after_s: float) -> str:
    return (GRANTED + timedelta(seconds=after_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Clock(unittest.TestCase):
    def test_a_lease_is_counted_from_when_it_was_asked_for(self) -> None:
        asked_at = now() - 10
        clock = LeaseClock(lease(66), asked_at, now())
        self.assertEqual(clock.valid_until, asked_at + 66)
        self.assertFalse(clock.needs_confirmation or clock.is_over)
        self.assertTrue(LeaseClock(lease(66), now() - 40, now()).needs_confirmation)
        self.assertTrue(LeaseClock(lease(66), now() - 70, now()).is_over)

    def test_a_heartbeat_gives_the_length_without_its_tenth_from_when_it_was_sent(self) -> None:
        at = now()
        clock = LeaseClock(lease(66), at, at)
        clock.extend(at + 1, GRANTED + timedelta(seconds=66))
        self.assertEqual(clock.valid_until, at + 66)
        clock.extend(at + 20, GRANTED + timedelta(seconds=86))
        self.assertEqual(clock.valid_until, at + 80)
        # The coordinator's wall clock may step between two of its lives; the worker's own span does not follow it.
        clock.extend(at + 40, GRANTED + timedelta(seconds=3_600))
        self.assertEqual(clock.valid_until, at + 100)

    def test_no_heartbeat_passes_the_attempts_time_limit(self) -> None:
        at = now()
        clock = LeaseClock(lease(66, 70_000), at, at)
        clock.extend(at + 20, GRANTED + timedelta(seconds=70))
        clock.extend(at + 60, GRANTED + timedelta(seconds=70))
        self.assertAlmostEqual(clock.valid_until, at + 70)

    def test_a_limited_lease_that_took_long_to_arrive_lives_at_most_as_long_as_it_could_then(self) -> None:
        clock = LeaseClock(lease(5, 5_000), now() - 100, now())
        self.assertTrue(clock.is_over)
        clock.extend(now(), GRANTED + timedelta(seconds=5))
        self.assertEqual(clock.valid_until, clock.latest_end)

    def test_times_are_read_with_and_without_fractions(self) -> None:
        moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
        self.assertEqual(parse_time("2026-01-02T03:04:05Z"), moment)
        self.assertEqual(parse_time("2026-01-02T03:04:05.12Z"), moment.replace(microsecond=120_000))
        self.assertEqual(parse_time("2026-01-02T03:04:05.123456789Z"), moment.replace(microsecond=123_456))
