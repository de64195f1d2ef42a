"""Ask servers of reviews over HTTP at random times, and print how long the answers took.

    python examples/services/ask.py http://127.0.0.1:8710/read/ http://127.0.0.1:8711/

A request comes at its time, whether earlier answers are late or not. Its latency counts from that time.
"""

import argparse
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from statistics import quantiles
from urllib.error import HTTPError
from urllib.request import urlopen

from reviews import review

AT_ONCE = 32
"""Most requests on their way to one server at once."""


class Server:
    """A server, and how long (s) its answers took."""

    def __init__(self, url: str) -> None:
        self.url, self.pool = url, ThreadPoolExecutor(AT_ONCE)
        self.latencies_s: list[float] = []
        self.errors: list[str] = []
        self.has_ended = False

    def wait(self, within_s: float) -> None:
        """Wait until the server takes requests."""
        until_s = time.monotonic() + within_s
        while True:
            try:
                with urlopen(self.url, timeout=10):
                    return
            except HTTPError as error:
                sys.exit(f"{self.url} is another server: it answers {error.code} {error.reason}")
            except (OSError, HTTPException) as error:
                if time.monotonic() > until_s:
                    sys.exit(f"{self.url} does not answer within {within_s:g} s: {error}")
            time.sleep(0.1)

    def ask(self, text: str, at_s: float) -> None:
        """Ask about a review. The request came at `at_s` (s)."""
        try:
            with urlopen(self.url, json.dumps(text).encode(), timeout=30) as answer:
                answer.read()
            self.latencies_s.append(time.monotonic() - at_s)
        except HTTPError as error:  # 503 if too many requests wait
            self.errors.append(f"{error.code}: {error.read().decode().strip()}")
        except (OSError, HTTPException) as error:
            if isinstance(error, ConnectionError) or isinstance(getattr(error, "reason", None), ConnectionError):
                self.has_ended = True
            else:
                self.errors.append(str(error))

    def told(self) -> str:
        """Line on all answers."""
        end = ", until the server ended" if self.has_ended else ""
        line = f"{self.url}  {len(self.latencies_s)} answers, {len(self.errors)} failed{end}"
        if len(self.latencies_s) > 1:
            cuts_ms = [1000 * each for each in quantiles(self.latencies_s, n=100, method="inclusive")]
            line += f"; p50 {cuts_ms[49]:.1f} ms, p99 {cuts_ms[98]:.1f} ms"
        return "\n    ".join([line, *sorted(set(self.errors))[:3]])


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ask servers of reviews over HTTP, and print how long answers took.")
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--rate", type=float, default=15.0, help="requests a second to each server")
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    draws = random.Random(args.seed)
    servers = [Server(url) for url in args.urls]
    for server in servers:
        server.wait(within_s=90.0)
    at_s = time.monotonic()
    until_s = at_s + args.seconds
    while (at_s := at_s + draws.expovariate(args.rate * len(servers))) < until_s:
        time.sleep(max(0.0, at_s - time.monotonic()))
        server = draws.choice(servers)
        if all(each.has_ended for each in servers):
            break
        if not server.has_ended:
            server.pool.submit(server.ask, review(draws)[0], at_s)
    for server in servers:
        server.pool.shutdown()
        print(server.told(), flush=True)
    if any(server.errors for server in servers):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
