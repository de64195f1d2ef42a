"""Cost of a run's windows, in which job classes were measured alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ecoshare.profiling.profile import Profile
from ecoshare.record.energy_account import EnergyAccount, EnergyInterval
from ecoshare.record.plain_values import named
from ecoshare.record.run_energy import DeviceSpan, RunEnergy
from ecoshare.record.run_history import ProfilingSpan

KNOWN = 0.99
"""Part of a time span that must have known joules; the rest is tolerated.

A meter begins a little after the first job, and ends a little early.
"""


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """Cost of a profiling window.

    Attributes:
        to_s: End (s) of the window; None if the run or the job ended in it.
        paused_jobs: Number of jobs that waited meanwhile; None if not known.
        lost_s: Time (s) of the window beyond the work that its job did in it: idle watching, observed iterations, the
            wait for the other jobs to pause. None if not known.
        cost_j: The same in joules.
        error: Reason why the window gave no profile; None if it gave one.
        device: Device that the job had to itself meanwhile.
    """

    job: str
    job_class: str = field(metadata=named("class"))
    from_s: float
    to_s: float | None = None
    paused_jobs: int | None = None
    lost_s: float | None = None
    cost_j: float | None = None
    error: str | None = None
    device: str = ""


def windows(
    spans: Sequence[ProfilingSpan], classes: Mapping[str, str], profiles: Mapping[str, Profile], energy: RunEnergy
) -> list[WindowSummary]:
    """Costs of windows, including windows that were cut off by the end of the run or of the job.

    A profile tells the work in the window that made it, which is the last one of its class. The cost of an earlier
    window is not known.

    Args:
        spans: Windows of the run, in order.
        classes: Class of each job, by name.
        profiles: Profiles made in this run or known before, by class.
        energy: Joules of the run.
    """
    last = {classes[each.job]: each for each in spans if each.to_s is not None and not each.error}
    return [
        _window(each, name, profiles.get(name) if each is last.get(name) else None, energy.of(each.device))
        for each in spans
        for name in (classes[each.job],)
    ]


def _window(span: ProfilingSpan, job_class: str, made: Profile | None, account: EnergyAccount) -> WindowSummary:
    """Cost of a window; `made` is the profile that it gave."""
    if span.to_s is None:
        why = "the run ended, or still goes on, in this window"
        return WindowSummary(span.job, job_class, span.from_s, error=why, device=span.device)
    found = WindowSummary(span.job, job_class, span.from_s, span.to_s, error=span.error or None, device=span.device)
    if made is None:
        return found
    cost_j, in_it_j = None, all_spent_j([(account, span.from_s, span.to_s)])
    if made.energy is not None and in_it_j is not None:
        cost_j = max(0.0, in_it_j - made.energy.power_w * made.window.productive_s)
    lost_s = max(0.0, span.to_s - span.from_s - made.window.productive_s)
    return replace(found, paused_jobs=made.window.paused_jobs, lost_s=lost_s, cost_j=cost_j)


def search_energy_j(found: Sequence[WindowSummary], trials_j: float | None = 0.0) -> float | None:
    """Joules that all windows and measurements cost; None if they are not known.

    Windows with unknown cost are left out. The sum is unknown if `trials_j` is, or if there are windows but no known
    cost of any window or measurement.

    Args:
        found: Windows of the summary.
        trials_j: Joules of settings that were tried and not kept; None if not known.
    """
    known = [window.cost_j for window in found if window.cost_j is not None]
    if trials_j is None or (found and not known and not trials_j):
        return None
    return math.fsum([*known, trials_j])


def within(account: EnergyAccount, from_s: float, to_s: float) -> Iterator[tuple[EnergyInterval, float]]:
    """Yield the intervals that overlap a time span, each with the overlapping part of it, in (0, 1]."""
    first = bisect_right(account.intervals, from_s, key=attrgetter("to_s"))
    for each in account.intervals[first:]:
        if each.from_s >= to_s:
            return
        inside_s = min(each.to_s, to_s) - max(each.from_s, from_s)
        if inside_s > 0.0:
            yield each, inside_s / (each.to_s - each.from_s)


def all_spent_j(spans: Iterable[DeviceSpan]) -> float | None:
    """Joules of devices in all `spans` together; None if `KNOWN` of their time or less has known joules."""
    total_j = covered_s = whole_s = 0.0
    for account, from_s, to_s in spans:
        whole_s += to_s - from_s
        for each, part in within(account, from_s, to_s):
            if each.energy_j is not None:
                total_j += part * each.energy_j
                covered_s += part * (each.to_s - each.from_s)
    return total_j if covered_s > KNOWN * whole_s else None
