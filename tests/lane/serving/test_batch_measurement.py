"""Times of a handler by batch size, as a program measures them for its profile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ecoshare
from ecoshare.base.service import AnswerMeasurement
from ecoshare.lane.serving.batch_measurement import BatchLimits, BatchTimes, measure, read

LIMITS = BatchLimits(shortest_s=0.05, longest_s=0.1, fewest=5)


class Stopped(BaseException):
    """The run has stopped the program."""


class Asked:
    """Measurement that a run asks for, until a number of iterations have ended."""

    def __init__(self, path: Path, iterations: int = 3, drain: Callable[[], None] = lambda: None) -> None:
        self.path, self.left, self.is_held = path, iterations, False
        self.measurement = AnswerMeasurement(str(path), time.monotonic() - 100.0, self._holding, drain)

    @contextmanager
    def _holding(self) -> Iterator[Callable[[], None]]:
        self.is_held = True
        yield self._ended
        self.is_held = False

    def _ended(self) -> None:
        self.left -= 1
        if not self.left:
            raise Stopped


def measured(asked: Asked, handler: Callable[[list[Any]], Sequence[Any]], sizes: Sequence[int]) -> list[BatchTimes]:
    with pytest.raises(Stopped):
        measure(handler, sizes, None, asked.measurement, LIMITS)
    return read(asked.path)


@pytest.mark.slow
def test_each_size_is_measured_in_turn_and_then_the_largest_until_the_run_stops(tmp_path: Path) -> None:
    asked, calls = Asked(tmp_path / "batches.jsonl"), list[list[int]]()

    def handler(requests: list[int]) -> list[int]:
        assert asked.is_held, "a call of its model would count as an iteration"
        calls.append(requests)
        time.sleep(0.001 * len(requests))
        return requests

    one, four = measured(asked, handler, (1, 4))
    sizes = [len(each) for each in calls]
    assert sizes == [1] * (one.count + 3) + [4] * (3 + four.count + 3), "warm-up, measured; and then iterations"
    assert [number for each in calls for number in each] == list(range(sum(sizes))), "each request is made once"
    assert (one.size, four.size) == (1, 4) and 100.0 <= one.from_s < one.to_s <= four.from_s < four.to_s < 110.0
    for each, least_s in ((one, 0.001), (four, 0.004)):
        assert least_s <= each.median_s <= each.p95_s <= each.p99_s and least_s <= each.mean_s
        assert each.count >= 5 and each.to_s - each.from_s >= max(0.05, each.count * each.mean_s)


def test_the_work_of_the_device_counts_and_the_making_of_requests_does_not(tmp_path: Path) -> None:
    """A handler may return before its kernels have run; in a run the turn is held until they have."""
    asked = Asked(tmp_path / "batches.jsonl", drain=lambda: time.sleep(0.002))
    with pytest.raises(Stopped):
        measure(lambda requests: requests, (1,), lambda _: time.sleep(0.02), asked.measurement, LIMITS)
    [times] = read(asked.path)
    assert 0.002 <= times.median_s < 0.012


def test_a_slow_handler_is_not_measured_for_ever(tmp_path: Path) -> None:
    limits = BatchLimits(utmost_s=0.02)
    asked = Asked(tmp_path / "batches.jsonl", iterations=1)

    def handler(requests: list[int]) -> list[int]:
        time.sleep(0.03)
        return requests

    with pytest.raises(Stopped):
        measure(handler, (1,), None, asked.measurement, limits)
    [times] = read(asked.path)
    assert times.count <= 2 and times.standard_error_s is None and times.p99_s >= times.median_s >= 0.03


def breaks(requests: list[int]) -> list[int]:
    if len(requests) > 1:
        raise ValueError("too many\nof them")
    return requests


@pytest.mark.parametrize(
    ("handler", "sample", "message"),
    [
        (breaks, str, "the handler failed for 2 requests: ValueError: too many"),
        (breaks, None, "the handler failed for 2 requests (numbers, since there is no `sample`): ValueError: too many"),
        (lambda _: [1], str, "the handler failed for 2 requests: WrongAnswers: the handler returned 1 answers for 2"),
    ],
)
def test_a_handler_that_fails_ends_the_measurement_with_a_line(
    tmp_path: Path, handler: Any, sample: Any, message: str
) -> None:
    with pytest.raises(RuntimeError) as caught:
        measure(handler, (1, 2), sample, Asked(tmp_path / "batches.jsonl").measurement, LIMITS)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_run_measures_instead_of_serving_if_a_run_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(tmp_path / "batches.jsonl")
    monkeypatch.setattr(ecoshare, "_measurement", asked.measurement)
    with pytest.raises(RuntimeError, match="1 request: ZeroDivisionError"):
        ecoshare.serve(lambda _: [1 // 0], batch=1, sample=lambda number: number).run()


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    assert not read(tmp_path / "none")
    line = {"size": 2, "count": 3, "from_s": 1, "to_s": 2, "mean_s": 0.1, "standard_error_s": None}
    line |= dict.fromkeys(("median_s", "p95_s", "p99_s"), 0.1)
    good = BatchTimes(2, 3, 1.0, 2.0, 0.1, None, 0.1, 0.1, 0.1)
    bad = ({"size": 0}, {"count": -1}, {"mean_s": -1.0}, {"to_s": 0.5}, {"p99_s": None}, {"from_s": 1e300})
    lines = [json.dumps(each) for each in (*({**line, **wrong} for wrong in bad), {**line, "size": 2})]
    (tmp_path / "batches.jsonl").write_text("\n".join(["[]", "{", *lines, lines[-1][:20]]))
    assert read(tmp_path / "batches.jsonl") == [good]
