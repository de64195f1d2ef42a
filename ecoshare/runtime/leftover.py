"""What a run that was cut off has left to do, by its log and the exit records on the disk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from ecoshare.core.commands import StartJob
from ecoshare.core.events import Before, JobArrived, JobSpec, Outcome, Past, Reported
from ecoshare.jobs.sweep import trial_number
from ecoshare.lane import records
from ecoshare.runtime import log
from ecoshare.runtime.folder import RunFolder
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned import PlannedJob
from ecoshare.runtime.sweeps import PlannedSweep


@dataclass(slots=True)
class _Told:
    """What the log tells.

    Attributes:
        attempts: By job, that were started.
        trials: That were drawn, by sweep.
        values: That trials have reported in their last attempt.
    """

    attempts: dict[str, int] = field(default_factory=dict)
    trials: dict[str, dict[str, JobSpec]] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)


def leftover(plan: Plan, folder: RunFolder) -> Plan | None:
    """The plan of what is left of a run: jobs and trials that have not finished, and sweeps that have more.

    None where nothing is. A stop that was asked for is no finish; neither is a failure that is to be tried again.
    """
    told = _told(folder)
    jobs = [_again(job, told, folder) for job in plan.jobs]
    sweeps = []
    for sweep in plan.sweeps:
        drawn = told.trials.get(sweep.name, {})
        trials = [sweep.trial(trial_number(name), spec.values) for name, spec in drawn.items()]
        left = {trial.spec.name: _again(trial, told, folder) for trial in trials}
        jobs += left.values()
        if len(drawn) < sweep.options.count or any(left.values()):
            past = tuple(
                Past(name, _completed(folder, name), tuple(told.values.get(name, ())))
                for name, again in left.items()
                if again is None
            )
            sweeps.append(_going_on(sweep, len(drawn), past))
    unfinished = tuple(job for job in jobs if job is not None)
    return replace(plan, jobs=unfinished, sweeps=tuple(sweeps)) if unfinished or sweeps else None


def _going_on(sweep: PlannedSweep, drawn: int, past: tuple[Past, ...]) -> PlannedSweep:
    return replace(sweep, spec=replace(sweep.spec, drawn=drawn, past=past))


def _told(folder: RunFolder) -> _Told:
    told = _Told()
    for entry in log.read(folder.events):
        match entry:
            case StartJob():
                told.attempts[entry.job] = entry.attempt
                told.values.pop(entry.job, None)
            case JobArrived() if entry.job.sweep:
                told.trials.setdefault(entry.job.sweep, {})[entry.job.name] = entry.job
            case Reported():
                told.values.setdefault(entry.job, []).append(entry.value)
    return told


def _completed(folder: RunFolder, name: str) -> bool:
    return any(end.outcome == Outcome.COMPLETED.value for end in records.read(folder.job(name)))


def _again(job: PlannedJob, told: _Told, folder: RunFolder) -> PlannedJob | None:
    """The job with what is known of its attempts; None where it has finished."""
    name = job.spec.name
    ends = records.read(folder.job(name))
    outcomes = Counter(Outcome(end.outcome) for end in ends)
    memory = outcomes[Outcome.OUT_OF_MEMORY]
    failures = outcomes[Outcome.FAILED] + outcomes[Outcome.CRASHED] + outcomes[Outcome.TIMED_OUT] + max(0, memory - 1)
    if outcomes[Outcome.COMPLETED] or outcomes[Outcome.PRUNED] or failures > job.spec.retries:
        return None
    attempts = max([told.attempts.get(name, 0), *(end.attempt for end in ends)])
    before = Before(attempts, failures, out_of_memory=memory > 0)
    return replace(job, spec=replace(job.spec, before=before))
