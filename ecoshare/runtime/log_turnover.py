"""Turnover of the log of a run that stays open: a new segment begins, and what has ended is forgotten.

::

    log is long, or devices come or go ──► RunOpened(segment) ──► core begins anew, log goes on in a new file
                                                              ──► each part keeps what it has of jobs that go on
    jobs that ended ──► their iterations are learned from the old file, beside the run

A run of a job file begins a segment for devices that come or go only, and forgets no job. Jobs, their processes and the
tables of their lanes do not notice. See `base/segment.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ecoshare.base.job_spec import JobSpec
from ecoshare.base.segment import Segment
from ecoshare.core.events import RunOpened
from ecoshare.errors import EcoshareError
from ecoshare.jobs.quantities import format_size
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record import event_log
from ecoshare.record.run_history import RunHistory
from ecoshare.runtime.nodes.run_node import JoiningDevices, LeavingDevices
from ecoshare.runtime.planning.learning import teach_iterations
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_knowledge import known_demand, known_solo
from ecoshare.runtime.run import Run

DAY_S = 86_400.0
"""Age (s) of a segment from which another one begins, if a job has ended in it."""

SEGMENT_BYTES = 2 << 20
"""Size (bytes) of a segment from which another one begins: some hundred jobs."""


_OVERDUE = 4
"""How many times that size is worth a warning."""


class Keeper(Protocol):
    """Part of a run that knows single jobs."""

    def keep_only(self, names: Collection[str]) -> None:
        """Forget all jobs and sweeps but these, which have not ended."""
        ...


class LogTurnover:
    """Begins segments of the log.

    Attributes:
        count: Number of segments that were begun.
    """

    def __init__(self, run: Run, keepers: Sequence[Keeper]) -> None:
        """Nothing is begun yet.

        Args:
            run: The run. Jobs that have ended, and devices that leave, are taken out.
            keepers: Parts that forget jobs that have ended.
        """
        self.count, self._began_s = 0, 0.0
        self._run, self._keepers = run, keepers
        self._entering, self._going = list[JoiningDevices](), list[LeavingDevices]()  # with the present opening

    def never_joins(self, device: str) -> bool:
        """Whether a device that has failed was still to be used. None of its machine is used then."""
        lost = [each for each in self._run.coming if any(own.name == device for own in each.devices)]
        for each in lost:
            self._run.coming.remove(each)
        return bool(lost)

    def _is_long(self, at_s: float) -> bool:
        is_old = at_s - self._began_s >= DAY_S and self._run.core.live_jobs < len(self._run.core.jobs)
        return is_old or self._run.log.grown_bytes >= SEGMENT_BYTES

    def overdue(self) -> str:
        """Words on a log that has grown for long, because no segment could begin; empty if it has not."""
        grown_bytes = self._run.log.grown_bytes
        if not self._run.stays_open or grown_bytes < _OVERDUE * SEGMENT_BYTES:
            return ""
        waits = "a moment without a measurement, and without a job that moves or gives way"
        return (
            f"the log has grown by {format_size(grown_bytes)}, and memory with it: it waits for {waits} to begin anew"
        )

    def opening(self, at_s: float) -> RunOpened | None:
        """Event that begins a segment now; None if there is no reason for one, or if it has to wait."""
        is_due = bool(self._run.coming) or (self._run.stays_open and self._is_long(at_s))
        if self._run.leaving and self._run.arrivals.names_to_come:
            self._run.leaving.clear()  # a job that is still to come might use any device
        segment = self._run.core.segment if is_due or self._run.leaving else None
        self._run.leaving = self._may_leave(segment) if segment is not None else []
        if segment is None or not (is_due or self._run.leaving):
            return None
        segment = segment.without(frozenset().union(*(each.names for each in self._run.leaving)))
        self._began_s = at_s
        coming = self._run.arrivals.names_to_come
        for name in self._run.jobs.keys() & coming:
            self._run.jobs[name] = replace(self._run.jobs[name], spec=self._measured(self._run.jobs[name].spec))
        self._run.arrivals.learn(self._measured)
        carried = tuple(replace(each, spec=self._measured(each.spec)) for each in segment.jobs)
        classes = {each.spec.job_class for each in carried}
        classes.update(job.spec.job_class for name, job in self._run.jobs.items() if name in coming)
        classes.update(sweep.template.spec.job_class for sweep in self._run.arrivals.sweeps.values())
        works = {name for _, name in segment.lanes}
        devices = [each for each in self._run.devices if each.name in works]
        devices += [each for coming in self._run.coming for each in coming.devices]
        plan = replace(self._run.plan, devices=tuple(devices))
        opening = {**plan.opening(), **self._run.core.known(classes)}
        self._entering, self._run.coming = self._run.coming, []
        self._going, self._run.leaving = self._run.leaving, []
        self.count += 1  # now: commands that follow from the event are of the new segment
        return RunOpened(at_s=at_s, **opening, segment=replace(segment, jobs=carried))

    def _may_leave(self, segment: Segment) -> list[LeavingDevices]:
        """Devices of the segment that the jobs can do without."""
        gone, found = frozenset[str](), list[LeavingDevices]()
        present = {device for _, device in segment.lanes}
        for each in self._run.leaving:
            if each.names <= present and segment.spares(gone | each.names):
                gone |= each.names
                found.append(each)
        return found

    def _measured(self, spec: JobSpec) -> JobSpec:
        """Description of a job, with what this run has measured of its class."""
        made = self._run.profiler.made.get(spec.job_class)
        if made is None or spec.profiled:
            return spec
        sizes = spec.service.batch_sizes if spec.service is not None else ()
        speed = dict(self._run.plan.speeds.get(made.machine.device, ())).get(spec.job_class, 1.0)
        alone = known_solo(made, sizes).on_typical_device(speed)
        return replace(spec, memory=known_demand(made), solo=alone, profiled=made.is_whole)

    def begun(self) -> list[PlannedJob]:
        """Forget the jobs that have ended, after the core has begun the segment; return them."""
        for coming in self._entering:
            self._run.devices += coming.devices
            coming.began()
        for leaving in self._going:
            self._run.devices[:] = [each for each in self._run.devices if each.name not in leaving.names]
            leaving.left()
        if not self._run.stays_open:
            return []
        left = {*self._run.core.jobs, *self._run.core.sweeps, *self._run.arrivals.names_to_come}
        ended = [job for name, job in self._run.jobs.items() if name not in left]
        for job in ended:
            del self._run.jobs[job.spec.name]
        for each in self._keepers:
            each.keep_only(left)
        return ended

    async def learn(self, ended: Sequence[PlannedJob]) -> None:
        """Keep the iterations of jobs that have ended for later plans, as the end of a run does."""
        if not ended or self._run.plan.profiles is None or (before := self._run.log.before) is None:
            return
        self._run.profiler.notes += await asyncio.to_thread(
            _taught, ended, before, ProfileStore(self._run.plan.profiles)
        )


def _taught(ended: Sequence[PlannedJob], segment: Path, store: ProfileStore) -> list[str]:
    try:
        history = RunHistory(event_log.read(segment, last=True))
    except EcoshareError as error:
        return [f"the iterations of completed jobs are not kept: {error}"]
    return teach_iterations(ended, history.jobs, segment.parent.name, store)
