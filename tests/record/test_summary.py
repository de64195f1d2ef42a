"""Summary of a run, derived from its log."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import OpenLane, ProfileJob, StartJob
from ecoshare.core.events import (
    Config,
    Done,
    IterationsDone,
    JobArrived,
    JobExited,
    Profiled,
    RunOpened,
    StopRequested,
)
from ecoshare.knowledge.profile import IterationTimes
from ecoshare.record.accounts.energy_account import EnergyAccount, EnergyRate, account
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.plan_document import JobDocument, PlanDocument
from ecoshare.record.results.run_summary import RunSummary, outcomes, summarise
from ecoshare.record.results.sweep_summary import SweepSummary, ranked_configurations
from ecoshare.record.run_history import RunHistory
from ecoshare.record.samples import AttemptProgress, Line, Sample, Session
from ecoshare.reporting import exports
from tests.reporting.profiles import PROFILE

OPENED = RunOpened(0.0, 1, Config("fair"), (Device("cpu", "local", 1 << 30),))
USED = Usage(iterations=11, held_s=2.0, waited_s=5.0, span_s=10.0, cpu_s=4.0)


def plan(**limits: float | None) -> PlanDocument:
    return plan_of([JobDocument(name=name, job_class="c", slowdown_limit=limit) for name, limit in limits.items()])


def plan_of(jobs: list[JobDocument], policy: str = "fair", lanes: int = 1, device: str = "cpu") -> PlanDocument:
    """Plan of jobs on one device."""
    return PlanDocument(
        job_file="jobs.yaml",
        digest="",
        objective="energy",
        policy=policy,
        devices=[{"name": device, "kind": device.partition(":")[0]}],
        lanes=lanes,
        places_per_lane=1,
        profiles=None,
        notes=[],
        jobs=jobs,
    )


def story(name: str, outcome: Outcome, usage: Usage = USED) -> list[Any]:
    return [
        OPENED,
        OpenLane(1, 0, "cpu", 1 << 30),
        JobArrived(1.0, JobSpec(name, "c")),
        StartJob(2, name, 1, (0,), 1 << 30),
        Done(3.0, 2),
        JobExited(15.0, name, 1, outcome, 0 if outcome is Outcome.COMPLETED else 1, "why", usage),
    ]


def result(plan: PlanDocument, entries: list[Any], energy: EnergyAccount | None = None, **more: Any) -> RunSummary:
    """The summary of a run with this log; without an account, its joules are not known."""
    return summarise(plan, RunHistory(entries), RunEnergy({"cpu": energy or EnergyAccount()}), "r", **more)


def test_times_are_counted_from_the_arrival() -> None:
    job = result(plan(a=None), story("a", Outcome.COMPLETED)).jobs[0]
    assert (job.jct_s, job.queue_s, job.start_s) == (14.0, 2.0, 3.0)
    assert job.slowdown == 2.0 and job.error is None


def test_what_is_not_known_is_null() -> None:
    summary = result(plan(a=None), [OPENED])
    job = summary.jobs[0]
    assert [summary.energy, summary.makespan_s, summary.mean_jct_s] == [None] * 3
    assert [job.energy, job.jct_s, job.slowdown, job.exit_code] == [None] * 4
    assert job.state == "cancelled"


def energy_of(source: str) -> EnergyAccount:
    """Samples of job a by a meter of 40 W at rest: 10 iterations, 60 J more than idle."""
    session = Session(0.0, "cuda:0", "a meter", source, "gpu", "about it", 0.1, 40.0)
    last = Sample(2.0, 140.0, jobs={"a#1": AttemptProgress(0, 2.0, 10, 1, 4.0)})
    return account([session, Sample(0.0, 0.0), last], {"a": EnergyRate(6.0, 0.0, 0.02)}.get)


@pytest.mark.parametrize(("source", "of_the_job"), [("measured", "attributed"), ("modelled", "modelled")])
def test_joules_add_up_and_say_how_they_are_known(source: str, of_the_job: str) -> None:
    summary = result(plan(a=None), story("a", Outcome.COMPLETED), energy_of(source))
    job = summary.jobs[0]
    assert summary.energy is not None and job.energy is not None
    assert (summary.energy.source, job.energy.source) == (source, of_the_job)
    assert (summary.energy.value_j, summary.idle_energy_j) == (140.0, 80.0)
    assert job.energy.value_j == pytest.approx(60.0)
    assert job.energy_per_iteration_j == pytest.approx(60.0 / 11)
    assert (job.energy.standard_error_j is None) == (source == "modelled"), "a model has no standard error"


def test_a_window_costs_what_was_spent_in_it_beyond_the_work_done_there() -> None:
    """A window of 6 s at 70 W, of which 4 s are work that takes 90 W: 420 J less 360 J, and 2 s."""
    window = PROFILE.window.model_copy(update={"productive_s": 4.0, "total_s": 6.0})
    assert PROFILE.energy is not None
    energy = PROFILE.energy.model_copy(update={"power_w": 90.0})
    profile = PROFILE.model_copy(update={"job_class": "c", "window": window, "energy": energy})
    session = Session(0.0, "cuda:0", "a meter", "measured", "gpu", "about it", 0.1, 40.0)
    lines: list[Line] = [session, *(Sample(at_s, 70.0 * at_s) for at_s in range(0, 21, 2))]
    entries = [
        *story("a", Outcome.COMPLETED)[:5],
        IterationsDone(5.0, "a", USED),
        ProfileJob(7, "a", 1),
        Profiled(11.0, 7, None),
        IterationsDone(12.0, "a", USED),
        ProfileJob(8, "a", 1),
        Profiled(13.0, 8, None, "the job ended in its window"),
    ]
    summary = summarise(
        plan(a=None),
        RunHistory(entries),
        RunEnergy({"cpu": account(lines, lambda _job: None)}),
        "r",
        profiles={"c": profile},
    )
    first, second = summary.windows
    assert (first.from_s, first.to_s, first.error) == (5.0, 11.0, None)
    assert first.lost_s == pytest.approx(2.0) and first.cost_j == pytest.approx(60.0)
    assert (second.error, second.cost_j) == ("the job ended in its window", None)
    assert summary.search_energy_j == pytest.approx(60.0)


def test_without_windows_search_energy_is_zero_and_without_a_meter_unknown() -> None:
    assert result(plan(a=None), [OPENED], energy_of("measured")).search_energy_j == 0.0
    assert result(plan(a=None), [OPENED]).search_energy_j is None


def test_a_profile_tells_what_a_job_takes_alone() -> None:
    """Without turns: 11 iterations in 10 s, 5 of them waiting; alone the 10 between the ends take 2.5 s."""
    times = IterationTimes(count=100, mean_s=0.25, standard_error_s=None, median_s=0.25, p95_s=0.25)
    profile = PROFILE.model_copy(update={"job_class": "c", "train": times, "eval": None})
    two_lanes = plan(a=None).model_copy(update={"lanes": 2})
    job = summarise(
        two_lanes, RunHistory(story("a", Outcome.COMPLETED)), RunEnergy(), "r", profiles={"c": profile}
    ).jobs[0]
    assert job.interference == pytest.approx(2.0) and job.slowdown == pytest.approx(4.0)
    job = result(two_lanes, story("a", Outcome.COMPLETED)).jobs[0]
    assert job.interference is job.slowdown is None


@pytest.mark.parametrize(("limit", "met"), [(None, None), (2.5, True), (1.5, False)])
def test_a_slowdown_limit_is_judged(limit: float | None, met: bool | None) -> None:
    job = result(plan(a=limit), story("a", Outcome.COMPLETED)).jobs[0]
    assert job.slowdown_limit_met is met


def test_a_stopped_run_is_interrupted_until_it_is_resumed() -> None:
    first = [*story("a", Outcome.STOPPED), StopRequested(14.0, False)]
    assert result(plan(a=None), first).state == "interrupted"
    assert result(plan(a=None), story("a", Outcome.COMPLETED)[:-1]).state == "interrupted"
    live = result(plan(a=None), story("a", Outcome.COMPLETED)[:-1], live=True)
    assert (live.state, live.jobs[0].state) == ("running", "running")
    resumed = [*first, *story("a", Outcome.COMPLETED)]
    assert result(plan(a=None), resumed).state == "completed"


def test_a_table_for_spreadsheets_has_no_formulas() -> None:
    summary = result(plan(a=None), story("a", Outcome.FAILED))
    summary = replace(summary, jobs=(replace(summary.jobs[0], error="=HYPERLINK(1)"),))
    header, row = exports.table(summary).splitlines()
    assert header.split(",") == list(exports.COLUMNS)
    assert row.endswith("'=HYPERLINK(1)")


def test_a_window_that_was_cut_off_is_told_too() -> None:
    entries = [*story("a", Outcome.COMPLETED)[:5], ProfileJob(7, "a", 1), OPENED, ProfileJob(7, "a", 2)]
    windows = result(plan(a=None), entries, energy_of("measured")).windows
    assert [(each.to_s, each.cost_j) for each in windows] == [(None, None)] * 2
    assert all("in this window" in (each.error or "") for each in windows)


def test_a_job_with_a_lost_arrival_costs_only_its_jct() -> None:
    ended = story("a", Outcome.COMPLETED)[-1]
    summary = result(plan(a=None), [OPENED, ended])
    assert summary.jobs[0].state == "completed"
    assert summary.jobs[0].jct_s is None and summary.mean_jct_s is None


def test_a_sweep_is_judged_by_its_best_trial() -> None:
    def of(*states: str, exhausted: bool = True) -> dict[str, str]:
        counts = {state: states.count(state) for state in states}
        return outcomes([], [SweepSummary("s", "grid", states=counts, exhausted=exhausted)])

    assert of("completed", "failed", "pruned") == {"s": "completed"}
    assert of("failed", "pruned") == of() == {"s": "failed"}
    assert of("completed", "cancelled") == {"s": "cancelled"}, "more was to come"
    assert of("completed", exhausted=False) == of(exhausted=False) == {"s": "cancelled"}, "not all were drawn"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_configuration_that_owes_its_mean_to_one_lucky_trial_is_not_the_best(sign: int) -> None:
    values = {"good": [0.9, 1.0, 1.1], "lucky": [0.96], "bad": [2.9, 3.1], "lost": [math.nan, 1.0]}
    told = [(f"{name}.{n}", (("lr", name),), sign * each) for name, own in values.items() for n, each in enumerate(own)]
    found = ranked_configurations(told, maximise=sign < 0)
    assert [result.values["lr"] for result in found] == ["good", "lucky", "bad", "lost"]
    deviation = math.sqrt((0.02 + 0.02) / 3)
    assert [result.error for result in found[:2]] == pytest.approx([deviation / math.sqrt(3), deviation])
    alone = ranked_configurations(each for each in told if each[0].endswith(".0"))
    assert {result.error for result in alone} == {None}, "without a repetition no error is known"
