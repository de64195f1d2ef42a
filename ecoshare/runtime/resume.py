"""Remaining work of an interrupted run, from its log and the exit records on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ecoshare.core.job_ends import SHORT_OF_MEMORY
from ecoshare.core.records import JobState
from ecoshare.jobs.sweep import trial_number
from ecoshare.lane.files import are_outputs_of
from ecoshare.record import samples
from ecoshare.record.job_history import JobHistory
from ecoshare.record.metric_reader import values_of
from ecoshare.record.run_documents import read_records
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import RunHistory
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.planned_sweeps import EndedTrial, PlannedSweep
from ecoshare.values.attempt import Outcome
from ecoshare.values.job_spec import EarlierAttempts
from ecoshare.values.sweep_spec import EarlierTrial


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
