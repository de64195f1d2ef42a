"""Makes the profile of a job class from the result of a window. It is pure, so tests can use made-up windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from ecoshare.common.plural import listed
from ecoshare.common.utc_text import utc_text
from ecoshare.devices.meter import MeterFault
from ecoshare.lane.trace import Kind, Mark, iterations
from ecoshare.profiling.iteration_times import times
from ecoshare.profiling.profile import (
    AchievedSetting,
    BatchAnswers,
    IterationEnergy,
    IterationTimes,
    Machine,
    MemoryProfile,
    Profile,
    ProfileWindow,
    Use,
)
from ecoshare.record.energy_account import spent
from ecoshare.record.samples import Session
from ecoshare.runtime.job_class import JobClass
from ecoshare.runtime.profiling_window import WindowResult, durations
from ecoshare.serving.batch_measurement import STEADY
from ecoshare.values.joules import MEASURED

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
