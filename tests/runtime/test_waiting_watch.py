"""A run that only measures ends if its programs wait for ever."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ecoshare.core.events import Event, StopRequested
from ecoshare.runtime.nodes.job_looks import WAITS_S, WaitingWatch


def stopped_at_s(done: Callable[[float], int], cpu_s: Callable[[float], float]) -> float | None:
    """Time (s) at which programs with so many iterations and so much processor time were stopped; None if not."""
    told = list[Callable[..., Event]]()
    watch = WaitingWatch(cast(Any, SimpleNamespace(live={})), told.append)
    stop_s = None
    for at_s in range(1000, 1300):
        watch.look(float(at_s), done(at_s - 1000.0), cpu_s(at_s - 1000.0))
        if watch.is_over and stop_s is None:
            stop_s = at_s - 1000.0
    assert [make(at_s=0.0) for make in told] == ([] if stop_s is None else [StopRequested(0.0, at_once=True)])
    return stop_s


@pytest.mark.parametrize(
    ("done", "cpu_s", "stop_s"),
    [
        (lambda _: 0, lambda _: 5.0, WAITS_S),
        (lambda _: 0, lambda at_s: 0.002 * at_s, WAITS_S),  # an event loop wakes up now and then
        (lambda _: 0, lambda at_s: min(at_s, 100.0), 100.0 + WAITS_S),  # it loaded its model first
        (lambda at_s: min(int(at_s), 50), lambda _: 5.0, 50.0 + WAITS_S),  # a few requests came
    ],
)
def test_programs_that_do_nothing_are_stopped(done: Any, cpu_s: Any, stop_s: float) -> None:
    """If it failed, `ecoshare profile` of a server would hang."""
    assert stopped_at_s(done, cpu_s) == pytest.approx(stop_s, abs=1.0)


@pytest.mark.parametrize(
    ("done", "cpu_s"),
    [
        (lambda _: 0, lambda at_s: 0.05 * at_s),  # it reads its data from a slow disk
        (lambda at_s: int(at_s / 20), lambda _: 5.0),  # a GPU works, and the processor sleeps
    ],
)
def test_programs_that_work_are_not_stopped(done: Any, cpu_s: Any) -> None:
    assert stopped_at_s(done, cpu_s) is None
