"""How a worker hears that it is to stop."""

from __future__ import annotations

import signal
import threading
import time
import unittest

from lessor._clock import now
from lessor._drain import Stops
from support import PATIENCE_S

ASLEEP_AFTER_S = 0.1


class Signals(unittest.TestCase):
    def test_a_signal_that_did_not_interrupt_the_sleep_ends_it(self) -> None:
        stops = Stops()
        self.addCleanup(stops.close)

        def take_signal() -> None:
            time.sleep(ASLEEP_AFTER_S)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        before = signal.getsignal(signal.SIGTERM)
        with stops.heard_in_signals():
            threading.Thread(target=take_signal, daemon=True).start()
            end = now() + PATIENCE_S
            stops.sleep_until(lambda: stops.count >= 1, end)
            self.assertLess(now(), end)
        self.assertEqual((signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1)), (before, -1))
