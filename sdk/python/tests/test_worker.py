"""What a worker does for its handlers, against a real server."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any, List
from unittest import mock

import lessor
from lessor import TaskState, Verdict
from lessor._attempt import Attempt
from lessor._clock import LeaseClock, now
from lessor._contract import LeaseContract
from lessor._heartbeater import Heartbeater
from lessor._http import Transport
from support import PATIENCE_S, Case, passes

EXAMPLES = Path(__file__).parent.parent / "examples"
LONG_S = 30.0


def nested(levels: int) -> Any:
    value: Any = []
    for level in range(1, levels):
        value = [value] if level % 2 else {"a": value}
    return value


class Handlers(Case):
    def test_a_handler_sees_all_of_its_task(self) -> None:
        seen: List[lessor.Task] = []
        task_id = self.submit(
            {"a": [1]}, timeout_ms=60_000, run_id="r", asset_id="a", task_key="k", resources={"cpu": 1}
        )
        with self.working(seen.append):
            self.final(task_id)
        task = seen[0]
        self.assertEqual((task.id, task.queue, task.payload, task.attempt), (task_id, self.queue, {"a": [1]}, 1))
        self.assertEqual((task.timeout_ms, task.deadline, task.resources), (60_000, None, {"cpu": 1}))
        self.assertEqual((task.run_id, task.asset_id, task.task_key), ("r", "a", "k"))

    def test_every_attempt_has_a_higher_fencing_token(self) -> None:
        tokens: List[int] = []

        def handler(task: lessor.Task) -> None:
            tokens.append(task.fencing_token)
            if task.attempt < 3:
                raise lessor.Infrastructure("again")

        self.configure(backoff={"initialMs": 1, "factor": 1, "jitter": 0})
        task_id = self.submit()
        with self.assertLogs("lessor", logging.WARNING), self.working(handler):
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)
        self.assertEqual(len(tokens), 3)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_as_many_handlers_run_at_once_as_there_is_room_for(self) -> None:
        meeting = threading.Barrier(3, timeout=PATIENCE_S)
        ids = [self.submit() for _ in range(6)]
        with self.working(lambda task: meeting.wait() >= 0, concurrency=3):
            self.assertEqual([self.final(i).state for i in ids], [TaskState.COMPLETED] * 6)

    def test_each_queue_has_its_handler(self) -> None:
        other = self.client.submit(self.queue + "-other", None).task_id
        task_id = self.submit()
        worker = lessor.Worker(self.server.url)
        worker.handler(self.queue)(lambda task: "one")
        worker.handler(self.queue + "-other")(lambda task: "other")
        self.assertRaises(ValueError, worker.handler(self.queue), print)
        thread = threading.Thread(target=worker.run)
        thread.start()
        self.assertEqual((self.final(task_id).result, self.final(other).result), ("one", "other"))
        worker.stop()
        thread.join(PATIENCE_S)

    def test_only_tasks_whose_properties_it_offers_come(self) -> None:
        mac = self.submit(properties={"os": "mac"}, priority=-1)
        linux = self.submit(properties={"os": "linux"})
        with self.working(lambda task: None, properties={"os": "linux"}):
            self.assertEqual(self.final(linux).state, TaskState.COMPLETED)
        self.assertEqual(self.client.get(mac).state, TaskState.WAITING)

    def test_tenants_and_workspaces_are_apart(self) -> None:
        with lessor.Client(self.server.url, tenant="acme", workspace="w1") as client:
            task_id = client.submit(self.queue, 1).task_id
            with self.working(lambda task: 2, tenant="acme", workspace="w1"):
                self.assertEqual(client.wait(task_id, PATIENCE_S).result, 2)
        self.assertRaises(lessor.Problem, self.client.get, task_id)

    def test_a_result_that_cannot_be_sent_fails_with_a_clear_reason(self) -> None:
        results: List[Any] = ["x" * (1024 * 1024), {1, 2}, float("nan"), nested(64), {"a": "\ud800"}]
        results += [{"\udfff": 1}, {1: "a", "1": "b"}, 10**400]
        ids = [self.submit(n) for n in range(len(results))]
        with self.assertLogs("lessor", logging.WARNING), self.working(lambda task: results[task.payload]):
            errors = [self.final(i).error for i in ids]
        found = [(e.category.value, e.code) for e in errors if e is not None]
        codes = ["result_too_large"] + ["result_not_json"] * (len(results) - 1)
        self.assertEqual(found, [("CONFIGURATION", code) for code in codes])
        assert errors[0] is not None
        self.assertIn("1048578 bytes", errors[0].message)

    def test_the_largest_results_are_taken(self) -> None:
        results: List[Any] = ["x" * (1024 * 1024 - 2), nested(63), "\ud83d\ude00", 10**300, {1: "a", "2": "b"}]
        ids = [self.submit(n) for n in range(len(results))]
        with self.working(lambda task: results[task.payload]):
            self.assertEqual([self.final(i).state for i in ids], [TaskState.COMPLETED] * len(results))

    def test_progress_reaches_people_before_the_next_heartbeat_is_due(self) -> None:
        task_id = self.submit()
        proxy = self.proxy()

        def handler(task: lessor.Task) -> None:
            task.progress(40, "almost half")
            proxy.until(lambda _: proxy.count("heartbeat") == 1)
            progress = self.client.get(task_id).progress
            assert progress is not None
            self.assertEqual((progress.progress_pct, progress.message), (40, "almost half"))
            task.progress(100.5)
            task.progress(float("nan"), "still at it")

        with self.working(handler, url=proxy.url):
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)

    def test_progress_may_be_any_kind_of_number_and_message(self) -> None:
        task_id = self.submit()
        proxy = self.proxy()

        def handler(task: lessor.Task) -> None:
            no_numbers: Any = [[], "half"]
            self.assertRaises(TypeError, task.progress, no_numbers[0])
            self.assertRaises(ValueError, task.progress, no_numbers[1])
            task.progress(Decimal("12.5"), ValueError("page 4"))
            proxy.until(lambda _: proxy.count("heartbeat") >= 1)
            progress = self.client.get(task_id).progress
            assert progress is not None
            self.assertEqual((progress.progress_pct, progress.message), (12.5, "page 4"))

        with self.working(handler, url=proxy.url):
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)

    def test_progress_that_cannot_be_told_costs_no_heartbeat(self) -> None:
        self.configure(heartbeatIntervalMs=50)
        task_id = self.submit()
        proxy = self.proxy()

        def handler(task: lessor.Task) -> None:
            untellable: Any = object()
            task._restore_progress((untellable, None))
            proxy.until(lambda _: proxy.count("heartbeat") >= 2)

        with self.assertLogs("lessor", logging.ERROR), self.working(handler, url=proxy.url):
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)

    def test_a_failure_may_give_the_exception_that_was_met_as_its_reason(self) -> None:
        code: Any = 404

        def handler(task: lessor.Task) -> None:
            raise lessor.DataQuality(ValueError("no such page"), code=code, retryable=False)

        task_id = self.submit()
        with self.assertLogs("lessor", logging.WARNING), self.working(handler):
            task = self.final(task_id)
        error = lessor.TaskError(lessor.Category.DATA_QUALITY, "no such page", "404")
        self.assertEqual((task.state, task.error), (TaskState.FAILED, error))

    def test_an_exception_that_cannot_be_shown_is_a_failure_all_the_same(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise ValueError("it has no words")

        def handler(task: lessor.Task) -> None:
            raise Odd()

        task_id = self.submit(max_attempts=1)
        with self.assertLogs("lessor", logging.ERROR), self.working(handler):
            error = self.final(task_id).error
        assert error is not None
        self.assertEqual(error.category, lessor.Category.USER_CODE)

    def test_a_worker_that_cannot_work_on_a_task_gives_it_back(self) -> None:
        start, has_failed = Heartbeater.start, threading.Event()

        def fails_once(heartbeater: Heartbeater) -> None:
            if not has_failed.is_set():
                has_failed.set()
                raise RuntimeError("can't start new thread")
            start(heartbeater)

        task_id = self.submit()
        with mock.patch.object(Heartbeater, "start", fails_once), self.assertLogs("lessor", logging.ERROR):
            with self.working(lambda task: None):
                self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)
                verdicts = [outcome.verdict for outcome in self.ended.wait(2)]
        self.assertEqual(verdicts, [Verdict.RELEASED, Verdict.COMMITTED])

    def test_log_lines_name_the_task_and_the_attempt(self) -> None:
        task_id = self.submit()
        with self.assertLogs("lessor", logging.INFO) as logs:
            with self.working(lambda task: task.log.info("at it")):
                self.final(task_id)
        line = next(r for r in logs.records if "at it" in r.getMessage())
        self.assertEqual(line.getMessage(), f"task {task_id} attempt 1: at it")
        self.assertEqual((line.__dict__["task_id"], line.__dict__["attempt"]), (task_id, 1))

    def test_a_cancel_reaches_the_handler_and_what_stops_for_it_is_cancelled(self) -> None:
        self.configure(heartbeatIntervalMs=50)
        task_id = self.submit()
        is_running = threading.Event()
        reasons: List[Any] = []

        def handler(task: lessor.Task) -> None:
            is_running.set()
            self.assertTrue(task.wait(LONG_S))
            reasons.extend([task.cancel_reason, task.lease_lost])
            task.checkpoint()

        with self.working(handler):
            self.assertTrue(is_running.wait(PATIENCE_S))
            self.client.cancel(task_id, "wrong address")
            task = self.final(task_id)
            self.assertEqual(self.ended.wait()[0], lessor.Outcome(Verdict.COMMITTED, TaskState.DEAD))
        self.assertEqual((task.state, task.reason), (TaskState.DEAD, "CANCELLED"))
        self.assertEqual(reasons, ["wrong address", False])

    def test_a_handler_that_ends_all_the_same_after_a_cancel_still_commits(self) -> None:
        self.configure(heartbeatIntervalMs=50)
        task_id = self.submit()

        def handler(task: lessor.Task) -> str:
            self.client.cancel(task_id)
            self.assertTrue(task.wait(LONG_S))
            return "done all the same"

        with self.working(handler):
            self.assertEqual(self.final(task_id).result, "done all the same")

    def test_a_time_limit_ends_the_attempt_also_for_the_handler(self) -> None:
        task_id = self.submit(timeout_ms=300, max_attempts=1)
        with self.assertLogs("lessor", logging.WARNING), self.working(lambda task: task.wait(LONG_S)):
            self.assertEqual(self.ended.wait()[0].verdict, Verdict.LOST)
            self.assertEqual(self.final(task_id).state, TaskState.DEAD)

    def test_a_lease_whose_answer_was_long_under_way_is_confirmed_before_the_handler_starts(self) -> None:
        self.configure(leaseMs=60_000)
        task_id = self.submit()
        proxy = self.proxy()
        beats_before: List[int] = []
        transport = Transport(proxy.url, None, None)
        lease = self.request("POST", "/v1/leases", {"workerId": "w", "queues": [self.queue]})["leases"][0]
        late = LeaseClock(lease, asked_at=now() - 3_600, received_at=now())
        attempt = Attempt(LeaseContract(transport, "w", lease), lease, late)
        outcome = attempt._run_to_outcome(lambda task: beats_before.append(proxy.count("heartbeat")))
        self.assertEqual((outcome and outcome.verdict, beats_before), (Verdict.COMMITTED, [1]))
        late = LeaseClock(lease, asked_at=now() - 3_600, received_at=now())
        gone = Attempt(LeaseContract(transport, "w", lease), lease, late)
        with self.assertLogs("lessor", logging.WARNING):
            outcome = gone._run_to_outcome(lambda task: self.fail("the lease is gone"))
        self.assertEqual(outcome and outcome.verdict, Verdict.LOST)
        transport.close()
        self.assertEqual(self.client.get(task_id).state, TaskState.COMPLETED)

    def test_a_hook_that_raises_harms_no_other_task(self) -> None:
        def on_outcome(task: lessor.Task, outcome: lessor.Outcome) -> None:
            self.ended(task, outcome)
            raise ValueError("a bug in the hook")

        ids = [self.submit(n) for n in range(2)]
        with self.assertLogs("lessor", logging.ERROR), self.working(lambda task: None, on_outcome=on_outcome):
            self.ended.wait(2)
        self.assertEqual([self.client.get(i).state for i in ids], [TaskState.COMPLETED] * 2)

    def test_a_worker_that_cannot_work_says_so(self) -> None:
        async def coroutine(task: lessor.Task) -> None:
            pass

        worker = lessor.Worker(self.server.url)
        self.assertRaises(TypeError, worker.handler(self.queue), coroutine)
        self.assertRaises(ValueError, worker.run)
        self.assertRaises(ValueError, lessor.Worker, concurrency=0)
        self.assertRaises(ValueError, lessor.Worker, "ftp://host")

    def test_a_poll_that_the_coordinator_refuses_ends_the_worker(self) -> None:
        worker = lessor.Worker(self.server.url, worker_id="\n")
        worker.handler(self.queue)(print)
        with self.assertRaises(lessor.Problem) as raised:
            worker.run()
        self.assertEqual(raised.exception.field, "workerId")


class Drain(Case):
    def start(self, script: str, **environment: str) -> "subprocess.Popen[str]":
        """A worker as a process of its own, with the real signals."""
        source = str(Path(lessor.__file__).parent.parent)
        variables = {**os.environ, "LESSOR_URL": self.server.url, "PYTHONPATH": source, **environment}
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", script], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            self.addCleanup(stream.close)
        return process

    def said(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    # Says that it runs, that it stops and that it has ended.
    SCRIPT = """
import logging, sys, threading
import lessor
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
worker = lessor.Worker(worker_id="w", grace_ms={grace_ms})
@worker.handler("{queue}")
def handle(task):
    print("running")
    return {wait}
worker.run()
print("ended")
"""
    FOR_EVER = "threading.Event().wait()"

    def start_running(self, grace_ms: int, wait: str) -> "subprocess.Popen[str]":
        process = self.start(self.SCRIPT.format(queue=self.queue, grace_ms=grace_ms, wait=wait))
        self.assertEqual(self.said(process), f"the worker w has started: {self.queue}")
        self.assertEqual(self.said(process), "running")
        return process

    def send(self, process: "subprocess.Popen[str]", number: signal.Signals) -> None:
        process.send_signal(number)
        self.assertEqual(self.said(process), "the worker w is draining: 1 handlers running")

    def test_a_signal_lets_running_handlers_end_and_takes_no_more(self) -> None:
        running, waiting = self.submit(), self.submit()
        process = self.start_running(3_600_000, "input()")
        self.send(process, signal.SIGTERM)
        assert process.stdin is not None
        process.stdin.write("done\n")
        process.stdin.flush()
        self.assertEqual(self.said(process), "ended")
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(self.client.get(running).result, "done")
        self.assertEqual((self.client.get(waiting).state, self.client.get(waiting).attempt), (TaskState.WAITING, 0))

    def test_what_outlasts_the_grace_is_given_back_at_no_cost(self) -> None:
        task_id = self.submit()
        process = self.start_running(1, self.FOR_EVER)
        self.send(process, signal.SIGTERM)
        self.assertEqual(self.said(process), "ended")
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(self.kinds(task_id), ["TaskCreated", "LeaseGranted", "LeaseReleased"])

    def test_a_second_signal_ends_the_grace(self) -> None:
        task_id = self.submit()
        process = self.start_running(3_600_000, self.FOR_EVER)
        self.send(process, signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.said(process), "ended")
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(self.kinds(task_id), ["TaskCreated", "LeaseGranted", "LeaseReleased"])

    def test_an_idle_worker_stops_at_once_and_leaves_no_lease_behind(self) -> None:
        proxy = self.proxy(passes)
        with self.working(lambda task: None, url=proxy.url, wait_ms=60_000) as worker:
            self.until_it_polls(worker)
        ids = [e.request.body["requestId"] for e in proxy.exchanges if e.request.call == "leases"]
        self.assertEqual((len(ids), len(set(ids))), (2, 1), "the poll that was ended is asked what it was granted")

    def test_the_examples_run(self) -> None:
        worker = self.start((EXAMPLES / "worker.py").read_text())
        reports = self.start((EXAMPLES / "long_task.py").read_text())
        greeting = self.client.submit("greetings", "world").task_id
        self.assertEqual(self.final(greeting).result, "Hello, world!")
        properties = {"os": "linux"}
        good = self.client.submit("reports", {"pages": 3}, properties=properties).task_id
        bad = self.client.submit("reports", {"pages": "three"}, properties=properties).task_id
        self.assertEqual(self.final(good).result["pages"], 3)
        self.assertEqual(self.final(bad).reason, "DATA_QUALITY")
        for process in (worker, reports):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE_S), 0)
