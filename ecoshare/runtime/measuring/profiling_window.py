"""A profiling window: a part of a job's run in which the job is measured alone on its device.

::

    others   ══════╗ they wait, at a boundary                                       ╔══════
    the job  ══╗   ║        ╔ 5 iterations ═══╗╔ 3 ╗╔════ seconds of iterations ═══╗║══════
               ╚═══ idle ═══╝ its memory      ╚╝   ╚╝ times and joules             ╚╝
                   watched once a run,          warm again
                   if a meter measures

The memory is observed first. The cost of the observation decides how long the rest must last to keep the overhead low.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.base import documents
from ecoshare.base.attempt import Usage
from ecoshare.base.batch_means import relative_error
from ecoshare.base.clock import loop_s
from ecoshare.base.joules import MEASURED
from ecoshare.devices.meter import MeterFault
from ecoshare.lane import trace
from ecoshare.lane.memory.observer import memory_path
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import ANY_SLOT, NO_SLOT, BoundaryRequest, SlotState
from ecoshare.record.accounts.energy_account import spent
from ecoshare.record.samples import Idle, Sample
from ecoshare.runtime.measuring.meter_sampler import MeterSampler

_LOOK_S = 0.005
_OTHERS_WITHIN_S = 15.0
"""Longest time (s) for the other jobs to reach a boundary."""

_IDLE_SETTLES_S, _IDLE_S, _IDLE_PERIODS = 1.0, 2.0, 20
"""Watch of the idle device: time (s) for its clocks to come down, least time (s) after that, least meter updates."""

_OBSERVED_WITHIN_S = 120.0
_AGAIN_WARM = 3
"""Number of iterations after an observation that do not count, since the allocator's cache was emptied."""

_FEWEST_ITERATIONS, _FEWEST_PERIODS = 10, 30
"""Least number of iterations, and of updates of the energy counter: each end is off by a part of an update."""

_TAKE_EVERY_S = 0.5

_MOST_MEMORY_BYTES = 16 << 20
"""Most bytes of a document on memory. Those of the largest examples have some kB."""


ENDED_IN_WINDOW = "the job ended in its window"


class WindowFailed(Exception):
    """The window has no result. The message gives the reason."""


class _JobEnded(WindowFailed):
    """The job has ended, or the run is being stopped."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the length of a window.

    Attributes:
        shortest_s: Least time (s) of the measurement.
        modelled_s: Least time (s) if joules are modelled: then only times are measured, and other jobs wait.
        plain_s: The same for a job that has done no inference so far, while other jobs wait. A job that tests its model
            now and then gets more time, so that the window sees a test.
        longest_s: Most time (s) of the measurement, unless only a few iterations have ended by then.
        steady: Relative standard error of the mean iteration time at which the figures count as settled.
        steady_enough: The same while other jobs wait.
        overhead: Largest relative overhead: time that the observation of memory adds / time of the iterations. It is
            not kept while other jobs wait, which a longer window would cost more.
        iterations: Number of iterations to measure, whatever the time; None to go by the other limits.
    """

    shortest_s: float = 3.0
    modelled_s: float = 1.0
    plain_s: float = 0.5
    longest_s: float = 12.0
    steady: float = 0.02
    steady_enough: float = 0.05
    overhead: float = 0.025
    iterations: int | None = None

    def least_s(self, is_measured: bool, has_tests: bool, others_wait: bool) -> float:
        """Least time (s) of the measurement.

        Args:
            is_measured: Whether a meter measures the joules. It needs more time than a model.
            has_tests: Whether the job has done inference so far.
            others_wait: Whether other jobs wait for the end of the window.
        """
        if is_measured:
            return self.shortest_s
        return min(self.shortest_s, self.plain_s if others_wait and not has_tests else self.modelled_s)

    def settles(self, error: float | None, others_wait: bool) -> bool:
        """Whether a mean iteration time has settled.

        Args:
            error: Relative standard error; None if it is unknown.
            others_wait: Whether other jobs wait for the end of the window.
        """
        return error is not None and error <= (self.steady_enough if others_wait else self.steady)

    def may_end(self, wall_s: float, extra_s: float, settled: bool, others_wait: bool) -> bool:
        """Whether a measurement that is long enough for its meters may end.

        Args:
            wall_s: Length (s) of the measurement.
            extra_s: Time (s) that the observation of memory has added.
            settled: Whether the mean iteration time has settled.
            others_wait: Whether other jobs wait for the end of the window.
        """
        is_cheap = others_wait or wall_s >= extra_s / self.overhead
        return is_cheap and (settled or wall_s >= self.longest_s)


DEFAULT_LIMITS = Limits()


@dataclass(slots=True)
class WindowResult:
    """Result of a window. All moments are times (s) since the run was opened.

    Attributes:
        before: Usage of the job at the beginning of the window.
        began_s: Beginning of the window.
        memory: Result of the `MemoryObserver`; None without one.
        device_bytes: Memory (bytes) of the job's process on its GPU, with the allocator's cache empty; None if unknown.
        observed_s: Time (s) of the observed iterations.
        observed: Number of observed iterations.
        timed_from_s: Beginning of the measurement of times and joules.
        timed_to_s: End of that measurement.
        samples: Samples of that measurement, the first at its beginning, the last at its end.
        marks: Trace of the job since the beginning of the window.
        paused_jobs: Number of other jobs that waited.
        ended_s: End of the window.
        steady: Whether the iteration time had settled.
        disturbed: Disturbance by other programs, in words; empty for none.
    """

    before: Usage
    began_s: float
    memory: dict[str, Any] | None = None
    device_bytes: int | None = None
    observed_s: float = 0.0
    observed: int = 0
    timed_from_s: float = 0.0
    timed_to_s: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    marks: list[trace.Mark] = field(default_factory=list)
    paused_jobs: int = 0
    ended_s: float = 0.0
    steady: bool = False
    disturbed: str = ""


@dataclass(slots=True)
class Window:
    """Measures one job.

    Attributes:
        tables: Table of each lane of the device, by number.
        place: Lane and slot of the job.
        folder: Folder of the job.
        attempt: Number of the attempt.
        key: Key of the attempt in the samples.
        sampler: Sampler of the device.
        limits: Limits on the length of the window.
        now_s: Returns the time (s) since the run was opened.
        usage: Returns the usage of the job so far; None once the job has ended or the run is being stopped.
        on_gpu: Whether the memory of the job is that of a GPU.
    """

    tables: dict[int, LaneTable]
    place: tuple[int, int]
    folder: Path
    attempt: int
    key: str
    sampler: MeterSampler
    limits: Limits
    now_s: Callable[[], float]
    usage: Callable[[], Usage | None]
    on_gpu: bool

    async def measure(self) -> WindowResult:
        """Make the other jobs wait, measure this one, and let all jobs run again.

        Raises:
            WindowFailed: The job ended too early, its iterations take too long, no iteration was seen, or the other
                jobs cannot be made to wait.
        """
        result = WindowResult(self._usage(), self.now_s())
        iteration_s = _iteration_s(result.before)
        if iteration_s > self.limits.longest_s:
            raise WindowFailed(f"an iteration takes {iteration_s:.0f} s, which is too long for the others to wait")
        skip_bytes = trace.whole_bytes(trace.trace_path(self.folder, self.attempt))
        try:
            await self._alone(result)
            await self._observe(result)
            await self._after(_AGAIN_WARM)
            await self._time(result, skip_bytes)
        finally:
            self._slot.ask = BoundaryRequest.NOTHING
            for table in self.tables.values():
                table.reserve(ANY_SLOT)
            result.ended_s = self.now_s()
        return result

    @property
    def _slot(self) -> Any:
        lane, slot = self.place
        return self.tables[lane].slots[slot]

    def _usage(self) -> Usage:
        usage = self.usage()
        if usage is None:
            raise _JobEnded(ENDED_IN_WINDOW)
        return usage

    async def _alone(self, result: WindowResult) -> None:
        """Reserve the turn for this job. Before that, once a run, no job gets a turn, to watch the idle device."""
        own, slot = self.place
        for number, table in self.tables.items():
            holder = table.header.holder
            if number != own and holder != NO_SLOT and not table.slots[holder].last_s:
                raise WindowFailed("a job beside it that has no iterations cannot be made to wait")
        session = self.sampler.session
        watch = session is not None and session.source == MEASURED and not self.sampler.idle_watched
        for number, table in self.tables.items():
            table.reserve(slot if number == own and not watch else NO_SLOT)
        others = [
            (table, index)
            for number, table in self.tables.items()
            for index in range(table.header.used)
            if (number, index) != self.place and table.slots[index].seat != SlotState.EMPTY
        ]
        result.paused_jobs = len(others)
        held = [*others, (self.tables[own], slot)] if watch else others
        await self._until(
            lambda: (
                not any(
                    table.slots[index].seat == SlotState.HOLDING or table.header.holder == index
                    for table, index in held
                )
            ),
            _OTHERS_WITHIN_S,
            "a job beside it does not reach the end of an iteration",
        )
        if watch:
            await self._watch_idle()
            self.tables[own].reserve(slot)

    async def _watch_idle(self) -> None:
        session = self.sampler.session
        assert session is not None
        await asyncio.sleep(_IDLE_SETTLES_S)
        first = await self.sampler.take(self.now_s)
        await asyncio.sleep(max(_IDLE_S, _IDLE_PERIODS * session.period_s))
        last = await self.sampler.take(self.now_s)
        self._usage()  # fails after a stop, which lets jobs run meanwhile
        assert first is not None and last is not None, "there is a session, so there is a meter"
        try:
            energy = spent(first, last, session)
        except MeterFault:
            return
        wall_s = last.at_s - first.at_s
        self.sampler.tell_idle(Idle(last.at_s, energy.value_j / wall_s, energy.standard_error_j / wall_s))

    async def _observe(self, result: WindowResult) -> None:
        began, began_s = self._done(), loop_s()
        self._slot.ask = BoundaryRequest.OBSERVE
        # A job takes its answer back if the controller does not read it in time.
        await self._until(
            lambda: self._slot.ask != BoundaryRequest.OBSERVE,
            _OBSERVED_WITHIN_S,
            "no iteration of the job was seen to its end",
        )
        if (
            self.on_gpu and self._slot.ask == BoundaryRequest.OBSERVED
        ):  # the job stays at its boundary, with its cache emptied
            sample = await self.sampler.take(self.now_s)
            if sample is not None and self.key in sample.jobs:
                result.device_bytes = sample.jobs[self.key].memory_bytes
        self._slot.ask = BoundaryRequest.NOTHING
        result.observed, result.observed_s = self._done() - began, loop_s() - began_s
        path = memory_path(self.folder, self.attempt)
        try:
            result.memory = documents.parse(documents.read_own(path, _MOST_MEMORY_BYTES))
        except (OSError, ValueError):
            result.memory = None

    async def _time(self, result: WindowResult, skip_bytes: int) -> None:
        limits, session = self.limits, self.sampler.session
        period_s = session.period_s if session is not None else 0.0
        is_measured = session is not None and session.source == MEASURED
        await self._take(result)  # it takes the time of the driver, in which iterations end
        began_s, began = self.now_s(), self._done()
        result.timed_from_s = began_s
        # One iteration more, since the first one to end began before the measurement.
        while limits.iterations is not None and self._done() - began <= limits.iterations:
            await asyncio.sleep(_LOOK_S)
        sound = False
        while True:
            await asyncio.sleep(_TAKE_EVERY_S if limits.iterations is None else 0.0)
            try:
                count, wall_s = self._done() - began, self.now_s() - began_s
                await self._flush()
            except _JobEnded:
                if sound:  # the last look counts, with a larger overhead or error than wanted
                    return
                raise
            await self._take(result)
            result.timed_to_s = self.now_s()
            result.marks = trace.read(trace.trace_path(self.folder, self.attempt), skip_bytes)
            times = durations(result.marks, began_s, self.now_s(), trace.Kind.TRAIN) or durations(
                result.marks, began_s, self.now_s(), trace.Kind.EVAL
            )
            result.steady = limits.settles(relative_error(times), result.paused_jobs > 0)
            if limits.iterations is not None:
                return
            least_s = limits.least_s(is_measured, result.before.eval_iterations > 0, result.paused_jobs > 0)
            sound = count >= _FEWEST_ITERATIONS and wall_s >= _FEWEST_PERIODS * period_s
            enough = sound and wall_s >= least_s
            extra_s = max(0.0, result.observed_s - result.observed * wall_s / count) if count else 0.0
            if enough and limits.may_end(wall_s, extra_s, result.steady, result.paused_jobs > 0):
                return
            if wall_s >= 5 * limits.longest_s and count:
                return

    async def _take(self, result: WindowResult) -> None:
        if (sample := await self.sampler.take(self.now_s)) is not None:
            result.samples.append(sample)

    async def _flush(self) -> None:
        self._slot.ask = BoundaryRequest.FLUSH
        await self._until(
            lambda: self._slot.ask == BoundaryRequest.NOTHING,
            _OBSERVED_WITHIN_S,
            "no iteration of the job was seen to its end",
        )

    async def _after(self, iterations: int) -> None:
        began = self._done()
        await self._until(
            lambda: self._done() - began >= iterations, _OBSERVED_WITHIN_S, "no iteration of the job was seen"
        )

    def _done(self) -> int:
        return self._usage().done

    async def _until(self, reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
        end_s = loop_s() + within_s
        while not reached():
            self._usage()
            if loop_s() > end_s:
                raise WindowFailed(otherwise)
            await asyncio.sleep(_LOOK_S)


def _iteration_s(usage: Usage) -> float:
    """Mean time (s) of an iteration so far, without waits for the turn; 0 if unknown."""
    done = usage.done
    return (usage.span_s - usage.waited_s) / (done - 1) if done > 1 else 0.0


def durations(marks: list[trace.Mark], from_s: float, to_s: float, kind: trace.Kind) -> list[float]:
    """Wall times (s) of the iterations of one kind that lie between two moments, in order."""
    return [
        each.to_s - each.from_s
        for each in trace.iterations(marks)
        if each.kind is kind and each.from_s >= from_s and each.to_s <= to_s
    ]
