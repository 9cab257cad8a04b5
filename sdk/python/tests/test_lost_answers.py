"""Answers that get lost, and a coordinator that dies: every task commits exactly once, and no worker is confused."""

from __future__ import annotations

import logging
import threading
from typing import List

import lessor
from lessor import TaskState, Verdict
from support import LOSE, PASS, PATIENCE_S, STRAND, Case, Request

TASKS = 60


class LostAnswers(Case):
    def setUp(self) -> None:
        super().setUp()
        # What is told of each repeat is not for this test's output.
        logging.getLogger("lessor").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("lessor").setLevel, logging.NOTSET)

    def expect_each_committed_once(self, ids: List[str]) -> None:
        for task_id in ids:
            self.assertEqual(self.final(task_id).state, TaskState.COMPLETED)
        self.assertEqual({o.verdict for o in self.ended.wait(len(ids))}, {Verdict.COMMITTED})
        self.assertEqual(len(self.ended.outcomes), len(ids), "each was worked on once")
        for task_id in ids:
            self.assertEqual(self.kinds(task_id), ["TaskCreated", "LeaseGranted", "TaskCompleted"])

    def test_every_third_answer_is_lost(self) -> None:
        def rule(request: Request, number: int) -> str:
            return LOSE if number % 3 == 0 else PASS

        proxy = self.proxy(rule)
        with lessor.Client(proxy.url) as client:
            ids = [client.submit(self.queue, n).task_id for n in range(TASKS)]
        self.assertEqual(len(set(ids)), TASKS)
        self.assertEqual(sum(1 for _ in self.client.list(queue=self.queue)), TASKS, "no task is there twice")
        with self.working(lambda task: task.payload, url=proxy.url, concurrency=4):
            self.expect_each_committed_once(ids)
        self.assertGreater(sum(not e.was_told for e in proxy.exchanges), TASKS // 2)

    def test_a_lease_that_was_granted_to_a_dead_connection_is_found(self) -> None:
        """The connection of a poll dies and the server does not notice. What that poll is granted afterwards also reaches
        the one that was sent in its place, because they go by the same name."""
        asks_again = threading.Event()

        def rule(request: Request, number: int) -> str:
            if number == 2:
                asks_again.set()
            return STRAND if number == 1 else PASS

        proxy = self.proxy(rule)
        with self.working(lambda task: task.attempt, url=proxy.url, wait_ms=1_000):
            self.assertTrue(asks_again.wait(PATIENCE_S))
            # A few round trips, in which the second poll begins to wait behind the first.
            for _ in range(5):
                self.request("GET", "/v1/workers")
            task_id = self.submit()
            self.assertEqual(self.final(task_id).result, 1)

    def test_the_coordinator_is_killed_in_the_middle(self) -> None:
        ids = [self.submit(n) for n in range(TASKS)]
        half = threading.Semaphore(0)
        is_back = threading.Event()

        def handler(task: lessor.Task) -> int:
            half.release()
            if task.payload >= TASKS // 2:
                is_back.wait()
            return int(task.payload)

        with self.working(handler, concurrency=4):
            for _ in range(TASKS // 2 + 4):
                half.acquire()
            killer = threading.Thread(target=self.server.crash_and_restart)
            killer.start()
            # Handlers end while there is no coordinator to report to.
            is_back.set()
            killer.join()
            self.expect_each_committed_once(ids)
