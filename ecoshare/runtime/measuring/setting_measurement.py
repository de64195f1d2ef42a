"""Measurement of a setting: the jobs of a device run as usual while power and iteration times are measured.

::

    applied ──► settles ──► ├──────────── seconds of turns of all jobs ────────────┤ ──► flush ──► Measurement
                            joules, clocks, throttles               too slow? stop early

A service is measured by its requests, and needs enough of them for a 99th percentile. A setting that surely overloads
it is left at once, without waiting for anything else.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from ecoshare.base.attempt import Usage
from ecoshare.base.clock import loop_s
from ecoshare.base.joules import MEASURED
from ecoshare.base.measurement import Measurement, MeasurementStatus, ServiceFigures
from ecoshare.base.plural import listed
from ecoshare.base.service import REQUESTS
from ecoshare.core.commands import MeasureSetting
from ecoshare.core.settings.service_targets import MUCH_LATE, OverloadWatch
from ecoshare.devices.knob import NOTHING, Clocks
from ecoshare.devices.meter import Meter, MeterFault, Reading
from ecoshare.devices.nvidia.nvidia_knobs import POWER_PROFILE
from ecoshare.lane import trace
from ecoshare.lane.files import of_attempt
from ecoshare.lane.serving.request_intervals import (
    RequestInterval,
    against_target,
    call_times,
    mean_batch,
    percentiles_s,
    read_from,
    total,
)
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import BoundaryRequest
from ecoshare.record.accounts.energy_account import spent
from ecoshare.record.samples import Sample, Session
from ecoshare.runtime.measuring.meter_sampler import MeterSampler


class ProcessorsInterval:
    """Interval between two readings of the processors' meter, begun and ended with the readings of the GPU's meter.

    Attributes:
        joules: Energy (J) of the interval; None without a meter, before the end, and after a fault.
        power_w: Mean power (W) of the interval; None as for `joules`.
        fault: Reason why the joules are not known although there is a meter; empty otherwise.
    """

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self._first: Reading | None = None
        self.joules: float | None = None
        self.power_w: float | None = None
        self.fault = ""

    def begin(self) -> None:
        """Take the first reading."""
        self._first = self._read()

    def end(self) -> None:
        """Take the last reading."""
        last = self._read()
        if self._first is None or last is None or self.fault:
            return
        spent_j, wall_s = last.energy_j - self._first.energy_j, last.at_s - self._first.at_s
        if spent_j <= 0.0 or wall_s <= 0.0:
            self.fault = "the energy counter of the processors stood still"
            return
        self.joules, self.power_w = spent_j, spent_j / wall_s

    def _read(self) -> Reading | None:
        if self._meter is None:
            return None
        try:
            return self._meter.read()
        except MeterFault as fault:
            self.fault = f"the joules of the processors are not known: {fault}"
            return None


FEWEST = 100
"""Least number of answers that have a 99th percentile."""

_FEWEST_MISSES = 10
"""Least number of requests that miss the target, at which it is surely missed."""

_FEWEST_CALLS = 5
"""Least number of calls with as many requests that have a mean time."""


class MeasuredRequests:
    """Requests of one service from a moment on.

    ::

        setting applied      ▏
        requests.jsonl   ▏ second  ▏  second  ▏  second  ▏  second  ▏ not yet written
                                    └──────────── figures ──────────┘

    A request counts only if it arrived after the setting was applied: others have waited for answers at the setting
    before.
    """

    def __init__(self, path: Path) -> None:
        """Requests that are not watched yet.

        Args:
            path: Record of the service.
        """
        self._path = path
        self._skip_bytes = 0
        self._applied_s = self._began_s = 0.0
        self._intervals: list[RequestInterval] = []

    def applied(self, at_s: float) -> None:
        """Leave out the requests that arrived before a setting was applied, at a time (s) since the run was opened."""
        self._applied_s = self._began_s = at_s
        with suppress(FileNotFoundError):  # nothing has happened yet
            self._skip_bytes = self._path.stat().st_size  # a line is written at once, so none is cut here

    def begin(self, at_s: float) -> None:
        """Leave out the seconds that began before a time (s), too: the power is measured from then on."""
        self._began_s = at_s

    def look(self) -> None:
        """Read what has been recorded."""
        intervals, self._skip_bytes = read_from(self._path, self._skip_bytes)
        for each in intervals:
            if self._intervals or self._counts(each):
                self._intervals.append(each)

    @property
    def answered(self) -> int:
        """Number of answers so far."""
        return sum(each.answered for each in self._intervals)

    @property
    def surely_misses(self) -> bool:
        """Whether so many requests have missed the target that the setting cannot keep it."""
        requests, missed = against_target(self._intervals)
        return missed >= _FEWEST_MISSES and missed >= MUCH_LATE * requests

    def figures(self) -> ServiceFigures | None:
        """Figures so far; None if there are too few answers for them."""
        found, times = total(self._intervals), call_times(self._intervals)
        batch = mean_batch(found.batches)
        if batch is None or not times or (found.answered < FEWEST and not self.surely_misses):
            return None
        return ServiceFigures(
            arrived=found.arrived,
            missed=against_target(self._intervals)[1],
            rate_per_s=found.arrived / (self._intervals[-1].at_s - self._intervals[0].from_s),
            p99_s=found.p99_s,
            batch=batch,
            batch_s=sum(each.sum_s for each in times) / sum(each.calls for each in times),
            rates_per_s=tuple(
                each.arrived / (each.at_s - each.from_s) for each in self._intervals if each.at_s > each.from_s
            ),
            full_s=tuple((each.size, each.mean_s) for each in times if each.calls >= _FEWEST_CALLS),
        )

    def _counts(self, interval: RequestInterval) -> bool:
        """Whether all answers of an interval are to requests that arrived after the setting was applied."""
        (longest_s,) = percentiles_s([interval], (100.0,))
        first_arrived_s = interval.from_s if math.isnan(longest_s) else interval.from_s - longest_s
        return interval.from_s >= self._began_s and first_arrived_s >= self._applied_s


_LOOK_S = 0.2
_HEAD_LOOK_S = 0.02
"""Time (s) between two looks at the first request of a queue."""

_FLUSHED_WITHIN_S = 20.0
_FEWEST = 10
"""Least number of iterations of each job."""

_PERIODS = 20
"""Least number of updates of the energy counter: each end is off by a part of an update."""

CLEARLY = 1.15
"""Factor on the limit above which a job is too slow despite any noise, so the measurement stops early."""

_EARLY, _EARLY_PERIODS = 5, 5
"""Least number of iterations, and of updates of the energy counter, before a measurement may stop early."""

_STOOD_STILL_S = 2.0
"""Turn time (s) outside of iterations above which a job may count as stalled: then the setting was not measured."""

_NO_METER = (
    "the joules of this device are not measured here (see `ecoshare doctor`), and a model knows nothing of clocks"
)

_SLOWDOWNS = frozenset({"hardware slowdown", "temperature (hardware)", "power brake"})
"""Throttle reasons of a board in trouble. A power limit is not among them: measurements try it out. Neither is the
temperature by itself: a board in a warm room or a laptop keeps to it all day long, and the result says so."""

_SLOWED_SHARE = 0.1
"""Share of the looks with such a reason up to which a measurement counts."""


class MeasurementVoid(Exception):
    """A job ended during the measurement, so there is no result."""


@dataclass(frozen=True, slots=True)
class MeasurementLimits:
    """Limits on the length of a measurement.

    Attributes:
        settle_s: Time (s) before the measurement, until clocks and averages of the board follow the setting.
        shortest_s: Least time (s) of the measurement.
        modelled_s: The same where joules are modelled, so that only iteration times are measured.
        longest_s: Most time (s) of the measurement, once every job has had a few iterations.
        requests: Least number of requests of each service, as far as they come in time.
        longest_serving_s: Most time (s) of a measurement of a service.
    """

    settle_s: float = 0.5
    shortest_s: float = 4.0
    modelled_s: float = 2.0
    longest_s: float = 20.0
    requests: int = 500
    longest_serving_s: float = 60.0


DEFAULT_LIMITS = MeasurementLimits()


@dataclass(frozen=True, slots=True)
class LanePosition:
    """Position of a job of the measurement.

    Attributes:
        table: Table of the lane.
        slot: Slot of the job in the lane.
        folder: Folder of the job.
        attempt: Number of the attempt.
    """

    table: LaneTable
    slot: int
    folder: Path
    attempt: int

    @property
    def trace(self) -> Path:
        """Path of the trace of the attempt."""
        return trace.trace_path(self.folder, self.attempt)

    @property
    def requests(self) -> Path:
        """Path of the record of the attempt's requests, if the job is a service."""
        return of_attempt(self.folder, REQUESTS, self.attempt)


@dataclass(slots=True)
class SettingMeasurement:
    """Measures the jobs of a packing at one setting.

    Attributes:
        command: Command of the core, with the jobs and the setting.
        places: Position of each job.
        sampler: Sampler of the device.
        now_s: Returns the time (s) since the run was opened.
        usage: Returns the usage of a job so far; None once the job has ended or the run is being stopped.
        clocks: Returns the present clocks of the device; None for processors.
        readings: Returns the present value of each knob that can be read back.
        most_s: Longest time (s) of an iteration that the limit of each job allows; empty for the default setting.
        for_joules: Whether a measurement without joules is useless. If not, times alone are measured without a meter.
        limits: Limits on the length of the measurement.
        processors: Meter of the processors beside a GPU; None if their joules are no part of the objective.
        services: Requests of each job that is a service.
        heads: Returns the time (s, monotonic) at which the first request of each service is due, None if none waits.
            Services with a queue that cannot be seen are left out.
        targets_s: Target (s) of each of these services.
    """

    command: MeasureSetting
    places: Mapping[str, LanePosition]
    sampler: MeterSampler
    now_s: Callable[[], float]
    usage: Callable[[str], Usage | None]
    clocks: Callable[[], Awaitable[Clocks | None]]
    readings: Callable[[], Awaitable[Mapping[str, float | str]]]
    most_s: Mapping[str, float]
    for_joules: bool = True
    limits: MeasurementLimits = DEFAULT_LIMITS
    processors: Meter | None = None
    services: Mapping[str, MeasuredRequests] = field(default_factory=dict)
    heads: Callable[[], Mapping[str, float | None]] = dict
    targets_s: Mapping[str, float] = field(default_factory=dict)
    _watches: dict[str, OverloadWatch] = field(default_factory=dict)

    async def measure(self) -> Measurement:
        """Measure until the figures suffice, or until a job is clearly too slow.

        Raises:
            MeasurementVoid: A job ended.
        """
        session = self.sampler.session
        is_metered = session is not None and session.source == MEASURED
        if self.for_joules and not is_metered:
            return Measurement(self.command.setting, MeasurementStatus.FAILED, note=_NO_METER)
        period_s = session.period_s if session is not None and is_metered else 0.0
        applied_s = self.now_s()
        for requests in self.services.values():
            requests.applied(applied_s)
        self._watches = {job: OverloadWatch(loop_s(), each) for job, each in self.targets_s.items()}
        if await self._pause(max(self.limits.settle_s, 2 * period_s)):
            return self._overloads(self.now_s() - applied_s)
        skip = {job: trace.whole_bytes(place.trace) for job, place in self.places.items()}
        is_sampled = is_metered or (session is not None and not self.command.setting)
        first = await self.sampler.take(self.now_s) if is_sampled else None
        if is_metered and (first is None or first.energy_j is None):
            why = first.fault if first is not None else _NO_METER
            return Measurement(self.command.setting, MeasurementStatus.CONTAMINATED, note=why)
        beside = ProcessorsInterval(self.processors)
        await asyncio.to_thread(beside.begin)
        before, began_s = self._usages(), self.now_s()
        for requests in self.services.values():
            requests.begin(began_s)
        seen: list[Clocks] = []
        readings: list[Mapping[str, float | str]] = []
        early = False
        while True:
            is_overloaded = await self._pause(_LOOK_S)
            if (clocks := await self.clocks()) is not None:
                seen.append(clocks)
            readings.append(await self.readings())
            now, wall_s = self._usages(), self.now_s() - began_s
            for requests in self.services.values():
                requests.look()
            if is_overloaded or (self.command.setting and any(self._missing())):
                # The requests need not wait for a whole measurement, nor for a training job to write its trace.
                return self._overloads(self.now_s() - applied_s)
            if early := wall_s >= _EARLY_PERIODS * period_s and self._too_slow(before, now):
                break
            if self._enough(before, now, wall_s, period_s):
                break
        last = await self.sampler.take(self.now_s) if is_sampled else None
        await asyncio.to_thread(beside.end)
        after, ended_s = self._usages(), self.now_s()
        await self._flush()
        wall_s = ended_s - began_s
        work = {job: self._work(job, skip[job], began_s, ended_s) for job in self._iterating}
        joules, spoilt = None, list[str]()
        if first is not None and session is not None:
            joules, spoilt = self._joules(first, last, session)
        power_w = joules / (last.at_s - first.at_s) if joules is not None and first and last else None
        if not is_metered:
            joules, spoilt = None, []
        spoilt += [beside.fault] if beside.fault else []
        throttles = tuple(dict.fromkeys(words for each in seen for words in each.throttles))
        spoilt += self._spoilt(seen, readings, before, after, work)
        served = {job: each.figures() for job, each in self.services.items()}
        spoilt += [f"{job} had too few requests to measure" for job, each in served.items() if each is None]
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
            power_w=power_w if is_metered else None,
            modelled_w=None if is_metered else power_w,
            joules=joules,
            duration_s=wall_s,
            times_s={job: each.time_s for job, each in work.items() if each.time_s is not None},
            shares={job: min(1.0, (after[job].held_s - before[job].held_s) / wall_s) for job in self.places},
            rates={job: (after[job].done - before[job].done) / wall_s for job in self.places},
            achieved={**(readings[-1] if readings else {}), **_achieved(seen)},
            throttles=throttles,
            temperature_c=_mean(each.temperature_c for each in seen),
            note="; ".join(spoilt),
            processors_w=beside.power_w,
            processors_j=beside.joules,
            services={job: each for job, each in served.items() if each is not None},
        )

    async def _pause(self, pause_s: float) -> bool:
        """Wait, and look at the queues meanwhile. Returns at once if the setting surely overloads a service: True."""
        end_s = loop_s() + pause_s
        while (now_s := loop_s()) < end_s:
            await asyncio.sleep(min(_HEAD_LOOK_S, end_s - now_s) if self._watches else pause_s)
            for job, due_s in (self.heads() if self._watches else {}).items():
                self._watches[job].saw(loop_s(), due_s)
            if self.command.setting and any(each.is_overloaded for each in self._watches.values()):
                return True
        return False

    def _missing(self) -> list[str]:
        """Services that surely miss their targets at this setting."""
        watched = [job for job, each in self._watches.items() if each.is_overloaded]
        return sorted({*watched, *(job for job, each in self.services.items() if each.surely_misses)})

    def _overloads(self, duration_s: float) -> Measurement:
        """Measurement that was stopped because the setting is too slow for a service."""
        served = {job: each.figures() for job, each in self.services.items()}
        overloaded = self._missing()
        return Measurement(
            setting=self.command.setting,
            status=MeasurementStatus.CENSORED,
            duration_s=duration_s,
            note=f"too slow for {listed(overloaded)}",
            services={job: each for job, each in served.items() if each is not None},
            overloaded=tuple(overloaded),
        )

    @property
    def _iterating(self) -> list[str]:
        """Jobs that are measured by their iterations."""
        return [job for job in self.places if job not in self.services]

    @staticmethod
    def _joules(first: Sample, last: Sample | None, session: Session) -> tuple[float | None, list[str]]:
        if last is None:
            return None, [_NO_METER]
        try:
            return spent(first, last, session).value_j, []
        except MeterFault as fault:
            return None, [str(fault)]

    def _spoilt(
        self,
        seen: list[Clocks],
        readings: list[Mapping[str, float | str]],
        before: Mapping[str, Usage],
        after: Mapping[str, Usage],
        work: Mapping[str, _Work],
    ) -> list[str]:
        """Reasons, other than the setting, that determined the result; empty if there are none."""
        slowed = Counter(words for each in seen for words in each.throttles)
        found = [words for words, looks in slowed.items() if words in _SLOWDOWNS and looks > _SLOWED_SHARE * len(seen)]
        for name in {name for each in readings for name in each}:
            values = [each[name] for each in readings if name in each]
            numbers = [each for each in values if not isinstance(each, str)]
            is_off = bool(numbers) and max(numbers) - min(numbers) > 0.01 * max(numbers)
            if is_off or (len(numbers) < len(values) and len(set(values)) > 1):
                found.append(f"{name} was changed by another program")
        for name, wanted in self.command.setting:
            reached = [each.gpu_mhz if name == "gpu_clock" else each.memory_mhz for each in seen]
            known = [each for each in reached if each is not None]
            is_clock = name in ("gpu_clock", "memory_clock") and not isinstance(wanted, str)
            if is_clock and known and max(known) > 1.02 * float(wanted):
                found.append(f"{name} was not what it was locked at")
            enforced = [each.power_profiles for each in seen if each.power_profiles is not None]
            if name == POWER_PROFILE and wanted != NOTHING and any(wanted not in each for each in enforced):
                found.append(f"{name} {wanted} was requested, and the device did not enforce it")
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
                raise MeasurementVoid(f"{job} ended during a measurement")
            found[job] = usage
        return found

    def _enough(self, before: Mapping[str, Usage], now: Mapping[str, Usage], wall_s: float, period_s: float) -> bool:
        fewest = min((now[job].done - before[job].done for job in self._iterating), default=_FEWEST)
        least_s = max(self.limits.shortest_s, _PERIODS * period_s) if period_s else self.limits.modelled_s
        is_long = fewest >= _FEWEST and wall_s >= least_s
        if self.services and fewest >= 2:
            has_requests = all(each.answered >= self.limits.requests for each in self.services.values())
            return (is_long and has_requests) or wall_s >= self.limits.longest_serving_s
        if wall_s >= self.limits.longest_s:
            return fewest >= 2 or wall_s >= 5 * self.limits.longest_s
        return is_long

    def _too_slow(self, before: Mapping[str, Usage], now: Mapping[str, Usage]) -> bool:
        """Whether the iterations of a job take clearly too long, by a lower bound on their mean time.

        The turn time covers the iterations that ended, and together at most one more at both ends. A job that trained
        and evaluated is not judged, since its limit is for one of them.
        """
        for job, most_s in self.most_s.items():
            count = now[job].done - before[job].done
            evaluated = now[job].eval_iterations - before[job].eval_iterations
            least_s = (now[job].held_s - before[job].held_s) / (count + 1)
            if count >= _EARLY and evaluated in (0, count) and least_s > CLEARLY * most_s:
                return True
        return False

    async def _flush(self) -> None:
        """Make every job with iterations write its trace at its next boundary."""
        places = [self.places[job] for job in self._iterating]
        for place in places:
            place.table.slots[place.slot].ask = BoundaryRequest.FLUSH
        end_s = loop_s() + _FLUSHED_WITHIN_S
        while any(place.table.slots[place.slot].ask == BoundaryRequest.FLUSH for place in places):
            self._usages()
            if loop_s() > end_s:
                break
            await asyncio.sleep(0.005)
        for place in places:
            place.table.slots[place.slot].ask = BoundaryRequest.NOTHING

    def _work(self, job: str, skip_bytes: int, from_s: float, to_s: float) -> _Work:
        """Iterations of a job in an interval. Training iterations alone give the mean time, unless there are few."""
        marks = trace.read(self.places[job].trace, skip_bytes)
        own = [(each.kind, held_s) for each, held_s in trace.held(marks) if each.from_s >= from_s and each.to_s <= to_s]
        trained = [held_s for kind, held_s in own if kind is trace.Kind.TRAIN]
        told = trained if len(trained) >= _EARLY else [held_s for _, held_s in own]
        time_s = fmean(told) if told and fmean(told) > 0.0 else None
        return _Work(time_s, sum(held_s for _, held_s in own))


@dataclass(frozen=True, slots=True)
class _Work:
    """Work of a job during a measurement.

    Attributes:
        time_s: Mean turn time (s) of an iteration; None if none was seen.
        held_s: Turn time (s) of all iterations.
    """

    time_s: float | None
    held_s: float


def _achieved(seen: list[Clocks]) -> dict[str, float | str]:
    profiles = [each.power_profiles for each in seen if each.power_profiles is not None]
    names: dict[str, float | str] = {POWER_PROFILE: "+".join(profiles[-1]) or NOTHING} if profiles else {}
    means = {"gpu_clock": _mean(each.gpu_mhz for each in seen), "memory_clock": _mean(each.memory_mhz for each in seen)}
    return names | {name: value for name, value in means.items() if value is not None}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
