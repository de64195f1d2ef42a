"""Remaining work of an interrupted run, from its log and the exit records on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import LOCAL, PROCESSORS, DeviceInfo
from ecoshare.base.job_spec import EarlierAttempts, EarlierTrial
from ecoshare.base.plural import counted
from ecoshare.core.job_ends import SHORT_OF_MEMORY
from ecoshare.core.records import JobState
from ecoshare.devices import registry
from ecoshare.devices.choice import find_all
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.sweep import trial_number
from ecoshare.lane.files import are_outputs_of
from ecoshare.record import samples
from ecoshare.record.metric_reader import values_of
from ecoshare.record.run_documents import read_records
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import JobHistory, RunHistory
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_sweeps import EndedTrial, PlannedSweep


def names_again(before: Sequence[dict[str, Any]]) -> str | None:
    """Names of the devices of each machine of an earlier session, if that had several; None for all GPUs of each."""
    if before[0]["kind"] != PROCESSORS:
        return None
    parts = sum(each.get("node") == before[0].get("node") for each in before)
    return f"{PROCESSORS}/{parts}" if parts > 1 else PROCESSORS


def found_again(run: Path, before: Sequence[dict[str, Any]], failed: Container[str] = ()) -> tuple[DeviceInfo, ...]:
    """The devices of an earlier session, as they are now.

    Args:
        run: The run folder.
        before: The devices in the plan of that session.
        failed: Names of the devices that failed in it. If one of them is gone, the run goes on without it.

    Raises:
        UsageError: A device is another one now.
        UnfitEnvironment: A device is gone.
    """
    if any(each.get("node", LOCAL) != LOCAL for each in before):
        raise UsageError(
            f"{run} ran on several machines", "give `--on ray` again, with the address of the cluster, or `--on slurm`"
        )
    if any(each["name"] in failed for each in before):
        return _without_lost(run, before, failed)
    parts = sum(bool(each.get("processors")) for each in before)
    devices = find_all(f"cpu/{parts}" if parts else ",".join(each["name"] for each in before))
    for then, now in zip(before, devices, strict=True):
        if now.uuid != then["uuid"]:
            raise UsageError(
                f"{run} ran on {then['uuid']}, and {now.name} is {now.uuid} now", "set CUDA_VISIBLE_DEVICES as it was"
            )
        if now.name != then["name"]:
            raise UsageError(f"{run} ran on {then['name']} alone", "start it again")
        if now.cores != then["cores"] and now.processors:
            raise UsageError(
                f"{run} ran on {then['name']} of {counted(then['cores'], 'processor')}, and it has {now.cores} now",
                "give it the same processors, as with `taskset`",
            )
    return devices


def _without_lost(run: Path, before: Sequence[dict[str, Any]], failed: Container[str]) -> tuple[DeviceInfo, ...]:
    """The GPUs of an earlier session that are there, with the names that they had in it.

    A lost GPU changes the numbers of those behind it, so that they are known by their UUIDs. A GPU that has failed and
    is there was reset, or its owner wants it to be tried again.
    """
    visible = {each.uuid: each for each in registry.visible_gpus()}
    gone = [each["name"] for each in before if each["uuid"] not in visible]
    if missing := [name for name in gone if name not in failed]:
        raise UnfitEnvironment(f"{run} ran on {missing[0]}, which is not there", "see `ecoshare doctor`")
    found = [replace(visible[each["uuid"]], name=each["name"]) for each in before if each["uuid"] in visible]
    if not found:
        raise UnfitEnvironment(
            f"{run} ran on {', '.join(gone)}, which failed and did not come back",
            "reset the GPU (`nvidia-smi -r`) or restart the machine; on another GPU, run the job file anew",
        )
    if unfit := next((each for each in found if each.unfit), None):
        raise UnfitEnvironment(f"{unfit.name} {unfit.unfit}")
    return tuple(found)


def leftover(plan: Plan, folder: RunFolder, history: RunHistory) -> Plan:
    """Plan for the rest of a run: jobs and trials that have not finished, and sweeps with more trials.

    A job that was stopped on request has not finished. Neither has a failed job with retries left. An open-ended
    service has finished when all other jobs have.

    Args:
        plan: Plan of the whole run.
        folder: The run folder.
        history: History of the run.

    Returns:
        The plan, which may have neither a job nor a sweep.
    """
    limited = [each.memory_bytes for each in plan.devices if not each.on_processors]
    largest_bytes = max(limited, default=0)  # on processors no limit of ecoshare makes a script fail
    jobs = [_again(job, history, folder, largest_bytes) for job in plan.jobs]
    over = {job.spec.name: _final(job, history, folder) for job, left in zip(plan.jobs, jobs, strict=True) if not left}
    sweeps = []
    for sweep in plan.sweeps:
        if sweep.name in history.cancelled:
            over[sweep.name] = JobState.CANCELLED
            continue
        drawn = history.trials.get(sweep.name, [])
        trials = [_drawn(sweep, history.jobs[name]) for name in drawn]
        left = {trial.spec.name: _again(trial, history, folder, largest_bytes) for trial in trials}
        jobs += left.values()
        if len(drawn) < sweep.options.count or any(left.values()):
            past = [_ended(trial, sweep, history, folder) for trial in trials if left[trial.spec.name] is None]
            past += [_live(trial, sweep) for trial in left.values() if trial is not None and trial.told]
            sweeps.append(_going_on(sweep, 1 + max(map(trial_number, drawn), default=-1), past))
        else:
            states = [_final(trial, history, folder) for trial in trials]
            over[sweep.name] = JobState.COMPLETED if JobState.COMPLETED in states else JobState.FAILED
    unfinished = tuple(job for job in jobs if job is not None)
    had_work = bool(plan.sweeps) or not all(job.spec.is_open_ended for job in plan.jobs)
    if had_work and not plan.queue and not sweeps and all(job.spec.is_open_ended for job in unfinished):
        unfinished = ()  # services without a last request end with the other jobs
    ended = {**plan.ended, **{name: state.value for name, state in over.items()}}
    return replace(plan, jobs=unfinished, sweeps=tuple(sweeps), ended=ended)


def reached_s(folder: RunFolder, history: RunHistory) -> float:
    """Last moment that a run has recorded, as time (s) since it was first opened."""
    return max([history.end_s, *(line.at_s for line in samples.read(folder.samples))])


def _drawn(sweep: PlannedSweep, job: JobHistory) -> PlannedJob:
    assert job.spec is not None, "a drawn trial has arrived"
    return sweep.trial(trial_number(job.name), job.spec.values)


def _going_on(sweep: PlannedSweep, drawn: int, told: list[tuple[JobState, EarlierTrial]]) -> PlannedSweep:
    past = tuple(each for _, each in told)
    over = tuple(
        EndedTrial(each.name, state, each.values[-1] if each.values else None, each.configuration or ())
        for state, each in told
        if not each.goes_on
    )
    return replace(sweep, spec=replace(sweep.spec, drawn=drawn, earlier_trials=past), ended=over)


def _ended(
    trial: PlannedJob, sweep: PlannedSweep, history: RunHistory, folder: RunFolder
) -> tuple[JobState, EarlierTrial]:
    """State and reports of a trial that is over.

    The log may lack the last reports, if the controller was killed before it read them. Then the files of the trial
    are read.
    """
    job = history.jobs[trial.spec.name]
    ends = _ends(job, folder)
    last = max(ends, default=0)
    values = [value for _, value in job.reports]
    if trial.metric is not None and last and last not in job.exits:
        values = [*values[: job.earlier_reports], *values_of(trial.metric, folder.job(job.name), last)]
    states = {Outcome.COMPLETED: JobState.COMPLETED, Outcome.PRUNED: JobState.PRUNED}
    state = states.get(ends[last], JobState.FAILED) if last else JobState.FAILED
    if job.is_pruned and state is JobState.FAILED:
        state = JobState.PRUNED
    pruned, stopping = state is JobState.PRUNED, sweep.spec.early_stopping
    if pruned and stopping is not None and stopping.rule == "halving":
        values = values[: job.asked_to_end_at]  # it may have gone a little beyond its rung
    of = sweep.spec.configuration(job.name, trial.spec.values)
    return state, EarlierTrial(job.name, state is JobState.COMPLETED, tuple(values), pruned, configuration=of)


def _live(trial: PlannedJob, sweep: PlannedSweep) -> tuple[JobState, EarlierTrial]:
    """State and reports of a trial that goes on."""
    name, of = trial.spec.name, sweep.spec.configuration(trial.spec.name, trial.spec.values)
    return JobState.QUEUED, EarlierTrial(name, False, trial.told, goes_on=True, configuration=of)


def _ends(job: JobHistory, folder: RunFolder) -> dict[int, Outcome]:
    """Outcomes of the attempts of a job, from the log and the exit records: either may lack an end."""
    logged = {attempt: event.outcome for attempt, event in job.exits.items()}
    records = [end for end in read_records(folder.job(job.name)) if end.attempt > job.unknown_attempts]
    # The log knows more than a record: whether a device of the attempt had failed, say.
    return {**{end.attempt: Outcome(end.outcome) for end in records}, **logged}


def _counting(job: PlannedJob, told: JobHistory, ends: Mapping[int, Outcome]) -> dict[int, Outcome]:
    """Outcomes of the attempts since the user last asked for the job to be run again: those before count no more."""
    forgiven = max(told.forgiven, job.spec.earlier_attempts.attempts)
    return {attempt: outcome for attempt, outcome in ends.items() if attempt > forgiven}


def _final(job: PlannedJob, history: RunHistory, folder: RunFolder) -> JobState:
    """State of a job that has finished."""
    told = history.of(job.spec.name)
    outcomes = set(_counting(job, told, _ends(told, folder)).values())
    if Outcome.COMPLETED in outcomes:
        return JobState.COMPLETED
    if Outcome.PRUNED in outcomes or told.is_pruned:
        return JobState.PRUNED
    return JobState.CANCELLED if told.cancelled else JobState.FAILED


def _again(job: PlannedJob, history: RunHistory, folder: RunFolder, largest_bytes: int) -> PlannedJob | None:
    """The job with its earlier attempts; None if it has finished.

    The first attempt that lacked memory is no failure if it could have had more, as `core/job_ends.py` says.
    """
    told = history.of(job.spec.name)
    ends, carried = _ends(told, folder), told.carried
    counting = _counting(job, told, ends)
    caps = {attempt: command.cap_bytes for attempt, command in told.starts.items()}
    if carried is not None:  # the log begins with a segment in which the job goes on
        caps.setdefault(carried.attempt, carried.cap_bytes)
    outcomes = Counter(counting.values())
    short = [attempt for attempt, outcome in counting.items() if outcome in SHORT_OF_MEMORY]
    at_most = [each for each in short if ends[each] is Outcome.OUT_OF_MEMORY and caps.get(each, 0) >= largest_bytes]
    whole = max(len(at_most), len(short) - 1)
    failures = outcomes[Outcome.FAILED] + outcomes[Outcome.CRASHED] + outcomes[Outcome.TIMED_OUT] + whole
    failures += carried.failures if carried is not None and carried.attempt > told.forgiven else 0
    is_over = outcomes[Outcome.COMPLETED] or outcomes[Outcome.PRUNED] or told.is_pruned or told.cancelled
    if is_over or failures > job.spec.retries:
        return None
    attempts = max([job.spec.earlier_attempts.attempts, *caps, *ends])
    was_short = bool(short) or (carried is not None and carried.whole_device)
    before = EarlierAttempts(attempts, failures, out_of_memory=was_short)
    priority = told.spec.priority if told.spec is not None else job.spec.priority
    job = replace(job, spec=replace(job.spec, earlier_attempts=before, priority=priority))
    if job.metric is None or not job.spec.movable:
        return job
    logged, values = [value for _, value in told.reports], list[float]()
    own = folder.job(job.spec.name)
    if attempts and attempts not in told.exits and are_outputs_of(own, attempts):
        values = values_of(job.metric, own, attempts)
    untold = values[len(logged) - told.earlier_reports :]
    return replace(job, told=(*logged, *untold), untold=len(untold))
