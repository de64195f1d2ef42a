from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.lane.serving.batch_worker import AnswerTimes, batch_size, limited

SIZES = st.sets(st.integers(1, 40), min_size=1, max_size=6).map(sorted)
TIMES = st.floats(1e-4, 10.0)
BATCHES = st.lists(st.tuples(st.integers(1, 40), TIMES), min_size=1, max_size=60)


def learned(batches: list[tuple[int, float]]) -> AnswerTimes:
    times = AnswerTimes()
    for size, took_s in batches:
        times.learn(size, took_s)
    return times


@given(SIZES, st.integers(1, 100), st.floats(-1.0, 10.0), BATCHES)
def test_a_batch_is_the_largest_that_is_filled_and_in_time(
    allowed: list[int], waiting: int, left_s: float, batches: list[tuple[int, float]]
) -> None:
    upper_s = learned(batches).upper_s
    chosen = batch_size(allowed, waiting, left_s, upper_s)
    filled = [size for size in allowed if size <= waiting]
    if not filled:
        assert chosen == waiting
        return
    in_time = [size for size in filled if upper_s(size) <= left_s]
    assert chosen == max(in_time or filled)


@given(SIZES, st.integers(1, 100))
def test_without_a_target_a_batch_is_as_large_as_it_can_be(allowed: list[int], waiting: int) -> None:
    chosen = batch_size(allowed, waiting, math.inf, lambda size: 1.0)
    assert chosen == max([size for size in allowed if size <= waiting] or [waiting])


@given(BATCHES, st.integers(1, 40))
def test_an_estimate_of_a_known_size_stays_between_the_times_that_were_seen(
    batches: list[tuple[int, float]], other: int
) -> None:
    times = learned(batches)
    for size in {size for size, _ in batches}:
        seen = [took_s for each, took_s in batches if each == size]
        assert min(seen) * (1 - 1e-9) <= times.upper_s(size) <= max(seen) * (1 + 1e-9)
    assert 0.0 < times.upper_s(other) < math.inf


@given(BATCHES, st.integers(1, 40), TIMES)
def test_the_last_batch_is_within_the_estimate_of_its_size(
    batches: list[tuple[int, float]], size: int, took_s: float
) -> None:
    """The first two batches of a size are apart: the second may replace the first."""
    times = learned([*batches, (size, took_s), (size, took_s), (size, took_s)])
    assert times.upper_s(size) >= took_s * (1 - 1e-9)


@given(st.floats(0.0, 0.1), st.floats(1e-4, 0.01), st.sets(st.integers(1, 40), min_size=2, max_size=5))
def test_unknown_sizes_lie_on_the_line_through_the_known_ones(fixed_s: float, each_s: float, known: set[int]) -> None:
    times = learned([(size, fixed_s + each_s * size) for size in known for _ in range(3)])
    for size in range(min(known), 60):
        assert times.upper_s(size) == pytest.approx(fixed_s + each_s * size)
    for size in range(1, min(known)):
        assert times.upper_s(size) == pytest.approx(fixed_s + each_s * min(known)), "below the smallest: not more"


def test_before_two_sizes_are_known_the_estimates_are_simple() -> None:
    times = AnswerTimes()
    assert times.upper_s(8) == 0.0
    times.learn(2, 0.010)
    assert times.upper_s(1) == 0.010
    assert times.upper_s(8) == pytest.approx(0.040), "one known size: in proportion"


def test_the_first_batch_of_a_size_is_replaced_by_a_shorter_second_one() -> None:
    """If it failed, a service would avoid a size for minutes, because its first batch loaded code."""
    times = learned([(4, 3.0), (4, 0.010)])
    assert times.upper_s(4) == pytest.approx(0.010)


def test_one_slow_batch_is_forgotten_even_if_its_size_is_avoided() -> None:
    times = learned([(8, 0.010)] * 20 + [(8, 1.0)])
    slow_s = times.upper_s(8)
    assert slow_s == pytest.approx(1.0)
    for _ in range(128):
        times.learn(1, 0.002)
    assert 0.45 < times.upper_s(8) / slow_s < 0.6
    for _ in range(1500):
        times.learn(1, 0.002)
    assert times.upper_s(8) < 0.08


@pytest.mark.parametrize(("most", "left"), [(0, [2, 4, 8]), (8, [2, 4, 8]), (7, [2, 4]), (2, [2]), (1, [2])])
def test_a_largest_batch_leaves_the_sizes_up_to_it_and_one_in_any_case(most: int, left: list[int]) -> None:
    assert list(limited((2, 4, 8), most)) == left
