"""Result of `isolation: lane`: the number of jobs that shared a process, and why others did not."""

from __future__ import annotations

from typing import Any

from ecoshare.common.plural import counted
from ecoshare.record.run_history import RunHistory
from ecoshare.values.attempt import Outcome
from ecoshare.values.job_spec import JobSpec

_MOST_REASONS = 3


def fused_words(history: RunHistory) -> list[str]:
    """Lines about the jobs that may share a process; none if no such job started.

    Args:
        history: History of the run.
    """
    specs = {name: job.spec for name, job in history.jobs.items() if job.spec is not None and job.spec.fused}
    refused = {(each.job, each.number) for each in history.attempts if each.was_refused}
    commands = [command for name in specs for command in history.jobs[name].starts.values()]
    started = {key: each for each in commands if (key := (each.job, each.attempt)) not in refused}
    exits = sorted((event for job in history.jobs.values() for event in job.exits.values()), key=lambda each: each.at_s)
    moved = {(each.job, each.attempt): each.reason for each in exits if each.outcome is Outcome.MOVED_OUT}
    if not started:
        return []
    shared = {key: each for key, each in started.items() if each.fused and key not in moved}
    jobs = {job for job, _ in shared}
    # Each lane and script has one process. A process that replaced a dead one is not counted.
    processes = {(each.lanes, _script(specs[each.job])) for each in shared.values()}
    alone = {job for job, _ in started} - jobs - {job for job, _ in moved}
    parts = [f"{counted(len(jobs), 'job')} ran in {counted(len(processes), 'shared process', 'shared processes')}"]
    if alone:
        why = "a process is shared no more once a job was moved out" if moved else "until their memory was known"
        parts.append(f"{len(alone)} in {'a process of its' if len(alone) == 1 else 'processes of their'} own ({why})")
    lines = [f"isolation lane: {', '.join(parts)}"]
    lines += [f"moved out to a process of its own: {job}: {reason}" for (job, _), reason in moved.items()][
        :_MOST_REASONS
    ]
    if len(moved) > _MOST_REASONS:
        lines.append(f"{counted(len(moved) - _MOST_REASONS, 'more job')} moved out")
    return lines


def asked_for(plan: dict[str, Any]) -> str:
    """Names of the jobs and sweeps of a plan that may share a process; empty if there are none."""
    names = [str(job["name"]) for kind in ("jobs", "sweeps") for job in plan[kind] if job.get("isolation") == "lane"]
    more = len(names) - _MOST_REASONS
    return ", ".join(names[:_MOST_REASONS]) + (f" and {more} more" if more > 0 else "")


def _script(spec: JobSpec) -> str:
    return spec.solo.family if spec.solo is not None else spec.job_class
