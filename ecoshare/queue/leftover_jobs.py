"""Jobs of a queue that are planned again: those that an earlier session has left, and those that a user retries."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ecoshare.core.records import JobState
from ecoshare.errors import EcoshareError
from ecoshare.jobs.load import LoadedJobs
from ecoshare.jobs.schema import JobConfig
from ecoshare.queue.job_store import JobEnd, JobRow, JobStore
from ecoshare.queue.submission_plan import Planner, inherited, loaded_jobs, renamed, with_environment
from ecoshare.runtime.planning.plan import Plan
from ecoshare.values.job_spec import EarlierAttempts

Environment = Mapping[str, str | None]


def no_jobs(queue: str) -> LoadedJobs:
    """Jobs of a queue before the first submission."""
    return LoadedJobs(Path(queue), "", "version: 1\njobs: []\n", (), made=True)


def by_submission(rows: Sequence[JobRow]) -> list[list[JobRow]]:
    """Jobs of each submission."""
    found: dict[str, list[JobRow]] = {}
    for row in rows:
        found.setdefault(row.submission, []).append(row)
    return list(found.values())


def loaded_again(store: JobStore, rows: Sequence[JobRow], others: Collection[str]) -> tuple[LoadedJobs, Environment]:
    """Jobs of one submission as they were submitted, with their names in the queue, and what they inherit.

    Args:
        store: Jobs of the queue.
        rows: The jobs, of one submission.
        others: Names of all jobs of the queue.

    Raises:
        InvalidJobFile: The job file has mistakes by now: a script is gone, say.
    """
    submission = store.submission(rows[0].submission)
    assert submission is not None, "each job has its submission"
    names = {row.given: row.name for row in store.of_submission(submission.id)}
    whole = renamed(loaded_jobs(submission, others), names)
    jobs = {job.name: job for job in whole.jobs}
    own = (
        jobs[row.name] if row.priority is None else jobs[row.name].model_copy(update={"priority": row.priority})
        for row in rows
    )
    return replace(whole, jobs=tuple(own)), inherited(submission)


def planned_again(
    queue: str,
    jobs: Sequence[JobConfig],
    environments: Mapping[str, Environment],
    attempts: Mapping[str, int],
    planner: Planner,
    beside: Collection[str] = (),
) -> Plan:
    """Plan of jobs of several submissions.

    Args:
        queue: Name of the queue.
        jobs: The jobs.
        environments: What each job inherits, by its name.
        attempts: Number of the attempts of each job that count no more, by its name.
        planner: Plans jobs on the devices of the queue.
        beside: Classes of the other jobs of the queue.
    """
    plan = with_environment(planner(replace(no_jobs(queue), jobs=tuple(jobs)), beside), environments)
    again = (
        replace(job, spec=replace(job.spec, earlier_attempts=EarlierAttempts(attempts[job.spec.name])))
        if attempts.get(job.spec.name)
        else job
        for job in plan.jobs
    )
    return replace(plan, jobs=tuple(again))


def leftover_jobs(queue: str, store: JobStore, planner: Planner) -> Plan:
    """Plan of the jobs of a queue that have not ended.

    A job that cannot be planned any more, because its script is gone, say, has failed, and the store says so.

    Args:
        queue: Name of the queue.
        store: Jobs of the queue.
        planner: Plans jobs on the devices of the queue.
    """
    rows = store.left()
    if rows:
        planner(no_jobs(queue), ())  # what is wrong with the whole run is not the fault of a job
    others, found = store.names(), list[JobConfig]()
    environments: dict[str, Environment] = {}
    for own in by_submission(rows):
        try:
            loaded, environment = loaded_again(store, own, others)
            planner(loaded, ())
        except EcoshareError as error:
            reason = f"cannot go on: {str(error).splitlines()[0]}"
            store.end(JobEnd(row.name, JobState.FAILED.value, time.time(), reason=reason) for row in own)
            continue
        environments.update(dict.fromkeys((row.name for row in own), environment))
        found += loaded.jobs
    plan = planned_again(queue, found, environments, {row.name: row.attempts for row in rows}, planner)
    return replace(plan, ended=store.states(plan.awaited), held=frozenset(row.name for row in rows if row.held))
