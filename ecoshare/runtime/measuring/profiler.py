"""Makes profiles from the results of windows, and stores them: in the user's store, and in the run folder."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Literal

import ecoshare
from ecoshare.base.device import DeviceInfo
from ecoshare.base.joules import MEASURED, Energy
from ecoshare.base.measurement import ColocationMeasurement
from ecoshare.base.plural import listed
from ecoshare.base.printable import utc_text
from ecoshare.base.service import BATCHES
from ecoshare.core.settings.profiling_windows import WARM_UP_S, is_long_enough
from ecoshare.devices.meter import MeterFault
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.quantities import format_duration
from ecoshare.knowledge.colocation_store import ColocationStore
from ecoshare.knowledge.profile import (
    AchievedSetting,
    BatchAnswers,
    IterationEnergy,
    IterationTimes,
    Machine,
    MemoryProfile,
    Profile,
    ProfileWindow,
    Use,
    times,
)
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane.files import of_attempt
from ecoshare.lane.messages import Ready
from ecoshare.lane.serving import batch_measurement
from ecoshare.lane.serving.batch_measurement import STEADY, BatchTimes
from ecoshare.lane.trace import Kind, Mark, iterations
from ecoshare.record import samples
from ecoshare.record.accounts.energy_account import spent
from ecoshare.record.metric_reader import reported
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Line, Sample, Session, attempt_key, of_device
from ecoshare.runtime.measuring.meter_sampler import MeterSampler
from ecoshare.runtime.measuring.profiling_window import Limits, WindowResult, durations
from ecoshare.runtime.planning.job_class import JobClass
from ecoshare.runtime.planning.node_job import NodeJob


def batch_answers(measured: Sequence[BatchTimes], lines: Sequence[Line]) -> tuple[BatchAnswers, ...]:
    """Answers of a service by batch size.

    The meter is sampled once a second. The samples inside the time of a batch size give the power at this size:

    ::

        samples       │     │     │     │     │     │
        batches of 4     ├──────────────────┤
        power                 ├───────────┤

    Args:
        measured: Times that the service has measured.
        lines: Session and samples of its device, in order.
    """
    session = next((line for line in reversed(lines) if isinstance(line, Session)), None)
    samples = [line for line in lines if isinstance(line, Sample)]
    return tuple(_answers(times, samples, session) for times in measured)


def _answers(times: BatchTimes, samples: Sequence[Sample], session: Session | None) -> BatchAnswers:
    inside = [sample for sample in samples if times.from_s <= sample.at_s <= times.to_s]
    per_request_j = error = None
    if session is not None and (energy := _spent(inside, session)) is not None:
        power_w = energy.value_j / (inside[-1].at_s - inside[0].at_s)
        per_request_j = power_w * times.mean_s / times.size
        error = energy.standard_error_j / energy.value_j if session.source == MEASURED else None
    return BatchAnswers(
        size=times.size,
        count=times.count,
        mean_s=times.mean_s,
        standard_error_s=times.standard_error_s,
        median_s=times.median_s,
        p95_s=times.p95_s,
        p99_s=times.p99_s,
        per_request_j=per_request_j,
        energy_error=error,
    )


def _spent(samples: Sequence[Sample], session: Session) -> Energy | None:
    """Energy between the first and the last sample; None if it is unknown."""
    if len(samples) < 2:
        return None
    try:
        energy = spent(samples[0], samples[-1], session)
    except MeterFault:
        return None
    return energy if energy.value_j > 0.0 else None


BUSY_ENOUGH = 0.8
"""Busy part of the time below which a device counts as host-bound.

Such a device waits for the processor: for launches, input, or synchronisation.
"""

MEMORY_BUSY_ENOUGH = 0.5
"""Busy part of the time of its memory from which on a GPU counts as memory-bound.

Both limits are rough: utilisation says how long something ran, not how well.
"""


@dataclass(frozen=True, slots=True)
class MeterFacts:
    """Facts about the meter that counted the joules of a window.

    Attributes:
        session: Session of the meter.
        idle_w: Power (W) of the idle device with the contexts up, or of the model; None if unknown.
    """

    session: Session
    idle_w: float | None


def profile(
    job_class: JobClass,
    machine: Machine,
    measured: WindowResult,
    meter: MeterFacts | None,
    key: str,
    power_limit_w: float | None = None,
    batches: tuple[BatchAnswers, ...] = (),
) -> Profile:
    """Profile that follows from a window.

    The iterations of a service in its window are answers of its largest batch, which `batches` has. So they are left
    out.

    Args:
        job_class: Class of the job.
        machine: The machine that the job ran on.
        measured: Result of the window.
        meter: Meter of the window; None if there is neither a meter nor a model.
        key: Key of the attempt in the samples.
        power_limit_w: Power limit (W) in force during the window; None if unknown.
        batches: Answers of a service by batch size, measured before the window; empty for any other program.
    """
    from_s, to_s = _span(measured)
    train = times(durations(measured.marks, from_s, to_s, Kind.TRAIN))
    evaluation = times(durations(measured.marks, from_s, to_s, Kind.EVAL))
    notes: list[str] = []
    energy, meter_failed = None, False
    if meter is None:
        notes.append("no joules: this machine has no energy meter and no model")
    else:
        try:
            energy = _energy(measured, meter)
        except MeterFault as fault:
            meter_failed = True
            notes.append(f"no joules: {fault}")
    if train is None and evaluation is None:
        notes.append("no iteration times: fewer than two iterations ended in the window")
    unsettled = [str(each.size) for each in batches if each.relative_error is None or each.relative_error > STEADY]
    steady = not unsettled if batches else measured.steady
    if not steady:
        which = f"the time of batches of {listed(unsettled)}" if batches else "the iteration time"
        notes.append(f"{which} had not settled when the window ended")
    unknown = [str(each.size) for each in batches if each.per_request_j is None]
    if unknown and energy is not None:
        notes.append(f"no joules of batches of {listed(unknown)}: too few samples of the meter")
    if measured.disturbed:
        again = "measure the service again" if batches else "the class is measured again in the next run"
        notes.append(f"{measured.disturbed} meanwhile: {again}")
    if measured.memory is not None and measured.memory["note"]:
        notes.append(f"memory: {measured.memory['note']}")
    return Profile(
        job_class=job_class.name,
        made_utc=utc_text(),
        origin=job_class.origin,
        machine=machine,
        setting=AchievedSetting(
            gpu_clock_mhz=_typical(sample.gpu_clock_mhz for sample in measured.samples),
            memory_clock_mhz=_typical(sample.memory_clock_mhz for sample in measured.samples),
            power_limit_w=power_limit_w,
        ),
        memory=_memory(machine, measured),
        train=None if batches else train,
        eval=None if batches else evaluation,
        use=_use(machine, measured, key),
        energy=energy.without_iterations() if energy is not None and batches else energy,
        batches=batches,
        meter_failed=meter_failed,
        window=ProfileWindow(
            warm_up_iterations=measured.before.done,
            warm_up_s=measured.before.held_s,
            measured_s=to_s - from_s,
            total_s=measured.ended_s - measured.began_s,
            productive_s=to_s - from_s + _plain_s(measured, train or evaluation),
            overhead=_overhead(measured, train or evaluation, to_s - from_s),
            paused_jobs=measured.paused_jobs,
        ),
        steady=steady,
        doubt=measured.disturbed,
        notes=tuple(notes),
    )


def _span(measured: WindowResult) -> tuple[float, float]:
    if not measured.samples:
        return measured.timed_from_s, measured.timed_to_s
    return measured.samples[0].at_s, measured.samples[-1].at_s


def _memory(machine: Machine, measured: WindowResult) -> MemoryProfile:
    seen = measured.memory
    if seen is None:
        return MemoryProfile(
            persistent_bytes=None,
            ephemeral_bytes=None,
            model_bytes=None,
            framework_bytes=None,
            note="the job wrote nothing down",
        )
    context_bytes = persistent_bytes = ephemeral_bytes = None
    note = seen["note"]
    if machine.on_processors:
        persistent_bytes, ephemeral_bytes = seen["process_bytes"], seen["ephemeral_bytes"]
    elif seen["reserved_bytes"] is not None:
        if measured.device_bytes is not None and measured.device_bytes > seen["reserved_bytes"]:
            context_bytes = measured.device_bytes - seen["reserved_bytes"]
        else:
            note = "; ".join(
                filter(None, (note, "the driver does not tell this process's memory: P is without context"))
            )
        persistent_bytes = seen["reserved_bytes"] + (context_bytes or 0)
        if seen["peak_reserved_bytes"] is not None:
            ephemeral_bytes = max(0, seen["peak_reserved_bytes"] - seen["reserved_bytes"])
    live_bytes = seen["live_bytes"]
    return MemoryProfile(
        persistent_bytes=persistent_bytes,
        ephemeral_bytes=ephemeral_bytes,
        model_bytes=live_bytes,
        framework_bytes=max(0, persistent_bytes - live_bytes)
        if persistent_bytes is not None and live_bytes is not None
        else None,
        parts=seen["parts"],
        peak_bytes=seen["peak_bytes"],
        context_bytes=context_bytes,
        timeline=tuple((at_s, level_bytes) for at_s, level_bytes in seen["timeline"]),
        note=note,
    )


def _energy(measured: WindowResult, meter: MeterFacts) -> IterationEnergy:
    """Energy of an iteration.

    Each iteration counts with the part of it that lies in the window. So the window may begin and end within one.

    Raises:
        MeterFault: The meter gave no number for the window.
    """
    session, idle_w = meter.session, meter.idle_w
    first, last = measured.samples[0], measured.samples[-1]
    energy = spent(first, last, session)
    if energy.value_j <= 0.0:
        raise MeterFault("the energy counter stood still while the job ran")
    power_w = energy.value_j / (last.at_s - first.at_s)
    active_w = max(0.0, power_w - idle_w) if idle_w is not None else None
    train_s = _seconds_each(measured.marks, first.at_s, last.at_s, Kind.TRAIN)
    eval_s = _seconds_each(measured.marks, first.at_s, last.at_s, Kind.EVAL)
    return IterationEnergy(
        per_iteration_j=_product(power_w, train_s),
        per_eval_iteration_j=_product(power_w, eval_s),
        active_per_iteration_j=_product(active_w, train_s),
        active_per_eval_iteration_j=_product(active_w, eval_s),
        relative_error=energy.standard_error_j / energy.value_j if session.source == MEASURED else None,
        power_w=power_w,
        idle_w=idle_w,
        idle_share=min(1.0, idle_w / power_w) if idle_w is not None else None,
        source=session.source,
        scope=session.scope,
        meter=session.meter,
        about=session.about,
    )


def _seconds_each(marks: list[Mark], from_s: float, to_s: float, kind: Kind) -> float | None:
    """Mean time (s) of an iteration of a kind: time in the window / iterations in it, with parts at both ends."""
    spent_s = count = 0.0
    for each in iterations(marks):
        inside_s = min(each.to_s, to_s) - max(each.from_s, from_s)
        if each.kind is kind and inside_s > 0.0:
            spent_s += inside_s
            count += inside_s / (each.to_s - each.from_s)
    return spent_s / count if count else None


def _product(watts: float | None, seconds: float | None) -> float | None:
    return watts * seconds if watts is not None and seconds is not None else None


def _use(machine: Machine, measured: WindowResult, key: str) -> Use:
    bound: Literal["compute", "memory", "host"] | None = None
    if machine.on_processors:
        if len(measured.samples) < 2 or not machine.intra_op_threads:
            return Use(busy=None)
        first, last = measured.samples[0], measured.samples[-1]
        spent_s = last.jobs[key].cpu_s - first.jobs[key].cpu_s if key in first.jobs and key in last.jobs else 0.0
        busy = spent_s / (last.at_s - first.at_s) / machine.intra_op_threads
        return Use(busy=busy, bound_by="compute" if busy >= BUSY_ENOUGH else "host")
    busy_gpu = _mean(sample.busy for sample in measured.samples[1:])
    memory_busy = _mean(sample.memory_busy for sample in measured.samples[1:])
    if busy_gpu is not None:
        bound = "compute"
        if busy_gpu < BUSY_ENOUGH:
            bound = "host"
        elif memory_busy is not None and memory_busy >= MEMORY_BUSY_ENOUGH:
            bound = "memory"
    return Use(busy=busy_gpu, memory_busy=memory_busy, bound_by=bound)


def _overhead(measured: WindowResult, one: IterationTimes | None, measured_s: float) -> float | None:
    """Relative overhead: time that the observation added / time of all iterations of the window without it."""
    plain_s = _plain_s(measured, one)
    if not plain_s:
        return None
    return (measured.observed_s - plain_s) / (plain_s + measured_s)


def _plain_s(measured: WindowResult, one: IterationTimes | None) -> float:
    """Time (s) that the observed iterations would have taken without the observation."""
    return measured.observed * one.mean_s if one is not None else 0.0


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _typical(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


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
        made = made.model_copy(update={"reported": reported(self.folder.job(job.spec.name), attempt)})
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
