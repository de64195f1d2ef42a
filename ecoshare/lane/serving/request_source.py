"""Makes the requests of a service without a network: from a file of arrivals, at random, or by clients in a loop.

An open source never waits for answers. A request counts as arrived at its scheduled time, even if the process was too
busy to make it then. Else a slow answer would delay the requests behind it, and their latencies would look good
(coordinated omission: Tene, "How NOT to Measure Latency", 2013).

::

    scheduled   │    │    │    │
    handler     ██████████ one slow batch
    latency     ├────────►│         all four count from their schedule
                     ├───►
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from ecoshare.base.service import RequestSource
from ecoshare.lane.serving.request_queue import QueueFull, ServiceClosed

_RETRY_S = 0.01
"""Time (s) after which a client of a closed loop tries again, if it has nothing to wait for."""


class Accept(Protocol):
    """Function that takes a request which arrived at a time (s) of `time.monotonic`."""

    def __call__(self, request: Any, arrived_s: float) -> Future[Any]:
        """Future of the answer.

        Raises:
            QueueFull: The request is refused.
            ServiceClosed: The service takes no more requests.
        """
        ...


class RequestDriver:
    """Makes the requests of a source. It sleeps between them, and never spins."""

    def __init__(self, source: RequestSource, accept: Accept, sample: Callable[[int], Any] | None) -> None:
        """Make a driver.

        Args:
            source: Source of the requests.
            accept: Function that takes a request.
            sample: Function that makes the request with a number from 0 on; None for the number itself.
        """
        self._source = source
        self._accept = accept
        self._sample = sample or (lambda number: number)
        self._stopping = threading.Event()
        self._open = _OpenRequests()

    def run(self) -> None:
        """Make the requests. Return after the last answer, or soon after `stop`.

        Raises:
            ValueError: The source describes no requests, or its file is wrong.
            OSError: The file of arrivals cannot be read.
        """
        times = None if self._source.clients else arrival_times(self._source)
        try:
            if times is None:
                self._run_closed_loop()
            else:
                self._run_open_loop(times)
            self._open.wait_below(1)
        except ServiceClosed:
            return

    def stop(self) -> None:
        """Make no more requests."""
        self._stopping.set()

    def _run_open_loop(self, times: Iterable[float]) -> None:
        from_s = time.monotonic()
        for number, after_s in enumerate(times):
            request = self._sample(number)
            at_s = from_s + after_s
            if (left_s := at_s - time.monotonic()) > 0.0:
                self._stopping.wait(left_s)
            if self._stopping.is_set():
                return
            self._send(request, at_s)

    def _run_closed_loop(self) -> None:
        numbers = range(self._source.count) if self._source.count else itertools.count()
        for number in numbers:
            self._open.wait_below(self._source.clients)
            if self._stopping.is_set():
                return
            if not self._send(self._sample(number), time.monotonic()):
                # More clients than places: the refused client goes on when another one has its answer.
                if open_now := self._open.count:
                    self._open.wait_below(open_now)
                else:  # requests from elsewhere fill the queue
                    self._stopping.wait(_RETRY_S)

    def _send(self, request: Any, arrived_s: float) -> bool:
        """Send a request. Return whether it was accepted; a refused one is counted by the service, and gone."""
        self._open.more()
        try:
            answer = self._accept(request, arrived_s)
        except QueueFull:
            self._open.fewer()
            return False
        except BaseException:
            self._open.fewer()
            raise
        answer.add_done_callback(lambda _: self._open.fewer())
        return True


def arrival_times(source: RequestSource) -> Iterator[float]:
    """Times (s) of the arrivals after the start, in ascending order.

    Raises:
        ValueError: The source describes no requests, or its file is wrong.
        OSError: The file cannot be read.
    """
    if source.arrivals:
        times = read_arrivals(Path(source.arrivals))
        return iter(times[: source.count] if source.count else times)
    if not 0.0 < source.rate_per_s < math.inf:
        raise ValueError("the source of requests has neither a file of arrivals, nor a rate above 0, nor clients")
    drawn = _poisson(source.rate_per_s, source.seed)
    return itertools.islice(drawn, source.count) if source.count else drawn


def read_arrivals(path: Path) -> array[float]:
    """Times (s) of a file of arrivals: one a line, in ascending order. Empty lines are left out.

    Raises:
        ValueError: A line is no time, is negative or is earlier than the line before; or there is no time at all.
        OSError: The file cannot be read.
    """
    times = array("d")
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not (text := line.strip()):
                continue
            try:
                at_s = float(text)
            except ValueError:
                at_s = math.nan
            if not 0.0 <= at_s < math.inf:
                raise ValueError(f"{path}:{number}: expected a time in seconds of at least 0, got {text[:60]!r}")
            if times and at_s < times[-1]:
                raise ValueError(f"{path}:{number}: {at_s:g} s comes after {times[-1]:g} s: sort the arrivals")
            times.append(at_s)
    if not times:
        raise ValueError(f"{path}: it has no arrivals")
    return times


def _poisson(rate_per_s: float, seed: int) -> Iterator[float]:
    draws = random.Random(seed)
    return itertools.accumulate(draws.expovariate(rate_per_s) for _ in itertools.count())


class _OpenRequests:
    """Number of requests without an answer yet."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def more(self) -> None:
        with self._changed:
            self.count += 1

    def fewer(self) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify_all()

    def wait_below(self, bound: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.count < bound)
