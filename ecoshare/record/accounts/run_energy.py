"""Joules of a whole run: the account of each of its devices, and their sums."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ecoshare.base.joules import ATTRIBUTED, MEASURED, MODELLED, Energy
from ecoshare.knowledge.profile import Profile
from ecoshare.record.accounts.energy_account import EnergyAccount, EnergyInterval, EnergyRate, SampleSplitter, account
from ecoshare.record.samples import Idle, Line, Sample, Session, of_device

DeviceSpan = tuple[EnergyAccount, float, float]
"""Time span of a device: its account, begin (s) and end (s)."""


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """Joules of a run.

    Attributes:
        devices: Account of each device, by its name, in the order of the plan.
    """

    devices: Mapping[str, EnergyAccount] = field(default_factory=dict)

    @classmethod
    def of_lines(cls, names: Iterable[str], lines: list[Line], rates: Callable[[str], EnergyRate | None]) -> RunEnergy:
        """Joules of a run from the lines of its samples.

        Args:
            names: Names of its devices.
            lines: Sessions and samples of all devices; those of each device in order.
            rates: See `account`.
        """
        return cls({name: account(of_device(lines, name), rates) for name in names})

    def of(self, device: str) -> EnergyAccount:
        """Account of one device; empty if the run has no such device."""
        return self.devices.get(device) or EnergyAccount()

    def everywhere(self, from_s: float, to_s: float) -> list[DeviceSpan]:
        """This time span of every device."""
        return [(each, from_s, to_s) for each in self.devices.values()]

    @property
    def session(self) -> Session | None:
        """Session of the first device that has a meter, or a model in its place. None if none has."""
        return next((each.session for each in self.devices.values() if each.session is not None), None)

    @property
    def value_j(self) -> float | None:
        """Joules of all devices, as far as they are known; None if none are."""
        return _sum(each.energy.value_j for each in self.devices.values() if each.energy is not None)

    @property
    def idle_j(self) -> float | None:
        """Part of `value_j` that no job caused; None if it is not known."""
        return _sum(each.idle_j for each in self.devices.values() if each.idle_j is not None)

    @property
    def idle_w(self) -> float | None:
        """Power (W) of all devices at rest; None if that of one is not known."""
        return _sum_of_all([each.idle_w for each in self.devices.values()])

    @property
    def empty_w(self) -> float | None:
        """Power (W) of all GPUs before the first job; None if that of one is not known."""
        return _sum_of_all([each.empty_w for each in self.devices.values()])

    @property
    def faults(self) -> tuple[str, ...]:
        """Reasons why joules are not known, each once; with the device if the run has several."""
        named = len(self.devices) > 1
        return tuple(
            f"{name}: {fault}" if named else fault for name, each in self.devices.items() for fault in each.faults
        )

    def job(self, name: str) -> Energy | None:
        """Energy of a job beyond idle, on all devices; None if it is not known."""
        parts = [each.jobs[name] for each in self.devices.values() if name in each.jobs]
        if not parts:
            return None
        value_j = math.fsum(part.value_j for part in parts)
        return Energy(value_j, math.hypot(*(part.standard_error_j for part in parts)))

    def iterations(self, job: str) -> int:
        """Iterations of a job, training and inference together, in time with known joules."""
        return sum(each.iterations.get(job, 0) for each in self.devices.values())

    def peak_bytes(self, job: str) -> int | None:
        """Largest memory (bytes) of a job in any sample; None if it is not known."""
        return max((each.peak_bytes[job] for each in self.devices.values() if job in each.peak_bytes), default=None)


def _sum_of_all(values: Sequence[float | None]) -> float | None:
    """Sum of values; None if one is not known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


def _sum(values: Iterable[float]) -> float | None:
    known = list(values)
    return math.fsum(known) if known else None


@dataclass(frozen=True, slots=True)
class LiveReading:
    """A device at its last sample.

    Attributes:
        sample: The last sample.
        power_w: Power (W): as the device reports it, or the mean since the sample before. None if neither is known.
        energy_j: Joules in this session of the run; None if they are not known.
        jobs_j: Joules beyond idle of all its jobs, ended ones included.
        source: `measured` or `modelled`.
    """

    sample: Sample
    power_w: float | None
    energy_j: float | None
    jobs_j: float
    source: str


class _DeviceSums:
    """Sums of one device."""

    def __init__(self, rates: Callable[[str], EnergyRate | None]) -> None:
        self._splitter = SampleSplitter(rates)
        self._settled_j: float | None = None
        self.settled_jobs_j: dict[str, float] = defaultdict(float)
        self._settled_all_jobs_j = 0.0
        self.last: Sample | None = None

    @property
    def source(self) -> str:
        session = self._splitter.session
        return session.source if session is not None else ""

    @property
    def _open(self) -> EnergyInterval | None:
        """Last interval, which the next line may change."""
        return self._splitter.intervals[-1] if self._splitter.intervals else None

    def hear(self, line: Line) -> None:
        if isinstance(line, Idle):
            self._splitter.idle_found(line.power_w)
            return
        self._splitter.add(line)
        if isinstance(line, Sample):
            self.last = line
        for interval in self._splitter.intervals[:-1]:
            if interval.energy_j is not None:
                self._settled_j = (self._settled_j or 0.0) + interval.energy_j
                for job, part_j in interval.jobs_j.items():
                    self.settled_jobs_j[job] += part_j
                    self._settled_all_jobs_j += part_j
        del self._splitter.intervals[:-1]

    def reading(self) -> LiveReading | None:
        if self.last is None:
            return None
        last, power_w, energy_j = self._open, self.last.power_w, self._settled_j
        if last is not None and last.energy_j is not None:
            energy_j = (energy_j or 0.0) + last.energy_j
            if power_w is None and last.to_s == self.last.at_s:
                power_w = last.energy_j / (last.to_s - last.from_s)
        jobs_j = self._settled_all_jobs_j + (sum(last.jobs_j.values()) if last is not None else 0.0)
        return LiveReading(self.last, power_w, energy_j, jobs_j, self.source if energy_j is not None else "")

    def job_j(self, name: str) -> float | None:
        last = self._open
        if name not in self.settled_jobs_j and (last is None or name not in last.jobs_j):
            return None
        return self.settled_jobs_j.get(name, 0.0) + (last.jobs_j.get(name, 0.0) if last is not None else 0.0)


class LiveEnergy:
    """Joules so far of the devices and jobs of a run.

    Idle joules count at the idle power that is known at the time. The summary of a run counts with the last one that
    was watched, so its joules may differ a little.
    """

    def __init__(self, rates: Callable[[str], EnergyRate | None]) -> None:
        """Joules of a run before its first sample.

        Args:
            rates: Returns the rate of a job's class alone, see `energy_account.account`.
        """
        self._rates = rates
        self._devices: dict[str, _DeviceSums] = {}

    def hear(self, line: Line) -> None:
        """Take note of the next session, sample or idle power of any device."""
        if isinstance(line, Session):
            self._devices.setdefault(line.device, _DeviceSums(self._rates))
        self._devices[line.device].hear(line)

    def device(self, name: str) -> LiveReading | None:
        """A device at its last sample; None before the first, and without a meter."""
        sums = self._devices.get(name)
        return sums.reading() if sums is not None else None

    def job(self, name: str) -> tuple[float, str] | None:
        """Joules of a job beyond idle on all devices, with their source (`attributed`, `modelled`); None if unknown."""
        parts = [(part_j, each.source) for each in self._devices.values() if (part_j := each.job_j(name)) is not None]
        if not parts:
            return None
        is_measured = all(source == MEASURED for _, source in parts)
        return sum(part_j for part_j, _ in parts), ATTRIBUTED if is_measured else MODELLED

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the joules of all other jobs."""
        for sums in self._devices.values():
            for name in [name for name in sums.settled_jobs_j if name not in names]:
                del sums.settled_jobs_j[name]


def energy_rate(profile: Profile) -> EnergyRate | None:
    """Energy rate of a class alone; None if its energy is only modelled: a model would split its own joules."""
    energy = profile.energy
    if energy is None or energy.source != MEASURED:
        return None
    train_j, eval_j = energy.active_per_iteration_j, energy.active_per_eval_iteration_j
    known = [value for value in (train_j, eval_j) if value is not None]
    if not known:
        return None
    # A kind of iteration that was not seen gets the rate of the other: that is closer than none.
    return EnergyRate(
        train_j if train_j is not None else known[0],
        eval_j if eval_j is not None else known[0],
        energy.relative_error or 0.0,
    )


def coarser(intervals: Iterable[EnergyInterval], shortest_s: float) -> list[EnergyInterval]:
    """Merge intervals into ones of at least `shortest_s` (s) with the same total time and joules.

    Sometimes the processor time of an ended job is reported milliseconds after a sample, and with it up to a second's
    joules. Divided by those milliseconds, they would be hundreds of watts that the device never drew::

        samples     ├──────── 1 s ────────┼── 1 s ──┤├ 3 ms          as the account has them
        means       ├──────── 1 s ────────┼──── 1.003 s ──┤          joules are kept, a short one joins its neighbour

    Only intervals that touch and have known joules are merged. A known stretch between two gaps stays one interval
    even if it is shorter than `shortest_s`. Intervals without joules stay as they are.
    """
    groups: list[list[EnergyInterval]] = []
    for each in intervals:
        if groups and _touch(groups[-1][-1], each) and not _is_full(groups[-1], each, shortest_s):
            groups[-1].append(each)
        else:
            groups.append([each])
    merged: list[list[EnergyInterval]] = []
    for group in groups:  # the last group of a stretch may be too short
        if merged and _touch(merged[-1][-1], group[0]) and _length_s(group) < shortest_s:
            merged[-1] += group
        else:
            merged.append(group)
    return [group[0] if len(group) == 1 else _sum_of_joules(group) for group in merged]


def _is_full(group: Sequence[EnergyInterval], more: EnergyInterval, shortest_s: float) -> bool:
    """Whether a group is long enough to refuse `more`; a short `more` still joins, with its late joules."""
    if _length_s(group) < shortest_s:
        return False
    first_s = group[0].from_s
    enough_s = next(each.to_s for each in group if each.to_s - first_s >= shortest_s)
    return more.to_s - enough_s > shortest_s / 2


def _length_s(group: Sequence[EnergyInterval]) -> float:
    return group[-1].to_s - group[0].from_s


def _touch(one: EnergyInterval, other: EnergyInterval) -> bool:
    return one.energy_j is not None and other.energy_j is not None and one.to_s == other.from_s


def _sum_of_joules(group: Sequence[EnergyInterval]) -> EnergyInterval:
    jobs_j: dict[str, list[float]] = {}
    iterations: Counter[str] = Counter()
    for each in group:
        iterations.update(each.iterations)
        for job, part_j in each.jobs_j.items():
            jobs_j.setdefault(job, []).append(part_j)
    return EnergyInterval(
        group[0].from_s,
        group[-1].to_s,
        math.fsum(each.energy_j or 0.0 for each in group),
        math.fsum(each.idle_j for each in group),
        {job: math.fsum(parts) for job, parts in jobs_j.items()},
        dict(iterations),
    )
