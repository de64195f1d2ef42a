"""Writes what a service did, second by second: `requests.jsonl` in its job's folder.

The service's own process writes the file, since only it sees arrivals and answers. `request_intervals` reads it.

::

    {"from_s": 12.0, "at_s": 13.0, "arrived": 41, ..., "batches": {"1": 12, "4": 7}, "latencies": "HIST...",
     "took": {"1": [0.024, -74.6, 464.3], ...}, "woke": [9, 0.004], "buckets": {"3": 31, ...}, "latency_s": 0.41}

`took` has sums over the calls that answered, by number of requests: of their times (s), of the natural logarithms of
these and of the squares of the logarithms. Mean and spread follow from them, over any intervals. `woke` has the number
of requests that came to the idle service, and the sum of the times (s) until it asked for the turn. `buckets` has the
number of latencies by the place of their upper bound in `LATENCY_BOUNDS_S`, and `latency_s` their sum: the controller
adds them up each second, and to decode the histogram takes it a thousand times as long.

Times count from the opening of the run, as in a job's trace. Nothing is written for a time in which nothing happened,
and no timer ticks in it.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

INTERVAL_S = 1.0
"""Time (s) from the first event of an interval to its line. A batch that takes longer makes the interval longer."""

LONGEST_US = 3_600_000_000
"""Longest latency (us) that a histogram tells apart: an hour."""

COUNTS = ("arrived", "answered", "failed", "refused", "cancelled", "late")
"""Names of the counts of an interval, which intervals of any length add up."""

LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds (s) of the buckets of latencies. A longer latency has the place after the last."""

DIGITS = 3
"""Significant digits of a latency in a histogram."""


class RequestRecorder:
    """Counts requests and writes the intervals. A line that cannot be written is lost: no service fails because of it.

    Any thread may count arrivals. The worker's thread alone counts answers and writes.
    """

    def __init__(
        self,
        path: str | Path,
        opened_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        append: Callable[[Path, bytes], None] | None = None,
    ) -> None:
        """Make a recorder.

        Args:
            path: Path of the file. It is made with the first line, and opened for each line: the program may close
                any descriptor.
            opened_s: Time (s) on the clock from which the times in the file count.
            clock: Returns the present time (s).
            append: Appends a line to the file at a path; None for the file system.
        """
        self._opened_s, self._clock, self._append = opened_s, clock, append or append_line
        self._path = Path(path).absolute()  # the program may change its working folder
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._batches: Counter[int] = Counter()
        self._took: dict[int, tuple[float, float, float]] = {}
        self._woke = 0, 0.0
        self._buckets: Counter[int] = Counter()
        self._latency_s = 0.0
        self._longest_queue = 0
        self._from_s = math.inf
        # Made now: the import takes some 10 ms, which the first request would wait for.
        self._latencies = _histogram()

    def arrived(self, waiting: int) -> None:
        """Count a request that was accepted. `waiting` is the number that wait, this one included."""
        with self._lock:
            self._count("arrived")
            self._longest_queue = max(self._longest_queue, waiting)

    def refused(self, waiting: int) -> None:
        """Count a request that was refused, because `waiting` requests wait. It has arrived, too."""
        with self._lock:
            self._count("arrived")
            self._count("refused")
            self._longest_queue = max(self._longest_queue, waiting)

    def called(self, size: int) -> None:
        """Count a call of the handler with `size` requests."""
        with self._lock:
            self._begin()
            self._batches[size] += 1

    def took(self, size: int, took_s: float) -> None:
        """Note that a call of the handler with `size` requests answered after `took_s` (s)."""
        with self._lock:
            log = math.log(max(took_s, 1e-9))
            sum_s, logs, squares = self._took.get(size, (0.0, 0.0, 0.0))
            self._took[size] = sum_s + took_s, logs + log, squares + log * log

    def woke(self, after_s: float) -> None:
        """Note that a request came to an idle service, which asked for its turn `after_s` (s) later."""
        with self._lock:
            self._woke = self._woke[0] + 1, self._woke[1] + after_s

    def answered(self, arrived_s: float, due_s: float, at_s: float) -> None:
        """Count a request that arrived, was due and was answered at these times (s)."""
        with self._lock:
            self._count("answered")
            self._count("late", int(at_s > due_s))
            self._buckets[bisect_left(LATENCY_BOUNDS_S, at_s - arrived_s)] += 1
            self._latency_s += at_s - arrived_s
        if self._latencies is not None:
            latency_us = round((at_s - arrived_s) * 1e6)
            self._latencies.record_value(min(max(1, latency_us), LONGEST_US))

    def failed(self, count: int) -> None:
        if count:
            with self._lock:
                self._count("failed", count)

    def cancelled(self, count: int) -> None:
        """Count requests that the program cancelled before their batch."""
        if count:
            with self._lock:
                self._count("cancelled", count)

    def left_s(self) -> float:
        """Time (s) until the interval must be written; infinity if nothing has happened in it."""
        return self._from_s + INTERVAL_S - self._clock()

    def write(self) -> None:
        """Write the interval that ends now, if anything has happened in it."""
        with self._lock:
            if self._from_s == math.inf:
                return
            from_s, at_s = self._from_s - self._opened_s, self._clock() - self._opened_s
            line: dict[str, Any] = {"from_s": from_s, "at_s": at_s}
            line |= {name: self._counts[name] for name in COUNTS}
            line |= {"batches": dict(sorted(self._batches.items())), "longest_queue": self._longest_queue}
            line |= {"took": dict(sorted(self._took.items())), "woke": self._woke}
            line |= {"buckets": dict(sorted(self._buckets.items())), "latency_s": self._latency_s}
            self._took, self._woke = {}, (0, 0.0)
            self._buckets.clear()
            self._latency_s = 0.0
            self._counts.clear()
            self._batches.clear()
            self._longest_queue = 0
            self._from_s = math.inf
        line["latencies"] = self._encoded()  # without the lock: it takes a millisecond
        with suppress(OSError):
            self._append(self._path, json.dumps(line).encode() + b"\n")

    def _count(self, name: str, count: int = 1) -> None:
        self._begin()
        self._counts[name] += count

    def _begin(self) -> None:
        if self._from_s == math.inf:
            self._from_s = self._clock()

    def _encoded(self) -> str:
        if self._latencies is None or not self._latencies.total_count:
            return ""
        text: str = self._latencies.encode().decode()
        self._latencies = _histogram()  # `reset` takes five times as long: 3 ms, which the next request would wait for
        return text


def _histogram() -> Any:
    """Empty histogram of latencies (us); None if the library is missing: then the record has counts alone."""
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        return None
    return HdrHistogram(1, LONGEST_US, DIGITS)


def append_line(path: Path, line: bytes) -> None:
    """Append a line with one call, so that lines of several processes do not mix.

    Raises:
        OSError: The file cannot be opened or written.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(number, line)
    finally:
        os.close(number)
