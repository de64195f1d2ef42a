"""Accounts for the joules of a device in a run: splits its samples into joules of idleness and of each job.

Every interval between two samples satisfies device = idle + sum over jobs, exactly. An interval without known joules
(the meter failed, or went back) is left out of all sums; the account states the covered part of the time. A counter
that stands still while a job is busy does not mean zero joules: the interval lasts until the counter moves again, and
then gets all of its joules.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ecoshare.base.joules import MEASURED, Counter, Energy, counted
from ecoshare.devices.meter import MeterFault, Reading, energy_between
from ecoshare.record.samples import AttemptProgress, Idle, Line, Sample, Session, job_of


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a job on a device in an interval.

    A device has one counter, so the split is an estimate. The inputs are the device's joules and, for each job, `a_i`:
    the active joules that its work in the interval would have taken alone (iterations done x the class's active joules
    an iteration).

    ::

        measured ┌──────────────┐
                 │ interaction  │  cost of contention (memory), or saving (power limit): can be < 0
                 ├──────────────┤
                 │ a_2          │
                 ├──────────────┤  a_i: each job's work as if alone
                 │ a_1          │
                 ├──────────────┤
                 │ idle         │  belongs to no job
                 └──────────────┘

    The fair division of a joint cost is the Shapley value: each job's marginal cost averaged over all orders of
    arrival. It needs the cost of every subset of jobs, but only the costs of single jobs and of all jobs are known. The
    interaction is therefore assigned to pairs of jobs that run at the same time, in proportion to the product of their
    loads. The value then has a closed form: `s_i = a_i + r * sum_j a_i a_j / (2 sum_{i<j} a_i a_j)`, where r = measured
    - idle - sum(a) and j runs over the jobs of *other* lanes (jobs of one lane never run at the same moment). For two
    jobs in two lanes this is their exact Shapley value over {idle, A, B, AB}. If no two lanes were busy, there is no
    interaction: r is an error of the profiles, and is spread in proportion to a_i.

    Source: Shapley, "A value for n-person games", 1953. In a game with pairwise interactions, the value of a player is
    its own worth plus half the worth of each of its pairs.

    Attributes:
        job: Name of the job.
        lane: Lane in which the job ran.
        alone_j: Active joules that the same work takes alone; 0 if the job did no work.
    """

    job: str
    lane: int
    alone_j: float


def idle_part_j(measured_j: float, idle_w: float, wall_s: float) -> float:
    """Joules that the device would have spent without any work, at most `measured_j`."""
    return min(measured_j, idle_w * wall_s)


def split(active_j: float, works: Sequence[Work]) -> list[float]:
    """Joules of each work; their sum is `active_j`, up to rounding, or 0 if no job did any work.

    Args:
        active_j: Joules of the device beyond idle, at least 0.
        works: Work of the jobs. Equal works get equal joules, work of 0 gets 0, and no share is negative.
    """
    loads = [work.alone_j for work in works]
    whole = sum(loads)
    if whole <= 0.0:
        return [0.0] * len(loads)
    in_lane: dict[int, float] = {}
    for work in works:
        in_lane[work.lane] = in_lane.get(work.lane, 0.0) + work.alone_j
    # Load of each job times the load of all other lanes; the sum over jobs counts each pair's product twice.
    pairs = [work.alone_j * (whole - in_lane[work.lane]) for work in works]
    together = sum(pairs)
    interaction_j = active_j - whole
    # Two loads so unequal that their product vanishes do not interact; they are treated like one load alone.
    weights, weight = (pairs, together) if together > 1e-12 * whole**2 else (loads, whole)
    shares = [max(0.0, load + interaction_j * each / weight) for load, each in zip(loads, weights, strict=True)]
    kept = sum(shares)
    if kept <= 0.0:
        shares, kept = loads, whole
    return [share * (active_j / kept) for share in shares]


_NOTHING_S = 1e-9
_INTERRUPTED = "the run was interrupted, and resumed later"
_STALE = "the energy counter stood still while a job was busy"

_BUSY_S = 0.05
"""Time (s) with the turn above which a job counts as busy in an interval; a counter that stands still then is stale."""

_EMPTY_S, _EMPTY_PERIODS = 2.0, 20
"""Least time (s), and least updates of the counter, that tell the power of a GPU without a job."""

_BRIEF_S = 0.1
_BRIEF_SHARE = 0.1
"""An interval is merged into the previous one if it is shorter than both limits: `_BRIEF_S` (s), and `_BRIEF_SHARE`
times the length of the previous interval.

Sometimes the end of a job is reported milliseconds late, with processor time of the previous interval. If the short
interval were split alone, that time would be left without the joules of its job.
"""


@dataclass(frozen=True, slots=True)
class EnergyRate:
    """Active joules of a job class.

    Attributes:
        per_iteration_j: Active joules of one training iteration.
        per_eval_iteration_j: Active joules of one inference iteration.
        relative_error: Standard error of both values, relative to them.
    """

    per_iteration_j: float
    per_eval_iteration_j: float
    relative_error: float = 0.0


@dataclass(frozen=True, slots=True)
class EnergyInterval:
    """Joules and iterations between two samples.

    Attributes:
        energy_j: Joules of the device; None if they are not known, and `fault` says why.
        idle_j: Part of `energy_j` that no work caused.
        jobs_j: Active joules of each job.
        iterations: Iterations of each job, training and inference together.
        stale: Whether the counter stood still while a job was busy.
        begun: Whether a job has had the turn by its end.
    """

    from_s: float
    to_s: float
    energy_j: float | None
    idle_j: float
    jobs_j: dict[str, float]
    iterations: dict[str, int]
    fault: str = ""
    stale: bool = False
    begun: bool = False


@dataclass(slots=True)
class EnergyAccount:
    """Joules of a device in a run.

    Attributes:
        session: Meter session, the last one of a resumed run. `idle_w` is the last idle power watched in it, if any.
        energy: Energy of the device over all intervals with known joules; None if there is none.
        idle_j: Part of `energy` that no work caused. Without a known idle power, it is only the energy of intervals
            without work, and the jobs get the rest.
        jobs: Attributed (or modelled) energy beyond idle, for each job.
        iterations: Iterations of each job, training and inference together, in intervals with known joules.
        peak_bytes: Largest memory (bytes) of each job in any sample.
        covered: Part of the total time of all intervals with known joules, 0 to 1. The time between two sessions of a
            resumed run is an interval without joules.
        intervals: Intervals in order of time.
        faults: Reasons why joules are not known, each reason once.
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

    @property
    def idle_w(self) -> float | None:
        """Power (W) of the device at rest; None if it is not known."""
        return self.session.idle_w if self.session is not None else None

    @property
    def empty_w(self) -> float | None:
        """Power (W) of a GPU before the first job; None if that is not measured, or was too short.

        From then on the contexts of jobs are there. A context alone may lift the power of a GPU by a half and more.
        """
        session = self.session
        if session is None or (session.source, session.scope) != (MEASURED, "gpu"):
            return None
        before = list(itertools.takewhile(lambda each: not each.begun and not each.fault, self.intervals))
        wall_s = math.fsum(each.to_s - each.from_s for each in before)
        if wall_s < max(_EMPTY_S, _EMPTY_PERIODS * session.period_s):
            return None
        return math.fsum(each.energy_j or 0.0 for each in before) / wall_s


def account(lines: Iterable[Line], rates: Callable[[str], EnergyRate | None]) -> EnergyAccount:
    """Compute the energy account of a device.

    Args:
        lines: Sessions and samples of the device, in order.
        rates: Returns the rate of a job's class, measured alone, for the name of the job. None if it is not known; the
            job's time with the turn then counts at the average power of the other jobs.

    Raises:
        ValueError: A sample has no session before it.
    """
    splitter, peaks = SampleSplitter(rates), dict[str, int]()
    for line in _with_idle(list(lines)):
        splitter.add(line)
        if isinstance(line, Sample):
            _note_peaks(line, peaks)
    splitter.finish()
    result = EnergyAccount(session=splitter.session, peak_bytes=peaks, intervals=splitter.intervals)
    _add_up(result, rates)
    return result


class SampleSplitter:
    """Splits the samples of a device into intervals with joules, line by line.

    Attributes:
        session: Last session; None before the first.
        intervals: Intervals so far. The next line may still change the last one.
    """

    def __init__(self, rates: Callable[[str], EnergyRate | None]) -> None:
        """Splitter before the first line. See `account`."""
        self._rates = rates
        self.session: Session | None = None
        self.intervals: list[EnergyInterval] = []
        self._before: Sample | None = None
        self._first: Sample | None = None  # first sample of the last interval; `told` is the job progress at its end
        self._told: dict[str, AttemptProgress] = {}
        self._stale: EnergyInterval | None = None
        self._last_s = 0.0
        self._passed: dict[str, AttemptProgress] = {}  # jobs that ended in a skipped line: no later line has them

    def add(self, line: Session | Sample) -> None:
        """Add the next line.

        Raises:
            ValueError: It is a sample without a session before it.
        """
        if isinstance(line, Session):
            self.finish()
            if self.session is not None and line.at_s > self._last_s:
                self.intervals.append(EnergyInterval(self._last_s, line.at_s, None, 0.0, {}, {}, _INTERRUPTED))
            self._last_s = line.at_s
            self.session, self._before, self._first, self._passed = line, None, None, {}
            return
        if self.session is None:
            raise ValueError(f"a sample at {line.at_s} s, and no session before it")
        self._last_s = line.at_s
        if self._before is None:
            self._before = line
            return
        self._passed |= line.jobs
        if line.at_s - self._before.at_s > self.session.period_s:  # else the next line covers this time, too
            self._split(self._before, line, self.session)

    def idle_found(self, power_w: float) -> None:
        """Take this power (W) as that of the idle device from now on, until the next session."""
        assert self.session is not None, "the idle device is watched by an open meter"
        self.session = replace(self.session, idle_w=power_w)

    def finish(self) -> None:
        """End with the last line. A counter that stands still has no joules then."""
        self.intervals += [self._stale] if self._stale is not None else []
        self._stale = None

    def _split(self, before: Sample, line: Sample, session: Session) -> None:
        passed = self._passed
        if self._first is not None and _is_brief(line.at_s - before.at_s, self.intervals[-1]):
            both = _interval(self._first, replace(line, jobs=self._told | passed), session, self._rates)
            if both.energy_j is not None:
                self.intervals[-1], self._told = both, self._told | passed
                self._before, self._stale, self._passed = line, None, {}
                return
        interval = _interval(before, replace(line, jobs=passed), session, self._rates)
        if interval.stale:
            self._stale = interval
            return
        if self._stale is not None and not interval.fault:
            interval = replace(interval, fault=f"{self._stale.fault}, and told it later")
        self.intervals.append(interval)
        self._first, self._told = (before, passed) if interval.energy_j is not None else (None, {})
        self._before, self._stale, self._passed = line, None, {}


def _is_brief(wall_s: float, last: EnergyInterval) -> bool:
    return wall_s < _BRIEF_S and wall_s < _BRIEF_SHARE * (last.to_s - last.from_s)


def _note_peaks(line: Sample, peaks: dict[str, int]) -> None:
    for key, progress in line.jobs.items():
        if progress.memory_bytes is not None:
            peaks[job_of(key)] = max(peaks.get(job_of(key), 0), progress.memory_bytes)


def _with_idle(lines: list[Line]) -> Iterator[Session | Sample]:
    """Sessions and samples; each session has the last idle power that was watched in it, if there is one."""
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
        value_j = spent(first, last, session).value_j
    except MeterFault as fault:
        return EnergyInterval(first.at_s, last.at_s, None, 0.0, {}, {}, str(fault))
    if value_j == 0.0 and any(progress.held_s > _BUSY_S for progress in done.values()):
        return EnergyInterval(first.at_s, last.at_s, None, 0.0, {}, {}, _STALE, stale=True)
    wall_s = last.at_s - first.at_s
    idle_j = idle_part_j(value_j, session.idle_w or 0.0, wall_s)
    value_j, idle_j = _own(value_j, idle_j, first, last, session)
    works = _works(done, value_j - idle_j, session, rates)
    shares = split(value_j - idle_j, works)
    if not any(work.alone_j > 0.0 for work in works):
        idle_j = value_j  # no job did any work, so no job caused these joules
    jobs_j: dict[str, float] = {}
    for work, share_j in zip(works, shares, strict=True):
        jobs_j[work.job] = jobs_j.get(work.job, 0.0) + share_j
    iterations: dict[str, int] = {}
    for key, each in done.items():
        iterations[job_of(key)] = iterations.get(job_of(key), 0) + each.iterations + each.eval_iterations
    begun = any(each.held_s > _NOTHING_S for each in last.jobs.values())
    return EnergyInterval(first.at_s, last.at_s, value_j, idle_j, jobs_j, iterations, begun=begun)


def _own(value_j: float, idle_j: float, first: Sample, last: Sample, session: Session) -> tuple[float, float]:
    """Joules of a device that are those of this run, and the idle part of them.

    Runs that share a device in slices have it one after the other. Each counts the active joules of its slices, and an
    equal part of the idle ones. A model knows the active joules of this run only.
    """
    if last.away_s is None or last.idle_of_others_s is None:
        return value_j, idle_j
    wall_s = last.at_s - first.at_s
    away_s = last.away_s - (first.away_s or 0.0) if session.source == MEASURED else 0.0
    of_others_s = last.idle_of_others_s - (first.idle_of_others_s or 0.0)
    active_j = (value_j - idle_j) * max(0.0, 1.0 - away_s / wall_s)
    own_idle_j = idle_j * max(0.0, 1.0 - of_others_s / wall_s)
    return active_j + own_idle_j, own_idle_j


def spent(first: Sample, last: Sample, counter: Counter) -> Energy:
    """Energy of a device between two samples of one session.

    Raises:
        MeterFault: A sample has no number, or `between` rejects the two readings.
    """
    if last.energy_j is None or first.energy_j is None:
        raise MeterFault(last.fault or first.fault or "the meter gave no number")
    return energy_between(Reading(first.at_s, first.energy_j), Reading(last.at_s, last.energy_j), counter)


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
    """Work of each attempt, in the active joules that it would take alone.

    If no class is known, the active joules are divided in proportion to time with the turn. On processors they are
    always divided in proportion to processor time, because power is nearly linear in it.
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
    # Errors at shared ends of adjacent intervals cancel, so the coarseness counts once for each stretch without a gap.
    stretches = 1 + sum(later.from_s != earlier.to_s for earlier, later in itertools.pairwise(known))
    result.energy = counted(value_j, known_s, result.session, stretches)
    error_j = result.energy.standard_error_j
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
