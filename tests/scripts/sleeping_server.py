"""A server with a scheduler of its own, as far as ecoshare sees it: it streams, sleeps and wakes.

    python sleeping_server.py PORT FAULTS [--start SECONDS] [--takes SECONDS] [--calls SECONDS] [--refuses PATH]

POST /v1/completions   streams three pieces, while it "computes"; a number in the body is how many
POST /sleep, /wake     as vLLM has it
POST /dies             ends the process
GET  /health           "ok"

A request that reaches it asleep, and a sleep while it computes, are faults: a line in the file FAULTS. It prints when
(s, monotonic) each sleep has begun, and when it ends.
"""

import argparse
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("faults", type=Path)
parser.add_argument("--start", type=float, default=0.0)
parser.add_argument("--takes", type=float, default=0.03)
parser.add_argument("--calls", type=float, default=0.0)
parser.add_argument("--refuses", default="")
args = parser.parse_args()
lock = threading.Lock()
state = {"asleep": False, "computing": 0}


def fault(text):
    with args.faults.open("a") as faults:
        faults.write(f"{text}\n")


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.begin()
        self.respond(200, b"ok")
        self.end()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == args.refuses:
            self.respond(403, b"")
            return
        if self.path in ("/sleep", "/wake"):
            from_s = time.monotonic()
            time.sleep(args.calls)
            with lock:
                if state["computing"]:
                    fault(f"{self.path} while it computes")
                state["asleep"] = self.path == "/sleep"
                print(self.path, time.monotonic() if state["asleep"] else from_s, flush=True)
            self.respond(200, b"")
            return
        if self.path == "/dies":
            os._exit(3)
        self.begin()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(body or 3)):
            time.sleep(args.takes)
            piece = b"data: %d\n\n" % number
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
        self.end()

    def begin(self):
        with lock:
            if state["asleep"]:
                fault(f"{self.path} while it sleeps")
            state["computing"] += 1

    def end(self):
        with lock:
            state["computing"] -= 1

    def respond(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # all requests that have waited come at once after a wake


time.sleep(args.start)
try:
    server = Server(("127.0.0.1", args.port), Answers)
except OSError as error:
    sys.exit(f"port {args.port}: {error.strerror}")
server.serve_forever()
