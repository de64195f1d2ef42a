"""Intervals that are long enough for a mean power."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.record.accounts.energy_account import EnergyInterval
from ecoshare.record.accounts.run_energy import coarser

LEAST_S = 1.0


def interval(from_s: float, to_s: float, energy_j: float | None, job: str = "a") -> EnergyInterval:
    jobs_j = {} if energy_j is None else {job: 0.75 * energy_j}
    return EnergyInterval(from_s, to_s, energy_j, 0.25 * (energy_j or 0.0), jobs_j, {job: 2})


lengths = st.floats(0.001, 4.0)
joules = st.one_of(st.none(), st.floats(0.0, 50.0))


@st.composite
def stories(draw: st.DrawFn) -> list[EnergyInterval]:
    """Consecutive intervals of any length, some without joules, some with a gap before them."""
    found: list[EnergyInterval] = []
    at_s = 0.0
    for length_s, energy_j, gap in draw(st.lists(st.tuples(lengths, joules, st.booleans()), max_size=30)):
        at_s += 5.0 if gap and len(found) % 7 == 6 else 0.0
        found.append(interval(at_s, at_s + length_s, energy_j, "ab"[len(found) % 2]))
        at_s += length_s
    return found


def stretches(intervals: list[EnergyInterval]) -> list[list[EnergyInterval]]:
    """Groups of adjacent intervals with known energy."""
    found: list[list[EnergyInterval]] = []
    for each in intervals:
        if each.energy_j is None:
            continue
        if found and found[-1][-1].to_s == each.from_s:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def watts(part: list[EnergyInterval]) -> float:
    return math.fsum(each.energy_j or 0.0 for each in part) / (part[-1].to_s - part[0].from_s)


@given(stories())
def test_no_mean_exceeds_that_of_any_window_of_at_least_that_length(intervals: list[EnergyInterval]) -> None:
    merged = coarser(intervals, LEAST_S)
    for stretch in stretches(intervals):
        whole_s = stretch[-1].to_s - stretch[0].from_s
        least_s = min(LEAST_S, whole_s)
        windows = [
            watts(stretch[first : last + 1])
            for first in range(len(stretch))
            for last in range(first, len(stretch))
            if stretch[last].to_s - stretch[first].from_s >= least_s
        ]
        inside = [
            each for each in merged if each.energy_j is not None and stretch[0].from_s <= each.from_s < stretch[-1].to_s
        ]
        assert all(each.to_s - each.from_s >= least_s for each in inside), "too short for a mean"
        assert max(watts([each]) for each in inside) <= max(windows) * (1 + 1e-9)


@given(stories())
def test_joules_time_and_iterations_stay(intervals: list[EnergyInterval]) -> None:
    merged = coarser(intervals, LEAST_S)
    assert all(later.from_s >= earlier.to_s for earlier, later in pairwise(merged))
    for total in (
        lambda each: each.energy_j or 0.0,
        lambda each: each.idle_j,
        lambda each: each.to_s - each.from_s,
        *((lambda each, job=job: each.jobs_j.get(job, 0.0)) for job in "ab"),
        *((lambda each, job=job: each.iterations.get(job, 0)) for job in "ab"),
    ):
        assert math.fsum(map(total, merged)) == pytest.approx(math.fsum(map(total, intervals)))
    gaps = [each for each in intervals if each.energy_j is None]
    assert [each for each in merged if each.energy_j is None] == gaps, "a time that is not known was changed"


def test_joules_told_milliseconds_late_belong_to_the_second_before() -> None:
    """Before, a device of at most 7 W showed 656 W, as the last sample is 3 ms after the one before."""
    ends_s = [1.0, 2.0, 3.0, 3.003, 4.003]
    spent_j = [5.0, 5.0, 1.5, 1.968, 1.5]
    begins_s = [0.0, *ends_s[:-1]]
    merged = coarser([interval(*each) for each in zip(begins_s, ends_s, spent_j, strict=True)], LEAST_S)
    assert [each.to_s for each in merged] == [1.0, 2.0, 3.003, 4.003]
    assert max(watts([each]) for each in merged) == 5.0
    assert watts([merged[2]]) == pytest.approx((1.5 + 1.968) / 1.003)


def test_many_short_intervals_do_not_become_one() -> None:
    edges_s = list(accumulate([0.0, *[0.4] * 50]))
    merged = coarser([interval(from_s, to_s, 1.0) for from_s, to_s in pairwise(edges_s)], LEAST_S)
    assert max(each.to_s - each.from_s for each in merged) < 2.5 * LEAST_S
