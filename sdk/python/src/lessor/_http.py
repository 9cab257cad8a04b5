"""HTTP requests to the coordinator over pooled connections, retried after faults.

Every request that is made here may be repeated without harm: polls by their request id, reports and heartbeats by
contract, submits by their dedup key. A repeat has the same body, byte for byte.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar
from urllib.parse import quote, urlsplit

from ._clock import now
from ._credentials import Credentials
from ._errors import NoAnswer, Problem
from ._backoff import UNDECIDED, RetryBackoff

# Bazel's names for the same port.
_SCHEMES = {"http": "http", "https": "https", "grpc": "http", "grpcs": "https"}
DEFAULT_URL = "http://127.0.0.1:8980"
CONNECT_TIMEOUT_S = 5.0
# How long the coordinator may take to answer, in addition to the wait that a request asks for.
ANSWER_TIMEOUT_S = 30.0
# Longer than the longest page of tasks.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_IDLE_CONNECTIONS = 64
_READ_BYTES = 64 * 1024

T = TypeVar("T")


class Fault(Exception):
    """One try brought no answer that decided anything."""

    def __init__(self, why: str, retry_after_s: Optional[float] = None) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    def parse(self, parse: Callable[[Any], T]) -> T:
        """Parses the body. Raises the refusal of the coordinator, or that another server answered."""
        if self.status not in (200, 201):
            raise Problem.from_body(self.status, self.body)
        try:
            return parse(json.loads(self.body))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise Problem.foreign(self.status) from None

    def json(self) -> Any:
        """The body, whatever the status; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Abort:
    """Ends a request from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None
        self.is_set = False

    def set(self) -> None:
        with self._lock:
            self.is_set = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def watch(self, connection_socket: Optional[socket.socket]) -> None:
        with self._lock:
            if self.is_set:
                raise Fault("the request was given up")
            self._socket = connection_socket


class Transport:
    """The URL of the coordinator, the scope of the requests and the connections. Safe to share between threads."""

    def __init__(
        self,
        url: Optional[str],
        tenant: Optional[str],
        workspace: Optional[str],
        credentials: Optional[Credentials] = None,
        *,
        is_scoped: bool = True,
    ) -> None:
        """Without a scope, task tokens carry it, and no API key is sent."""
        self.url = url or os.environ.get("LESSOR_URL") or DEFAULT_URL
        parts = urlsplit(self.url if "://" in self.url else f"http://{self.url}")
        scheme = _SCHEMES.get(parts.scheme)
        if scheme is None or not parts.hostname:
            raise ValueError(f"{self.url} is not the URL of a coordinator: http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("the URL of a coordinator must not contain a user name or password; use an API key")
        credentials = credentials or Credentials()
        self._tls: Optional[ssl.SSLContext] = credentials.ssl_context() if scheme == "https" else None
        self._host = parts.hostname
        self._port = parts.port or (80 if self._tls is None else 443)
        self._base = parts.path.rstrip("/")
        self._headers: Dict[str, str] = {"content-type": "application/json", "user-agent": "lessor-python/0.1.0"}
        authorization = credentials.authorization(scheme, self._host) if is_scoped else None
        if authorization is not None:
            self._headers["authorization"] = authorization
        for header, name, variable in (
            ("lessor-tenant", tenant, "LESSOR_TENANT"),
            ("lessor-workspace", workspace, "LESSOR_WORKSPACE"),
        ):
            chosen = name or os.environ.get(variable)
            if chosen and is_scoped:
                self._headers[header] = chosen
        self._lock = threading.Lock()
        self._idle: List[http.client.HTTPConnection] = []

    def call(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        *,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        until: float,
        token: Optional[str] = None,
    ) -> Answer:
        """Sends a request until an answer decides something: a bounded number of times,
        and not beyond `until`."""
        backoff = RetryBackoff()
        while True:
            remaining_s = until - now()
            if remaining_s <= 0:
                raise NoAnswer(f"{self.url}: there was no time left to ask")
            try:
                return self.try_once(method, path, body, timeout_s=min(answer_timeout_s, remaining_s), token=token)
            except Fault as fault:
                wait_s = backoff.next_delay_s(fault.retry_after_s)
                if wait_s is None or now() + wait_s >= until:
                    raise NoAnswer(f"{self.url}: {fault}") from fault
                time.sleep(wait_s)

    def try_once(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        *,
        timeout_s: float,
        abort: Optional[Abort] = None,
        token: Optional[str] = None,
    ) -> Answer:
        """Sends a request once. An answer that decides nothing is a fault, like a lost one."""
        deadline = now() + timeout_s
        headers = self._headers if token is None else {**self._headers, "authorization": f"Bearer {token}"}
        connection = self._take()
        if connection is not None:
            try:
                return self._exchange(connection, method, path, body, headers, deadline, abort)
            except (OSError, http.client.HTTPException) as error:
                # The server may have closed an idle connection long ago, so the request is sent once more over a new
                # one. A poll is not: its answer may have been lost.
                if not isinstance(error, ConnectionError) or abort is not None:
                    raise Fault(_describe(error)) from error
        try:
            return self._exchange(self._connect(deadline), method, path, body, headers, deadline, abort)
        except (OSError, http.client.HTTPException) as error:
            raise Fault(_describe(error)) from error

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Optional[bytes],
        headers: Mapping[str, str],
        deadline: float,
        abort: Optional[Abort],
    ) -> Answer:
        try:
            if abort is not None:
                abort.watch(connection.sock)
            _limit(connection, deadline)
            connection.request(method, self._base + path, body, dict(headers))
            response = connection.getresponse()
            read = bytearray()
            while True:
                _limit(connection, deadline)
                part = response.read(_READ_BYTES)
                if not part:
                    break
                read += part
                if len(read) > MAX_ANSWER_BYTES:
                    raise http.client.HTTPException(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            if abort is not None:
                abort.watch(None)
        except BaseException:
            connection.close()
            raise
        if connection.sock is None or response.will_close:
            connection.close()
        else:
            self._give_back(connection)
        answer = Answer(response.status, bytes(read))
        if answer.status in UNDECIDED:
            problem = Problem.from_body(answer.status, answer.body)
            if problem.verdict is None:
                raise Fault(str(problem), _retry_after_s(response.getheader("retry-after")))
        return answer

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        timeout_s = max(min(CONNECT_TIMEOUT_S, deadline - now()), 0.001)
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)
        connection.connect()
        return connection

    def _take(self) -> Optional[http.client.HTTPConnection]:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


def encode(value: Mapping[str, Any]) -> bytes:
    """Encodes strict JSON: NaN and infinities are errors."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
    remaining_s = deadline - now()
    if remaining_s <= 0:
        raise socket.timeout("timed out")
    if connection.sock is not None:
        connection.sock.settimeout(remaining_s)


def _retry_after_s(value: Optional[str]) -> Optional[float]:
    try:
        seconds = math.nan if value is None else float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
