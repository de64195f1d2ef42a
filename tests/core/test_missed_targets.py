"""A target is missed for a minute if more than one request in a hundred of that minute is late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.settings.service_targets import SPAN_S, Missed, TargetWatch


def seconds(watch: TargetWatch, begin: int, counts: list[tuple[int, int]]) -> list[tuple[int, Missed]]:
    """Verdicts on seconds with these requests and late requests, each with its time."""
    found = [(begin + place, watch.saw(begin + place, *each)) for place, each in enumerate(counts)]
    return [(at_s, missed) for at_s, missed in found if missed is not None]


def test_a_target_is_missed_after_a_minute_and_not_before() -> None:
    assert seconds(TargetWatch(0.0), 1, [(100, 2)] * 180) == [
        (60, Missed(6000, 120)),
        (120, Missed(6000, 120)),
        (180, Missed(6000, 120)),
    ]


@pytest.mark.parametrize("late", [0, 1])
def test_one_late_request_in_a_hundred_is_allowed(late: int) -> None:
    assert not seconds(TargetWatch(0.0), 1, [(100, late)] * 200)


def test_one_bad_second_counts_only_with_enough_late_requests() -> None:
    assert not seconds(TargetWatch(0.0), 1, [(100, 0)] * 30 + [(100, 50)] + [(100, 0)] * 100)
    [(at_s, missed)] = seconds(TargetWatch(0.0), 1, [(100, 0)] * 30 + [(100, 100)] + [(100, 0)] * 100)
    assert (at_s, missed) == (60, Missed(6000, 100))


def test_old_requests_are_forgotten_and_an_idle_service_misses_nothing() -> None:
    watch = TargetWatch(0.0)
    assert not seconds(watch, 1, [(10, 10)] * 30)
    assert not seconds(watch, 500, [(0, 0)] * 100), "the late ones are long past"
    assert not seconds(TargetWatch(0.0), 1, [(0, 0)] * 100)


@given(counts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=300))
def test_verdicts_are_those_of_the_last_minute(counts: list[tuple[int, int]]) -> None:
    """Each verdict names the requests of its own span, spans do not overlap, and none is left out."""
    counts = [(requests + late, late) for requests, late in counts]
    told = dict(seconds(TargetWatch(0.0), 1, counts))
    begin = 0
    for at_s in range(1, len(counts) + 1):
        span = counts[max(begin, at_s - int(SPAN_S)) : at_s]
        requests, late = sum(each[0] for each in span), sum(each[1] for each in span)
        is_missed = at_s - begin >= SPAN_S and 100 * late > requests
        assert told.get(at_s) == (Missed(requests, late) if is_missed else None)
        begin = at_s if is_missed else begin
