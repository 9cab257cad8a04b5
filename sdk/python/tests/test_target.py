"""What the callback contract asks of a worker that work is pushed to, number by number, as its coordinator sees it: real
dispatches, and a proxy that callbacks go through, which writes down every request."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.server
import json
import logging
import queue
import threading
import time
import unittest
from decimal import Decimal
from typing import Any, Callable, Dict, Iterator, List, Tuple

import lessor
from lessor import Accepted, Refused, TaskState, Verdict
from lessor import _signature as signature
from support import LOSE, PATIENCE_S, REFUSE, Case, Proxy, Rule, first, passes

SECRET = "0123456789abcdef"
LONG_S = 30.0

Dispatch = Tuple[List[Tuple[str, str]], bytes]


class Pushed(Case):
    """A queue that pushes, a target for it, and the proxy between the target's callbacks and the server."""

    def setUp(self) -> None:
        super().setUp()
        self.dispatches: "queue.Queue[Dispatch]" = queue.Queue()
        arrived = self.dispatches

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                arrived.put((list(self.headers.items()), body))
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(listener.server_close)
        self.addCleanup(listener.shutdown)
        self.push = {"url": f"http://127.0.0.1:{listener.server_address[1]}/", "secret": SECRET}

    def pushes(self, **settings: Any) -> None:
        """Lets the queue push. It beats often, and keeps its lease through whatever a busy machine does meanwhile."""
        self.configure(**{"push": self.push, "heartbeatIntervalMs": 50, "heartbeatTimeoutMs": 30_000, **settings})

    def dispatch(self) -> Dispatch:
        return self.dispatches.get(timeout=PATIENCE_S)

    @contextlib.contextmanager
    def target(
        self, handler: Callable[[lessor.Task], Any], rule: Rule = passes, **options: Any
    ) -> Iterator[Tuple[lessor.Target, Proxy]]:
        """A target that runs for a while, and must end well."""
        proxy = self.proxy(rule)
        target = lessor.Target(handler, secret=SECRET, callback_url=proxy.url, on_outcome=self.ended, **options)
        thread = threading.Thread(target=target.run, daemon=True)
        thread.start()
        try:
            yield target, proxy
        finally:
            target.stop()
            thread.join(PATIENCE_S)
        self.assertFalse(thread.is_alive(), "the target did not end")

    def calls(self, proxy: Proxy) -> List[str]:
        return [e.request.call for e in list(proxy.exchanges) if e.request.call != "heartbeat"]

    def reports(self, proxy: Proxy) -> List[Any]:
        return [e.request.body for e in list(proxy.exchanges) if e.request.call == "completed"]

    def test_s1_56_one_handler_serves_both_ways(self) -> None:
        def handler(task: lessor.Task) -> Any:
            task.metrics(cpu_time_ms=7)
            return [task.payload, task.queue, task.attempt, task.fencing_token > 0]

        self.pushes()
        pushed = self.submit(1)
        with self.target(handler) as (target, proxy):
            self.assertEqual(target.accept(*self.dispatch()), Accepted())
            self.assertEqual(self.final(pushed).result, [1, self.queue, 1, True])
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)
        self.assertEqual(self.calls(proxy), ["started", "completed"])
        report = self.reports(proxy)[0]
        self.assertEqual((report["outcome"], report["metrics"]), ("SUCCEEDED", {"cpuTimeMs": 7}))
        self.queue += "-pulled"
        pulled = self.submit(1)
        with self.working(handler):
            self.assertEqual(self.final(pulled).result, [1, self.queue, 1, True])

    def test_metrics_may_be_any_kind_of_number(self) -> None:
        def handler(task: lessor.Task) -> None:
            self.assertRaises(ValueError, task.metrics, cpu_time_ms=-1)
            self.assertRaises(ValueError, task.metrics, cpu_time_ms=float("nan"))
            task.metrics(cpu_time_ms=12.9, peak_memory_bytes=Decimal(5))

        self.pushes()
        task_id = self.submit()
        with self.target(handler) as (target, proxy):
            target.accept(*self.dispatch())
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)
        self.assertEqual(self.reports(proxy)[0]["metrics"], {"cpuTimeMs": 12, "peakMemoryBytes": 5})

    def test_a_report_that_cannot_be_written_is_a_failure_that_says_so(self) -> None:
        def handler(task: lessor.Task) -> None:
            unwritable: Any = object()
            task._metrics = {"cpuTimeMs": unwritable}

        self.pushes()
        task_id = self.submit()
        with self.assertLogs("lessor", logging.ERROR), self.target(handler) as (target, proxy):
            target.accept(*self.dispatch())
            task = self.final(task_id)
        assert task.error is not None
        self.assertEqual((task.reason, task.error.code), ("CONFIGURATION", "report_not_written"))

    def test_s1_16_a_409_to_started_means_that_nothing_begins(self) -> None:
        self.pushes()
        task_id = self.submit()
        dispatch = self.dispatch()
        self.client.cancel(task_id, "user_requested")
        with self.assertLogs("lessor", logging.WARNING):
            with self.target(lambda task: self.fail("it must not begin")) as (target, proxy):
                self.assertEqual(target.accept(*dispatch), Accepted())
                self.assertEqual(self.ended.wait()[0].verdict, Verdict.LOST)
        self.assertEqual(self.calls(proxy), ["started"])
        self.assertIn("task_already_terminal", self.ended.outcomes[0][0].cancel_reason or "")

    def test_s1_42_a_cancelled_task_stops_and_reports_that_it_did(self) -> None:
        self.pushes()
        task_id = self.submit()
        begun = threading.Event()

        def handler(task: lessor.Task) -> str:
            begun.set()
            task.wait(LONG_S)
            task.checkpoint()
            return "it was not cancelled"

        with self.target(handler) as (target, proxy):
            target.accept(*self.dispatch())
            self.assertTrue(begun.wait(PATIENCE_S))
            self.client.cancel(task_id, "user_requested")
            self.assertEqual(self.final(task_id).reason, "CANCELLED")
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)
        self.assertEqual(self.ended.outcomes[0][0].cancel_reason, "user_requested")
        self.assertEqual(self.reports(proxy)[0]["outcome"], "CANCELLED")

    def test_s1_21_a_handler_that_ignores_a_cancel_loses_the_task_after_the_grace(self) -> None:
        self.pushes(cancelGracePeriodMs=300)
        task_id = self.submit()
        begun = threading.Event()

        def handler(task: lessor.Task) -> str:
            begun.set()
            task.wait(LONG_S)
            while not task.lease_lost:
                pass
            return "too late"

        with self.assertLogs("lessor", logging.WARNING), self.target(handler) as (target, proxy):
            target.accept(*self.dispatch())
            self.assertTrue(begun.wait(PATIENCE_S))
            self.client.cancel(task_id)
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.LOST)
        self.assertEqual(self.calls(proxy), ["started"])
        self.assertEqual(self.final(task_id).reason, "CANCEL_TIMEOUT")

    def test_s1_23_a_410_or_a_401_ends_the_attempt_at_once(self) -> None:
        self.pushes()
        for status, error in ((410, "task_expired"), (401, "invalid_token"), (409, "attempt_mismatch")):
            self.ended.outcomes.clear()
            self.submit()
            body = json.dumps({"error": error, "message": "m"}).encode()
            answer: Tuple[int, Dict[str, str], bytes] = (status, {}, body)
            with self.assertLogs("lessor", logging.WARNING):
                with self.target(lambda task: task.wait(LONG_S), first(1, "heartbeat", answer)) as (target, proxy):
                    target.accept(*self.dispatch())
                    self.assertEqual(self.ended.wait()[0].verdict, Verdict.LOST, error)
            self.assertEqual(self.calls(proxy), ["started"], error)

    def test_s1_36_heartbeats_go_on_after_faults(self) -> None:
        self.pushes()
        task_id = self.submit(1)
        heard = threading.Event()

        def handler(task: lessor.Task) -> Any:
            task.progress(40, "page 4")
            heard.wait(PATIENCE_S)
            return task.payload

        with self.target(handler, first(4, "heartbeat", REFUSE)) as (target, proxy):
            target.accept(*self.dispatch())
            proxy.until(lambda all: sum(e.request.call == "heartbeat" and e.was_told for e in all) >= 2)
            progress = self.client.get(task_id).progress
            self.assertEqual(progress and progress.message, "page 4", "what was not told is told again")
            heard.set()
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)

    def test_s1_51_every_error_has_its_category(self) -> None:
        def handler(task: lessor.Task) -> Any:
            if task.payload == 1:
                raise lessor.Infrastructure("a disk is full", code="disk_full", retryable=False)
            if task.payload == 2:
                raise ValueError("a bug")
            return object()

        self.pushes()
        for payload, category in ((1, "INFRASTRUCTURE"), (2, "USER_CODE"), (3, "CONFIGURATION")):
            self.ended.outcomes.clear()
            self.submit(payload, max_attempts=1)
            with self.assertLogs("lessor", logging.WARNING), self.target(handler) as (target, proxy):
                target.accept(*self.dispatch())
                self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)
            report = self.reports(proxy)[0]
            self.assertEqual((report["outcome"], report["error"]["category"]), ("FAILED", category))
            self.assertEqual("ValueError" in report["error"].get("stackTrace", ""), payload == 2)

    def test_a_report_that_got_lost_is_repeated_word_for_word(self) -> None:
        self.pushes()
        task_id = self.submit(5)
        with self.target(lambda task: task.payload, first(2, "completed", LOSE)) as (target, proxy):
            target.accept(*self.dispatch())
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)
        raw = [e.request.raw for e in proxy.exchanges if e.request.call == "completed"]
        self.assertGreaterEqual(len(raw), 3)
        self.assertEqual(len(set(raw)), 1)
        self.assertEqual(self.kinds(task_id), ["TaskCreated", "LeaseGranted", "AttemptStarted", "TaskCompleted"])

    def test_a_dispatch_is_worked_on_once_however_often_it_comes(self) -> None:
        self.pushes()
        task_id = self.submit(5)
        runs: List[int] = []
        with self.target(lambda task: runs.append(1)) as (target, proxy):
            dispatch = self.dispatch()
            for _ in range(3):
                self.assertEqual(target.accept(*dispatch), Accepted())
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)
            self.ended.wait()
            self.assertEqual(target.accept(*dispatch), Accepted(), "also after its end")
        self.assertEqual((self.calls(proxy), runs), (["started", "completed"], [1]))

    def test_a_full_target_refuses_and_a_stopping_one_too(self) -> None:
        self.pushes()
        self.submit(1)
        begun, free = threading.Event(), threading.Event()

        def handler(task: lessor.Task) -> Any:
            begun.set()
            free.wait(PATIENCE_S)
            return task.payload

        def status(target: lessor.Target) -> int:
            with self.assertLogs("lessor", logging.WARNING):
                return target.accept(*second).status

        with self.target(handler, concurrency=1) as (target, _):
            running = self.dispatch()
            target.accept(*running)
            self.assertTrue(begun.wait(PATIENCE_S))
            self.submit(2)
            second = self.dispatch()
            self.assertEqual(status(target), 429)
            target.stop()
            while status(target) != 503:
                pass
            self.assertEqual(target.accept(*running), Accepted(), "what runs is not refused when it comes again")
            free.set()
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)

    def test_what_outlasts_the_grace_is_reported_as_not_done(self) -> None:
        self.pushes()
        task_id = self.submit()
        begun = threading.Event()

        def handler(task: lessor.Task) -> None:
            begun.set()
            task.wait(LONG_S)

        with self.target(handler, grace_ms=1) as (target, proxy):
            target.accept(*self.dispatch())
            self.assertTrue(begun.wait(PATIENCE_S))
        error = self.reports(proxy)[0]["error"]
        self.assertEqual((error["category"], error["code"]), ("INFRASTRUCTURE", "worker_stopping"))
        self.assertEqual(self.client.get(task_id).attempt, 1)

    def test_a_dispatch_that_is_not_signed_or_no_envelope_is_refused(self) -> None:
        self.pushes()
        self.submit()
        headers, body = self.dispatch()
        envelope: Dict[str, Any] = json.loads(body)
        unsigned = [pair for pair in headers if pair[0].lower() != signature.HEADER]
        signed = dict(headers)
        with self.assertLogs("lessor", logging.WARNING), self.target(lambda task: None) as (target, proxy):
            for bad in (unsigned, headers + headers, {**signed, signature.HEADER: "x"}):
                self.assertEqual(target.accept(bad, body).status, 401)
            self.assertEqual(target.accept(headers, body + b" ").status, 401)
            other = lessor.Target(lambda task: None, secret="fedcba9876543210")
            self.assertEqual(other.accept(headers, body).status, 401)
            opened = lessor.Target(lambda task: self.fail("it must not begin"))
            for change in (
                {"attempt": "1"},
                {"attempt": True},
                {"dispatchId": ""},
                {"dispatchId": "x" * 129},
                {"callbackBaseUrl": "ftp://host"},
                {"heartbeatTimeoutMs": 10**400},
                {"taskToken": "a\nb"},
                {"deadline": "soon"},
            ):
                refused = opened.accept([], json.dumps({**envelope, **change}).encode())
                self.assertIsInstance(refused, Refused)
                self.assertEqual(refused.status, 400, change)
            for nonsense in (b"hello", b"{}", b"[]", b"[" * 100_000, b"\xff"):
                self.assertEqual(opened.accept([], nonsense).status, 400, nonsense[:9])
            self.assertEqual(opened.accept([], b" " * (5 << 20)).status, 413)
            self.assertEqual(self.calls(proxy), [])
            # As the server signed it.
            self.assertEqual(target.accept(signed, body), Accepted())
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.COMMITTED)


class Signatures(unittest.TestCase):
    def test_a_signature_is_good_for_its_secret_its_body_and_its_time(self) -> None:
        now_s = int(time.time())
        digest = hmac.new(SECRET.encode(), f"{now_s}.{{}}".encode(), hashlib.sha256).hexdigest()
        header = f"t={now_s},v1={digest}"
        good = [b"another secret of ours", SECRET.encode()]
        self.assertIsNone(signature.refusal(good, header, b"{}"))
        self.assertIsNone(signature.refusal(good, header, b"{}", now_s + 300))
        for secrets, header, body, at in (
            ([b"another secret of ours"], header, b"{}", now_s),
            (good, header, b"{ }", now_s),
            (good, header, b"{}", now_s + 301),
            (good, header, b"{}", now_s - 301),
            (good, header.upper(), b"{}", now_s),
            (good, header + "0", b"{}", now_s),
            (good, header.replace(f"t={now_s}", f"t={now_s + 1}"), b"{}", now_s),
            (good, f"v1={digest},t={now_s}", b"{}", now_s),
            (good, "", b"{}", now_s),
        ):
            self.assertIsNotNone(signature.refusal(secrets, header, body, at), (header, body, at))
