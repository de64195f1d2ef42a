"""Cost of a run's windows, in which job classes were measured alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from ecoshare.core.commands import Command, ProfileJob
from ecoshare.core.events import Event, Profiled, RunOpened
from ecoshare.profiling.profile import Profile
from ecoshare.record.energy_account import EnergyAccount, EnergyInterval

KNOWN = 0.99
"""Part of a time span that must have known joules; the rest is tolerated.

A meter begins a little after the first job, and ends a little early.
"""


def windows(
    entries: Iterable[Event | Command],
    classes: Mapping[str, str],
    profiles: Mapping[str, Profile],
    account: EnergyAccount,
) -> list[dict[str, Any]]:
    """Windows in order, as plain data, including windows that were cut off by the end of the run or of the job.

    `lost_s` and `cost_j` are time and joules of a window beyond the work that its job did in it: idle watching,
    recorded iterations, the wait for the other jobs to pause. Both are None if the window made no profile; `cost_j` is
    also None if the joules are not known.

    Args:
        entries: Entries of the event log, in order.
        classes: Class of each job, by name.
        profiles: Profiles made in this run or known before, by class.
        account: Energy account of the run.
    """
    found = []
    asked: dict[int, tuple[str, float]] = {}
    at_s = 0.0
    for entry in entries:
        if not isinstance(entry, Command):
            at_s = entry.at_s
        if isinstance(entry, RunOpened):  # resumed: commands are counted anew
            found += _cut_off(asked, classes)
        if isinstance(entry, ProfileJob):
            asked[entry.id] = entry.job, at_s
        elif isinstance(entry, Profiled) and entry.command in asked:
            job, from_s = asked.pop(entry.command)
            found.append(_window(job, classes[job], from_s, entry, profiles, account))
    return found + _cut_off(asked, classes)


def _cut_off(asked: dict[int, tuple[str, float]], classes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Windows without a logged end; `asked` is cleared."""
    why = "the run ended, or still goes on, in this window"
    rest = [_plain(job, classes[job], from_s, error=why) for job, from_s in asked.values()]
    asked.clear()
    return rest


def _window(
    job: str, job_class: str, from_s: float, ended: Profiled, profiles: Mapping[str, Profile], account: EnergyAccount
) -> dict[str, Any]:
    made = profiles.get(job_class) if not ended.error else None
    lost_s = cost_j = None
    if made is not None:
        lost_s = max(0.0, ended.at_s - from_s - made.window.productive_s)
        in_it_j = all_spent_j(account, [(from_s, ended.at_s)])
        if made.energy is not None and in_it_j is not None:
            cost_j = max(0.0, in_it_j - made.energy.power_w * made.window.productive_s)
    paused = made.window.paused_jobs if made is not None else None
    return _plain(job, job_class, from_s, ended.at_s, paused, lost_s, cost_j, ended.error or None)


def _plain(
    job: str,
    job_class: str,
    from_s: float,
    to_s: float | None = None,
    paused_jobs: int | None = None,
    lost_s: float | None = None,
    cost_j: float | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """Window in the form of the summary."""
    return {
        "job": job,
        "class": job_class,
        "from_s": from_s,
        "to_s": to_s,
        "paused_jobs": paused_jobs,
        "lost_s": lost_s,
        "cost_j": cost_j,
        "error": error,
    }


def search_energy_j(found: list[dict[str, Any]], trials_j: float | None = 0.0) -> float | None:
    """Joules that all windows and measurements cost; None if they are not known.

    Windows with unknown cost are left out. The sum is unknown if `trials_j` is, or if there are windows but no known
    cost of any window or measurement.

    Args:
        found: Windows of the summary.
        trials_j: Joules of settings that were tried and not kept; None if not known.
    """
    known = [window["cost_j"] for window in found if window["cost_j"] is not None]
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


def all_spent_j(account: EnergyAccount, spans: Iterable[tuple[float, float]]) -> float | None:
    """Joules of the device in all `spans` together; None if `KNOWN` of their time or less has known joules."""
    total_j = covered_s = whole_s = 0.0
    for from_s, to_s in spans:
        whole_s += to_s - from_s
        for each, part in within(account, from_s, to_s):
            if each.energy_j is not None:
                total_j += part * each.energy_j
                covered_s += part * (each.to_s - each.from_s)
    return total_j if covered_s > KNOWN * whole_s else None
