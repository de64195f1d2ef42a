"""Jobs that the tables of a report show: of very many jobs only some."""

from __future__ import annotations

from ecoshare.common.plural import counted
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.results.sweep_summary import ranked

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
