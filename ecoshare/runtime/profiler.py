"""Makes profiles from the results of windows, and stores them: in the user's store, and in the run folder."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import ecoshare
from ecoshare.core.profiling_windows import WARM_UP_S, is_long_enough
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.quantities import format_duration
from ecoshare.lane.files import of_attempt
from ecoshare.lane.messages import Ready
from ecoshare.profiling.colocation_store import ColocationStore
from ecoshare.profiling.profile import BatchAnswers, Machine, Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.record import samples
from ecoshare.record.job_summary import JobSummary
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import attempt_key, of_device
from ecoshare.runtime.answer_profile import batch_answers
from ecoshare.runtime.meter_sampler import MeterSampler
from ecoshare.runtime.node_job import NodeJob
from ecoshare.runtime.profile_making import MeterFacts, profile
from ecoshare.runtime.profiling_window import Limits, WindowResult
from ecoshare.serving import batch_measurement
from ecoshare.serving.batch_measurement import BatchTimes
from ecoshare.values.device import DeviceInfo
from ecoshare.values.measurement import ColocationMeasurement
from ecoshare.values.service import BATCHES

_LOOK_S = 1.0
"""Longest time (s) until the core hears that a job is warm."""


@dataclass(slots=True)
class Profiler:
    """Stores the profiles of one run.

    Attributes:
        folder: The run folder.
        store: Profile store of the user.
        limits: Limits on the length of a window.
        stops_the_run: Whether the run is for a profile only, and stops after a window.
        seen: Co-location measurements that are stored already.
        made: Profiles that this run has made, by class.
        notes: Notes for the user, one line each.
        disturbed: Disturbances of the windows of jobs, in words. They become notes when the lengths of the jobs are
            known.
    """

    folder: RunFolder
    store: ProfileStore
    limits: Limits
    stops_the_run: bool = False
    seen: set[ColocationMeasurement] = field(default_factory=set)
    made: dict[str, Profile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    disturbed: dict[str, str] = field(default_factory=dict)

    def keep(
        self,
        device: DeviceInfo,
        job: NodeJob,
        attempt: int,
        measured: WindowResult,
        ready: Ready | None,
        sampler: MeterSampler,
        power_limit_w: float | None,
    ) -> Profile:
        """Make and store the profile of a job's class.

        Args:
            device: The device that the job had to itself.
            job: The job that was measured.
            attempt: Number of its attempt.
            measured: Result of the window.
            ready: Start message of the warm server; None if it is unknown.
            sampler: Sampler of the device.
            power_limit_w: Power limit (W) in force on the device; None if it is unknown.

        Raises:
            UnfitEnvironment: The run folder cannot be written.
        """
        meter = None
        if sampler.session is not None and measured.samples:
            meter = MeterFacts(sampler.session, sampler.idle_w)
        made = profile(
            job.job_class,
            _machine(device, ready),
            measured,
            meter,
            attempt_key(job.spec.name, attempt),
            power_limit_w,
            self._batches(device, job, attempt),
        )
        self.take(made, job.spec.name)
        return made

    def take(self, made: Profile, job: str) -> None:
        """Store a profile that this run has made.

        A whole profile in the store is not replaced by a profile that lacks something. If the store cannot be written,
        later runs miss the profile, but this run continues.

        Args:
            made: The profile.
            job: Name of the job that was measured.

        Raises:
            UnfitEnvironment: The run folder cannot be written.
        """
        self.made[made.job_class] = made
        ProfileStore(self.folder.profiles).save(made)
        before = self.store.find(made.job_class)
        if before is not None and before.memory.seen_bytes is not None:
            memory = made.memory.model_copy(update={"seen_bytes": before.memory.seen_bytes})
            made = made.model_copy(update={"memory": memory})
        if before is not None and before.is_whole and not made.is_whole:
            why = "the meter failed" if made.meter_failed else made.doubt or "no iteration was timed"
            self.notes.append(f"{why} while {job} was measured: its profile stays as it was")
            return
        if made.doubt and made.batches:
            self.notes.append(f"{made.doubt} while {job} was measured: measure it again")
        elif made.doubt:
            self.disturbed[job] = made.doubt
        try:
            self.store.save(made)
        except UnfitEnvironment as error:
            self.notes.append(f"the profile of {job} is not kept: {error}")

    def window_limits(self, job: str, attempt: int) -> Limits:
        """Limits on the window of an attempt: a service has measured its times before, so its window is short."""
        is_timed = bool(self._measured(job, attempt)) and self.limits.iterations is None
        return replace(self.limits, longest_s=self.limits.shortest_s) if is_timed else self.limits

    def _measured(self, job: str, attempt: int) -> list[BatchTimes]:
        """Times that a service has measured by batch size; empty for any other job."""
        return batch_measurement.read(of_attempt(self.folder.job(job), BATCHES, attempt))

    def _batches(self, device: DeviceInfo, job: NodeJob, attempt: int) -> tuple[BatchAnswers, ...]:
        """Answers that the job has measured; empty if it has measured none.

        Raises:
            UsageError: The samples of the run cannot be read.
        """
        if not (measured := self._measured(job.spec.name, attempt)):
            return ()
        return batch_answers(measured, of_device(samples.read(self.folder.samples), device.name))

    def doubt(self, jobs: Iterable[JobSummary]) -> bool:
        """Mark the stored profiles that jobs of the summary were faster than. The next run measures them again.

        Notes say so, and of profiles that were disturbed, unless the job is too short for a window.

        Returns:
            Whether any profile was marked.
        """
        is_any = False
        for job in jobs:
            if doubt := self.disturbed.pop(job.name, ""):
                again = _again(job, self.made[job.job_class])
                self.notes.append(f"{doubt} while {job.name} was measured: {again}")
            found = self.store.find(job.job_class) if job.profile_doubt else None
            if found is None or found.doubt:
                continue
            doubted = found.model_copy(update={"doubt": f"{job.name} {job.profile_doubt}"})
            if self.made.get(job.job_class) == found:
                self.made[job.job_class] = doubted
            try:
                self.store.save(doubted)
            except UnfitEnvironment:
                continue  # `keep` reports a store that cannot be written
            is_any = True
            self.notes.append(f"{job.name} {job.profile_doubt}: {_again(job, found)}")
        return is_any

    def keep_seen(self, seen: Iterable[ColocationMeasurement]) -> None:
        """Store co-location measurements for later runs, each of them once."""
        new = [each for each in seen if each not in self.seen]
        self.seen.update(new)
        kept = ColocationStore(self.store.folder)
        for each in new:
            try:
                kept.save(each.classes, each.speeds, each.power_w)
            except UnfitEnvironment as error:
                self.notes.append(f"what was measured of neighbours is not kept: {error}")
                return


def _again(job: JobSummary, made: Profile) -> str:
    """Words on the next measurement of a job's class. A job that was stopped may be longer than it was."""
    starts_s = job.preparation_s or 0.0
    work_s = (job.held_s or 0.0) - starts_s
    turn_s = min(starts_s, WARM_UP_S) + work_s - _LOOK_S
    done = job.iterations + job.eval_iterations
    if job.completed and job.held_s and not is_long_enough(turn_s, done, made.machine.on_processors):
        return f"its work of {format_duration(work_s)} is too short to be measured again in a run"
    return "it is measured again in the next run"


def _machine(device: DeviceInfo, ready: Ready | None) -> Machine:
    threads = ready.threads if ready is not None else None
    if threads is not None and device.processors:
        threads = min(threads, len(device.processors))
    return Machine(
        device=device.name,
        kind=device.kind,
        uuid=device.uuid,
        driver=device.driver,
        cores=device.cores,
        intra_op_threads=threads,
        python=sys.version.split()[0],
        platform=platform.platform(),
        ecoshare=ecoshare.__version__,
    )
