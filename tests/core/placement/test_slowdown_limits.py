"""Least speed that a job must keep from now on for its slowdown limit."""

from __future__ import annotations

import pytest

from ecoshare.base.attempt import Usage
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.placement.limits import HORIZON_S, least_speed
from ecoshare.core.records import Job

ITERATION_S = 0.1


def job(limit: float | None, iterations: int | None, done: int, wall_s: float) -> Job:
    made = Job(JobSpec("a", "a", iterations=iterations, slowdown_limit=limit), 0.0)
    made.tell(Usage(iterations=1), 5.0)  # at the first boundary
    made.tell(Usage(iterations=done), 5.0 + wall_s)
    return made


def test_without_a_limit_any_speed_will_do() -> None:
    assert least_speed(job(None, 1000, 10, 500.0), ITERATION_S) == 0.0


def test_before_anything_is_known_it_is_that_of_the_limit() -> None:
    assert least_speed(Job(JobSpec("a", "a", slowdown_limit=2.0), 0.0), ITERATION_S) == 0.5
    waits = Job(JobSpec("a", "a", iterations=1000, slowdown_limit=2.0), 0.0)
    assert least_speed(waits, ITERATION_S, lost_s=75.0) == pytest.approx(100.0 / 125.0), "before its first boundary"
    assert least_speed(job(2.0, 1000, 100, 80.0), None) == 0.5, "its time alone is unknown"


def test_what_was_lost_is_made_up_for_by_the_end() -> None:
    """A job of 100 s alone may take 200 s: 100 s are gone, and 80 s of work are left."""
    late = job(2.0, 1000, 200, 100.0)
    assert least_speed(late, ITERATION_S) == pytest.approx(0.8)
    assert least_speed(late, ITERATION_S, lost_s=10.0) == pytest.approx(80.0 / 90.0)


def test_what_was_gained_is_not_used_up() -> None:
    assert least_speed(job(2.0, 1000, 500, 50.0), ITERATION_S) == 0.5


def test_a_job_that_has_missed_its_limit_gets_the_whole_device() -> None:
    assert least_speed(job(1.5, 1000, 100, 140.0), ITERATION_S) == 1.0


def test_a_job_of_unknown_length_makes_up_for_it_soon() -> None:
    done_s, wall_s = 10.0, 40.0
    late = job(2.0, None, 100, wall_s)
    assert least_speed(late, ITERATION_S) == pytest.approx(HORIZON_S / (2.0 * (done_s + HORIZON_S) - wall_s))


def test_a_job_that_does_more_than_it_was_said_to_do_is_one_of_unknown_length() -> None:
    """Else a number that is too small would say that no work is left to make up with."""
    late, unknown = job(2.0, 90, 100, 40.0), job(2.0, None, 100, 40.0)
    assert least_speed(late, ITERATION_S) == least_speed(unknown, ITERATION_S) > 0.5


def test_the_time_of_evaluation_alone_is_unknown() -> None:
    made = job(2.0, 1000, 100, 100.0)
    made.tell(Usage(iterations=100, eval_iterations=50), 110.0)
    assert least_speed(made, ITERATION_S) == 0.5
