"""The client: submits, reads, cancels and redrives tasks."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlencode

from ._clock import now
from ._credentials import Credentials
from ._errors import LessorError, Problem
from ._http import ANSWER_TIMEOUT_S, Answer, Transport, encode, segment
from ._models import Backoff, HistoryEvent, Submit, Submitted, TaskInfo, TaskState

# How long a request is retried: enough for a coordinator to restart.
RETRY_FOR_S = 30.0
MAX_WAIT_S = 60.0
MAX_BATCH_TASKS = 1_000


class Client:
    """Safe to share between threads. Calls raise `Problem` if the coordinator refuses, `NoAnswer` if it does not answer."""

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        tenant: Optional[str] = None,
        workspace: Optional[str] = None,
        credentials: Optional[Credentials] = None,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        self._transport = Transport(url, tenant, workspace, credentials)
        self._retry_for_s = retry_for_s

    def submit(
        self,
        queue: str,
        payload: Any,
        *,
        priority: Optional[int] = None,
        delay_ms: Optional[int] = None,
        dedup_key: Optional[str] = None,
        max_attempts: Optional[int] = None,
        backoff: Optional[Backoff] = None,
        properties: Optional[Mapping[str, str]] = None,
        deadline: Optional[datetime] = None,
        timeout_ms: Optional[int] = None,
        lease_ms: Optional[int] = None,
        run_id: Optional[str] = None,
        asset_id: Optional[str] = None,
        task_key: Optional[str] = None,
        resources: Optional[Mapping[str, Any]] = None,
    ) -> Submitted:
        """Submits one task. The options are the optional fields of `Submit`."""
        task = Submit(
            queue=queue,
            payload=payload,
            priority=priority,
            delay_ms=delay_ms,
            dedup_key=dedup_key,
            max_attempts=max_attempts,
            backoff=backoff,
            properties=properties,
            deadline=deadline,
            timeout_ms=timeout_ms,
            lease_ms=lease_ms,
            run_id=run_id,
            asset_id=asset_id,
            task_key=task_key,
            resources=resources,
        )
        answer = self._call("POST", "/v1/tasks", encode(_keyed(task).to_json()))
        return answer.parse(lambda body: Submitted(body["taskId"], TaskState(body["state"]), answer.status == 201))

    def submit_batch(self, tasks: Iterable[Submit]) -> List[Union[Submitted, LessorError]]:
        """Submits many tasks, 1,000 with each request. Each task is accepted or refused on its own; the answers are in the
        order of the tasks.

        Raises if the first request fails. If a later one fails, the accepted tasks stay, and its error is the answer for
        its tasks and for all later ones, which are not sent."""
        keyed = [_keyed(task).to_json() for task in tasks]
        # Encodes everything first, so that nothing is sent if something cannot be encoded.
        parts = [keyed[start : start + MAX_BATCH_TASKS] for start in range(0, len(keyed), MAX_BATCH_TASKS)]
        bodies = [encode({"tasks": part}) for part in parts]
        answers: List[Union[Submitted, LessorError]] = []
        for body in bodies:
            try:
                answer = self._call("POST", "/v1/tasks/batch", body)
                answers += answer.parse(lambda body: [_submitted(item) for item in body["tasks"]])
            except LessorError as error:
                if not answers:
                    raise
                return answers + [error] * (len(keyed) - len(answers))
        return answers

    def get(self, task_id: str) -> TaskInfo:
        return self._call("GET", f"/v1/tasks/{segment(task_id)}").parse(TaskInfo.from_json)

    def wait(self, task_id: str, timeout_s: Optional[float] = None) -> TaskInfo:
        """Waits for a task to become final. After `timeout_s`, returns the task as it is."""
        end = None if timeout_s is None else now() + timeout_s
        while True:
            wait_s = MAX_WAIT_S if end is None else max(min(end - now(), MAX_WAIT_S), 0.0)
            path = f"/v1/tasks/{segment(task_id)}?{urlencode({'waitMs': int(wait_s * 1000)})}"
            task = self._call("GET", path, wait_s=wait_s).parse(TaskInfo.from_json)
            if task.state.is_final or (end is not None and now() >= end):
                return task

    def cancel(self, task_id: str, reason: Optional[str] = None) -> TaskInfo:
        """Cancels a task. A waiting task is dead at once; a leased one when its worker has stopped."""
        body = {} if reason is None else {"reason": reason}
        return self._call("POST", f"/v1/tasks/{segment(task_id)}/cancel", encode(body)).parse(TaskInfo.from_json)

    def redrive(self, task_id: str) -> TaskInfo:
        """Redrives a FAILED or DEAD task as a new task."""
        return self._call("POST", f"/v1/tasks/{segment(task_id)}/redrive", encode({})).parse(TaskInfo.from_json)

    def list(
        self, *, queue: Optional[str] = None, state: Optional[TaskState] = None, page_size: int = 100
    ) -> Iterator[TaskInfo]:
        """Lists all matching tasks, page by page: queues by name, in each queue the newest task first."""
        query = {"limit": str(page_size)}
        if queue is not None:
            query["queue"] = queue
        if state is not None:
            query["state"] = state.value
        while True:
            tasks, token = self._call("GET", f"/v1/tasks?{urlencode(query)}").parse(_page)
            yield from tasks
            if not token:
                return
            query["pageToken"] = token

    def history(self, task_id: str) -> List[HistoryEvent]:
        """The ledger's records of a task, oldest first."""
        answer = self._call("GET", f"/v1/tasks/{segment(task_id)}/history")
        return answer.parse(lambda body: [HistoryEvent.from_json(event) for event in body["events"]])

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, method: str, path: str, body: Optional[bytes] = None, wait_s: float = 0.0) -> Answer:
        return self._transport.call(
            method,
            path,
            body,
            answer_timeout_s=ANSWER_TIMEOUT_S + wait_s,
            until=now() + self._retry_for_s + wait_s,
        )


def _keyed(task: Submit) -> Submit:
    """Adds a dedup key if there is none: a submit whose answer is lost is sent again, and would create a second task."""
    return task if task.dedup_key is not None else replace(task, dedup_key=f"sdk-{secrets.token_hex(16)}")


def _submitted(item: Any) -> Union[Submitted, Problem]:
    """The answer of a batch does not distinguish new from existing tasks; a waiting task may be either."""
    if item.get("error"):
        return Problem.from_json(item["error"])
    return Submitted(item["taskId"], TaskState(item["state"]), item["state"] == "WAITING")


def _page(body: Any) -> Tuple[List[TaskInfo], Optional[str]]:
    return [TaskInfo.from_json(task) for task in body["tasks"]], body.get("nextPageToken")
