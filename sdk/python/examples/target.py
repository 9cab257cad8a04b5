"""A whole push target. Start `lessor up --allow-private-push-targets`, run this with LESSOR_PUSH_SECRET and PORT in its
environment, let the queue push to it (`docs/writing-workers.md`), and submit: lessor submit greetings '"world"' --wait"""

import http.server
import os
import threading

import lessor


def greet(task: lessor.Task) -> str:
    return f"Hello, {task.payload}!"


target = lessor.Target(greet, secret=os.environ["LESSOR_PUSH_SECRET"])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(target.accept(self.headers.items(), body).status)
        self.end_headers()


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"listens at 127.0.0.1:{server.server_port}", flush=True)
target.run()
