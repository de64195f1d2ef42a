"""One trial: the jobs of a device run as ever at the setting that it has, and power and times are measured.

::

    applied ──► settles ──► ├──────────── seconds of everybody's turns ────────────┤ ──► flush ──► Trial
                            joules, clocks, throttles               too slow? stop early
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ecoshare.core.commands import MeasureSetting
from ecoshare.core.events import Measurement, MeasurementStatus, Usage
from ecoshare.devices.knob import Clocks
from ecoshare.devices.meter import MEASURED, MeterFault
from ecoshare.lane import trace
from ecoshare.lane.lane_table import BoundaryRequest, LaneTable
from ecoshare.record.energy_account import spent
from ecoshare.record.samples import Sample
from ecoshare.runtime.meter_sampler import MeterSampler

_LOOK_S = 0.2
_FLUSHED_WITHIN_S = 20.0
_FEWEST = 10
"""Iterations of each job."""

_PERIODS = 20
"""Updates of the energy counter: each end is off by a part of one."""

CLEARLY = 1.15
"""Beyond the limit times this a job is too slow whatever the noise, and the trial is stopped."""

_EARLY, _EARLY_PERIODS = 5, 5
"""Iterations that tell, and updates of the counter that a trial has at least."""

_STOOD_STILL_S = 2.0
"""With the turn, beyond all iterations that ended: then it was not the setting that was measured."""

_NO_METER = (
    "the joules of this device are not measured here (see `ecoshare doctor`), and a model knows nothing of clocks"
)

_OTHERS = frozenset({"hardware slowdown", "temperature", "temperature (hardware)", "power brake"})
"""Throttles that no setting of ours asks for. Its own power limit is what a trial tries out."""


class MeasurementVoid(Exception):
    """A job ended meanwhile; there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class MeasurementLimits:
    """How long a trial lasts.

    Attributes:
        settle_s: Until clocks and the board's averages are those of the setting.
        shortest_s: Measured at least.
        longest_s: Measured at most, once every job has had a few iterations.
    """

    settle_s: float = 0.5
    shortest_s: float = 4.0
    longest_s: float = 20.0


DEFAULT_LIMITS = MeasurementLimits()


@dataclass(frozen=True, slots=True)
class LanePosition:
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
class SettingMeasurement:
    """Measures one trial.

    Attributes:
        places: By job.
        usage: What a job has done so far; None once it has ended.
        clocks: What the device's clocks do now.
        readings: What its knobs are set to, as far as they can be read back.
        most_s: By job: time of an iteration beyond which it is clearly too slow; empty for the default setting.
        for_joules: Whether a trial without joules is of no use; else times alone are measured where there is no meter.
    """

    command: MeasureSetting
    places: Mapping[str, LanePosition]
    sampler: MeterSampler
    now_s: Callable[[], float]
    usage: Callable[[str], Usage | None]
    clocks: Callable[[], Awaitable[Clocks | None]]
    readings: Callable[[], Awaitable[Mapping[str, float]]]
    most_s: Mapping[str, float]
    for_joules: bool = True
    limits: MeasurementLimits = DEFAULT_LIMITS

    async def measure(self) -> Measurement:
        """Watch until there is enough, or it is clear that a job is too slow.

        Raises:
            TrialVoid: A job ended.
        """
        session = self.sampler.session
        is_metered = session is not None and session.source == MEASURED
        if self.for_joules and not is_metered:
            return Measurement(self.command.setting, MeasurementStatus.FAILED, note=_NO_METER)
        period_s = session.period_s if session is not None and is_metered else 0.0
        await asyncio.sleep(max(self.limits.settle_s, 2 * period_s))
        skip = {job: trace.whole_bytes(place.trace) for job, place in self.places.items()}
        first = await self.sampler.take(self.now_s) if is_metered else None
        if is_metered and (first is None or first.energy_j is None):
            why = first.fault if first is not None else _NO_METER
            return Measurement(self.command.setting, MeasurementStatus.CONTAMINATED, note=why)
        before, began_s = self._usages(), self.now_s()
        seen: list[Clocks] = []
        readings: list[Mapping[str, float]] = []
        early = False
        while True:
            await asyncio.sleep(_LOOK_S)
            if (clocks := await self.clocks()) is not None:
                seen.append(clocks)
            readings.append(await self.readings())
            now, wall_s = self._usages(), self.now_s() - began_s
            if early := wall_s >= _EARLY_PERIODS * period_s and self._too_slow(before, now):
                break
            if self._enough(before, now, wall_s, period_s):
                break
        last = await self.sampler.take(self.now_s) if is_metered else None
        after, ended_s = self._usages(), self.now_s()
        await self._flush()
        wall_s = ended_s - began_s
        work = {job: self._work(job, skip[job], began_s, ended_s) for job in self.places}
        joules, spoilt = self._joules(first, last, period_s) if first is not None else (None, [])
        throttles = tuple(dict.fromkeys(words for each in seen for words in each.throttles))
        spoilt += [words for words in throttles if words in _OTHERS] + self._spoilt(seen, readings, before, after, work)
        status = (
            MeasurementStatus.CONTAMINATED
            if spoilt
            else MeasurementStatus.CENSORED
            if early
            else MeasurementStatus.MEASURED
        )
        return Measurement(
            setting=self.command.setting,
            status=status,
            power_w=joules / (last.at_s - first.at_s) if joules is not None and first and last else None,
            joules=joules,
            duration_s=wall_s,
            times_s={job: each.time_s for job, each in work.items() if each.time_s is not None},
            shares={job: min(1.0, (after[job].held_s - before[job].held_s) / wall_s) for job in self.places},
            rates={job: (after[job].done - before[job].done) / wall_s for job in self.places},
            achieved={**(readings[-1] if readings else {}), **_achieved(seen)},
            throttles=throttles,
            temperature_c=_mean(each.temperature_c for each in seen),
            note="; ".join(spoilt),
        )

    @staticmethod
    def _joules(first: Sample, last: Sample | None, period_s: float) -> tuple[float | None, list[str]]:
        if last is None:
            return None, [_NO_METER]
        try:
            return spent(first, last, period_s).value_j, []
        except MeterFault as fault:
            return None, [str(fault)]

    def _spoilt(
        self,
        seen: list[Clocks],
        readings: list[Mapping[str, float]],
        before: Mapping[str, Usage],
        after: Mapping[str, Usage],
        work: Mapping[str, _Work],
    ) -> list[str]:
        """What decided the trial beside the setting and throttles, a reason each; none where nothing did."""
        found = []
        for name in {name for each in readings for name in each}:
            values = [each[name] for each in readings if name in each]
            if max(values) - min(values) > 0.01 * max(values):
                found.append(f"{name} was changed by somebody else")
        for name, wanted in self.command.setting:
            reached = [each.gpu_mhz if name == "gpu_clock" else each.memory_mhz for each in seen]
            known = [each for each in reached if each is not None]
            is_clock = name in ("gpu_clock", "memory_clock") and not isinstance(wanted, str)
            if is_clock and known and max(known) > 1.02 * float(wanted):
                found.append(f"{name} was not what it was locked at")
        for job, each in work.items():
            held_s = after[job].held_s - before[job].held_s
            if each.time_s is None:
                found.append(f"no iteration of {job} was seen")
            elif held_s - each.held_s > max(_STOOD_STILL_S, held_s / 2, 3.0 * each.time_s):
                found.append(f"{job} stood still")
        return found

    def _usages(self) -> dict[str, Usage]:
        found: dict[str, Usage] = {}
        for job in self.places:
            usage = self.usage(job)
            if usage is None:
                raise MeasurementVoid(f"{job} ended during a trial")
            found[job] = usage
        return found

    def _enough(self, before: Mapping[str, Usage], now: Mapping[str, Usage], wall_s: float, period_s: float) -> bool:
        fewest = min(now[job].done - before[job].done for job in self.places)
        if wall_s >= self.limits.longest_s:
            return fewest >= 2 or wall_s >= 5 * self.limits.longest_s
        return fewest >= _FEWEST and wall_s >= max(self.limits.shortest_s, _PERIODS * period_s)

    def _too_slow(self, before: Mapping[str, Usage], now: Mapping[str, Usage]) -> bool:
        """Whether a job's iterations take clearly too long, by the least that their mean can be.

        The time held covers those that ended and parts of at most one more at either end. Of a job that also evaluated
        nothing is told: its limit is of training.
        """
        for job, most_s in self.most_s.items():
            count = now[job].done - before[job].done
            evaluated = now[job].eval_iterations - before[job].eval_iterations
            least_s = (now[job].held_s - before[job].held_s) / (count + 1)
            if count >= _EARLY and not evaluated and least_s > CLEARLY * most_s:
                return True
        return False

    async def _flush(self) -> None:
        """Have every job write its marks, at its next boundary."""
        for place in self.places.values():
            place.table.slots[place.slot].ask = BoundaryRequest.FLUSH
        end_s = time.monotonic() + _FLUSHED_WITHIN_S
        while any(place.table.slots[place.slot].ask == BoundaryRequest.FLUSH for place in self.places.values()):
            self._usages()
            if time.monotonic() > end_s:
                break
            await asyncio.sleep(0.005)
        for place in self.places.values():
            place.table.slots[place.slot].ask = BoundaryRequest.NOTHING

    def _work(self, job: str, skip_bytes: int, from_s: float, to_s: float) -> _Work:
        """Its iterations in a time: the mean time of those of training, or of all where it hardly trained."""
        marks = trace.read(self.places[job].trace, skip_bytes)
        own = [(each.kind, held_s) for each, held_s in trace.held(marks) if each.from_s >= from_s and each.to_s <= to_s]
        trained = [held_s for kind, held_s in own if kind is trace.Kind.TRAIN]
        told = trained if len(trained) >= _EARLY else [held_s for _, held_s in own]
        time_s = fmean(told) if told and fmean(told) > 0.0 else None
        return _Work(time_s, sum(held_s for _, held_s in own))


@dataclass(frozen=True, slots=True)
class _Work:
    """What a job did in a trial.

    Attributes:
        time_s: Mean time of an iteration while it had its turn; None where none was seen.
        held_s: Of all its iterations.
    """

    time_s: float | None
    held_s: float


def _achieved(seen: list[Clocks]) -> dict[str, float]:
    means = {"gpu_clock": _mean(each.gpu_mhz for each in seen), "memory_clock": _mean(each.memory_mhz for each in seen)}
    return {name: value for name, value in means.items() if value is not None}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
