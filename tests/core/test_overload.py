"""A setting that overloads a service is told from one that is late now and then, by the head of the queue."""

from __future__ import annotations

import numpy as np
import pytest

from ecoshare.core.settings.service_targets import OverloadWatch

TARGET_S, LOOK_S = 0.1, 0.02


def queue(rate_per_s: float, took_s: float, seconds: float, seed: int, backlog: int = 0) -> list[tuple[float, float]]:
    """Times (s) of arrival and answer of the requests of a server that answers one after another, from time 0 on.

    `backlog` requests have come at -1 s and wait.
    """
    draw = np.random.default_rng(seed)
    gaps = draw.exponential(1.0 / rate_per_s, int(2 * seconds * rate_per_s) + 10)
    come = np.concatenate([np.full(backlog, -1.0), np.cumsum(gaps)])
    free_s, served = 0.0, []
    for at_s in come[come < seconds]:
        free_s = max(free_s, float(at_s)) + took_s
        served.append((float(at_s), free_s))
    return served


def overloaded_s(served: list[tuple[float, float]], seconds: float) -> float | None:
    """Time (s) at which the watch is sure; None if it never is."""
    watch, first = OverloadWatch(0.0, TARGET_S), 0
    for look in range(int(seconds / LOOK_S)):
        now_s = look * LOOK_S
        while first < len(served) and served[first][1] <= now_s:
            first += 1
        waits = first < len(served) and served[first][0] <= now_s
        watch.saw(now_s, served[first][0] + TARGET_S if waits else None)
        if watch.is_overloaded:
            return now_s
    return None


@pytest.mark.parametrize("seed", range(5))
def test_an_overload_is_seen_within_a_second_of_the_first_late_answer(seed: int) -> None:
    served = queue(120.0, 0.011, 10.0, seed)  # 1.3 of what the server can do
    first_late_s = next(answered_s for at_s, answered_s in served if answered_s - at_s > TARGET_S)
    seen_s = overloaded_s(served, 10.0)
    assert seen_s is not None and seen_s < first_late_s + 1.0
    late = sum(answered_s - at_s > TARGET_S and answered_s < seen_s for at_s, answered_s in served)
    assert late < 0.01 * 60.0 * 120.0, "the minute can still keep its target"


@pytest.mark.parametrize("seed", range(20))
def test_a_setting_that_keeps_its_target_is_not_taken_for_an_overload(seed: int) -> None:
    served = queue(120.0, 0.0063, 60.0, seed)  # three quarters of what it can do
    late = np.mean([answered_s - at_s > TARGET_S for at_s, answered_s in served])
    assert late < 0.01
    assert overloaded_s(served, 60.0) is None


def test_requests_of_the_time_before_do_not_count() -> None:
    served = queue(60.0, 0.004, 5.0, 0, backlog=150)  # they are all late, for 0.6 s
    assert overloaded_s(served, 5.0) is None


def test_few_slow_answers_are_not_enough() -> None:
    """Each is late, but a target is a percentile."""
    watch = OverloadWatch(0.0, 1.0)
    for number in range(1000):
        watch.saw(number * LOOK_S, 2.0 if number < 400 else None)
    assert not watch.is_overloaded
