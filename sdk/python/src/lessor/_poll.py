"""Polls for leases so that a lost answer loses no lease.

Each poll has a request id. A poll without an answer is repeated under the same id, and the coordinator returns the same
leases while they are valid. A new id is used only after an answer.
"""

from __future__ import annotations

import uuid
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._clock import now
from ._errors import Problem
from ._http import ANSWER_TIMEOUT_S, Abort, Fault, Transport, encode


class Poll:
    """The polls of one worker, one after the other."""

    def __init__(
        self,
        transport: Transport,
        worker_id: str,
        queues: Sequence[str],
        properties: Optional[Mapping[str, str]],
        wait_ms: int,
    ) -> None:
        self._transport = transport
        self._body: Dict[str, Any] = {"workerId": worker_id, "queues": list(queues), "waitMs": wait_ms}
        if properties:
            self._body["properties"] = dict(properties)
        self._request: Optional[Dict[str, Any]] = None
        self._abort = Abort()
        # When the current poll was first sent.
        self.asked_at = 0.0

    def try_once(self, max_tasks: int) -> List[Mapping[str, Any]]:
        """Polls once. After a fault, the next poll repeats this one, even if more slots are free by then."""
        if self._request is None:
            self._request = {**self._body, "maxTasks": max_tasks, "requestId": uuid.uuid4().hex}
            self.asked_at = now()
        timeout_s = self._body["waitMs"] / 1000 + ANSWER_TIMEOUT_S
        leases = self._ask(self._request, timeout_s, self._abort)
        self._request = None
        return leases

    def stop(self) -> None:
        """Ends the open poll, and lets none begin."""
        self._abort.set()

    @property
    def is_stopped(self) -> bool:
        return self._abort.is_set

    def take_unanswered(self, timeout_s: float) -> List[Mapping[str, Any]]:
        """Asks once for the leases that were granted to the poll that was ended."""
        if self._request is None:
            return []
        body, self._request = {**self._request, "waitMs": 0}, None
        try:
            return self._ask(body, timeout_s, None)
        except (Fault, Problem):
            return []

    def _ask(self, body: Mapping[str, Any], timeout_s: float, abort: Optional[Abort]) -> List[Mapping[str, Any]]:
        answer = self._transport.try_once("POST", "/v1/leases", encode(body), timeout_s=timeout_s, abort=abort)
        return answer.parse(_leases)


def _leases(answer: Any) -> List[Mapping[str, Any]]:
    return list(answer["leases"])
