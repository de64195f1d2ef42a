"""Table of the jobs of a report: the most important columns first, all details below.

The main columns fit a page of 800 pixels without scrolling. If there are many jobs, only the first rows are shown, jobs
that did not complete before the others. The other rows and columns fold out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy, format_size
from ecoshare.record.results.energy_summary import DeviceEnergy, JobEnergy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.results.sweep_summary import ranked
from ecoshare.reporting.figures import with_steps

_MOST_TRIALS = 100
"""Most trials of all sweeps in the tables of jobs: the best ones, then failed ones."""
_MOST_JOBS = 500
"""Most jobs in these tables: those that did not complete, then those with the longest JCT."""


def shown_jobs(summary: RunSummary) -> list[JobSummary]:
    """Jobs for the tables, at most `_MOST_JOBS`, in the order of the summary."""
    jobs = _without_most_trials(summary)
    if len(jobs) <= _MOST_JOBS:
        return jobs
    ranked = sorted(jobs, key=lambda job: (job.state == "completed", -(job.jct_s or 0.0)))
    kept = {job.name for job in ranked[:_MOST_JOBS]}
    return [job for job in jobs if job.name in kept]


def _without_most_trials(summary: RunSummary) -> list[JobSummary]:
    """Jobs without a sweep, and the best and failed trials, at most `_MOST_TRIALS`."""
    trials = [job for job in summary.jobs if job.sweep is not None]
    if len(trials) <= _MOST_TRIALS:
        return list(summary.jobs)
    goals = {sweep.name: sweep.goal for sweep in summary.sweeps}
    best = [
        job
        for name, goal in goals.items()
        for job in ranked((job for job in trials if job.sweep == name), goal)[: _MOST_TRIALS // (2 * len(goals))]
    ]
    failed = [job for job in trials if job.state == "failed"]
    kept = {job.name for job in [*best, *failed][:_MOST_TRIALS]}
    return [job for job in summary.jobs if job.sweep is None or job.name in kept]


def left_out_words(summary: RunSummary, shown: list[JobSummary]) -> str:
    """Sentences about jobs that the tables do not show; empty if they show all."""
    names = {job.name for job in shown}
    missing = [job for job in summary.jobs if job.name not in names]
    jobs = sum(job.sweep is None for job in missing)
    trials = len(missing) - jobs
    words = []
    if trials:
        words.append(f"{counted(trials, 'trial is', 'trials are')} left out: neither the best nor failed.")
    if jobs:
        short = counted(jobs, "job with a shorter JCT is", "jobs with a shorter JCT are")
        words.append(f"{short} left out; `ecoshare export --format csv` has all.")
    return " ".join(words)


NOT_KNOWN = "not known"
_MOST_ROWS = 30
"""Most rows in sight. The rest folds out, unless it has at most `_SLACK` rows."""
_SLACK = 5
_MAIN = ("job", "state", "JCT", "slowdown", "energy", "queued", "iterations", "peak memory")
LESSER = ("queued", "iterations", "peak memory")
"""Columns of the main table that a narrow page drops."""

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class JobTable:
    """Rows of all jobs, ready to be shown.

    Attributes:
        first: Rows in sight; each maps columns to cells.
        more: Rows that fold out below `first`; empty if all rows are in sight.
        details: All columns of all jobs.
        sorted: Whether jobs that did not complete were moved to the top.
    """

    first: list[Row]
    more: list[Row]
    details: list[Row]
    sorted: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of `first` and `more`, in order."""
        return _MAIN


def job_table(jobs: Sequence[JobSummary]) -> JobTable:
    """The table of jobs of a summary, in their order; if there are many, jobs that did not complete come first."""
    is_long = len(jobs) > _MOST_ROWS + _SLACK
    ordered = sorted(jobs, key=lambda job: job.state in ("completed", "pruned")) if is_long else list(jobs)
    details = [details_of(job) for job in ordered]
    rows = [{name: each[name] for name in _MAIN} for each in details]
    cut = _MOST_ROWS if is_long else len(rows)
    return JobTable(rows[:cut], rows[cut:], details, is_long and ordered != list(jobs))


def details_of(job: JobSummary) -> Row:
    """All cells of a job by column."""
    per_iteration_j = job.energy_per_iteration_j
    source = job.energy.source if job.energy is not None else ""
    step = " an optimizer step" if job.by_steps else ""
    return {
        "job": job.name,
        "class": job.job_class,
        "state": job.state,
        "exit code": or_not_known(job.exit_code),
        "attempts": or_not_known(job.attempts),
        "started in lane": ", ".join(map(str, job.lanes)) or "none",
        "device": ", ".join(job.devices) or "none",
        "iterations": with_steps(str(job.iterations), job.by_steps),
        "of evaluation": or_not_known(job.eval_iterations),
        "arrival": _duration(job.arrival_s),
        "start": _duration(job.start_s),
        "finish": _duration(job.finish_s),
        "JCT": _duration(job.jct_s),
        "queued": _duration(job.queue_s),
        "slowdown": _ratio(job.slowdown),
        "slowdown limit": {None: "none, or " + NOT_KNOWN, True: "kept", False: "broken"}[job.slowdown_limit_met],
        "interference": _ratio(job.interference),
        "stretch": _ratio(job.stretch),
        "held the turn": _duration(job.held_s),
        "hand-overs": or_not_known(job.handovers),
        "longest wait": _duration(job.longest_wait_s),
        "kept its lane": job.keeps_lane or "no",
        "parked": f"{counted(job.parks, 'time')}, {format_duration(job.parked_s)}" if job.parks else "never",
        "peak memory": NOT_KNOWN if job.peak_memory_bytes is None else format_size(job.peak_memory_bytes),
        "energy": energy_words(job.energy),
        "per iteration": NOT_KNOWN if per_iteration_j is None else f"{format_energy(per_iteration_j)} {source}{step}",
    }


def energy_words(value: DeviceEnergy | JobEnergy | None) -> str:
    """Joules with their standard error and source, or `NOT_KNOWN`."""
    if value is None:
        return NOT_KNOWN
    error_j = value.standard_error_j
    error = f" ± {format_energy(error_j)}" if error_j else ""
    return f"{format_energy(value.value_j)}{error} {value.source}"


def _duration(value_s: float | None) -> str:
    return NOT_KNOWN if value_s is None else format_duration(value_s)


def _ratio(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.2f}"


def or_not_known(value: Any) -> str:
    return NOT_KNOWN if value is None else str(value)
