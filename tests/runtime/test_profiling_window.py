"""Profiling windows in virtual time: how long they last while other jobs wait for their end, and while none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.runtime.measuring.profiling_window import DEFAULT_LIMITS, Limits
from tests.virtual.lanes import Fate
from tests.virtual.run import World, check, run


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


@pytest.mark.parametrize("driver_s", [0.0, 0.4])
@pytest.mark.slow
def test_as_many_iterations_are_measured_as_were_asked_for(driver_s: float, tmp_path: Path) -> None:
    """Before, iterations that ended while the driver of the meter took its time were counted, and not measured."""
    world = World(tmp_path, {("a", 1): Fate(iterations=2000, iteration_s=0.025)}, driver_s=driver_s)
    finished = run(world, [{"name": "a"}], window=Limits(iterations=40), store=ProfileStore(tmp_path / "profiles"))
    (made,) = finished.made.values()
    assert made.train is not None and 40 <= made.train.count <= 42
    assert made.train.mean_s == pytest.approx(0.025)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.slow
def test_each_class_is_measured_alone_and_the_other_job_goes_on_afterwards(lanes: int, tmp_path: Path) -> None:
    fates = {(name, 1): Fate(iterations=number, iteration_s=0.05) for name, number in (("a", 400), ("b", 500))}
    world, store = World(tmp_path, fates), ProfileStore(tmp_path / "profiles")
    jobs = [{"name": name, "args": [name]} for name in "ab"]
    finished = run(world, jobs, policy="fair", lanes=lanes, jobs_per_lane=2 // lanes, store=store)
    check(finished)
    summary = finished.data.summary
    assert [job.iterations for job in summary.jobs] == [400, 500]
    assert [window.job for window in summary.windows] == ["a", "b"] and not any(each.error for each in summary.windows)
    for window, made in zip(summary.windows, finished.made.values(), strict=True):
        assert made == store.find(made.job_class) and made.window.paused_jobs == 1
        assert made.train is not None and made.train.mean_s == pytest.approx(0.05), "no other job is in its times"
        assert made.window.measured_s >= DEFAULT_LIMITS.shortest_s and window.to_s is not None
        assert window.to_s - window.from_s == pytest.approx(made.window.total_s, abs=0.5)
