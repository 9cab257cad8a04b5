"""A push target: takes the tasks that the coordinator sends, runs their handlers and calls the coordinator back.

It knows no HTTP server. The program hands over the headers and the body of each POST, and answers with the status that
it gets; the work goes on in the background.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _signature
from ._attempt import Attempt, Handler, OnOutcome, check_handler
from ._clock import LeaseClock, now, parse_time
from ._contract import CallbackContract
from ._credentials import Credentials
from ._drain import StopRequests, random_worker_id, release_all
from ._http import Transport
from ._task import logger

DEFAULT_CONCURRENCY = 10
DEFAULT_GRACE_MS = 30_000
# Larger than the largest envelope.
MAX_ENVELOPE_BYTES = 4 * 1024 * 1024
MAX_DISPATCH_ID_CHARACTERS = 128
# Most ended dispatches that are remembered; the oldest are dropped first.
MAX_REMEMBERED = 10_000
# The coordinator waits at least so long for the first call after a dispatch is accepted.
MIN_BEGIN_WITHIN_S = 60.0
# How long a coordinator should wait before it sends more to a full target.
RETRY_AFTER_S = 1
# Heartbeats are not sent more often than this, whatever an envelope says.
MIN_HEARTBEAT_INTERVAL_MS = 10
# Upper bounds of the durations and the numbers in an envelope.
MAX_SPAN_MS = 366 * 24 * 3_600_000
MAX_NUMBER = 2**63
# Most coordinators with connections in the pool of one target.
MAX_COORDINATORS = 16

Headers = Union[Mapping[str, str], Iterable[Tuple[str, str]]]


@dataclass(frozen=True)
class Accepted:
    """The task runs in the background and is reported to the coordinator."""

    status: int = 202


@dataclass(frozen=True)
class Refused:
    """The task was not begun. `why` is for people, `retry_after_s` for the `retry-after` header."""

    status: int
    why: str
    retry_after_s: Optional[int] = None


class Target:
    """Runs `handler`, the same as a worker's, for tasks that are pushed: `concurrency` at a time, each in a thread of
    its own.

    With a `secret` (or several, while one is replaced), a dispatch that is not signed with it is refused.
    `callback_url` is where the coordinator is called back, whatever the envelopes say; `credentials` has the CA and the
    client certificate for that.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        secret: Union[str, bytes, Sequence[Union[str, bytes]], None] = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        grace_ms: int = DEFAULT_GRACE_MS,
        worker_id: Optional[str] = None,
        callback_url: Optional[str] = None,
        credentials: Optional[Credentials] = None,
        on_outcome: Optional[OnOutcome] = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"a target runs at least one handler at a time, not {concurrency}")
        check_handler(handler)
        self._credentials = credentials
        self.worker_id = worker_id or random_worker_id()
        self._handler = handler
        self._secrets = _secrets(secret)
        self._concurrency = concurrency
        self._grace_ms = grace_ms
        self._callback_url = callback_url
        self._on_outcome = on_outcome
        self._lock = threading.Lock()
        self._running: Dict[str, Attempt] = {}
        self._remembered: "OrderedDict[str, None]" = OrderedDict()
        self._transports: "OrderedDict[str, Transport]" = OrderedDict()
        self._is_draining = False
        self._stop_requests = StopRequests()
        if callback_url is not None:
            self._transport(callback_url)

    def accept(self, headers: Headers, body: bytes) -> Union[Accepted, Refused]:
        """Accepts or refuses a dispatch at once. Call it with the headers and the raw body of a POST, from any thread. A
        repeated dispatch is accepted and not run again."""
        answer = self._accept(headers, body)
        if isinstance(answer, Refused):
            logger.warning("a dispatch was refused: %s", answer.why)
        return answer

    def run(self) -> None:
        """Runs, once, until SIGTERM, SIGINT or `stop`. Then it accepts no more dispatches, gives running handlers their
        grace period, and reports the rest as failed. Keep the HTTP server running until this returns. Signals are
        handled in the main thread only."""
        try:
            with self._stop_requests.stop_on_signals():
                self._stop_requests.sleep_until(lambda: self._stop_requests.count >= 1, None)
                with self._lock:
                    self._is_draining = True
                logger.info("the worker %s is draining: %d handlers running", self.worker_id, len(self._running))
                end = now() + self._grace_ms / 1000
                self._stop_requests.sleep_until(lambda: not self._running or self._stop_requests.count >= 2, end)
                with self._lock:
                    left = list(self._running.values())
                release_all(left, self._on_outcome)
        finally:
            for transport in self._transports.values():
                transport.close()
            self._stop_requests.close()

    def stop(self) -> None:
        """Makes the target drain, from any thread; a second call ends the grace period."""
        self._stop_requests.stop()

    def _accept(self, headers: Headers, body: bytes) -> Union[Accepted, Refused]:
        if len(body) > MAX_ENVELOPE_BYTES:
            return Refused(413, f"an envelope has at most {MAX_ENVELOPE_BYTES} bytes")
        if self._secrets:
            why = self._unsigned(headers, body)
            if why is not None:
                return Refused(401, why)
        try:
            envelope = _envelope(body)
            url = self._callback_url or envelope["callbackBaseUrl"]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            return Refused(400, f"the envelope is invalid: {type(error).__name__}: {error}")
        return self._begin(url, envelope)

    def _unsigned(self, headers: Headers, body: bytes) -> Optional[str]:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        signatures: List[str] = [value for name, value in pairs if name.lower() == _signature.HEADER]
        if len(signatures) != 1:
            return "a dispatch has exactly one signature"
        return _signature.refusal(self._secrets, signatures[0], body)

    def _begin(self, url: str, envelope: Mapping[str, Any]) -> Union[Accepted, Refused]:
        dispatch_id: str = envelope["dispatchId"]
        with self._lock:
            if dispatch_id in self._running or dispatch_id in self._remembered:
                return Accepted()
            if self._is_draining:
                return Refused(503, "the worker is stopping", RETRY_AFTER_S)
            if len(self._running) >= self._concurrency:
                return Refused(429, "the target runs as many tasks as it may", RETRY_AFTER_S)
            try:
                contract = CallbackContract(self._transport(url), self.worker_id, envelope)
            except ValueError as error:
                return Refused(400, f"the callback URL is invalid: {error}")
            timeout_s: float = envelope["heartbeatTimeoutMs"] / 1000
            clock = LeaseClock.pushed(timeout_s, max(timeout_s, MIN_BEGIN_WITHIN_S), now())
            attempt = Attempt(contract, _assignment(envelope), clock)
            self._running[dispatch_id] = attempt
        name = f"lessor-task-{attempt.task.id}"
        threading.Thread(target=self._work, args=(dispatch_id, attempt), name=name, daemon=True).start()
        return Accepted()

    def _work(self, dispatch_id: str, attempt: Attempt) -> None:
        try:
            attempt.run(self._handler, self._on_outcome)
        finally:
            with self._lock:
                self._running.pop(dispatch_id, None)
                # If its work never began, a repeat may run.
                if attempt.has_begun:
                    self._remembered[dispatch_id] = None
                    if len(self._remembered) > MAX_REMEMBERED:
                        self._remembered.popitem(last=False)
            self._stop_requests.wake()

    def _transport(self, url: str) -> Transport:
        """The connection pool of a coordinator. A pool that is dropped here is still used by its running attempts."""
        transport = self._transports.get(url)
        if transport is None:
            transport = Transport(url, None, None, self._credentials, is_scoped=False)
            self._transports[url] = transport
            if len(self._transports) > MAX_COORDINATORS:
                self._transports.popitem(last=False)
        return transport


def _secrets(secret: Union[str, bytes, Sequence[Union[str, bytes]], None]) -> List[bytes]:
    if secret is None:
        return []
    several = [secret] if isinstance(secret, (str, bytes)) else list(secret)
    if not several or not all(several):
        raise ValueError("a secret must not be empty")
    return [one.encode() if isinstance(one, str) else one for one in several]


def _envelope(body: bytes) -> Mapping[str, Any]:
    """Parses an envelope and checks the fields that are used."""
    envelope: Any = json.loads(body)
    for field, kind in (
        ("taskId", str),
        ("runId", str),
        ("taskKey", str),
        ("callbackBaseUrl", str),
        ("taskToken", str),
        ("dispatchId", str),
        ("attempt", int),
        ("fencingToken", int),
        ("heartbeatIntervalMs", int),
        ("heartbeatTimeoutMs", int),
        ("cancelGracePeriodMs", int),
    ):
        value = envelope[field]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(field)
        if isinstance(value, int) and not 0 <= value <= (MAX_SPAN_MS if field.endswith("Ms") else MAX_NUMBER):
            raise ValueError(field)
    if "payload" not in envelope:
        raise ValueError("payload")
    if envelope.get("deadline"):
        parse_time(envelope["deadline"])
    if not 0 < len(envelope["dispatchId"]) <= MAX_DISPATCH_ID_CHARACTERS:
        raise ValueError("dispatchId")
    if not envelope["taskToken"].isascii() or not envelope["taskToken"].isprintable():
        raise ValueError("taskToken")
    return dict(envelope)


def _assignment(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    """The envelope as a lease."""
    interval_ms: int = envelope["heartbeatIntervalMs"]
    return {
        **envelope,
        "leaseId": envelope["dispatchId"],
        "queue": envelope.get("queue") or envelope["taskKey"],
        "heartbeatIntervalMs": max(interval_ms, MIN_HEARTBEAT_INTERVAL_MS),
    }
