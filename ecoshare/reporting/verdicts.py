"""Results of the decisions of a run, in a few lines: time and joules against both baselines, and limits and targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.reporting.reason_words import listed, percent

_WHOLE = 0.99
"""Share of the run's time with known joules from which on the run is compared with a baseline."""


UNKNOWN_SAVINGS = "what sharing saved is not known"


def verdicts(summary: RunSummary) -> list[str]:
    """Lines below the totals; a line about which nothing is known is left out."""
    return [line for line in (packed(summary), limits(summary), targets(summary)) if line]


def sharing(summary: RunSummary) -> str:
    """Time and joules that sharing saved or cost against one job after the other, with errors, in a sentence.

    The sentence gives the reason if they are not known. It is empty if fewer than two jobs ran. In a run with services
    it is about their targets: savings are those of iterations.
    """
    if any(job.service is not None for job in summary.jobs):
        return _served(summary)
    if sum(job.attempts > 0 for job in summary.jobs) < 2:
        return ""
    if reasons := unknown_savings(summary):
        return f"{UNKNOWN_SAVINGS}: {'; '.join(reasons)}"
    time, energy = _changes(summary)
    parts, alone = [], []
    if time is not None:
        parts.append((time.verb, time.words(format_duration)))
        starts_s = summary.baseline.exclusive_starts_s
        alone.append(
            format_duration(time.alone) + (f" ({format_duration(starts_s)} of it to start)" if starts_s else "")
        )
    if energy is not None:
        parts.append((energy.verb, energy.words(format_energy)))
        alone.append(format_energy(energy.alone))
    told = [words if place and verb == parts[0][0] else f"{verb} {words}" for place, (verb, words) in enumerate(parts)]
    source = f" (joules {summary.energy.source})" if energy is not None and summary.energy is not None else ""
    each = " on each device" if len(summary.devices) > 1 else ""
    takes = f"one after the other{each} takes {' and '.join(alone)}"
    return f"sharing {' and '.join(told)}: {takes}{source}"


def unknown_savings(summary: RunSummary) -> list[str]:
    """Reasons why `sharing` states no saving of jobs that shared a device; empty if it states one."""
    baseline = summary.baseline
    if any(job.service is not None for job in summary.jobs) or sum(job.attempts > 0 for job in summary.jobs) < 2:
        return []
    if baseline.unknown:
        return list(baseline.unknown)
    if any(each is not None for each in _changes(summary)):
        return []
    has_alone = baseline.exclusive_energy_j or baseline.exclusive_makespan_s
    return ["too little of the run's energy is known" if has_alone else "the jobs did nothing that could be compared"]


def _changes(summary: RunSummary) -> tuple[_Change | None, _Change | None]:
    """Time and joules, against one job after the other."""
    baseline = summary.baseline
    time = _change(summary.makespan_s, None, baseline.exclusive_makespan_s, baseline.exclusive_makespan_error_s)
    energy_error_j = None if summary.energy is None else summary.energy.standard_error_j
    alone_j, alone_error_j = baseline.exclusive_energy_j, baseline.exclusive_energy_error_j
    return time, _change(_energy_j(summary), energy_error_j, alone_j, alone_error_j)


def _served(summary: RunSummary) -> str:
    """Whether services kept their targets; one service with its latency."""
    services = [(job.name, job.service) for job in summary.jobs if job.service is not None]
    told = [(name, each, each.p99_s) for name, each in services if each.p99_s is not None]
    if not told:
        return f"{listed([name for name, _ in services])} answered no request"
    if len(services) == 1:
        ((name, each, p99_s),) = told
        in_time = f"{each.answered - each.late} of {counted(each.arrived, 'request')} in time"
        return f"{name} answered {in_time}: p99 {format_duration(p99_s)}, target {format_duration(each.target_s)}"
    met = sum(each.met is True for _, each in services)
    silent = len(services) - len(told)
    return f"{met} of {counted(len(services), 'service')} kept their targets" + (
        f", and {silent} had no requests" if silent else ""
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """A quantity of the run, compared with the same work done one job after the other.

    Attributes:
        saved: `alone` minus the quantity of the run; negative if the run took more.
        error: Standard error of `saved`.
        alone: Quantity of the same work, one job after the other.
    """

    saved: float
    error: float
    alone: float

    @property
    def verb(self) -> str:
        if abs(self.saved) <= self.error:
            return "neither saved nor cost more than the error:"
        return "saved" if self.saved > 0.0 else "cost"

    def words(self, shown: Callable[[float], str]) -> str:
        return (
            f"{shown(abs(self.saved))} ({percent(abs(self.saved) / self.alone)} ± {percent(self.error / self.alone)})"
        )


def _change(here: float | None, here_error: float | None, alone: float | None, error: float | None) -> _Change | None:
    if here is None or not alone:
        return None
    return _Change(alone - here, math.hypot(error or 0.0, here_error or 0.0), alone)


def packed(summary: RunSummary) -> str:
    """Joules against the same packings at the default setting; empty if these are not known or nothing was set."""
    baseline = summary.baseline
    spent_j, default_j = _energy_j(summary), baseline.packed_default_energy_j
    in_force = [each for each in summary.settings if each.error is None]
    if spent_j is None or not default_j or not in_force:
        return ""
    words = f"packed as it was at the default setting, {baseline.source}: {format_energy(default_j)}"
    return f"{words} ({_less(spent_j, default_j)})"


def limits(summary: RunSummary) -> str:
    """Number of slowdown limits that were kept and broken, and by how much; empty if no job has one."""
    limited = [job for job in summary.jobs if job.slowdown_limit is not None]
    if not limited:
        return ""
    kept = sum(job.slowdown_limit_met is True for job in limited)
    unknown = sum(job.slowdown_limit_met is None for job in limited)
    parts = [f"{kept} of {len(limited)} kept"] + ([f"{unknown} not known"] if unknown else [])
    broken = [_broken(job) for job in limited if job.slowdown_limit_met is False]
    words = f"limits: {', '.join(parts)}" + (f"; broken: {listed(broken)}" if broken else "")
    budget = summary.power_budget
    return words + ("; the power budget goes before them" if broken and budget and budget.sets_limits else "")


def targets(summary: RunSummary) -> str:
    """Services that missed their targets for whole minutes, and for how many; empty if there are none."""
    missed = [(job.name, job.service) for job in summary.jobs if job.service is not None and job.service.missed_minutes]
    words = [
        f"{name} for {counted(each.missed_minutes, 'minute')} (p99 within {format_duration(each.target_s)})"
        for name, each in missed
    ]
    return f"targets missed: {listed(words)}" if words else ""


def _broken(job: JobSummary) -> str:
    assert job.slowdown is not None and job.slowdown_limit is not None, "a broken limit was measured"
    over = job.slowdown / job.slowdown_limit - 1.0
    return f"{job.name} was {job.slowdown:.2f} times slower, {percent(over)} over its {job.slowdown_limit:g}"


def _energy_j(summary: RunSummary) -> float | None:
    """Energy (J) of the run; None if less than `_WHOLE` of its time is covered."""
    energy = summary.energy
    return energy.value_j if energy is not None and energy.covered >= _WHOLE else None


def _less(value: float, than: float) -> str:
    saved = 1.0 - value / than
    return f"{percent(abs(saved))} {'less' if saved >= 0.0 else 'more'} here"
