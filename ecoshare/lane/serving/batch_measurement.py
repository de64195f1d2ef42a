"""Measures how long the handler of a service takes, by batch size: `batches.jsonl` in the folder of its job.

In a run of `ecoshare profile` a program has the device to itself, and `Server.run` measures instead of serving:

::

    size 1        ▏warm▕▉▕▉▕▉▕▉▕ some seconds ▕   ──► a line
    size 2                       ▏warm▕▉▉▕▉▉▕▉▉▕   ──► a line
    largest                                   ▕▉▉▉▉▕▉▉▉▉▕▉▉▉▉▕ iterations for the profiling window, until the run stops

There is one client, which sends its next batch when it has the answers: a closed loop. Requests are made between the
calls, so their making does not count.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from ecoshare.base import documents
from ecoshare.base.batch_means import relative_error
from ecoshare.base.plural import counted
from ecoshare.base.service import AnswerMeasurement
from ecoshare.lane.serving.batch_worker import Handler, checked_answers, one_line
from ecoshare.lane.serving.request_record import append_line

STEADY = 0.02
"""Relative standard error of the mean at which the time of a batch size counts as known."""

_WARM_UP, _WARM_UP_S = 3, 2.0
"""Batches of a size that do not count, or the time (s) after which no further one is left out. The first ones load
code, choose kernels and fill caches."""

_LOOK_S = 0.25
"""Time (s) between two looks at the error."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits on the measurement of one batch size.

    Attributes:
        shortest_s: Least time (s). Samples of the energy meter, one a second, must fall into it.
        longest_s: Most time (s), unless fewer than `fewest` batches have ended by then.
        utmost_s: Most time (s), whatever the number of batches.
        fewest: Least number of batches.
        tail: Number of batches that the 99th percentile needs, if there is time.
    """

    shortest_s: float = 3.0
    longest_s: float = 6.0
    utmost_s: float = 30.0
    fewest: int = 10
    tail: int = 100


DEFAULT_LIMITS = BatchLimits()


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Times of the handler for batches of one size.

    Attributes:
        size: Number of requests in a batch.
        count: Number of batches.
        from_s: Time (s) since the run was opened at which the first batch began.
        to_s: Time (s) at which the last one ended.
        mean_s: Mean time (s) of a batch.
        standard_error_s: Standard error (s) of the mean, by batch means; None for too few batches.
        median_s: Median time (s).
        p95_s: 95th percentile (s): the least time that at least 95 of 100 batches keep to.
        p99_s: 99th percentile (s); of fewer than 100 batches the longest.
    """

    size: int
    count: int
    from_s: float
    to_s: float
    mean_s: float
    standard_error_s: float | None
    median_s: float
    p95_s: float
    p99_s: float


def measure(
    handler: Handler,
    sizes: Sequence[int],
    sample: Callable[[int], Any] | None,
    measurement: AnswerMeasurement,
    limits: BatchLimits = DEFAULT_LIMITS,
) -> None:
    """Measure each batch size in turn. Then answer the largest batches, each an iteration. The call does not return.

    Args:
        handler: Function that answers.
        sizes: Batch sizes, in ascending order.
        sample: Function that makes the request with a number from 0 on; None for the number itself.
        measurement: Measurement that the run asks for.
        limits: Limits on the measurement of each size.

    Raises:
        RuntimeError: The handler has failed.
        OSError: The times cannot be written.
    """
    batches = _Batches(handler, sample, measurement.drain)
    with measurement.holding() as ended:
        for size in sizes:
            times = _measured(batches, size, measurement.opened_s, limits)
            append_line(Path(measurement.path), json.dumps(asdict(times)).encode() + b"\n")
        while True:
            batches.answer(sizes[-1])
            ended()


def read(path: Path) -> list[BatchTimes]:
    """Times of all batch sizes that a service has measured, in ascending order; damaged lines are left out."""
    try:
        with documents.open_regular(path) as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = {each.size: each for line in lines if (each := _times(line)) is not None}
    return [found[size] for size in sorted(found)]


class _Batches:
    """Makes requests and lets the handler answer them."""

    def __init__(self, handler: Handler, sample: Callable[[int], Any] | None, drain: Callable[[], None]) -> None:
        self._handler, self._drain = handler, drain
        self._sample = sample
        self._requests: Iterator[Any] = map(sample or int, itertools.count())

    def answer(self, size: int) -> float:
        """Time (s) that the handler and the device take for one batch.

        Raises:
            RuntimeError: The handler has failed.
        """
        requests = list(itertools.islice(self._requests, size))
        from_s = time.monotonic()
        try:
            answers = self._handler(requests)
            self._drain()
            took_s = time.monotonic() - from_s
            checked_answers(answers, size)
        except Exception as error:
            made = "" if self._sample is not None else " (numbers, since there is no `sample`)"
            what = counted(size, "request") + made
            raise RuntimeError(f"the handler failed for {what}: {one_line(error)}") from error
        return took_s


def _measured(batches: _Batches, size: int, opened_s: float, limits: BatchLimits) -> BatchTimes:
    warm_from_s = time.monotonic()
    for _ in range(_WARM_UP):
        batches.answer(size)
        if time.monotonic() - warm_from_s > _WARM_UP_S:
            break
    durations_s = array("d")
    from_s = look_s = time.monotonic()
    while True:
        durations_s.append(batches.answer(size))
        if (now_s := time.monotonic()) >= look_s:
            if _is_enough(durations_s, now_s - from_s, limits):
                return _summed(size, durations_s, from_s - opened_s, now_s - opened_s)
            look_s = now_s + _LOOK_S


def _is_enough(durations_s: Sequence[float], wall_s: float, limits: BatchLimits) -> bool:
    if wall_s >= limits.utmost_s:
        return True
    if len(durations_s) < limits.fewest or wall_s < limits.shortest_s:
        return False
    if wall_s >= limits.longest_s:
        return True
    error = relative_error(durations_s)
    return len(durations_s) >= limits.tail and error is not None and error <= STEADY


def _summed(size: int, durations_s: Sequence[float], from_s: float, to_s: float) -> BatchTimes:
    in_order, mean_s, error = sorted(durations_s), fmean(durations_s), relative_error(durations_s)
    median_s, p95_s, p99_s = (in_order[math.ceil(part * len(in_order)) - 1] for part in (0.5, 0.95, 0.99))
    error_s = None if error is None else error * mean_s
    return BatchTimes(size, len(in_order), from_s, to_s, mean_s, error_s, median_s, p95_s, p99_s)


def _times(line: bytes) -> BatchTimes | None:
    """Times of a line; None if the line is damaged."""
    try:
        found = documents.parse(line)
        numbers = {each.name: found[each.name] for each in fields(BatchTimes)}
        whole = {name: int(numbers.pop(name)) for name in ("size", "count")}
        times = BatchTimes(**whole, **{name: _time(name, value) for name, value in numbers.items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return times if times.size > 0 and times.count > 0 and times.to_s >= times.from_s else None


def _time(name: str, value: Any) -> Any:
    if value is None and name == "standard_error_s":
        return None
    if not 0.0 <= (value_s := float(value)) <= documents.LONGEST_S:
        raise ValueError("it is no time")
    return value_s
