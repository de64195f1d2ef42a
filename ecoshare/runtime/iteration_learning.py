"""Learns how many iterations a job takes: from completed jobs of its class with the same arguments, for later plans.

::

    run ──► RunHistory ──► teach ──► IterationStore ──► learned ──► Plan: `iterations` of jobs that give none

Trials of a sweep neither teach nor learn. Their values may decide their length, and values rarely come twice. Neither
do services: requests decide their length.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ecoshare.common.plural import counted, listed
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.schema import JobConfig
from ecoshare.profiling.iteration_store import IterationCount, IterationStore, JobArguments, LearnedIterations
from ecoshare.profiling.profile import ProfileOrigin
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.record.job_history import JobHistory
from ecoshare.runtime.class_knowledge import teach_memory
from ecoshare.runtime.job_class import JobClass
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.values.attempt import Outcome

_MOST_NOTES = 3
"""Most notes of a plan about learned numbers."""

_DIGITS = 4
"""Digits of the digest of a job's environment. They tell environments apart, and are too few to find a secret."""


def learned(
    planned: Iterable[tuple[JobConfig, JobClass]], store: ProfileStore | None, notes: list[str]
) -> dict[str, LearnedIterations]:
    """Learned number of iterations of each job that gives none, by its name.

    Args:
        planned: Each job of the job file with its class. Sweeps and services are left out.
        store: Profiles of job classes, which have the counts beside them; None to learn nothing.
        notes: Notes for the user, which get the origin of the numbers.
    """
    if store is None:
        return {}
    kept = IterationStore(store.folder)
    unknown = [
        (job, job_class)
        for job, job_class in planned
        if job.iterations is None and job.sweep is None and job.service is None
    ]
    classes = {name: kept.find(name) for name in dict.fromkeys(job_class.name for _, job_class in unknown)}
    found: dict[str, LearnedIterations] = {}
    for job, job_class in unknown:
        counts = classes[job_class.name]
        if counts is not None and (number := counts.of(_arguments(job, job_class.origin))) is not None:
            found[job.name] = number
    notes += kept.notes + _notes(found)
    return found


def teach(jobs: Sequence[PlannedJob], history: Mapping[str, JobHistory], run: str, store: ProfileStore) -> list[str]:
    """Add the iterations of all completed jobs of a run to the store, and what its jobs took of memory.

    Returns:
        Notes for the user.

    Args:
        jobs: Jobs of the run.
        history: History of each job, over all sessions of the run.
        run: Name of the run folder. A job of a run counts once, however often it is told.
        store: Profiles of job classes, which get the counts beside them.
    """
    origins: dict[str, ProfileOrigin] = {}
    new: dict[str, list[tuple[JobArguments, IterationCount]]] = defaultdict(list)
    for job in sorted(jobs, key=lambda each: _finish_s(history.get(each.spec.name))):
        told = history.get(job.spec.name)
        if told is None or told.spec is None or told.spec.sweep or told.spec.service is not None:
            continue
        if iterations := _iterations(told, continues=bool(job.source.resume_args)):
            origin = origins[told.spec.job_class] = job.job_class.origin
            count = IterationCount(iterations=iterations, run=run, job=told.name)
            new[told.spec.job_class].append((_arguments(job.source, origin), count))
    kept = IterationStore(store.folder)
    try:
        for name, counts in new.items():
            kept.add(name, origins[name], counts)
        teach_memory(history, store)
    except (UnfitEnvironment, ValueError) as error:
        return [*kept.notes, f"the iterations of completed jobs are not kept: {error}"]
    return kept.notes


def _iterations(job: JobHistory, continues: bool) -> int | None:
    """Training iterations of a completed job; None if it did not complete, or if they are unknown.

    An attempt after another one may begin again or continue. The job shows that it continues by its `resume_args`. Then
    the iterations of all attempts are added up. Without them the count is unknown, unless earlier attempts did none.
    On more devices than the job needs, its ranks may do fewer iterations for the same work, so the count is unknown. So
    it is if attempts were over before the log began.
    """
    is_known = not job.widened and not job.unknown_attempts
    if job.exit is None or job.exit.outcome is not Outcome.COMPLETED or not is_known:
        return None
    before = 0
    for attempt in job.starts.keys() - {job.attempt}:
        end = job.exits.get(attempt)
        if end is None:  # cut off with the run
            return None
        before += end.usage.iterations
    return before + job.usage.iterations if continues or not before else None


def _finish_s(job: JobHistory | None) -> float:
    return job.finish_s or 0.0 if job is not None else 0.0


def _arguments(job: JobConfig, origin: ProfileOrigin) -> JobArguments:
    environment = json.dumps(sorted(job.env.items())).encode()
    return JobArguments.of(origin, hashlib.sha256(environment).hexdigest()[:_DIGITS] if job.env else "")


def _notes(found: Mapping[str, LearnedIterations]) -> list[str]:
    """Origin of the learned numbers; jobs with equal numbers of equal origin share a line."""
    jobs: dict[LearnedIterations, list[str]] = defaultdict(list)
    for name, number in found.items():
        jobs[number].append(name)
    lines = [
        f"iterations of {listed(names)}: {number.iterations:,}{' each' if len(names) > 1 else ''}, {number.source}"
        for number, names in jobs.items()
    ]
    if len(lines) > _MOST_NOTES:
        rest = sum(len(names) for names in list(jobs.values())[_MOST_NOTES:])
        return [*lines[:_MOST_NOTES], f"iterations of {counted(rest, 'more job')} are learned from completed jobs, too"]
    return lines
