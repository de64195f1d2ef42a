"""One trial: the jobs of a device run as ever at the setting that it has, and power and times are measured.

::

    applied ──► settles ──► ├──────────── seconds of everybody's turns ────────────┤ ──► flush ──► Trial
                            joules, clocks, throttles               too slow? stop early
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ecoshare.core.commands import MeasureTrial
from ecoshare.core.events import Trial, TrialStatus, Usage
from ecoshare.hardware.knob import Clocks
from ecoshare.lane import trace
from ecoshare.lane.table import Ask, LaneTable
from ecoshare.measure.energy import spent
from ecoshare.measure.meter import MEASURED, MeterFault
from ecoshare.runtime.sampler import Sampler

_LOOK_S = 0.2
_FLUSHED_WITHIN_S = 20.0
_FEWEST = 10
"""Iterations of each job."""

_PERIODS = 20
"""Updates of the energy counter: each end is off by a part of one."""

CLEARLY = 1.15
"""Beyond the limit times this a job is too slow whatever the noise, and the trial is stopped."""

_EARLY = 5
"""Iterations that tell."""

_NO_METER = (
    "the joules of this device are not measured here (see `ecoshare doctor`), and a model knows nothing of clocks"
)

_OTHERS = frozenset({"hardware slowdown", "temperature", "temperature (hardware)", "power brake"})
"""Throttles that no setting of ours asks for. Its own power limit is what a trial tries out."""


class TrialVoid(Exception):
    """A job ended meanwhile; there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """How long a trial lasts.

    Attributes:
        settle_s: Until clocks and the board's averages are those of the setting.
        shortest_s: Measured at least.
        longest_s: Measured at most, once every job has had a few iterations.
    """

    settle_s: float = 0.5
    shortest_s: float = 4.0
    longest_s: float = 20.0


DEFAULT_LIMITS = TrialLimits()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job of the trial is."""

    table: LaneTable
    slot: int
    folder: Path
    attempt: int

    @property
    def trace(self) -> Path:
        """Its marks."""
        return trace.trace_path(self.folder, self.attempt)


@dataclass(slots=True)
class TrialWindow:
    """Measures one trial.

    Attributes:
        places: By job.
        usage: What a job has done so far; None once it has ended.
        clocks: What the device's clocks do now.
        readings: What its knobs are set to, as far as they can be read back.
        most_s: By job: time of an iteration beyond which it is clearly too slow; empty for the default setting.
    """

    command: MeasureTrial
    places: Mapping[str, Place]
    sampler: Sampler
    now_s: Callable[[], float]
    usage: Callable[[str], Usage | None]
    clocks: Callable[[], Awaitable[Clocks | None]]
    readings: Callable[[], Awaitable[Mapping[str, float]]]
    most_s: Mapping[str, float]
    limits: TrialLimits = DEFAULT_LIMITS

    async def measure(self) -> Trial:
        """Watch until there is enough, or it is clear that a job is too slow.

        Raises:
            TrialVoid: A job ended.
        """
        session = self.sampler.session
        if session is None or session.source != MEASURED:
            return Trial(self.command.setting, TrialStatus.FAILED, note=_NO_METER)
        period_s = session.period_s
        await asyncio.sleep(max(self.limits.settle_s, 2 * period_s))
        skip = {job: place.trace.stat().st_size for job, place in self.places.items() if place.trace.exists()}
        first = await self.sampler.take(self.now_s)
        before, began_s = self._usages(), self.now_s()
        seen: list[Clocks] = []
        status = TrialStatus.MEASURED
        while True:
            await asyncio.sleep(_LOOK_S)
            if (clocks := await self.clocks()) is not None:
                seen.append(clocks)
            now, wall_s = self._usages(), self.now_s() - began_s
            if self._too_slow(before, now):
                status = TrialStatus.CENSORED
                break
            if self._enough(before, now, wall_s, period_s):
                break
        last = await self.sampler.take(self.now_s)
        after, ended_s = self._usages(), self.now_s()
        await self._flush()
        marks = {job: trace.read(place.trace, _whole(skip.get(job, 0))) for job, place in self.places.items()}
        others = Counter(words for each in seen for words in each.throttles if words in _OTHERS)
        if others and status is TrialStatus.MEASURED:
            status = TrialStatus.CONTAMINATED
        joules = power_w = None
        note = ""
        if first is not None and last is not None:
            try:
                joules = spent(first, last, period_s).value_j
                power_w = joules / (last.at_s - first.at_s)
            except MeterFault as fault:
                status, note = TrialStatus.CONTAMINATED, str(fault)
        return Trial(
            setting=self.command.setting,
            status=status,
            power_w=power_w,
            joules=joules,
            duration_s=ended_s - began_s,
            times_s={job: self._time_s(job, marks[job], began_s, ended_s, before, after) for job in self.places},
            shares={
                job: min(1.0, (after[job].held_s - before[job].held_s) / (ended_s - began_s)) for job in self.places
            },
            achieved={**await self.readings(), **_achieved(seen)},
            throttles=tuple(dict.fromkeys(words for each in seen for words in each.throttles)),
            temperature_c=_mean(each.temperature_c for each in seen),
            note=note,
        )

    def _usages(self) -> dict[str, Usage]:
        found: dict[str, Usage] = {}
        for job in self.places:
            usage = self.usage(job)
            if usage is None:
                raise TrialVoid(f"{job} ended during a trial")
            found[job] = usage
        return found

    def _enough(self, before: Mapping[str, Usage], now: Mapping[str, Usage], wall_s: float, period_s: float) -> bool:
        fewest = min(_done(now[job]) - _done(before[job]) for job in self.places)
        if wall_s >= self.limits.longest_s:
            return fewest >= 2 or wall_s >= 5 * self.limits.longest_s
        return fewest >= _FEWEST and wall_s >= max(self.limits.shortest_s, _PERIODS * period_s)

    def _too_slow(self, before: Mapping[str, Usage], now: Mapping[str, Usage]) -> bool:
        for job, most_s in self.most_s.items():
            count = _done(now[job]) - _done(before[job])
            if count >= _EARLY and _counted_s(before[job], now[job]) > CLEARLY * most_s:
                return True
        return False

    async def _flush(self) -> None:
        """Have every job write its marks, at its next boundary."""
        for place in self.places.values():
            place.table.slots[place.slot].ask = Ask.FLUSH
        end_s = time.monotonic() + _FLUSHED_WITHIN_S
        while any(place.table.slots[place.slot].ask == Ask.FLUSH for place in self.places.values()):
            self._usages()
            if time.monotonic() > end_s:
                break
            await asyncio.sleep(0.005)
        for place in self.places.values():
            place.table.slots[place.slot].ask = Ask.NOTHING

    def _time_s(
        self,
        job: str,
        marks: list[trace.Mark],
        from_s: float,
        to_s: float,
        before: Mapping[str, Usage],
        after: Mapping[str, Usage],
    ) -> float:
        """Mean time of its training iterations while it had its turn; of all that it did, where it trained none."""
        own = [
            held_s
            for each, held_s in trace.held(marks)
            if each.kind is trace.Kind.TRAIN and each.from_s >= from_s and each.to_s <= to_s
        ]
        return fmean(own) if len(own) >= _EARLY else _counted_s(before[job], after[job])


def _done(usage: Usage) -> int:
    return usage.iterations + usage.eval_iterations


def _counted_s(before: Usage, now: Usage) -> float:
    """Mean time of an iteration between two moments, from boundary to boundary, without waits for the turn."""
    working_s = (now.span_s - now.waited_s) - (before.span_s - before.waited_s)
    return max(working_s, 1e-9) / max(1, _done(now) - _done(before))


def _achieved(seen: list[Clocks]) -> dict[str, float]:
    means = {"gpu_clock": _mean(each.gpu_mhz for each in seen), "memory_clock": _mean(each.memory_mhz for each in seen)}
    return {name: value for name, value in means.items() if value is not None}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _whole(size: int) -> int:
    return size - size % trace.MARK_BYTES
