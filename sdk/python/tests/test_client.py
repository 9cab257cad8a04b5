"""The client against a real server."""

from __future__ import annotations

import http.server
import socket
import threading
import unittest
from datetime import datetime, timedelta, timezone
from typing import Any

import lessor
from lessor import TaskState
from support import LOSE, PASS, PATIENCE_S, Case, Request, first


class Clients(Case):
    def test_a_task_has_what_its_submit_says(self) -> None:
        deadline = datetime.now(timezone.utc).replace(microsecond=123_000) + timedelta(hours=1)
        submitted = self.client.submit(
            self.queue,
            {"n": 1},
            priority=-3,
            delay_ms=3_600_000,
            dedup_key="k",
            max_attempts=9,
            backoff=lessor.Backoff(initial_ms=5, factor=1.5),
            properties={"os": "linux"},
            deadline=deadline,
            timeout_ms=1_000,
            lease_ms=2_000,
            run_id="r",
            asset_id="a",
            task_key="t",
            resources={"cpu": 1},
        )
        task = self.client.get(submitted.task_id)
        self.assertEqual((submitted.state, submitted.is_new, task.state), (TaskState.WAITING, True, TaskState.WAITING))
        self.assertEqual((task.queue, task.payload, task.priority), (self.queue, {"n": 1}, -3))
        self.assertEqual((task.dedup_key, task.max_attempts, dict(task.properties)), ("k", 9, {"os": "linux"}))
        self.assertEqual((task.raw["timeoutMs"], task.raw["resources"], task.raw["runId"]), (1_000, {"cpu": 1}, "r"))
        self.assertEqual(datetime.strptime(task.raw["deadline"], "%Y-%m-%dT%H:%M:%S.%f%z"), deadline)

    def test_a_dedup_key_gives_the_same_task_and_refuses_another(self) -> None:
        one = self.client.submit(self.queue, 1, dedup_key="k")
        again = self.client.submit(self.queue, 1, dedup_key="k")
        self.assertEqual((again.task_id, one.is_new, again.is_new), (one.task_id, True, False))
        with self.assertRaises(lessor.Problem) as raised:
            self.client.submit(self.queue, 2, dedup_key="k")
        problem = raised.exception
        self.assertEqual((problem.code, problem.status, problem.is_conflict), ("dedup_conflict", 409, True))
        self.assertEqual(problem.task_id, one.task_id)

    def test_a_submit_whose_answer_is_lost_submits_once(self) -> None:
        proxy = self.proxy(first(2, "tasks", LOSE))
        with lessor.Client(proxy.url) as client:
            task_id = client.submit(self.queue, None).task_id
        self.assertEqual([t.task_id for t in self.client.list(queue=self.queue)], [task_id])

    def test_a_batch_longer_than_a_request_is_sent_whole(self) -> None:
        tasks = [lessor.Submit(self.queue, n) for n in range(1_100)]
        tasks[7] = lessor.Submit("", 7)
        answers = self.client.submit_batch(tasks)
        refused = [n for n, answer in enumerate(answers) if isinstance(answer, lessor.Problem)]
        self.assertEqual((len(answers), refused), (1_100, [7]))
        listed = sorted(task.payload for task in self.client.list(queue=self.queue, page_size=500))
        self.assertEqual(listed, [n for n in range(1_100) if n != 7])

    def test_what_was_accepted_is_told_when_a_later_request_of_a_batch_fails(self) -> None:
        def rule(request: Request, number: int) -> Any:
            return PASS if number == 1 else (418, {}, b"<html>")

        proxy = self.proxy(rule)
        with lessor.Client(proxy.url) as client:
            answers = client.submit_batch(lessor.Submit(self.queue, n) for n in range(2_100))
            with self.assertRaises(lessor.Problem, msg="nothing was accepted"):
                client.submit_batch([lessor.Submit(self.queue, 0)])
        accepted, failed = answers[:1_000], answers[1_000:]
        listed = {task.task_id for task in self.client.list(queue=self.queue, page_size=500)}
        self.assertEqual({a.task_id for a in accepted if isinstance(a, lessor.Submitted)}, listed)
        self.assertEqual((len(listed), len(failed)), (1_000, 1_100))
        self.assertEqual({a.code for a in failed if isinstance(a, lessor.Problem)}, {"foreign_answer"})
        self.assertEqual(proxy.count("batch"), 3, "what comes after a failure is not sent")

    def test_a_batch_that_cannot_be_written_submits_nothing(self) -> None:
        tasks = [lessor.Submit(self.queue, n) for n in range(1_001)]
        tasks[1_000] = lessor.Submit(self.queue, object())
        self.assertRaises(TypeError, self.client.submit_batch, tasks)
        self.assertEqual(list(self.client.list(queue=self.queue)), [])

    def test_waiting_returns_when_the_task_is_final_or_the_time_is_over(self) -> None:
        task_id = self.submit("x")
        self.assertEqual(self.client.wait(task_id, 0.0).state, TaskState.WAITING)
        with self.working(lambda task: task.payload * 2):
            self.assertEqual(self.client.wait(task_id, PATIENCE_S).result, "xx")

    def test_a_cancelled_task_can_be_redriven_and_its_history_read(self) -> None:
        task_id = self.submit("p")
        dead = self.client.cancel(task_id, "not needed")
        self.assertEqual((dead.state, dead.reason, dead.reason_detail), (TaskState.DEAD, "CANCELLED", "not needed"))
        new = self.client.redrive(task_id)
        self.assertEqual((new.redrive_of, new.payload, new.state), (task_id, "p", TaskState.WAITING))
        self.assertEqual([e.type for e in self.client.history(task_id)], ["TaskCreated", "TaskDead"])
        self.assertEqual([t.task_id for t in self.client.list(queue=self.queue, state=TaskState.DEAD)], [task_id])

    def test_an_unknown_task_is_not_found(self) -> None:
        with self.assertRaises(lessor.Problem) as raised:
            self.client.get("no/such task")
        self.assertTrue(raised.exception.is_not_found)
        self.assertEqual(raised.exception.code, "unknown_task")

    def test_a_full_queue_is_said_to_be_full_after_a_while(self) -> None:
        self.configure(maxQueueSize=1)
        self.submit()
        with lessor.Client(self.server.url, retry_for_s=0.05) as client:
            with self.assertRaisesRegex(lessor.NoAnswer, "queue_full"):
                client.submit(self.queue, None)


class Foreign(http.server.BaseHTTPRequestHandler):
    """Answers whatever it is asked with a page that says no."""

    def log_message(self, *words: object) -> None:
        pass


class WithoutServer(unittest.TestCase):
    def test_nobody_answers(self) -> None:
        # Bound, so that nobody else takes it, but not listening.
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            with lessor.Client(f"127.0.0.1:{taken.getsockname()[1]}", retry_for_s=0.3) as client:
                self.assertRaises(lessor.NoAnswer, client.get, "x")

    def test_something_else_answers(self) -> None:
        listener = http.server.HTTPServer(("127.0.0.1", 0), Foreign)
        serving = threading.Thread(target=listener.handle_request)
        serving.start()
        self.addCleanup(listener.server_close)
        with lessor.Client(f"http://127.0.0.1:{listener.server_address[1]}") as client:
            with self.assertRaises(lessor.Problem) as raised:
                client.get("x")
        self.assertEqual(raised.exception.code, "foreign_answer")
        serving.join()

    def test_a_url_that_cannot_be_used_is_refused(self) -> None:
        self.assertRaises(ValueError, lessor.Client, "ftp://host")
        self.assertRaises(ValueError, lessor.Client, "http://")
