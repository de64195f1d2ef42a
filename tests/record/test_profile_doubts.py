"""No saving is claimed from a profile that cannot be relied on."""

from __future__ import annotations

from typing import Any

from ecoshare.base.attempt import Usage
from ecoshare.knowledge.profile import IterationTimes, Profile
from ecoshare.record.results.baseline import Baseline
from ecoshare.record.results.energy_summary import DeviceEnergy
from ecoshare.record.results.job_summary import JobSummary, too_fast
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.reporting.tables.run_table import sharing
from tests.reporting.profiles import PROFILE


def profile_of(error: float | None, doubt: str = "") -> Profile:
    """Profile of 0.1 s an iteration with this relative standard error."""
    standard_error_s = None if error is None else 0.1 * error
    train = IterationTimes(count=80, mean_s=0.1, standard_error_s=standard_error_s, median_s=0.1, p95_s=0.1)
    return PROFILE.model_copy(update={"train": train, "eval": None, "doubt": doubt})


def test_a_job_that_is_faster_beside_others_than_alone_shows_that_its_profile_is_stale() -> None:
    def used(working_s: float, iterations: int = 100) -> Usage:
        return Usage(iterations=iterations, span_s=20.0 + working_s, waited_s=20.0)

    assert too_fast(used(3.4), profile_of(0.01)) == ("ran 2.9 times as fast as its profile says it runs alone")
    assert not too_fast(used(9.5), profile_of(0.01)), "seeds and clocks differ"
    assert not too_fast(used(7.0), profile_of(0.15)), "the profile says itself that it may be so"
    assert not too_fast(used(3.4, iterations=5), profile_of(0.01)), "five iterations tell nothing"
    assert not too_fast(used(3.4), None)


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
        "one after the other takes 33.8 s and 78.8 J (joules modelled)"
    )


def test_the_first_line_says_what_sharing_cost() -> None:
    told = sharing(summary(makespan_s=40.0, baseline={"exclusive_energy_j": None}))
    assert told.startswith("sharing cost 6.2 s (18 % ± 2.1 %): one after the other takes 33.8 s")


def test_the_time_of_other_runs_costs_no_run_its_savings() -> None:
    told = sharing(summary(makespan_s=48.8, away_s=30.0, baseline={"exclusive_energy_j": None}))
    assert told == (
        "sharing saved 15 s (44 % ± 2.1 %): one after the other takes 33.8 s, without the time of other runs"
    )


def test_a_difference_within_its_error_is_none() -> None:
    told = sharing(summary(makespan_s=33.5, baseline={"exclusive_energy_j": None}))
    assert told.startswith("sharing neither saved nor cost more than the error: 300 ms (0.9 % ± 2.1 %)")


def test_the_first_line_says_why_nothing_is_known() -> None:
    reasons = [
        "no iteration of hf was alone, and no profile tells its time; `ecoshare profile hf.py` measures it",
        "b is a service",
    ]
    told = sharing(summary(baseline={"unknown": tuple(reasons)}))
    assert told == f"what sharing saved is not known: {reasons[0]}; {reasons[1]}"
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
