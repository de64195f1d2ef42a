"""No saving is claimed from a profile that cannot be relied on."""

from __future__ import annotations

from typing import Any

import pytest

from ecoshare.profiling.profile import IterationTimes, Profile
from ecoshare.record.baseline import Baseline
from ecoshare.record.energy_summary import DeviceEnergy
from ecoshare.record.job_summary import JobSummary
from ecoshare.record.profile_doubts import too_fast, uncertain
from ecoshare.record.run_summary import RunSummary
from ecoshare.record.service_summary import ServiceSummary
from ecoshare.reporting.verdicts import sharing
from ecoshare.values.attempt import Usage
from tests.reporting.profiles import PROFILE


def profile_of(error: float | None, doubt: str = "") -> Profile:
    """Profile of 0.1 s an iteration with this relative standard error."""
    standard_error_s = None if error is None else 0.1 * error
    train = IterationTimes(count=80, mean_s=0.1, standard_error_s=standard_error_s, median_s=0.1, p95_s=0.1)
    return PROFILE.model_copy(update={"train": train, "eval": None, "doubt": doubt})


def test_a_job_that_is_faster_beside_others_than_alone_shows_that_its_profile_is_stale() -> None:
    def used(working_s: float, iterations: int = 100) -> Usage:
        return Usage(iterations=iterations, span_s=20.0 + working_s, waited_s=20.0)

    assert too_fast(used(3.4), 10.0, profile_of(0.01)) == ("ran 2.9 times as fast as its profile says it runs alone")
    assert not too_fast(used(9.5), 10.0, profile_of(0.01)), "seeds and clocks differ"
    assert not too_fast(used(7.0), 10.0, profile_of(0.15)), "the profile says itself that it may be so"
    assert not too_fast(used(3.4, iterations=5), 10.0, profile_of(0.01)), "five iterations tell nothing"
    assert not too_fast(used(3.4), None, None)


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (profile_of(0.02), ""),
        (profile_of(0.231), "the profile of hf is uncertain (±23 %)"),
        (profile_of(None), "the error of the profile of hf is not known"),
        (profile_of(0.01, "other programs kept 1.9 of 2 processors busy"), "the profile of hf is not relied on ("),
        (None, "hf has no profile"),
    ],
)
def test_why_no_saving_is_claimed(profile: Profile | None, why: str) -> None:
    told = uncertain(JobSummary("hf", "c", iterations=100), profile)
    assert told.startswith(why) and bool(told) == bool(why)


@pytest.mark.parametrize(
    ("iterations", "evals", "why"),
    [
        (300, 0, ""),
        (300, 1, ""),
        (300, 6, ""),
        (300, 7, "no inference iteration of hf is in its profile"),
        (0, 1, "no"),
    ],
)
def test_a_few_inference_iterations_at_the_end_keep_nothing_from_being_said(
    iterations: int, evals: int, why: str
) -> None:
    """Two of the six examples evaluate once, after their window; without this rule no first run had a claim."""
    told = uncertain(JobSummary("hf", "c", iterations=iterations, eval_iterations=evals), profile_of(0.02))
    assert told.startswith(why) and bool(told) == bool(why)


def with_tests(error: float | None) -> Profile:
    """Profile with two inference iterations of 0.05 s, with this relative standard error."""
    error_s = None if error is None else 0.05 * error
    tests = IterationTimes(count=2, mean_s=0.05, standard_error_s=error_s, median_s=0.05, p95_s=0.05)
    return profile_of(0.02).model_copy(update={"eval": tests})


@pytest.mark.parametrize(
    ("evals", "error", "why"),
    [
        (30, None, ""),  # 1.5 s of 31.5 s are unknown: 5 %, and 2 % of the rest
        (60, None, "the profile of hf is uncertain (±11 %)"),
        (60, 0.1, ""),
        (60, 2.0, "the profile of hf is uncertain (±20 %)"),
    ],
)
def test_an_error_counts_by_the_time_of_its_kind_of_iteration(evals: int, error: float | None, why: str) -> None:
    """A first run of the examples had no claim while 24 of 408 iterations of one job lacked an error."""
    assert uncertain(JobSummary("hf", "c", iterations=300, eval_iterations=evals), with_tests(error)) == why


ONE = JobSummary("one", "c", attempts=1)


def summary(**changes: Any) -> RunSummary:
    known = {
        "exclusive_energy_j": 78.8,
        "exclusive_energy_error_j": 1.6,
        "exclusive_makespan_s": 33.8,
        "exclusive_makespan_error_s": 0.7,
    }
    baseline = Baseline(**{**known, **changes.pop("baseline", {})})
    energy = DeviceEnergy(60.0, "modelled", "gpu")
    made: dict[str, Any] = {"jobs": (ONE, ONE), "energy": energy, "makespan_s": 18.8, **changes}
    return RunSummary("r", "energy", "energy", (), 1, "completed", baseline=baseline, **made)


def test_the_first_line_says_what_sharing_saved_with_its_error() -> None:
    assert sharing(summary()) == (
        "sharing saved 15 s (44 % ± 2.1 %) and 18.8 J (24 % ± 2.0 %): "
        "one after the other takes 33.8 s and 78.8 J by the profiles (joules modelled)"
    )


def test_the_first_line_says_what_sharing_cost() -> None:
    told = sharing(summary(makespan_s=40.0, baseline={"exclusive_energy_j": None}))
    assert told.startswith("sharing cost 6.2 s (18 % ± 2.1 %): one after the other takes 33.8 s by")


def test_a_difference_within_its_error_is_none() -> None:
    told = sharing(summary(makespan_s=33.5, baseline={"exclusive_energy_j": None}))
    assert told.startswith("sharing neither saved nor cost more than the error: 300 ms (0.9 % ± 2.1 %)")


def test_the_first_line_says_why_nothing_is_known() -> None:
    reasons = ["the profile of hf is uncertain (±23 %); `ecoshare profile hf.py` measures it", "b has no profile"]
    told = sharing(summary(baseline={"unknown": tuple(reasons)}))
    assert told == f"what sharing saved is not known: {reasons[0]}, and 1 more"
    assert sharing(summary(jobs=(ONE,))) == "", "one job alone shares nothing"


def service(name: str, **changes: Any) -> JobSummary:
    found = {"target_s": 0.05, "met": True, "arrived": 200, "answered": 200, "late": 1, "p99_s": 0.04}
    return JobSummary(name, "s", attempts=1, service=ServiceSummary(**{**found, **changes}))


def test_the_first_line_of_a_run_with_services_is_about_their_targets() -> None:
    silent = {"met": None, "arrived": 0, "answered": 0, "late": 0, "p99_s": None}
    one, late, idle = service("a"), service("b", met=False, p99_s=0.06), service("c", **silent)
    assert sharing(summary(jobs=(one, ONE))) == "a answered 199 of 200 requests in time: p99 40 ms, target 50 ms"
    assert sharing(summary(jobs=(one, late, ONE))) == "1 of 2 services kept their targets"
    assert sharing(summary(jobs=(one, idle))) == "1 of 2 services kept their targets, and 1 had no requests"
    assert sharing(summary(jobs=(idle,))) == "c answered no request"
