"""From a submission to a plan: names, interpreter and environment of its jobs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.base.job_spec import EarlierAttempts
from ecoshare.core.arrival_gate import COMPLETED, in_words
from ecoshare.core.events import RunOpened
from ecoshare.core.records import JobState
from ecoshare.errors import EcoshareError
from ecoshare.jobs.fields import MAX_NAME_LENGTH, Isolation
from ecoshare.jobs.load import LoadedJobs, mistake_of, parse
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.sweep import LONGEST_NUMBER, sweep_of
from ecoshare.queue.job_store import JobEnd, JobRow, JobStore
from ecoshare.queue.queue_documents import Submission
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob

Planner = Callable[[LoadedJobs, Collection[str]], Plan]
"""Plans jobs on the devices of the queue. The second argument names the classes of the other jobs of the queue."""

_AT_THE_START = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that count only when an interpreter starts. A fork of the warm server would not see them."""

_OWN = "ECOSHARE_"


def loaded_jobs(submission: Submission, others: Collection[str]) -> LoadedJobs:
    """Jobs of a submission, with its interpreter.

    Args:
        submission: The submission.
        others: Names of jobs of the queue that its jobs may wait for.

    Raises:
        InvalidJobFile: The job file has mistakes.
    """
    path = Path(submission.folder, submission.file)
    loaded = parse(submission.text.encode(), path, submission.file, Path(submission.folder), others)
    changed = inherited(submission)
    fresh = any(name in changed for name in _AT_THE_START)
    jobs = tuple(_as_started_there(job, submission.python, fresh) for job in loaded.jobs)
    return replace(loaded, jobs=jobs, made=submission.made)


def _as_started_there(job: JobConfig, python: str | None, fresh: bool) -> JobConfig:
    changes: dict[str, Any] = {}
    if python is not None and job.python is None and Path(python) != Path(sys.executable):
        changes["python"] = python
    if fresh and job.isolation is Isolation.PROCESS:
        changes["isolation"] = Isolation.FRESH
    return job.model_copy(update=changes) if changes else job


def inherited(submission: Submission) -> dict[str, str | None]:
    """Variables that the submitter has and the queue has not, or has otherwise; None for one of the queue alone."""
    theirs = {name: value for name, value in submission.environment.items() if not name.startswith(_OWN)}
    ours = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    changed: dict[str, str | None] = {name: value for name, value in theirs.items() if ours.get(name) != value}
    absent = [name for name in ours if name not in theirs] if submission.is_whole_environment else []
    return {**changed, **dict.fromkeys(absent)}


def free_names(names: Collection[str], taken: Collection[str], sweeps: Collection[str]) -> dict[str, str]:
    """Names that the jobs of a file get in a queue, by their names in the file. A taken name gets a number.

    Args:
        names: Names in the file.
        taken: Names of jobs and sweeps of the queue.
        sweeps: Names of the sweeps of the queue, from which the names of trials are made.
    """
    given: dict[str, str] = {}
    used = set[str]()

    def is_taken(name: str, number: int) -> bool:
        free = _numbered(name, number)
        return free in used or free in taken or sweep_of(free) in sweeps or (number > 1 and free in names)

    for name in names:
        given[name] = _numbered(name, _free_number(partial(is_taken, name)))
        used.add(given[name])
    return given


def _numbered(name: str, number: int) -> str:
    """Name with a number; number 1 is not written."""
    suffix = f"-{number}"
    return name if number == 1 else f"{name[: MAX_NAME_LENGTH - LONGEST_NUMBER - len(suffix)]}{suffix}"


def _free_number(is_taken: Callable[[int], bool]) -> int:
    """A free number from 1 on; the one before it is taken.

    Bisection: a queue of months may have a hundred thousand jobs of one name, and each look is a query.
    """
    taken, free = 0, 1
    while is_taken(free):
        taken, free = free, 2 * free
    while free - taken > 1:
        middle = (taken + free) // 2
        taken, free = (middle, free) if is_taken(middle) else (taken, middle)
    return free


def renamed(loaded: LoadedJobs, names: Mapping[str, str]) -> LoadedJobs:
    """The same jobs with other names, and without those jobs that get none.

    Args:
        loaded: Jobs of a file.
        names: Names that the jobs get, by their names in the file. The names in `after` change, too.
    """

    def renew(job: JobConfig) -> JobConfig:
        after = {key: tuple(names.get(each, each) for each in getattr(job, key)) for key in ("after", "after_any")}
        return job.model_copy(update={"name": names[job.name], **after})

    jobs = tuple(renew(job) for job in loaded.jobs if job.name in names)
    return replace(loaded, jobs=jobs, given={new: old for old, new in names.items()})


def missing(job: JobConfig, ended: Mapping[str, str]) -> str:
    """Job or sweep that a job waits for and that has ended without completing; empty if there is none.

    Args:
        job: The job.
        ended: Final states of the jobs and sweeps that have ended, by name.
    """
    return next((name for name in job.after if ended.get(name, COMPLETED) != COMPLETED), "")


def check_startable(loaded: LoadedJobs, ended: Mapping[str, str], sweeps: Collection[str]) -> None:
    """Check that no job waits for one that has ended without completing.

    Args:
        loaded: The jobs.
        ended: Final states of the jobs and sweeps that have ended, by name.
        sweeps: Names of the sweeps of the queue.

    Raises:
        InvalidJobFile: A job could never start.
    """
    for job in loaded.jobs:
        if name := missing(job, ended):
            what = f"{name} {in_words(ended[name])}, so that {job.name} could never start"
            hint = f"submit {name} again" if name in sweeps else f"`ecoshare retry {name}` runs it again"
            raise mistake_of(loaded, job.name, "after", what, hint)


def with_environment(plan: Plan, environments: Mapping[str, Mapping[str, str | None]]) -> Plan:
    """The plan with what each job inherits from its submitter, by the name of the job or sweep."""

    def inherits(job: PlannedJob) -> PlannedJob:
        return replace(job, inherited=environments[job.spec.sweep or job.spec.name])

    jobs = tuple(inherits(job) for job in plan.jobs)
    sweeps = tuple(replace(sweep, template=inherits(sweep.template)) for sweep in plan.sweeps)
    return replace(plan, jobs=jobs, sweeps=sweeps)


Environment = Mapping[str, str | None]


def no_jobs(queue: str) -> LoadedJobs:
    """Jobs of a queue before the first submission."""
    return LoadedJobs(Path(queue), "", "version: 1\njobs: []\n", (), made=True)


def by_submission(rows: Sequence[JobRow]) -> list[list[JobRow]]:
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


class KnownMeasurements:
    """Measurements of packings and co-locations that the run knows."""

    def __init__(self) -> None:
        """None so far."""
        self._known: set[tuple[str, object]] = set()

    def begin(self, opening: Plan | RunOpened) -> None:
        """Know what the opening of a run or of a segment has, and nothing else."""
        self._known = _measurements(opening)

    def add(self, plan: Plan) -> None:
        """Know what a plan has, too."""
        self._known |= _measurements(plan)

    def new_of(self, plan: Plan) -> Plan:
        """The plan without what is known already."""
        settings = {each.packing: each for each in plan.known_settings if ("setting", each.packing) not in self._known}
        responses = {
            each.packing: each for each in plan.known_responses if ("response", each.packing) not in self._known
        }
        colocations = dict.fromkeys(each for each in plan.colocations if ("co-location", each) not in self._known)
        return replace(
            plan,
            known_settings=tuple(settings.values()),
            known_responses=tuple(responses.values()),
            colocations=tuple(colocations),
        )


def _measurements(told: Plan | RunOpened) -> set[tuple[str, object]]:
    return {
        *(("setting", each.packing) for each in told.known_settings),
        *(("response", each.packing) for each in told.known_responses),
        *(("co-location", each) for each in told.colocations),
    }
