"""Remaining work of an interrupted run, from its log and the exit records on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ecoshare.core.commands import Command, StartJob
from ecoshare.core.events import Event, JobArrived, JobExited
from ecoshare.core.states import JobState
from ecoshare.jobs.sweep import trial_number
from ecoshare.policy_names import packs
from ecoshare.record import samples
from ecoshare.record.metric_reader import values_of
from ecoshare.record.run_documents import read_records
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.sweep_summary import reported
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.planned_sweeps import EndedTrial, PlannedSweep
from ecoshare.values.attempt import Outcome
from ecoshare.values.job_spec import EarlierAttempts, JobSpec
from ecoshare.values.sweep_spec import EarlierTrial


@dataclass(slots=True)
class _Told:
    """Facts from the log.

    Attributes:
        caps: Memory limit (bytes) of each attempt, by job.
        trials: Drawn trials, by sweep and name.
        values: Times and values that the last attempt of each trial has reported, by trial.
        ended: Outcome of each attempt with a logged end, by job. All its reports are in the log, too.
    """

    caps: dict[str, dict[int, int]] = field(default_factory=dict)
    trials: dict[str, dict[str, JobSpec]] = field(default_factory=dict)
    values: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    ended: dict[str, dict[int, Outcome]] = field(default_factory=dict)


def leftover(plan: Plan, folder: RunFolder, entries: Sequence[Event | Command]) -> Plan | None:
    """Plan for the rest of a run: jobs and trials that have not finished, and sweeps with more trials.

    A job that was stopped on request has not finished. Neither has a failed job with retries left.

    Args:
        plan: Plan of the whole run.
        folder: The run folder.
        entries: Entries of the log of the run.

    Returns:
        The plan; None if nothing is left.
    """
    told = _told(entries)
    largest_bytes = plan.memory_bytes // (1 if packs(plan.policy) else plan.lanes)
    jobs = [_again(job, told, folder, largest_bytes) for job in plan.jobs]
    sweeps = []
    for sweep in plan.sweeps:
        drawn = told.trials.get(sweep.name, {})
        trials = [sweep.trial(trial_number(name), spec.values) for name, spec in drawn.items()]
        left = {trial.spec.name: _again(trial, told, folder, largest_bytes) for trial in trials}
        jobs += left.values()
        if len(drawn) < sweep.options.count or any(left.values()):
            ended = [_ended(trial, told, folder) for trial in trials if left[trial.spec.name] is None]
            sweeps.append(_going_on(sweep, 1 + max(map(trial_number, drawn), default=-1), ended))
    unfinished = tuple(job for job in jobs if job is not None)
    return replace(plan, jobs=unfinished, sweeps=tuple(sweeps)) if unfinished or sweeps else None


def reached_s(folder: RunFolder, entries: Sequence[Event | Command]) -> float:
    """Last moment that a run has recorded, as time (s) since it was first opened."""
    told = (entry.at_s for entry in entries if isinstance(entry, Event))
    sampled = (line.at_s for line in samples.read(folder.samples))
    return max([0.0, *told, *sampled])


def _going_on(sweep: PlannedSweep, drawn: int, ended: list[tuple[JobState, EarlierTrial]]) -> PlannedSweep:
    past = tuple(each for _, each in ended)
    over = tuple(EndedTrial(each.name, state, each.values[-1] if each.values else None) for state, each in ended)
    return replace(sweep, spec=replace(sweep.spec, drawn=drawn, earlier_trials=past), ended=over)


def _ended(trial: PlannedJob, told: _Told, folder: RunFolder) -> tuple[JobState, EarlierTrial]:
    """State and reports of a trial that is over.

    The log may lack the last reports, if the controller was killed before it read them. Then the files of the trial
    are read.
    """
    name = trial.spec.name
    ends = _ends(name, told, folder)
    last = max(ends)
    values = [value for _, value in told.values.get(name, ())]
    if trial.metric is not None and last not in told.ended.get(name, {}):
        values = values_of(trial.metric, folder.job(name), last)
    states = {Outcome.COMPLETED: JobState.COMPLETED, Outcome.PRUNED: JobState.PRUNED}
    state = states.get(ends[last], JobState.FAILED)
    return state, EarlierTrial(name, state is JobState.COMPLETED, tuple(values))


def _told(entries: Sequence[Event | Command]) -> _Told:
    told = _Told(values=reported(entries))
    for entry in entries:
        match entry:
            case StartJob():
                told.caps.setdefault(entry.job, {})[entry.attempt] = entry.cap_bytes
            case JobArrived() if entry.job.sweep:
                told.trials.setdefault(entry.job.sweep, {})[entry.job.name] = entry.job
            case JobExited():
                told.ended.setdefault(entry.job, {})[entry.attempt] = entry.outcome
    return told


def _ends(name: str, told: _Told, folder: RunFolder) -> dict[int, Outcome]:
    """Outcomes of the attempts of a job, from the log and the exit records: either may lack an end."""
    recorded = {end.attempt: Outcome(end.outcome) for end in read_records(folder.job(name))}
    return {**told.ended.get(name, {}), **recorded}


def _again(job: PlannedJob, told: _Told, folder: RunFolder, largest_bytes: int) -> PlannedJob | None:
    """The job with its earlier attempts; None if it has finished.

    An attempt that ran out of memory counts as a failure only if it was allowed all the memory that there is.
    """
    name = job.spec.name
    ends, caps = _ends(name, told, folder), told.caps.get(name, {})
    outcomes = Counter(ends.values())
    short = [attempt for attempt, outcome in ends.items() if outcome is Outcome.OUT_OF_MEMORY]
    whole = sum(caps.get(attempt, 0) >= largest_bytes for attempt in short)
    failures = outcomes[Outcome.FAILED] + outcomes[Outcome.CRASHED] + outcomes[Outcome.TIMED_OUT] + whole
    if outcomes[Outcome.COMPLETED] or outcomes[Outcome.PRUNED] or failures > job.spec.retries:
        return None
    attempts = max([0, *caps, *ends])
    before = EarlierAttempts(attempts, failures, out_of_memory=bool(short))
    return replace(job, spec=replace(job.spec, earlier_attempts=before))
