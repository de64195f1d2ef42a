"""The result of a run, derived from its plan, event log, energy account and profiles.

`summary.json` is the contract for other programs. A value that is not known is null, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ecoshare.core.commands import Command, StartJob
from ecoshare.core.events import (
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    Refused,
    RunOpened,
    StopRequested,
)
from ecoshare.profiling.profile import Profile
from ecoshare.record.baseline import baseline, search_cost_j
from ecoshare.record.energy_account import EnergyAccount
from ecoshare.record.packing_summary import packings
from ecoshare.record.packing_timeline import PackingTimeline, course
from ecoshare.record.profile_doubts import too_fast
from ecoshare.record.setting_history import settings
from ecoshare.record.sweep_summary import reported, sweeps
from ecoshare.record.window_costs import search_energy_j, windows
from ecoshare.values.attempt import Outcome, Usage
from ecoshare.values.joules import ATTRIBUTED, MEASURED

SCHEMA_VERSION = 1


@dataclass(slots=True)
class _JobStory:
    """Facts of the log about one job."""

    arrival_s: float | None = None
    start_s: float | None = None
    finish_s: float | None = None
    attempts: int = 0
    lanes: tuple[int, ...] = ()
    last: JobExited | None = None
    refusal: str | None = None
    usage: Usage = field(default_factory=Usage)
    errors: list[str] = field(default_factory=list)


def summarise(
    plan: dict[str, Any],
    entries: Sequence[Event | Command],
    energy: EnergyAccount,
    run: str,
    live: bool = False,
    profiles: Mapping[str, Profile] = MappingProxyType({}),
    load_s: float = 0.0,
    went: PackingTimeline | None = None,
) -> dict[str, Any]:
    """Summarise a run.

    Args:
        plan: Content of plan.json, with the trials of its sweeps among the jobs.
        entries: Content of events.jsonl.
        energy: Energy account of the run.
        run: Path of the run folder, as users would type it.
        live: Whether the run still goes on.
        profiles: Profiles of the jobs' classes, as far as they exist.
        load_s: Time (s) that the run's server took to load torch.
        went: Packing timeline of the run. If None, the entries are replayed.

    Returns:
        The object described in docs/summary.md.
    """
    applied = settings(entries)
    went = course(entries) if went is None else went
    end_s = max((entry.at_s for entry in entries if not isinstance(entry, Command)), default=0.0)
    stories = {job["name"]: _JobStory() for job in plan["jobs"]}
    stopped = _read(entries, stories)
    states = {name: _state(story, stopped, live) for name, story in stories.items()}
    told = reported(entries)
    jobs = [
        _job(job, stories[job["name"]], plan, energy, states[job["name"]], profiles.get(job["class"]), bool(applied))
        | _trial(job, told.get(job["name"], []))
        for job in plan["jobs"]
    ]
    swept = sweeps(plan, jobs, told, entries, energy)
    measured = windows(entries, {job["name"]: job["class"] for job in plan["jobs"]}, profiles, energy)
    finishes = [story.finish_s for story in stories.values() if story.finish_s is not None]
    arrivals = [story.arrival_s for story in stories.values() if story.arrival_s is not None]
    makespan_s = max(finishes) - min(arrivals) if finishes and arrivals else None
    jcts_s = [job["jct_s"] for job in jobs if job["state"] == "completed" and job["jct_s"] is not None]
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "objective": plan["objective"],
        "policy": plan["policy"],
        "devices": [plan["device"]],
        "lanes": plan["lanes"],
        "state": _run_state(set(outcomes({"jobs": jobs, "sweeps": swept}).values()), live),
        "makespan_s": makespan_s,
        "mean_jct_s": sum(jcts_s) / len(jcts_s) if jcts_s else None,
        "energy": _device_energy(energy),
        "idle_energy_j": energy.idle_j,
        "idle_power_w": energy.session.idle_w if energy.session is not None else None,
        "search_energy_j": (
            search_energy_j(measured, search_cost_j(went, energy, end_s)) if energy.energy is not None else None
        ),
        "jobs": jobs,
        "sweeps": swept,
        "windows": measured,
        "settings": applied,
        "packings": packings(went, energy, end_s),
        "baseline": baseline(jobs, profiles, went, energy, end_s, {job["name"]: job for job in plan["jobs"]}, load_s),
        "notes": plan["notes"],
    }


def _read(entries: Iterable[Event | Command], stories: dict[str, _JobStory]) -> bool:
    """Fill the stories, and return whether the user stopped the run."""
    stopped = False
    starting: dict[int, str] = {}
    for entry in entries:
        match entry:
            case JobArrived():
                story = stories[entry.job.name]
                story.arrival_s = entry.at_s if story.arrival_s is None else story.arrival_s
                stopped = False  # jobs of a resumed run arrive again, so an earlier stop no longer counts
            case StartJob():
                story = stories[entry.job]
                starting[entry.id] = entry.job
                story.attempts, story.lanes = entry.attempt, entry.lanes
                story.usage, story.last, story.finish_s, story.refusal = Usage(), None, None, None
            case RunOpened():
                starting.clear()  # a resumed run counts its commands anew
            case Done() if entry.command in starting:
                story = stories[starting.pop(entry.command)]
                story.start_s = entry.at_s if story.start_s is None else story.start_s
            case Refused() if entry.command in starting:
                story = stories[starting.pop(entry.command)]
                story.refusal, story.finish_s = entry.error, entry.at_s
            case IterationsDone():
                stories[entry.job].usage = entry.usage
            case JobExited():
                story = stories[entry.job]
                story.last, story.finish_s, story.usage = entry, entry.at_s, entry.usage
            case StopRequested():
                stopped = True
    return stopped


def _job(
    job: dict[str, Any],
    story: _JobStory,
    plan: dict[str, Any],
    energy: EnergyAccount,
    state: str,
    profile: Profile | None,
    at_settings: bool,
) -> dict[str, Any]:
    usage, last = story.usage, story.last
    jct_s = story.finish_s - story.arrival_s if story.finish_s is not None and story.arrival_s is not None else None
    own = _job_energy(job["name"], energy)
    counted = energy.iterations.get(job["name"], 0)
    alone_s = _alone_s(usage, profile)
    slower = slowdown(usage, plan["lanes"])
    doubt = "" if at_settings else too_fast(usage.span_s - usage.waited_s, alone_s, usage.done, profile)
    if doubt:
        alone_s = None
    if slower is None or (at_settings and alone_s):  # with settings, waits do not explain all: clocks changed, too
        slower = _over(usage.span_s, alone_s)
    return {
        "name": job["name"],
        "class": job["class"],
        "state": state,
        "exit_code": last.exit_code if last is not None else None,
        "attempts": story.attempts,
        "devices": [plan["device"]["name"]] if story.attempts else [],
        "lanes": list(story.lanes),
        "iterations": usage.iterations,
        "eval_iterations": usage.eval_iterations,
        "arrival_s": story.arrival_s,
        "start_s": story.start_s,
        "finish_s": story.finish_s,
        "jct_s": jct_s,
        "queue_s": story.start_s - story.arrival_s
        if story.start_s is not None and story.arrival_s is not None
        else None,
        "slowdown": slower,
        "slowdown_limit": job["slowdown_limit"],
        "slowdown_limit_met": _limit_met(job["slowdown_limit"], slower),
        "interference": _over(usage.span_s - usage.waited_s, alone_s),
        "profile_doubt": doubt or None,
        "stretch": None,
        "held_s": usage.held_s if last is not None else None,
        "preparation_s": max(0.0, usage.held_s - (usage.span_s - usage.waited_s)) if last is not None else None,
        "handovers": usage.handovers if last is not None else None,
        "longest_wait_s": usage.longest_wait_s if last is not None else None,
        "peak_memory_bytes": usage.peak_bytes or energy.peak_bytes.get(job["name"]),
        "energy": own,
        "energy_per_iteration_j": own["value_j"] / counted if own and counted else None,
        "error": _error(story) if state != "completed" else None,
    }


def _trial(job: dict[str, Any], told: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Fields of a trial: its sweep, its values, the last value that it reported, and the number of reports."""
    return {
        "sweep": job.get("sweep"),
        "values": job.get("values") or {},
        "value": told[-1][1] if told and math.isfinite(told[-1][1]) else None,
        "steps": len(told),
    }


def slowdown(usage: Usage, lanes: int) -> float | None:
    """Slowdown of a job in one lane, by its waits for the turn; None if not known. See `ecoshare.jobs.schema.SLOWDOWN`.

    The time without waits is the time alone only in a single lane, where no job runs beside another. With more lanes,
    only a profile gives the time alone, so the result is None.
    """
    working_s = usage.span_s - usage.waited_s
    if lanes > 1 or usage.done < 2 or working_s <= 0:
        return None
    return usage.span_s / working_s


def _alone_s(usage: Usage, profile: Profile | None) -> float | None:
    """Time (s) that the iterations from first to last boundary take alone, from the profile of the job's class."""
    done = usage.done
    if profile is None or done < 2:
        return None
    guessed = profile.guessed(usage.iterations, usage.eval_iterations)
    kinds = ((usage.iterations + guessed, profile.train), (usage.eval_iterations - guessed, profile.eval))
    if any(count and times is None for count, times in kinds):
        return None
    alone_s = sum(count * times.mean_s for count, times in kinds if times is not None)
    return alone_s * (done - 1) / done


def _over(time_s: float, alone_s: float | None) -> float | None:
    return time_s / alone_s if alone_s else None


def _error(story: _JobStory) -> str | None:
    return (story.last.reason or None) if story.last is not None else story.refusal


def _limit_met(limit: float | None, measured: float | None) -> bool | None:
    return None if limit is None or measured is None else measured <= limit


def _state(story: _JobStory, stopped: bool, live: bool) -> str:
    """State of a job; a job without an exit in a finished run was cut off with the run."""
    last = story.last
    if last is None:
        if not live:
            return "cancelled" if story.refusal is None else "failed"
        return "arriving" if story.arrival_s is None else "running" if story.attempts else "queued"
    if last.outcome is Outcome.STOPPED or (last.outcome is Outcome.LOST and stopped):
        return "cancelled"
    if last.outcome is Outcome.PRUNED:
        return "pruned"
    return "completed" if last.outcome is Outcome.COMPLETED else "failed"


def outcomes(summary: Mapping[str, Any]) -> dict[str, str]:
    """State of each job and sweep of the job file, from the summary's `jobs` and `sweeps`.

    A sweep is completed if any trial completed: its purpose is the best trial, and some trials may fail. A sweep with
    cancelled trials, or with trials still to draw, is cancelled.
    """
    found = {job["name"]: job["state"] for job in summary["jobs"] if job["sweep"] is None}
    for sweep in summary["sweeps"]:
        states = [*([] if sweep["exhausted"] else ["cancelled"]), *sweep["states"]]
        found[sweep["name"]] = next((each for each in ("cancelled", "completed") if each in states), "failed")
    return found


def _run_state(jobs: set[str], live: bool) -> str:
    if live:
        return "running"
    if jobs <= {"completed"}:
        return "completed"
    return "interrupted" if "cancelled" in jobs else "failed"


def _device_energy(account: EnergyAccount) -> dict[str, Any] | None:
    if account.energy is None or account.session is None:
        return None
    measured = account.session.source == MEASURED
    return {
        "value_j": account.energy.value_j,
        "source": account.session.source,
        "scope": account.session.scope,
        "standard_error_j": account.energy.standard_error_j if measured else None,
        "meter": account.session.meter,
        "about": account.session.about,
        "covered": account.covered,
        "faults": account.faults,
    }


def _job_energy(job: str, account: EnergyAccount) -> dict[str, Any] | None:
    """Joules of a job over all its attempts. A share of a measurement is `attributed`, not `measured`."""
    own = account.jobs.get(job)
    if own is None or account.session is None:
        return None
    measured = account.session.source == MEASURED
    return {
        "value_j": own.value_j,
        "source": ATTRIBUTED if measured else account.session.source,
        "standard_error_j": own.standard_error_j if measured else None,
    }
