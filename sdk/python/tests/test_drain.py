"""How a worker hears that it is to stop."""

from __future__ import annotations

import select
import signal
import threading
import unittest
from typing import Any
from unittest import mock

from lessor._clock import now
from lessor._drain import StopRequests
from support import PATIENCE_S


class Signals(unittest.TestCase):
    def test_a_signal_that_did_not_interrupt_the_sleep_ends_it(self) -> None:
        stops = StopRequests()
        self.addCleanup(stops.close)

        goes_to_sleep = threading.Event()
        sleep = select.select

        def noted_sleep(*arguments: Any) -> Any:
            # The other thread runs when this one sleeps and lets go of the interpreter.
            goes_to_sleep.set()
            return sleep(*arguments)

        def take_signal() -> None:
            goes_to_sleep.wait()
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        before = signal.getsignal(signal.SIGTERM)
        with stops.stop_on_signals(), mock.patch("select.select", noted_sleep):
            threading.Thread(target=take_signal, daemon=True).start()
            end = now() + PATIENCE_S
            stops.sleep_until(lambda: stops.count >= 1, end)
            self.assertLess(now(), end)
        self.assertEqual((signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1)), (before, -1))
