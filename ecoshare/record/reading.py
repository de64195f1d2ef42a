"""Reads a run from its folder, whether it is over, was cut off or still goes on."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ecoshare.common import documents
from ecoshare.common.collector import collector_paused
from ecoshare.core.commands import Command, StartJob
from ecoshare.core.events import Event, JobArrived, JobExited, Reported
from ecoshare.errors import UsageError
from ecoshare.jobs import metric
from ecoshare.lane import trace
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.record import event_log, samples
from ecoshare.record.energy_account import EnergyRate, account
from ecoshare.record.metric_reader import values_of
from ecoshare.record.packing_timeline import PackingTimeline
from ecoshare.record.run_data import RunData
from ecoshare.record.run_documents import DAMAGED, read_environment, read_json, read_plan, read_records
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.summary import summarise
from ecoshare.record.sweep_summary import reported, with_trials
from ecoshare.values.attempt import Outcome, Usage
from ecoshare.values.joules import MEASURED


@collector_paused()
def read(folder: RunFolder, replays: bool = True) -> RunData:
    """Read all data of a run except its traces, which may be large.

    Args:
        folder: Folder of the run.
        replays: Whether the log is replayed, which takes as long as all decisions of the run took. If not, the summary
            has no packings, and its `packed_default_energy_j` and `search_energy_j` ignore settings.

    Raises:
        UsageError: The folder is damaged.
    """
    plan = read_plan(folder.plan)
    live = is_live(folder)  # asked first: a run that ends meanwhile must not look cut off
    entries = list(event_log.read(folder.events)) if folder.events.exists() else []
    plan = with_trials(plan, entries)
    _check_names(folder, plan, entries)
    for job in plan["jobs"]:
        if job.get("called") and (told := folder.values(job["name"])).exists():
            job["values"] = read_json(told)
    unlogged = _unlogged_exits(plan, folder, entries)
    entries += unlogged
    lines = list(samples.read(folder.samples))
    profiles = _profiles(plan, folder)
    energy = account(lines, rates=_rates(plan, profiles))
    environment = read_environment(folder.environment) if folder.environment.exists() else {}
    load_s = environment.get("torch_load_s") or 0.0
    went = None if replays else PackingTimeline()
    return RunData(
        summary=summarise(plan, entries, energy, _shown(folder), live, profiles, load_s, went),
        entries=entries,
        samples=lines,
        account=energy,
        environment=environment,
        unlogged=len(unlogged),
    )


def _check_names(folder: RunFolder, plan: dict[str, Any], entries: list[Event | Command]) -> None:
    planned = {job["name"] for job in plan["jobs"]}
    for entry in entries:
        if isinstance(entry, JobArrived) and entry.job.name not in planned:
            raise UsageError(f"{folder.plan}: {folder.events} has a job {entry.job.name!r} more", DAMAGED)


def with_traces(data: RunData, folder: RunFolder) -> RunData:
    """Return the same data with the traces of all attempts."""
    attempts = [(attempt.job, attempt.number) for attempt in data.attempts()]
    traces = {(job, number): trace.read(trace.trace_path(folder.job(job), number)) for job, number in attempts}
    return replace(data, traces=traces)


def _profiles(plan: dict[str, Any], folder: RunFolder) -> dict[str, Profile]:
    """Profiles that the run used or made, by class."""
    store = ProfileStore(folder.profiles)
    names = {job["class"] for job in plan["jobs"]}
    return {name: profile for name in names if (profile := store.find(name)) is not None}


def _rates(plan: dict[str, Any], profiles: dict[str, Profile]) -> Callable[[str], EnergyRate | None]:
    """Lookup of the energy rate of a job's class alone, by job name."""
    rates = {name: _rate(profile) for name, profile in profiles.items()}
    classes = {job["name"]: job["class"] for job in plan["jobs"]}
    return lambda job: rates.get(classes.get(job, ""))


def _rate(profile: Profile) -> EnergyRate | None:
    """Energy rate of a class alone; None if its energy is only modelled: a model would split its own joules."""
    energy = profile.energy
    if energy is None or energy.source != MEASURED:
        return None
    train_j, eval_j = energy.active_per_iteration_j, energy.active_per_eval_iteration_j
    known = [value for value in (train_j, eval_j) if value is not None]
    if not known:
        return None
    # A kind of iteration that was not seen gets the rate of the other: that is closer than none.
    return EnergyRate(
        train_j if train_j is not None else known[0],
        eval_j if eval_j is not None else known[0],
        energy.relative_error or 0.0,
    )


def _unlogged_exits(plan: dict[str, Any], folder: RunFolder, entries: list[Event | Command]) -> list[Event]:
    """Exits on disk, and trial values, that the log lacks because the controller was killed before it wrote them."""
    logged = {(entry.job, entry.attempt) for entry in entries if isinstance(entry, JobExited)}
    begun = {entry.job: entry.attempt for entry in entries if isinstance(entry, StartJob)}
    told = {job: len(values) for job, values in reported(entries).items()}
    last_s = max((entry.at_s for entry in entries if not isinstance(entry, Command)), default=0.0)
    found: list[Event] = []
    for job in plan["jobs"]:
        own = folder.job(job["name"])
        for end in read_records(own):
            if (end.job, end.attempt) in logged or end.attempt < begun.get(end.job, 0):
                continue
            if job.get("metric") is not None:
                values = values_of(metric.read(job["metric"]), own, end.attempt)
                found += [
                    Reported(last_s, end.job, step, value)
                    for step, value in enumerate(values, start=1)
                    if step > told.get(end.job, 0)
                ]
            outcome, usage = Outcome(end.outcome), Usage(**end.usage)
            found.append(JobExited(last_s, end.job, end.attempt, outcome, end.exit_code, end.reason, usage))
    return found


def is_live(folder: RunFolder) -> bool:
    """Whether a controller writes the run's log. The check also works on a read-only folder."""
    try:
        with documents.open_regular(folder.events) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the log does not exist, or its reader will report the error
        return False
    return False


def _shown(folder: RunFolder) -> str:
    """Path of the folder for the user: relative to the working directory if it lies below it."""
    try:
        return str(folder.path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder.path)
