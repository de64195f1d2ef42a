"""Accounts for a run's joules: from its samples to what the device, idleness and each job spent.

For every interval between two samples: device = idle + sum over jobs, exactly. An interval whose joules are not known
(the meter failed, or went back) adds to nobody; how much of the time is covered is told beside the total. A counter
that stands still while a job is busy shows no zero: the interval goes on until it moves again, and then has all of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ecoshare.devices.meter import Energy, MeterFault, Reading, between
from ecoshare.record.energy_attribution import Work, idle_part_j, split
from ecoshare.record.samples import AttemptProgress, Idle, Line, Sample, Session, job_of

_NOTHING_S = 1e-9
_STALE = "the energy counter stood still while a job was busy"

_BUSY_S = 0.05
"""Time with the turn in an interval from which on a job counts as busy: a counter that stands still then is stale."""

_BRIEF_S = 0.1
_BRIEF_SHARE = 0.1
"""An interval shorter than both, the share being of the one before it, is made one with that one.

The end of a job is told milliseconds late at times, and with it processor time of the interval before. Split by itself,
the short interval would leave that time without the joules of its job.
"""


@dataclass(frozen=True, slots=True)
class EnergyRate:
    """Active joules of a job class.

    Attributes:
        per_iteration_j: Of training.
        per_eval_iteration_j: Of inference.
        relative_error: Standard error of both, over their value.
    """

    per_iteration_j: float
    per_eval_iteration_j: float
    relative_error: float = 0.0


@dataclass(frozen=True, slots=True)
class EnergyInterval:
    """What happened between two samples.

    Attributes:
        energy_j: None where it is not known; `fault` says why.
        jobs_j: By job, joules of their own.
        iterations: By job, of both kinds.
        stale: The counter stood still while a job was busy.
    """

    from_s: float
    to_s: float
    energy_j: float | None
    idle_j: float
    jobs_j: dict[str, float]
    iterations: dict[str, int]
    fault: str = ""
    stale: bool = False


@dataclass(slots=True)
class EnergyAccount:
    """Joules of a run.

    Attributes:
        session: The meter; of a run that was resumed, the last. Its idle power is the one watched, where it was.
        energy: Of the device over all intervals that are known; None where there is none.
        idle_j: Part of it that no work caused; where the session's idle power is not known, only what was spent while
            nobody worked, and the rest is with the jobs.
        jobs: By job: attributed (or modelled) joules beyond idle.
        iterations: By job: of both kinds, in the time whose joules are known.
        peak_bytes: By job: the largest memory that any sample has of it.
        covered: Part of the time between first and last sample whose joules are known, 0 to 1.
        intervals: In order of time.
        faults: Why the rest is not known, each reason once.
    """

    session: Session | None = None
    energy: Energy | None = None
    idle_j: float | None = None
    jobs: dict[str, Energy] = field(default_factory=dict)
    iterations: dict[str, int] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    covered: float = 0.0
    intervals: list[EnergyInterval] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def account(lines: Iterable[Line], rates: Callable[[str], EnergyRate | None]) -> EnergyAccount:
    """The account of a run.

    Args:
        lines: Its sessions and samples, in order.
        rates: For a job's name, what its class takes alone; None where that is not known: its time with the turn then
            counts like the average of the others'.
    """
    result = EnergyAccount()
    before: Sample | None = None
    first: Sample | None = None  # of the last interval; `told` is what its last sample has of the jobs
    told: dict[str, AttemptProgress] = {}
    stale: EnergyInterval | None = None
    passed: dict[str, AttemptProgress] = {}  # what ended in a line that was passed over is in no later one
    for line in _with_idle(list(lines)):
        if isinstance(line, Session):
            result.intervals += [stale] if stale is not None else []
            result.session, before, first, stale, passed = line, None, None, None, {}
            continue
        if result.session is None:
            raise ValueError(f"a sample at {line.at_s} s, and no session before it")
        _note_peaks(line, result.peak_bytes)
        if before is None:
            before = line
            continue
        passed |= line.jobs
        if line.at_s - before.at_s <= result.session.period_s:
            continue  # there is no new number; the next line has it all
        if first is not None and _is_brief(line.at_s - before.at_s, result.intervals[-1]):
            both = _interval(first, replace(line, jobs=told | passed), result.session, rates)
            if both.energy_j is not None:
                result.intervals[-1], told = both, told | passed
                before, stale, passed = line, None, {}
                continue
        interval = _interval(before, replace(line, jobs=passed), result.session, rates)
        if interval.stale:
            stale = interval
            continue
        if stale is not None and not interval.fault:
            interval = replace(interval, fault=f"{stale.fault}, and told it later")
        result.intervals.append(interval)
        first, told = (before, passed) if interval.energy_j is not None else (None, {})
        before, stale, passed = line, None, {}
    result.intervals += [stale] if stale is not None else []
    _add_up(result, rates)
    return result


def _is_brief(wall_s: float, last: EnergyInterval) -> bool:
    return wall_s < _BRIEF_S and wall_s < _BRIEF_SHARE * (last.to_s - last.from_s)


def _note_peaks(line: Sample, peaks: dict[str, int]) -> None:
    for key, progress in line.jobs.items():
        if progress.memory_bytes is not None:
            peaks[job_of(key)] = max(peaks.get(job_of(key), 0), progress.memory_bytes)


def _with_idle(lines: list[Line]) -> Iterator[Session | Sample]:
    """The lines, each session with the idle power that was watched in it, if it was; the last, if several times."""
    watched_w: dict[int, float] = {}
    begun = 0
    for place, line in enumerate(lines):
        if isinstance(line, Session):
            begun = place
        elif isinstance(line, Idle):
            watched_w[begun] = line.power_w
    for place, line in enumerate(lines):
        if isinstance(line, Session):
            yield replace(line, idle_w=watched_w.get(place, line.idle_w))
        elif isinstance(line, Sample):
            yield line


def _interval(
    first: Sample, last: Sample, session: Session, rates: Callable[[str], EnergyRate | None]
) -> EnergyInterval:
    done = {key: _difference(first.jobs.get(key), progress) for key, progress in last.jobs.items()}
    try:
        value_j = spent(first, last, session.period_s).value_j
    except MeterFault as fault:
        return EnergyInterval(first.at_s, last.at_s, None, 0.0, {}, {}, str(fault))
    if value_j == 0.0 and any(progress.held_s > _BUSY_S for progress in done.values()):
        return EnergyInterval(first.at_s, last.at_s, None, 0.0, {}, {}, _STALE, stale=True)
    wall_s = last.at_s - first.at_s
    idle_j = idle_part_j(value_j, session.idle_w or 0.0, wall_s)
    works = _works(done, value_j - idle_j, session, rates)
    shares = split(value_j - idle_j, works)
    if not any(work.alone_j > 0.0 for work in works):
        idle_j = value_j  # nobody did anything: whatever it was, it was not a job
    jobs_j: dict[str, float] = {}
    for work, share_j in zip(works, shares, strict=True):
        jobs_j[work.job] = jobs_j.get(work.job, 0.0) + share_j
    iterations: dict[str, int] = {}
    for key, each in done.items():
        iterations[job_of(key)] = iterations.get(job_of(key), 0) + each.iterations + each.eval_iterations
    return EnergyInterval(first.at_s, last.at_s, value_j, idle_j, jobs_j, iterations)


def spent(first: Sample, last: Sample, period_s: float) -> Energy:
    """What a device spent between two samples of one session.

    Raises:
        MeterFault: One of them has no number, or `between` finds fault with them.
    """
    if last.energy_j is None or first.energy_j is None:
        raise MeterFault(last.fault or first.fault or "the meter gave no number")
    return between(Reading(first.at_s, first.energy_j), Reading(last.at_s, last.energy_j), period_s)


def _difference(first: AttemptProgress | None, last: AttemptProgress) -> AttemptProgress:
    if first is None:
        return last
    return AttemptProgress(
        last.lane,
        max(0.0, last.held_s - first.held_s),
        last.iterations - first.iterations,
        last.eval_iterations - first.eval_iterations,
        max(0.0, last.cpu_s - first.cpu_s),
    )


def _works(
    done: dict[str, AttemptProgress], active_j: float, session: Session, rates: Callable[[str], EnergyRate | None]
) -> list[Work]:
    """Each attempt's work in the active joules that it would take alone.

    Where no class is known, the active joules are laid out by time with the turn; on processors always by processor
    time, in which their power is nearly linear.
    """
    spent_s = {key: each.cpu_s if session.scope == "cpu" else each.held_s for key, each in done.items()}
    known = {key: rate for key in done if session.scope != "cpu" and (rate := rates(job_of(key))) is not None}
    alone_j = {
        key: done[key].iterations * rate.per_iteration_j + done[key].eval_iterations * rate.per_eval_iteration_j
        for key, rate in known.items()
    }
    known_s = sum(spent_s[key] for key in known)
    watts, whole_s = sum(alone_j.values()), known_s
    if watts <= 0.0 or known_s <= _NOTHING_S:
        watts, whole_s, alone_j = active_j, sum(spent_s.values()), {}
    watts = watts / whole_s if whole_s > _NOTHING_S else 0.0
    return [Work(job_of(key), each.lane, alone_j.get(key, watts * spent_s[key])) for key, each in done.items()]


def _add_up(result: EnergyAccount, rates: Callable[[str], EnergyRate | None]) -> None:
    known = [interval for interval in result.intervals if interval.energy_j is not None]
    result.faults = list(dict.fromkeys(interval.fault for interval in result.intervals if interval.fault))
    if not known or result.session is None:
        return
    total_s = sum(interval.to_s - interval.from_s for interval in result.intervals)
    known_s = sum(interval.to_s - interval.from_s for interval in known)
    value_j = math.fsum(interval.energy_j or 0.0 for interval in known)
    # The ends of intervals that touch cancel out, so the coarseness counts once for each stretch without a gap.
    stretches = 1 + sum(later.from_s != earlier.to_s for earlier, later in itertools.pairwise(known))
    error_j = value_j / known_s * result.session.period_s / math.sqrt(6) * math.sqrt(stretches) if known_s else 0.0
    result.energy = Energy(value_j, error_j)
    result.idle_j = math.fsum(interval.idle_j for interval in known)
    result.covered = known_s / total_s
    parts_j: dict[str, list[float]] = {}
    for interval in known:
        for job, part_j in interval.jobs_j.items():
            parts_j.setdefault(job, []).append(part_j)
            result.iterations[job] = result.iterations.get(job, 0) + interval.iterations.get(job, 0)
    for job, parts in parts_j.items():
        job_j = math.fsum(parts)
        rate = rates(job)
        relative = math.hypot(error_j / value_j if value_j else 0.0, rate.relative_error if rate is not None else 0.0)
        result.jobs[job] = Energy(job_j, job_j * relative)
