"""What the worker contract asks of a worker, number by number, as its coordinator sees it: a proxy between the two
writes down every request."""

from __future__ import annotations

import logging
import threading
from typing import Any, List

import lessor
from lessor import Verdict
from support import LOSE, PASS, REFUSE, Case, Request, first

# Short enough to be outlived, long enough for a busy machine not to lose it by accident.
SHORT_LEASE_MS = 4_000
# Often, so that what a heartbeat tells is told soon.
INTERVAL_MS = 50
LONG_S = 30.0


class WorkerDuties(Case):
    def reports(self, exchanges: List[Any]) -> List[str]:
        return [e.request.call for e in exchanges if e.request.is_report]

    def test_s0_3_a_worker_leases_runs_reports_and_obeys(self) -> None:
        task_id = self.submit({"n": 20})
        with self.working(lambda task: task.payload["n"] + 1):
            self.assertEqual(self.final(task_id).result, 21)
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)

    def test_s0_8_after_committed_nothing_more_is_said_and_the_place_is_free(self) -> None:
        first_id, second_id = self.submit(1), self.submit(2)
        proxy = self.proxy()
        with self.working(lambda task: task.payload, url=proxy.url):
            self.assertEqual([o.verdict for o in self.ended.wait(2)], [Verdict.COMMITTED] * 2)
        for task, _ in self.ended.outcomes:
            self.assertEqual([e.request.call for e in proxy.of_lease(task.lease_id)], ["complete"])
        self.assertEqual([self.client.get(i).attempt for i in (first_id, second_id)], [1, 1])

    def test_s0_13_after_cancelled_all_is_dropped_and_nothing_repeated(self) -> None:
        task_id = self.submit()
        proxy = self.proxy()

        def handler(task: lessor.Task) -> str:
            if task.attempt == 1:
                # The lease is gone behind the worker's back.
                self.request("POST", f"/v1/leases/{task.lease_id}/release", {"workerId": worker.worker_id})
            return f"of attempt {task.attempt}"

        with self.assertLogs("lessor", logging.WARNING), self.working(handler, url=proxy.url) as worker:
            cancelled, committed = self.ended.wait(2)
        self.assertEqual((cancelled.verdict, committed.verdict), (Verdict.CANCELLED, Verdict.COMMITTED))
        lost = self.ended.outcomes[0][0]
        self.assertTrue(lost.cancelled and lost.lease_lost)
        self.assertEqual([e.request.call for e in proxy.of_lease(lost.lease_id)], ["complete"])
        self.assertEqual(self.final(task_id).result, "of attempt 2")

    def test_s0_15_rejected_is_logged_surfaced_and_not_repeated(self) -> None:
        task_id = self.submit()
        proxy = self.proxy()

        def handler(task: lessor.Task) -> str:
            story = {"workerId": worker.worker_id, "result": "another story"}
            self.request("POST", f"/v1/leases/{task.lease_id}/complete", story)
            return "this story"

        with self.assertLogs("lessor", logging.ERROR) as logs:
            with self.working(handler, url=proxy.url) as worker:
                outcome = self.ended.wait()[0]
        self.assertEqual(outcome.verdict, Verdict.REJECTED)
        assert isinstance(outcome.error, lessor.Problem)
        self.assertEqual((outcome.error.status, outcome.error.code), (409, "conflicting_report"))
        self.assertIn(f"task {task_id} attempt 1: rejected", logs.output[0])
        self.assertEqual(self.reports(proxy.exchanges), ["complete"])
        self.assertEqual(self.final(task_id).result, "another story")

    def test_s0_16_a_handler_that_ignores_a_lost_lease_has_its_result_discarded(self) -> None:
        self.configure(heartbeatIntervalMs=INTERVAL_MS)
        self.submit()
        proxy = self.proxy()
        reasons: List[Any] = []

        def handler(task: lessor.Task) -> str:
            if task.attempt == 1:
                self.request("POST", f"/v1/leases/{task.lease_id}/release", {"workerId": worker.worker_id})
                self.assertTrue(task.wait(LONG_S), "a heartbeat tells that the lease is gone")
                self.assertTrue(task.lease_lost)
                self.assertRaises(lessor.LeaseLost, task.checkpoint)
                reasons.append(task.cancel_reason)
            return "ignored"

        with self.assertLogs("lessor", logging.WARNING), self.working(handler, url=proxy.url) as worker:
            lost, _ = self.ended.wait(2)
        self.assertEqual(lost.verdict, Verdict.LOST)
        self.assertEqual(reasons, ["the coordinator says that the lease is over"])
        self.assertEqual(self.reports(proxy.of_lease(self.ended.outcomes[0][0].lease_id)), [])

    def test_s0_16_when_its_own_clock_runs_out_a_worker_stops_unasked(self) -> None:
        self.configure(leaseMs=SHORT_LEASE_MS)
        task_id = self.submit()

        def rule(request: Request, number: int) -> str:
            return REFUSE if request.call == "heartbeat" and is_cut_off.is_set() else PASS

        is_cut_off = threading.Event()
        is_cut_off.set()
        proxy = self.proxy(rule)

        def handler(task: lessor.Task) -> str:
            if task.attempt == 1:
                self.assertTrue(task.wait(LONG_S))
                is_cut_off.clear()
            return "late"

        with self.assertLogs("lessor", logging.WARNING), self.working(handler, url=proxy.url):
            lost, committed = self.ended.wait(2)
        self.assertEqual((lost.verdict, committed.verdict), (Verdict.LOST, Verdict.COMMITTED))
        self.assertEqual(self.reports(proxy.of_lease(self.ended.outcomes[0][0].lease_id)), [])
        self.assertEqual(
            self.kinds(task_id), ["TaskCreated", "LeaseGranted", "LeaseExpired", "LeaseGranted", "TaskCompleted"]
        )

    def test_s0_17_heartbeats_are_sent_while_executing_and_at_no_other_time(self) -> None:
        self.configure(leaseMs=SHORT_LEASE_MS, heartbeatIntervalMs=INTERVAL_MS)
        proxy = self.proxy()
        beats = 2 * SHORT_LEASE_MS // INTERVAL_MS

        def handler(task: lessor.Task) -> int:
            proxy.until(lambda _: len(proxy.of_lease(task.lease_id)) >= beats)
            return task.attempt

        with self.working(handler, url=proxy.url, wait_ms=5 * INTERVAL_MS):
            task_id = self.submit()
            # The lease would have run out twice meanwhile.
            self.assertEqual(self.final(task_id).result, 1)
            self.ended.wait()
            # A poll begins, waits its time and ends: longer than a heartbeat interval, and none is sent.
            polls = proxy.count("leases")
            proxy.until(lambda _: proxy.count("leases") >= polls + 2)
        calls = [e.request.call for e in proxy.exchanges if e.request.call != "leases"]
        self.assertEqual(set(calls[:-1]), {"heartbeat"})
        self.assertEqual(calls[-1], "complete")
        self.assertGreaterEqual(len(calls) - 1, beats)

    def test_s0_21_a_heartbeat_that_fails_decides_nothing(self) -> None:
        foreign: List[Any] = [(404, {}, b"<html>"), (200, {}, b"<html>"), (200, {}, b"[]")]
        for action in (LOSE, REFUSE, (503, {"retry-after": "1"}, b"{}"), *foreign):
            with self.subTest(action=action):
                self.begin_anew()
                self.configure(heartbeatIntervalMs=INTERVAL_MS)
                task_id = self.submit()
                proxy = self.proxy(first(2, "heartbeat", action))

                def handler(task: lessor.Task) -> bool:
                    proxy.until(lambda _: proxy.count("heartbeat") >= 3)
                    return task.cancelled

                with self.working(handler, url=proxy.url):
                    self.assertIs(self.final(task_id).result, False)

    def test_s0_22_a_report_that_got_lost_on_the_way_is_sent_again(self) -> None:
        answers = {code: (code, {"retry-after": "0"}, b"{}") for code in (408, 424, 429, 500, 502, 503, 504)}
        for action in (LOSE, REFUSE, *answers.values()):
            with self.subTest(action=action):
                self.begin_anew()
                task_id = self.submit()
                proxy = self.proxy(first(2, "complete", action))
                with self.working(lambda task: "done", url=proxy.url):
                    self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)
                reports = [e.request.raw for e in proxy.exchanges if e.request.call == "complete"]
                # A kept connection that is cut off is tried once more at once, so there may be one more than three.
                self.assertIn(len(reports), (3, 4))
                self.assertEqual(len(set(reports)), 1, "S0-23: every repeat has the same words")
                self.assertEqual(self.kinds(task_id), ["TaskCreated", "LeaseGranted", "TaskCompleted"])

    def test_s0_22_a_poll_whose_answer_got_lost_gets_the_same_lease(self) -> None:
        task_id = self.submit()
        is_lost = threading.Event()

        def rule(request: Request, number: int) -> str:
            if request.call == "leases" and not is_lost.is_set():
                is_lost.set()
                return LOSE
            return PASS

        proxy = self.proxy(rule)
        with self.assertLogs("lessor", logging.WARNING), self.working(lambda task: task.attempt, url=proxy.url):
            self.assertEqual(self.final(task_id).result, 1)
        one, two = [e.request.raw for e in proxy.exchanges if e.request.call == "leases"][:2]
        self.assertEqual(one, two)

    def test_s0_23_repeats_end_with_the_lease(self) -> None:
        self.configure(leaseMs=SHORT_LEASE_MS)
        task_id = self.submit()

        def rule(request: Request, number: int) -> str:
            return REFUSE if request.is_report and not is_expired.is_set() else PASS

        is_expired = threading.Event()
        proxy = self.proxy(rule)
        ends: List[bool] = []

        def on_outcome(task: lessor.Task, outcome: lessor.Outcome) -> None:
            if outcome.verdict is Verdict.UNKNOWN:
                ends.append(task.lease_lost)
                is_expired.set()
            self.ended(task, outcome)

        with self.assertLogs("lessor", logging.ERROR):
            with self.working(lambda task: task.attempt, url=proxy.url, on_outcome=on_outcome):
                unknown, _ = self.ended.wait(2)
                self.assertEqual(self.final(task_id).result, 2)
        self.assertEqual(unknown.verdict, Verdict.UNKNOWN)
        self.assertEqual(ends, [False], "it gave up while the lease still lived")
        tries = [e.request.raw for e in proxy.of_lease(self.ended.outcomes[0][0].lease_id)]
        self.assertIn(len(tries), range(2, 20))
        self.assertEqual(len(set(tries)), 1)

    def test_s0_24_no_verdict_is_a_reason_to_report_again(self) -> None:
        """Each verdict, also when it comes with a status that asks for a repeat elsewhere; and what is none at all,
        because somebody else answered."""
        problem = b'{"type":"x","title":"x","status":%d,"detail":"x","code":"x","verdict":"%s"}'
        table = [(409, "CANCELLED"), (400, "REJECTED"), (503, "REJECTED"), (429, "CANCELLED")]
        for status, verdict in table + [(200, "UNKNOWN"), (404, "UNKNOWN")]:
            with self.subTest(status=status, verdict=verdict):
                self.begin_anew()
                self.submit()
                body = b"<html>" if verdict == "UNKNOWN" else problem % (status, verdict.encode())
                answer = (status, {"retry-after": "0"}, body)
                proxy = self.proxy(lambda request, number: answer if request.call == "complete" else PASS)
                with self.assertLogs("lessor", logging.WARNING):
                    with self.working(lambda task: None, url=proxy.url):
                        self.assertEqual(self.ended.wait()[0].verdict.value, verdict)
                self.assertEqual(self.reports(proxy.exchanges), ["complete"])

    def test_s0_25_a_local_failure_is_reported_and_the_coordinator_decides(self) -> None:
        self.configure(backoff={"initialMs": 1, "factor": 1, "jitter": 0})
        table = [
            (ValueError("bad"), "USER_CODE", "ValueError: bad", 2),
            (SystemExit("out"), "USER_CODE", "SystemExit: out", 2),
            (lessor.UserCode("u"), "USER_CODE", "u", 2),
            (lessor.UserCode("u", retryable=False), "USER_CODE", "u", 1),
            (lessor.Infrastructure("i"), "INFRASTRUCTURE", "i", 2),
            (lessor.Timeout("t"), "TIMEOUT", "t", 2),
            (lessor.DataQuality("d"), "DATA_QUALITY", "d", 1),
            (lessor.DataQuality("d", retryable=True), "DATA_QUALITY", "d", 2),
            (lessor.Configuration("c", code="no_key"), "CONFIGURATION", "c", 1),
            (lessor.Cancelled("x"), "CANCELLED", "x", 1),
            (ValueError("é" * 20_000), "USER_CODE", "ValueError: " + "é" * 8_186, 2),
        ]

        def handler(task: lessor.Task) -> None:
            raise table[task.payload][0]

        ids = [self.submit(row, max_attempts=2) for row in range(len(table))]
        with self.assertLogs("lessor", logging.WARNING), self.working(handler, concurrency=4):
            for (error, category, message, attempts), task_id in zip(table, ids):
                task = self.final(task_id)
                assert task.error is not None
                found = (task.state.value, task.error.category.value, task.error.message, task.attempt)
                self.assertEqual(found, ("FAILED", category, message, attempts), repr(error))
        failed = self.client.get(ids[8]).error
        self.assertEqual(failed and failed.code, "no_key")
