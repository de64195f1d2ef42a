"""Widths by water-filling: the rule itself, and its distance from the shortest schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.policies.fluid import poured as with_the_rest
from ecoshare.core.policies.fluid import widths

HOURS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


MOMENTS = 12
"""Moments in an hour: trials of whole hours at 1/2, 1, 2, 3 or 4 GPUs take whole numbers of moments."""


def ends(moments: Sequence[int], slots: Sequence[int], all_slots: int) -> int:
    """End of the last trial, if each begins as early as there are slots beside the earlier trials.

    Slots are one number without a place on a GPU, so the end is never later than on real GPUs.
    """
    planned: list[tuple[int, int, int]] = []  # from, until, slots
    for length, wide in zip(moments, slots, strict=True):
        starts = sorted({0, *(until for _, until, _ in planned)})
        begin = next(start for start in starts if _most_used(planned, start, start + length) + wide <= all_slots)
        planned.append((begin, begin + length, wide))
    return max(until for _, until, _ in planned)


def _most_used(planned: Sequence[tuple[int, int, int]], begin: int, end: int) -> int:
    moments = [begin, *(since for since, _, _ in planned if begin < since < end)]
    return max(sum(used for since, until, used in planned if since <= each < until) for each in moments)


def shortest(hours: Sequence[int], gpus: int, places: int, most: int) -> Fraction:
    """Shortest schedule over all fixed widths and all orders, with each trial as early as it fits.

    The orders include that of a shortest schedule for trials that are not stopped and do not change their width.
    """
    choices = sorted({1, *(places * each for each in range(1, min(most, gpus) + 1))})
    orders = list(permutations(range(len(hours))))
    best = min(
        ends(
            [MOMENTS * hours[place] * places // slots[place] for place in order],
            [slots[place] for place in order],
            gpus * places,
        )
        for slots in product(choices, repeat=len(hours))
        for order in orders
    )
    return Fraction(best, MOMENTS)


def poured(hours: Sequence[int], gpus: int, places: int, most: int) -> Fraction:
    """End of the schedule on real GPUs with the rule's widths, longest first; trials below 1 get places on a GPU."""
    wide = [Fraction(each).limit_denominator(places) for each in widths(hours, gpus, 1 / places, most)]
    free = [[Fraction(0)] * places for _ in range(gpus)]  # when each place is free
    last = Fraction(0)
    for place in sorted(range(len(hours)), key=lambda place: -hours[place]):
        length = hours[place] / wide[place]
        if wide[place] > Fraction(1, places):
            chosen = [row for row in free if not any(row)][: int(wide[place])]
            assert len(chosen) == wide[place], "all that have whole GPUs begin at once"
            for row in chosen:
                row[:] = [length] * places
        else:
            row = min(free, key=min)
            number = row.index(min(row))
            length += row[number]
            row[number] = length
        last = max(last, length)
    return last


def test_the_example_of_the_module() -> None:
    assert widths([16, 7, 3, 2], 4, 1 / 2, 4) == [2, 1, 1 / 2, 1 / 2]


@pytest.mark.parametrize("each", [0.1, 1 / 3, 7.7, 1e-9, 1e12])
def test_as_many_equal_trials_as_gpus_have_one_each(each: float) -> None:
    """Rounding puts no trial on a share of a GPU."""
    for trials in range(1, 60):
        assert widths([each] * trials, trials, 1 / 4, 8) == [1.0] * trials, trials


def test_a_trial_is_as_wide_as_it_can_use_at_most() -> None:
    assert widths([10.0], 8, 1 / 2, 4) == [4]
    assert widths([10.0, 10.0], 8, 1 / 2, [1, 8]) == [1, 4]


def test_trials_that_need_nothing_more_share_alike() -> None:
    assert widths([0.0, 0.0], 4, 1 / 2, 8) == [2, 2]
    assert widths([1.0, 0.0], 4, 1 / 2, 8) == [4, 1 / 2]
    assert widths([], 4, 1 / 2, 8) == []


@pytest.mark.parametrize(
    ("hours", "gpus", "share", "most", "words"),
    [
        ([1.0], 0, 0.5, 1, "0 GPUs: expected at least 1"),
        ([1.0], 1, 0.0, 1, "a smallest share of 0: expected more than 0, and at most 1"),
        ([1.0], 1, 1.5, 1, "a smallest share of 1.5: expected more than 0, and at most 1"),
        ([-1.0], 1, 0.5, 1, "a trial of -1 hours: expected a number from 0"),
        ([math.nan], 1, 0.5, 1, "a trial of nan hours: expected a number from 0"),
        ([1.0, math.inf], 1, 0.5, 1, "a trial of inf hours: expected a number from 0"),
        ([1.0], 1, 0.5, 0, "a largest width of 0: expected at least 1"),
        ([1.0], 1, 0.5, [1, 1], "largest widths of 2 trials, and hours of 1"),
    ],
)
def test_what_is_out_of_range_is_refused(
    hours: list[float], gpus: int, share: float, most: int | list[int], words: str
) -> None:
    with pytest.raises(ValueError, match=f"^{words}$"):
        widths(hours, gpus, share, most)


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30), st.integers(1, 64), st.integers(1, 8), st.integers(1, 16)
)
def test_what_is_poured(hours: list[float], gpus: int, places: int, most: int) -> None:
    """Whole GPUs sum up to at most the number of GPUs, and a longer trial is never narrower."""
    wide = widths(hours, gpus, 1 / places, most)
    assert sum(each for each in wide if each >= 1 and places > 1) <= gpus
    assert all(each == 1 / places or each == int(each) for each in wide)
    by_hours = [each for _, each in sorted(zip(hours, wide, strict=True))]
    assert by_hours == sorted(by_hours)


@given(HOURS, st.integers(1, 4), st.integers(1, 2), st.integers(1, 4))
def test_it_ends_within_twice_the_shortest_time(hours: list[int], gpus: int, places: int, most: int) -> None:
    """The bound holds if the speed of a trial is linear in its width, and at most two share a GPU."""
    best = shortest(hours, gpus, places, most)
    ours = poured(hours, gpus, places, most)
    assert max(Fraction(sum(hours), gpus), Fraction(max(hours), most)) <= best <= ours <= 2 * best


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 32), st.integers(1, 2), st.integers(1, 8)
)
def test_it_ends_within_twice_what_no_schedule_beats(hours: list[int], gpus: int, places: int, most: int) -> None:
    """The bound for many trials: all GPUs work until the end, or the longest trial has its largest width."""
    bound = max(Fraction(sum(hours), gpus), Fraction(max(hours), most))
    assert poured(hours, gpus, places, most) <= 2 * bound


def test_with_more_to_a_gpu_the_bound_needs_more_than_the_smallest_share() -> None:
    """Two trials of nearly a GPU each, beside a short one, take four times as long at a quarter of a GPU each."""
    hours = [99, 99, 2]
    assert poured(hours, 2, 4, 2) > Fraction(39, 10) * Fraction(sum(hours), 2)


def test_what_rounding_down_leaves_is_given_away() -> None:
    assert with_the_rest([1.0] * 5, 8, 1 / 2, 8) == [2, 2, 2, 1, 1]
    assert with_the_rest([4.0, 1.0, 1.0], 4, 1 / 2, 8) == [2, 1, 1], "no trial shares a GPU while one is idle"
    assert with_the_rest([1.0] * 3, 2, 1 / 2, 8) == [1 / 2] * 3
    assert with_the_rest([5.0, 5.0], 8, 1 / 2, [1, 2]) == [1, 2], "no trial can use more"


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30), st.integers(1, 32), st.integers(1, 4), st.integers(1, 16)
)
def test_no_trial_gets_less_from_the_rest(hours: list[float], gpus: int, places: int, most: int) -> None:
    """No GPU is idle while a trial that shares one, or could be wider, has work left."""
    before = widths(hours, gpus, 1 / places, most)
    after = with_the_rest(hours, gpus, 1 / places, most)
    assert all(one <= other for one, other in zip(before, after, strict=True))
    idle = gpus - sum(each for each in after if each >= 1) - sum(each < 1 for each in after)
    assert idle <= 0 or all(each == most or not hour for each, hour in zip(after, hours, strict=True))
    assert places == 1 or sum(each for each in after if each >= 1) <= gpus
