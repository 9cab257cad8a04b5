"""A real server, a proxy that loses what it is told to lose, and workers to run against them.

The server is the binary that LESSOR_BIN names, on a free port, in a directory of its own. Nothing here sleeps: every
wait is for something that happens.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import select
import subprocess
import tempfile
import threading
import unittest
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import lessor

# Far longer than anything here takes: a test that waits for something that never happens fails by it.
PATIENCE_S = 60.0


class Server:
    """A running `lessor up`."""

    def __init__(self) -> None:
        self._dir = tempfile.TemporaryDirectory()
        self._data = Path(self._dir.name) / "data"
        self._start("127.0.0.1:0")

    def _start(self, listen: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LESSOR_")}
        environment["XDG_CACHE_HOME"] = str(Path(self._dir.name) / "cache")
        binary = os.environ["LESSOR_BIN"]
        command = [binary, "up", "--segment-mib", "32", "--listen", listen, "--data", str(self._data)]
        command.append("--allow-private-push-targets")
        with open(Path(self._dir.name) / "log", "ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b" serves http://" in line:
                break
        else:
            raise AssertionError((Path(self._dir.name) / "log").read_text())
        self.address = (self._data / "listen").read_text().strip()
        self.url = f"http://{self.address}"

    def crash_and_restart(self) -> None:
        """SIGKILL, and up again with the same data at the same address."""
        self._kill()
        self._start(self.address)

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def close(self) -> None:
        self._kill()
        self._dir.cleanup()


@dataclass(frozen=True)
class Request:
    """What a client asked of the proxy."""

    method: str
    path: str
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw) if self.raw else None

    @property
    def call(self) -> str:
        """The last word of the path: leases, heartbeat, complete, fail, release."""
        return self.path.rpartition("/")[2]

    @property
    def is_report(self) -> bool:
        return self.call in ("complete", "fail", "release")


@dataclass(frozen=True)
class Exchange:
    # In the order of arrival, from 1.
    number: int
    request: Request
    # Whether the client got an answer, the server's or another.
    was_told: bool


# What to do with a request: let it PASS, LOSE its answer, REFUSE it before the server sees it, STRAND it (hang up on the
# client while the server believes that it still waits), or answer as told.
PASS, LOSE, REFUSE, STRAND = "pass", "lose", "refuse", "strand"
Rule = Callable[[Request, int], Any]


class Proxy:
    """Stands between clients and the server. The rule decides on each request, which it sees with its number."""

    def __init__(self, server: Server, rule: Rule) -> None:
        self.exchanges: List[Exchange] = []
        self._requests = 0
        self._changed = threading.Condition()
        self._rule = rule
        host, port = server.address.rsplit(":", 1)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(handler) -> None:  # noqa: N805
                self._serve(handler, host, int(port))

            do_POST = do_PUT = do_GET

            def log_message(handler, *words: Any) -> None:  # noqa: N805
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *words: Any) -> None:
                """A client that hangs up is an everyday thing here."""

        self._listener = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._listener.server_address[1]}"
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _serve(self, handler: http.server.BaseHTTPRequestHandler, host: str, port: int) -> None:
        raw = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        request = Request(handler.command, handler.path, raw)
        with self._changed:
            self._requests += 1
            number = self._requests
            action = self._rule(request, number)
        status, headers, body = 0, {}, b""
        if isinstance(action, tuple):
            status, headers, body = action
        elif action == STRAND:
            threading.Thread(target=self._forward, args=(handler, request, host, port, False), daemon=True).start()
        elif action != REFUSE:
            status, body = self._forward(handler, request, host, port, True)
        was_told = status != 0 and action != LOSE
        with self._changed:
            self.exchanges.append(Exchange(number, request, was_told))
            self.exchanges.sort(key=lambda exchange: exchange.number)
            self._changed.notify_all()
        if was_told:
            handler.send_response(status)
            handler.send_header("content-length", str(len(body)))
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)
        handler.close_connection = not was_told

    def _forward(
        self, handler: http.server.BaseHTTPRequestHandler, request: Request, host: str, port: int, watches: bool
    ) -> Tuple[int, bytes]:
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        try:
            headers = {k: v for k, v in handler.headers.items() if k.lower() not in ("host", "connection")}
            connection.request(request.method, request.path, request.raw, headers)
            watched = [connection.sock, handler.connection] if watches else [connection.sock]
            ready, _, _ = select.select(watched, [], [], PATIENCE_S)
            if connection.sock not in ready:
                # The client hung up, so the server is hung up on.
                return 0, b""
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def until(self, happened: Callable[[List[Exchange]], bool]) -> List[Exchange]:
        """Waits until what went through the proxy fulfils the condition."""
        with self._changed:
            assert self._changed.wait_for(lambda: happened(self.exchanges), PATIENCE_S), self.exchanges
            return list(self.exchanges)

    def of_lease(self, lease_id: str) -> List[Exchange]:
        with self._changed:
            return [e for e in self.exchanges if f"/{lease_id}/" in e.request.path]

    def count(self, call: str) -> int:
        with self._changed:
            return sum(e.request.call == call for e in self.exchanges)

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()


def passes(request: Request, number: int) -> str:
    return PASS


def first(count: int, call: str, action: Any) -> Rule:
    """Does this to the first requests of one kind and lets all others pass."""
    seen = [0]

    def rule(request: Request, number: int) -> Any:
        if request.call == call and seen[0] < count:
            seen[0] += 1
            return action
        return PASS

    return rule


class Ended:
    """How attempts ended, in order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.outcomes: List[Tuple[lessor.Task, lessor.Outcome]] = []

    def __call__(self, task: lessor.Task, outcome: lessor.Outcome) -> None:
        with self._changed:
            self.outcomes.append((task, outcome))
            self._changed.notify_all()

    def wait(self, count: int = 1) -> List[lessor.Outcome]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.outcomes) >= count, PATIENCE_S), self.outcomes
            return [outcome for _, outcome in self.outcomes]


class Case(unittest.TestCase):
    """Tests that share a server; each has a queue of its own."""

    server: Server
    client: lessor.Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.client = lessor.Client(cls.server.url)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.client.close()
        cls.server.close()

    def setUp(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """A queue of its own: the poll of a worker that has just stopped may still wait at the server, behind a proxy,
        and would take the next task of the old one."""
        self.queue = f"q-{uuid.uuid4().hex}"
        self.ended = Ended()

    def configure(self, **settings: Any) -> None:
        """Sets the queue's leases and the like, under their names on the wire."""
        self.request("PUT", f"/v1/queues/{self.queue}", settings)

    def submit(self, payload: Any = None, **options: Any) -> str:
        return self.client.submit(self.queue, payload, **options).task_id

    def proxy(self, rule: Rule = passes) -> Proxy:
        proxy = Proxy(self.server, rule)
        self.addCleanup(proxy.close)
        return proxy

    @contextlib.contextmanager
    def working(self, handler: Callable[[lessor.Task], Any], **options: Any) -> Iterator[lessor.Worker]:
        """A worker that runs for a while, and must end well."""
        options.setdefault("url", self.server.url)
        options.setdefault("on_outcome", self.ended)
        worker = lessor.Worker(**options)
        worker.handler(self.queue)(handler)
        errors: List[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join(PATIENCE_S)
        self.assertFalse(thread.is_alive(), "the worker did not end")
        self.assertEqual(errors, [])

    def until_it_polls(self, worker: lessor.Worker) -> None:
        """Returns once the worker's poll has reached the server."""
        while not any(w["workerId"] == worker.worker_id for w in self.request("GET", "/v1/workers")["workers"]):
            pass

    def final(self, task_id: str) -> lessor.TaskInfo:
        task = self.client.wait(task_id, PATIENCE_S)
        self.assertTrue(task.state.is_final, task)
        return task

    def kinds(self, task_id: str) -> List[str]:
        """The task's records, heartbeats left out."""
        return [e.type for e in self.client.history(task_id) if e.type != "LeaseExtended"]

    def request(self, method: str, path: str, body: Optional[Dict[str, Any]] = None) -> Any:
        """Asks the server past the SDK and past any proxy."""
        host, port = self.server.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            body = json.loads(response.read())
            self.assertLess(response.status, 300, body)
            return body
        finally:
            connection.close()
