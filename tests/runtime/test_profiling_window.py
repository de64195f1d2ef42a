"""Limits of a profiling window: how long it lasts while other jobs wait for its end, and while none does."""

from __future__ import annotations

import pytest

from ecoshare.runtime.profiling_window import Limits


@pytest.mark.parametrize(
    ("error", "others_wait", "settled"),
    [(0.02, False, True), (0.03, False, False), (0.03, True, True), (0.06, True, False), (None, True, False)],
)
def test_a_time_that_is_known_roughly_suffices_while_others_wait(
    error: float | None, others_wait: bool, settled: bool
) -> None:
    assert Limits().settles(error, others_wait) is settled


def test_no_job_waits_longer_so_that_the_observation_of_memory_looks_cheap() -> None:
    limits = Limits(overhead=0.025, longest_s=12.0)
    assert not limits.may_end(3.0, 0.1, True, others_wait=False)
    assert limits.may_end(4.0, 0.1, True, others_wait=False)
    assert limits.may_end(3.0, 0.1, True, others_wait=True)


def test_the_window_of_a_job_that_tests_its_model_lasts_long_enough_to_see_a_test() -> None:
    limits = Limits()
    assert limits.least_s(is_measured=False, has_tests=False, others_wait=True) == limits.plain_s
    assert limits.least_s(is_measured=False, has_tests=True, others_wait=True) == limits.modelled_s
    assert limits.least_s(is_measured=False, has_tests=False, others_wait=False) == limits.modelled_s
    assert limits.least_s(is_measured=True, has_tests=False, others_wait=True) == limits.shortest_s
    assert limits.plain_s < limits.modelled_s < limits.shortest_s


def test_a_time_that_does_not_settle_ends_with_the_longest_window() -> None:
    assert not Limits().may_end(11.9, 0.0, False, others_wait=True)
    assert Limits().may_end(12.0, 0.0, False, others_wait=True)
