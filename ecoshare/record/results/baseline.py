"""Baselines of a run: time and energy of the same work without sharing or settings; also the cost of the search."""

from __future__ import annotations

import contextlib
import heapq
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ecoshare.base.device import PROCESSORS
from ecoshare.base.joules import MODELLED
from ecoshare.base.measurement import AS_FOUND, Packing, Setting, class_of
from ecoshare.knowledge.profile import Profile
from ecoshare.record.accounts.alone_time import GUESSED_ERROR, GUESSED_SHARE
from ecoshare.record.accounts.energy_account import EnergyAccount
from ecoshare.record.accounts.run_energy import DeviceSpan, RunEnergy
from ecoshare.record.packing_timeline import PackingPeriod, PackingTimeline
from ecoshare.record.plan_document import JobDocument
from ecoshare.record.results.costs_and_savings import (
    KNOWN,
    all_spent_j,
    expected_scales,
    measured_scales,
    ratios,
    within,
)
from ecoshare.record.results.job_summary import JobSummary

PREDICTED = "predicted"

MOST_GUESSED = 0.5
"""Part of the time alone of all jobs that may be guessed if savings are told. The guess is a part of their error."""

_MODEL_ERROR = 0.1
"""Relative error of the joules that a model adds for a job beside others, over those that it adds for the job alone."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Predicted cost of the work of a run otherwise; a value that is not known is None.

    Attributes:
        source: Always `predicted`.
        exclusive_energy_j: Joules of each job alone on a device, one after the other, at the default setting.
        exclusive_energy_error_j: Standard error (J) of `exclusive_energy_j`.
        exclusive_makespan_s: Time (s) of the same on the devices of the run, in the order of arrival.
        exclusive_makespan_error_s: Standard error (s) of `exclusive_makespan_s`.
        exclusive_starts_s: Part (s) of that in which torch is loaded and jobs prepare their data, on the device that
            ends last.
        packed_default_energy_j: Joules of the same packings at the default setting.
        unknown: Reasons why the values for jobs alone are None, one for each class, with the command that measures it.
    """

    source: str = field(default=PREDICTED, init=False)
    exclusive_energy_j: float | None = None
    exclusive_energy_error_j: float | None = None
    exclusive_makespan_s: float | None = None
    exclusive_makespan_error_s: float | None = None
    exclusive_starts_s: float | None = None
    packed_default_energy_j: float | None = None
    unknown: tuple[str, ...] = ()


def search_cost_j(timeline: PackingTimeline, energy: RunEnergy, end_s: float) -> float | None:
    """Joules spent at settings that were tried and not kept, beyond those of the same work at the default setting.

    The cost is zero if no such setting was tried, and None if the cost of none of them is known.
    """
    at_settings = _at_settings(timeline, energy, end_s, timeline.kept)
    tried = {key: parts for key, parts in at_settings.items() if timeline.kept.get(key[0]) != key[1]}
    if not tried:
        return 0.0
    found = ratios(timeline)
    known = []
    for key, parts in tried.items():
        ratio, value_j = found.get(key), all_spent_j([span for _, span in parts])
        if ratio is not None and value_j is not None:
            known.append(max(0.0, value_j * (1.0 - 1.0 / ratio)))
    return math.fsum(known) if known else None


def baseline(
    jobs: Sequence[JobSummary],
    profiles: Mapping[str, Profile],
    timeline: PackingTimeline | None,
    energy: RunEnergy,
    end_s: float,
    planned: Mapping[str, JobDocument] = MappingProxyType({}),
    load_s: float = 0.0,
    others_busy: float = 0.0,
) -> Baseline:
    """Predict two baselines for the same work: each job alone, and the same packings at the default setting.

    Alone means `python script`, one job after the other on each device, at the default setting. Each job takes the time
    alone of its iterations (`alone_time.py`), and loads torch and prepares its data in the time that this took in the
    run. Joules are those of its iterations in the profile of its class, and idle power for all time beyond them; for a
    job that met no other one, and for modelled joules, those above idle power that it had in the run, and idle power.
    If too little is known of the jobs alone, the values for jobs alone are None, and `unknown` gives the reasons.

    Args:
        jobs: Jobs of the summary.
        timeline: Packings of the run; None if they were not asked for, or are not compared with the default setting.
        planned: Jobs of the plan, by name.
        load_s: Time (s) to load torch.
        others_busy: Part of the processors that other programs kept busy in the run, 0 to 1. The time to load torch may
            have been longer by as much.
    """
    worked = [job for job in jobs if job.attempts]
    on_processors = energy.session is not None and energy.session.scope == PROCESSORS
    times = [_alone(job, planned.get(job.name), load_s, on_processors) for job in worked]
    unknown = _unknown(worked, times, planned)
    has_worked = any(job.completed or (job.iterations and job.state != "failed") for job in worked)
    alone = times if has_worked and not unknown else []
    devices = max(1, len(energy.devices))
    loads_error_s = others_busy * math.fsum(each.load_s for each in alone) / devices  # it was measured once
    makespan_s, starts_s = _one_after_the_other_s(worked, alone, devices) if alone else (None, None)
    paired = zip(worked, alone, strict=True) if alone else ()
    joules = [_alone_j(job, each, profiles.get(job.job_class), energy) for job, each in paired]
    energy_j = _sum([each and each[0] for each in joules])
    classes = [job.job_class for job in worked]
    return Baseline(
        exclusive_energy_j=energy_j,
        exclusive_energy_error_j=_error(classes, [each[1] for each in joules if each]) if energy_j else None,
        exclusive_makespan_s=makespan_s,
        exclusive_makespan_error_s=(
            math.hypot(_error(classes, [each.error_s for each in alone]) or 0.0, loads_error_s) if makespan_s else None
        ),
        exclusive_starts_s=starts_s if makespan_s else None,
        packed_default_energy_j=None if timeline is None else _at_default_j(timeline, energy, end_s),
        unknown=tuple(unknown),
    )


@dataclass(frozen=True, slots=True)
class _Alone:
    """Time (s) of a job alone.

    Attributes:
        time_s: Time from its start to its end.
        start_s: Part of that without iterations: torch is loaded, data are prepared.
        load_s: Part of that in which torch is loaded, where that time is the one of the run's server.
        guessed_s: Part of that which is a guess.
        error_s: Standard error of `time_s`.
    """

    time_s: float
    start_s: float
    load_s: float
    guessed_s: float
    error_s: float


def _alone(job: JobSummary, planned: JobDocument | None, load_s: float, on_processors: bool) -> _Alone:
    """Time alone of a job. Preparation in a fresh interpreter includes loading torch.

    A job without an iteration that was seen is no longer in its preparation: all of that is work.
    """
    beside_s = (job.prepared_beside_s or 0.0) if on_processors else 0.0
    preparation_s = (job.preparation_s or 0.0) - (1.0 - GUESSED_SHARE) * beside_s
    if planned is not None and planned.isolation == "fresh":
        load_s = 0.0
    start_s = preparation_s + load_s
    error_s = math.hypot(job.alone_error_s or 0.0, GUESSED_ERROR * beside_s)
    guessed_s = (job.alone_guessed_s or 0.0) + GUESSED_SHARE * beside_s
    is_seen = job.iterations + job.eval_iterations > 0
    return _Alone(start_s + (job.alone_s or 0.0), start_s if is_seen else load_s, load_s, guessed_s, error_s)


def _unknown(jobs: Sequence[JobSummary], times: Sequence[_Alone], planned: Mapping[str, JobDocument]) -> list[str]:
    """Reasons why no saving is claimed, one for each class."""
    reasons: dict[str, str] = {}
    for job in jobs:
        if job.service is not None:
            reasons.setdefault(job.job_class, f"{job.name} is a service, and savings are those of iterations")
        elif job.is_beside_its_gpu:
            reasons.setdefault(job.job_class, f"{job.name} never used its GPU")
        elif job.widened:
            reasons.setdefault(job.job_class, f"{job.name} had more devices than it needs")
    guessed_s, all_s = math.fsum(each.guessed_s for each in times), math.fsum(each.time_s for each in times)
    if reasons or guessed_s <= MOST_GUESSED * all_s:
        return list(reasons.values())
    for job, each in sorted(zip(jobs, times, strict=True), key=lambda pair: -pair[1].guessed_s):
        if each.guessed_s > MOST_GUESSED * each.time_s:
            what = "iteration of" if job.alone_s else "part of"
            remedy = _remedy(planned.get(job.name))
            reasons.setdefault(job.job_class, f"no {what} {job.name} was alone, and no profile tells its time{remedy}")
    return list(reasons.values())


def _remedy(planned: JobDocument | None) -> str:
    """Command that measures a class; empty for a program that `ecoshare profile` cannot run."""
    if planned is None or not planned.script:
        return ""
    script = Path(planned.script)
    with contextlib.suppress(ValueError):
        script = script.relative_to(Path.cwd())
    command = ["ecoshare", "profile", str(script), *(["--", *planned.args] if planned.args else [])]
    return f"; `{shlex.join(command)}` measures it"


def _alone_j(job: JobSummary, alone: _Alone, profile: Profile | None, energy: RunEnergy) -> tuple[float, float] | None:
    """Joules of a job alone, and their standard error; None if the joules are not known, or of another kind.

    Joules above idle power belong to the work, and those of idle power to the time, which is that of this run: a
    machine that is slower or busier than on the day of the profile changes only the time.
    """
    session = energy.session
    if session is None:
        return None
    idle_w, iterations_s = session.idle_w or 0.0, alone.time_s - alone.start_s
    beside_s = (job.beside_s or 0.0) + (job.prepared_beside_s or 0.0)
    is_modelled = session.source == MODELLED
    if job.energy_per_iteration_j is not None and (is_modelled or (job.alone_s is not None and not beside_s)):
        active_j = job.energy_per_iteration_j * (job.iterations + job.eval_iterations)
        error = _MODEL_ERROR * min(1.0, beside_s / alone.time_s) if alone.time_s else 0.0
        return active_j + alone.time_s * idle_w, math.hypot(alone.error_s * idle_w, error * active_j)
    known = profile.energy if profile is not None and not profile.doubt else None
    if profile is None or known is None or (known.source, known.scope) != (session.source, session.scope):
        return None
    guessed = profile.guessed(job.iterations, job.eval_iterations)
    counts = job.iterations + guessed, job.eval_iterations - guessed
    in_profile_j = _of_both(counts, known.per_iteration_j, known.per_eval_iteration_j)
    if in_profile_j is None:
        return None
    slower_s = iterations_s - (profile.alone_s(job.iterations, job.eval_iterations) or iterations_s)
    # The error of a modelled power is not known, so only the error of the time counts.
    error = math.hypot(alone.error_s / iterations_s if iterations_s > 0.0 else 0.0, known.relative_error or 0.0)
    return in_profile_j + (alone.start_s + slower_s) * idle_w, in_profile_j * error


def _of_both(counts: tuple[int, int], of_training: float | None, of_eval: float | None) -> float | None:
    """Sum over training and inference iterations; None if a needed value is not known or no iteration was done."""
    done = [(count, value) for count, value in zip(counts, (of_training, of_eval), strict=True) if count]
    return _sum([None if value is None else count * value for count, value in done])


def _sum(values: Sequence[float | None]) -> float | None:
    """Sum of the values; None if there are no values or one is not known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if values and len(known) == len(values) else None


def _error(classes: Sequence[str], errors: Sequence[float | None]) -> float | None:
    """Standard error of a sum over jobs: jobs of one class share the error of their profile."""
    by_class: dict[str, float] = {}
    for name, error in zip(classes, errors, strict=True):
        if error is None:
            return None
        by_class[name] = by_class.get(name, 0.0) + error
    return math.hypot(*by_class.values())


def _one_after_the_other_s(
    jobs: Sequence[JobSummary], alone: Sequence[_Alone], devices: int
) -> tuple[float | None, float | None]:
    """Time (s) from the first arrival to the last finish if each device runs one job at a time, in order of arrival.

    The second number is the part of it in which jobs of the device that ends last start.
    """
    first_s = min((job.arrival_s for job in jobs if job.arrival_s is not None), default=None)
    if first_s is None:
        return None, None
    free_s = [(first_s, 0.0)] * devices  # heap of the times at which a device is free, with the starts until then
    for job, each in sorted(zip(jobs, alone, strict=True), key=lambda pair: pair[0].arrival_s or 0.0):
        if job.arrival_s is None:
            return None, None
        begins_s, starts_s = free_s[0]
        heapq.heapreplace(free_s, (max(begins_s, job.arrival_s) + each.time_s, starts_s + each.start_s))
    ends_s, starts_s = max(free_s)
    return ends_s - first_s, starts_s


def _at_default_j(timeline: PackingTimeline, energy: RunEnergy, end_s: float) -> float | None:
    """Joules of the run if every packing had run at the default setting; None if they are not known.

    Joules at another setting are divided by its measured ratio of E. Without a ratio, they are replaced by the joules
    of the same iterations at the default setting, as measured or predicted. If neither is known, they count unchanged,
    provided that they are a small part (a packing that was just leaving its setting).
    """
    total_j, unknown_j, changed_j = energy.value_j, 0.0, 0.0
    if total_j is None or timeline.differs_s is not None:
        return None
    found, scales = ratios(timeline), expected_scales(timeline) | measured_scales(timeline)
    for (packing, setting), parts in _at_settings(
        timeline, energy, end_s, {*scales, *(packing for packing, _ in found)}
    ).items():
        value_j, ratio = all_spent_j([span for _, span in parts]), found.get((packing, setting))
        if value_j is None:
            return None
        scale = scales.get(packing)
        if ratio is not None:
            changed_j += value_j * (1.0 / ratio - 1.0)
        elif scale is not None:
            work = math.fsum(scale.work(_classes(stretch, packing), _done(*span)) for stretch, span in parts)
            changed_j += work * scale.default - value_j
        else:
            unknown_j += value_j
    return total_j + changed_j if unknown_j <= (1.0 - KNOWN) * total_j else None


def _done(account: EnergyAccount, from_s: float, to_s: float) -> dict[str, float]:
    """Iterations of each job in a time span, training and inference together; intervals at its ends count in part."""
    done: dict[str, float] = {}
    for each, part in within(account, from_s, to_s):
        for job, count in each.iterations.items():
            done[job] = done.get(job, 0.0) + part * count
    return done


def _at_settings(
    timeline: PackingTimeline, energy: RunEnergy, end_s: float, known: Collection[Packing]
) -> dict[tuple[Packing, Setting], list[tuple[PackingPeriod, DeviceSpan]]]:
    """Time spans of each packing at each setting other than the default.

    A phase about which nothing is known counts as the same jobs in training.
    """
    found: dict[tuple[Packing, Setting], list[tuple[PackingPeriod, DeviceSpan]]] = {}
    for stretch in timeline.stretches:
        for setting, from_s, to_s in stretch.parts(end_s):
            if setting != AS_FOUND and to_s > from_s:
                packing = stretch.packing if stretch.packing in known else stretch.in_training
                span = energy.of(stretch.device), from_s, to_s
                found.setdefault((packing, setting), []).append((stretch, span))
    return found


def _classes(stretch: PackingPeriod, packing: Packing) -> dict[str, str]:
    """Class of each job, as the packing names it that stands for a stretch."""
    if packing == stretch.packing:
        return stretch.classes
    return {job: class_of(name) for job, name in stretch.classes.items()}
