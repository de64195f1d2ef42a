"""Jobs that an earlier session of a queue has left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ecoshare.core.states import JobState
from ecoshare.errors import EcoshareError
from ecoshare.jobs.load import LoadedJobs
from ecoshare.jobs.schema import JobConfig
from ecoshare.queue.job_store import JobEnd, JobRow, JobStore
from ecoshare.queue.submission_plan import Planner, inherited, loaded_jobs, renamed, with_environment
from ecoshare.runtime.plan import Plan


def no_jobs(queue: str) -> LoadedJobs:
    """Jobs of a queue before the first submission."""
    return LoadedJobs(Path(queue), "", "version: 1\njobs: []\n", (), made=True)


def leftover_jobs(queue: str, store: JobStore, planner: Planner) -> Plan:
    """Plan of the jobs of a queue that have not ended.

    A job that cannot be planned any more, because its script is gone, say, has failed, and the store says so.

    Args:
        queue: Name of the queue.
        store: Jobs of the queue.
        planner: Plans jobs on the devices of the queue.
    """
    rows = store.left()
    by_submission: dict[str, list[JobRow]] = {}
    for row in rows:
        by_submission.setdefault(row.submission, []).append(row)
    if rows:
        planner(no_jobs(queue), ())  # what is wrong with the whole run is not the fault of a job
    others, found = store.names(), list[JobConfig]()
    environments: dict[str, Mapping[str, str | None]] = {}
    for name, own in by_submission.items():
        submission = store.submission(name)
        assert submission is not None, "each job has its submission"
        names = {row.given: row.name for row in store.of_submission(name)}
        try:
            whole = renamed(loaded_jobs(submission, others), names)
            jobs = {job.name: job for job in whole.jobs}
            left = tuple(jobs[row.name] for row in own)
            planner(replace(whole, jobs=left), ())
        except EcoshareError as error:
            reason = f"cannot go on: {str(error).splitlines()[0]}"
            store.end(JobEnd(row.name, JobState.FAILED.value, time.time(), reason=reason) for row in own)
            continue
        environments.update(dict.fromkeys((row.name for row in own), inherited(submission)))
        found += [
            job if row.priority is None else job.model_copy(update={"priority": row.priority})
            for row, job in zip(own, left, strict=True)
        ]
    plan = with_environment(planner(replace(no_jobs(queue), jobs=tuple(found)), ()), environments)
    return replace(plan, ended=store.states(plan.awaited), held=frozenset(row.name for row in rows if row.held))
