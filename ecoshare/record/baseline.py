"""Baselines of a run: time and energy of the same work without sharing or settings; also the cost of the search."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ecoshare.profiling.profile import Profile
from ecoshare.record.energy_account import EnergyAccount
from ecoshare.record.job_summary import JobSummary
from ecoshare.record.packing_timeline import PackingPeriod, PackingTimeline
from ecoshare.record.profile_doubts import uncertain
from ecoshare.record.run_energy import DeviceSpan, RunEnergy
from ecoshare.record.savings import expected_scales, measured_scales, ratios
from ecoshare.record.window_costs import KNOWN, all_spent_j, within
from ecoshare.values.packing import Packing
from ecoshare.values.setting import AS_FOUND, Setting

PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Baseline:
    """Predicted cost of the work of a run otherwise; a value that is not known is None.

    Attributes:
        source: Always `predicted`.
        exclusive_energy_j: Joules of each job alone on a device, one after the other, at the default setting.
        exclusive_energy_error_j: Standard error (J) of `exclusive_energy_j`.
        exclusive_makespan_s: Time (s) of the same on the devices of the run, in the order of arrival.
        exclusive_makespan_error_s: Standard error (s) of `exclusive_makespan_s`.
        exclusive_starts_s: Part (s) of that in which torch is loaded and jobs prepare their data.
        packed_default_energy_j: Joules of the same packings at the default setting.
        unknown: Reasons why the values for jobs alone are None, one for each class.
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
    at_settings = _at_settings(timeline, energy, end_s)
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
    planned: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    load_s: float = 0.0,
) -> Baseline:
    """Predict two baselines for the same work: each job alone, and the same packings at the default setting.

    Alone means `python script`, one job after the other on each device, at the default setting. Time and joules of
    iterations come from the profiles of their classes. Each job loads torch and prepares its data in the time that this
    took in the run. This time counts at idle power, so the predicted joules are a lower bound. If a profile is not
    reliable, the values for jobs alone are None, and `unknown` gives the reasons.

    Args:
        jobs: Jobs of the summary.
        timeline: Packings of the run; None if they were not asked for, or are not compared with the default setting.
        planned: Jobs of the plan, by name.
        load_s: Time (s) to load torch.
    """
    worked = [job for job in jobs if job.attempts]
    unknown = _unknown(worked, profiles, planned)
    starts_s = [_start_s(job, planned.get(job.name, {}), load_s) for job in worked]
    pairs = [] if unknown else zip(worked, starts_s, strict=True)
    alone = [_alone(job, profiles.get(job.job_class), energy, start_s) for job, start_s in pairs]
    devices = max(1, len(energy.devices))
    makespan_s = _one_after_the_other_s(worked, [each.time_s for each in alone], devices) if alone else None
    energy_j = _sum([each.energy_j for each in alone]) if alone else None
    classes = [job.job_class for job in worked]
    return Baseline(
        exclusive_energy_j=energy_j,
        exclusive_energy_error_j=_error(classes, [each.energy_error_j for each in alone]) if energy_j else None,
        exclusive_makespan_s=makespan_s,
        exclusive_makespan_error_s=_error(classes, [each.time_error_s for each in alone]) if makespan_s else None,
        exclusive_starts_s=math.fsum(starts_s) if makespan_s else None,
        packed_default_energy_j=None if timeline is None else _at_default_j(timeline, energy, end_s),
        unknown=tuple(unknown),
    )


def _unknown(
    jobs: Sequence[JobSummary], profiles: Mapping[str, Profile], planned: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Reasons why no saving is claimed, one for each class."""
    reasons: dict[str, str] = {}
    for job in jobs:
        if job.job_class not in reasons and (why := uncertain(job, profiles.get(job.job_class))):
            remedy = "" if job.widened else _remedy(planned.get(job.name, {}))
            reasons[job.job_class] = f"{why}{remedy}"
    return list(reasons.values())


def _remedy(planned: Mapping[str, Any]) -> str:
    """Advice on how to measure a class again; empty for a service, and if `ecoshare profile` cannot run the job."""
    if not planned.get("script") or planned.get("service"):
        return ""
    args = " -- ..." if planned.get("args") else ""
    return f"; `ecoshare profile {Path(planned['script']).name}{args}` measures it"


@dataclass(frozen=True, slots=True)
class _Alone:
    """Time and joules of all iterations of a job alone, with standard errors; None if not known."""

    time_s: float | None
    time_error_s: float | None
    energy_j: float | None
    energy_error_j: float | None


def _start_s(job: JobSummary, planned: Mapping[str, Any], load_s: float) -> float:
    """Time (s) until the first iteration of a job alone; preparation in a fresh interpreter includes loading torch."""
    own = planned.get("isolation") == "fresh"
    return (0.0 if own else load_s) + (job.preparation_s or 0.0)


def _alone(job: JobSummary, profile: Profile | None, energy: RunEnergy, start_s: float) -> _Alone:
    if profile is None:
        return _Alone(None, None, None, None)
    guessed = profile.guessed(job.iterations, job.eval_iterations)
    counts = job.iterations + guessed, job.eval_iterations - guessed
    time_s = profile.alone_s(job.iterations, job.eval_iterations)
    time_error_s = profile.alone_error_s(job.iterations, job.eval_iterations)
    energy_j = _alone_j(counts, profile, energy)
    energy_error_j = None
    if energy_j is not None and profile.energy is not None and time_s and time_error_s is not None:
        # The error of a modelled power is not known, so only the error of the time counts.
        energy_error_j = energy_j * math.hypot(time_error_s / time_s, profile.energy.relative_error or 0.0)
    if time_s is not None:
        time_s += start_s
    if energy_j is not None and energy.session is not None:
        energy_j += start_s * (energy.session.idle_w or 0.0)
    return _Alone(time_s, time_error_s, energy_j, energy_error_j)


def _alone_j(counts: tuple[int, int], profile: Profile, energy: RunEnergy) -> float | None:
    """Joules of so many iterations (training, inference) alone; None if the run's joules are of another kind."""
    if profile.energy is None or energy.session is None:
        return None
    own, of_run = profile.energy, energy.session
    if (own.source, own.scope) != (of_run.source, of_run.scope):
        return None
    return _of_both(counts, own.per_iteration_j, own.per_eval_iteration_j)


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


def _one_after_the_other_s(jobs: Sequence[JobSummary], works_s: Sequence[float | None], devices: int) -> float | None:
    """Time (s) from the first arrival to the last finish if each device runs one job at a time, in order of arrival."""
    first_s = min((job.arrival_s for job in jobs if job.arrival_s is not None), default=None)
    if first_s is None:
        return None
    free_s = [first_s] * devices  # heap of the times at which a device is free
    for job, work_s in sorted(zip(jobs, works_s, strict=True), key=lambda each: each[0].arrival_s or 0.0):
        if work_s is None or job.arrival_s is None:
            return None
        heapq.heapreplace(free_s, max(free_s[0], job.arrival_s) + work_s)
    return max(free_s) - first_s


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
    for (packing, setting), parts in _at_settings(timeline, energy, end_s).items():
        value_j, ratio = all_spent_j([span for _, span in parts]), found.get((packing, setting))
        if value_j is None:
            return None
        scale = scales.get(packing)
        if ratio is not None:
            changed_j += value_j * (1.0 / ratio - 1.0)
        elif scale is not None:
            work = math.fsum(scale.work(stretch.classes, _done(*span)) for stretch, span in parts)
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
    timeline: PackingTimeline, energy: RunEnergy, end_s: float
) -> dict[tuple[Packing, Setting], list[tuple[PackingPeriod, DeviceSpan]]]:
    """Time spans of each packing at each setting other than the default."""
    found: dict[tuple[Packing, Setting], list[tuple[PackingPeriod, DeviceSpan]]] = {}
    for stretch in timeline.stretches:
        for setting, from_s, to_s in stretch.parts(end_s):
            if setting != AS_FOUND and to_s > from_s:
                found.setdefault((stretch.packing, setting), []).append(
                    (stretch, (energy.of(stretch.device), from_s, to_s))
                )
    return found
