"""How long a worker or a client pauses before it asks again."""

from __future__ import annotations

import unittest

from lessor._http import _retry_after_s
from lessor._backoff import MAX_RETRY_AFTER_S, MAX_TRIES, RetryBackoff


class Retries(unittest.TestCase):
    def test_the_coordinators_word_on_when_to_come_back_is_kept_within_a_bound(self) -> None:
        self.assertEqual(RetryBackoff().next_delay_s(_retry_after_s("7")), 7.0)
        for day_or_longer in ("86400", "1e300", str(2**64 - 1)):
            self.assertEqual(RetryBackoff().next_delay_s(_retry_after_s(day_or_longer)), MAX_RETRY_AFTER_S)

    def test_what_is_no_span_of_time_is_ignored(self) -> None:
        for odd in ("inf", "-inf", "nan", "-1", "", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", None):
            self.assertIsNone(_retry_after_s(odd), odd)

    def test_delays_end(self) -> None:
        backoff = RetryBackoff()
        self.assertTrue(all(backoff.next_delay_s(None) for _ in range(MAX_TRIES - 1)))
        self.assertIsNone(backoff.next_delay_s(None))
