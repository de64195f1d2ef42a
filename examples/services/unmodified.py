"""The same answers from a server that knows nothing of ecoshare: one thread for each connection, no batches.

Alone, and a question to it:

    python examples/services/unmodified.py
    curl --data '"the soup was not very good"' http://127.0.0.1:8711/
"""

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from reviews import LABELS, base_model, encoded


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The same answers from a server that knows nothing of ecoshare.")
    parser.add_argument("--port", type=int, default=8711)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)  # more gain nothing for so small a model
    model = base_model().to(args.device).eval()

    def label(text: str) -> str:
        with torch.inference_mode():
            return LABELS[int(model(torch.tensor([encoded(text)], device=args.device)).argmax())]

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open

        def do_GET(self) -> None:
            self.respond("ok")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.respond(json.dumps(label(json.loads(body))))

        def respond(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing for each request."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", args.port), Answers)
    except OSError as error:
        sys.exit(f"port {args.port}: {error.strerror}")
    server.serve_forever()


if __name__ == "__main__":
    main()
