"""Profiling windows of jobs, measurements of settings, and questions to advisers during a run.

Each is a task beside the driver's loop. The core gets an answer even if a measurement fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ecoshare.core.commands import ApplySetting, AskInterference, AskPlanner, AskSetting, MeasureSetting, ProfileJob
from ecoshare.core.events import (
    Done,
    Event,
    InterferencePredicted,
    Measurement,
    MeasurementStatus,
    Planned,
    Profiled,
    Refused,
    SettingMeasured,
    StopRequested,
    Usage,
)
from ecoshare.core.placement.colocation_estimates import BESIDE
from ecoshare.devices.knob import Clocks
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.lane_table import LaneTable
from ecoshare.lane.messages import Ready
from ecoshare.record import samples
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.bystanders import Bystanders
from ecoshare.runtime.class_knowledge import demand, solo
from ecoshare.runtime.device_claim import Settings
from ecoshare.runtime.meter_sampler import MeterSampler
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.profiling_window import ENDED_IN_WINDOW, Window, WindowFailed, WindowResult
from ecoshare.runtime.setting_measurement import LanePosition, MeasurementVoid, SettingMeasurement

if TYPE_CHECKING:
    from ecoshare.advisers.setting_adviser import TunerAdviser


BOTH_BUSY = 0.35
"""Expected relative speed of a job beside another one if both keep all processors busy.

Each job has half of the processors, and loses more: the threads of an operation wait for each other, and for those of
the neighbour. Measured on two cores: 0.42 to 0.49 for large matrices, 0.17 to 0.3 for operations of well under a
millisecond (the examples).
"""

ON_PROCESSORS = 0.4
"""The same speed if nothing is known about either job: most scripts keep the processors busy."""


class RunningAttempt(Protocol):
    """An attempt in progress, as the driver knows it."""

    @property
    def job(self) -> PlannedJob:
        """Job of the attempt."""
        ...

    @property
    def attempt(self) -> int:
        """Number of the attempt."""
        ...

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Lane and slot on each device of the job."""
        ...


@dataclass(slots=True)
class LiveMeasurements:
    """Carries out the commands that measure, and those that ask an adviser.

    Attributes:
        tables: Table of each lane.
        attempts: Attempts in progress, by job.
        usage: Usage so far of a job in progress.
        now_s: Time (s) since the run was opened.
        stopping: Whether the run is being stopped.
        ready: Start message of the warm server; None before it has loaded torch.
        tell: Reports an event to the core.
        bystanders: Detects disturbance of a window by other programs.
        settings: Settings of the claimed device; None if nothing may be set.
        adviser: Adviser that searches settings; None without a search.
        then_stop: Whether the run is for one search only, and stops after it.
        tasks: Tasks in progress.
        windows: Number of open windows. The job of an open window may have ended, with its profile still to be stored.
    """

    plan: Plan
    folder: RunFolder
    tables: Mapping[int, LaneTable]
    attempts: Mapping[str, RunningAttempt]
    sampler: MeterSampler
    profiler: Profiler
    usage: Callable[[str], Usage]
    now_s: Callable[[], float]
    stopping: Callable[[], bool]
    ready: Callable[[], Ready | None]
    tell: Callable[[Callable[..., Event]], None]
    bystanders: Bystanders
    settings: Settings | None = None
    adviser: TunerAdviser | None = None
    then_stop: bool = False
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    windows: int = 0

    def start(
        self,
        command: ProfileJob | ApplySetting | MeasureSetting | AskSetting | AskInterference | AskPlanner,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Start a task that carries out a command."""
        match command:
            case ProfileJob():
                work = self._profile(command)
            case ApplySetting():
                work = self._apply(command)
            case MeasureSetting():
                work = self._measure_trial(command)
            case AskSetting():
                work = self._ask(command)
            case AskInterference():
                work = self._foresee(command)
            case AskPlanner():
                work = self._plan(command)
        task = tasks.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _plan(self, command: AskPlanner) -> None:
        """Ask a planner, in a thread."""
        from ecoshare.advisers.planners import shares

        self.tell(partial(Planned, command=command.id, shares=await asyncio.to_thread(shares, command)))

    async def _foresee(self, command: AskInterference) -> None:
        """Predict the speeds of co-located jobs, in a thread."""
        from ecoshare.advisers.interference_adviser import foresee

        self.profiler.keep_seen(command.colocations)
        expected = (ON_PROCESSORS, BOTH_BUSY) if self.plan.device.on_processors else (BESIDE,)
        pairs, prices = await asyncio.to_thread(foresee, command, *expected)
        self.tell(partial(InterferencePredicted, command=command.id, pairs=pairs, prices=prices))

    # A job alone

    async def _profile(self, command: ProfileJob) -> None:
        """Measure a job in a profiling window. The core gets an answer even if the window fails."""
        made, error = None, ""
        self.windows += 1
        try:
            own = self.attempts.get(command.job)
            if own is None or own.attempt != command.attempt:
                raise WindowFailed("the job ended before its window")
            measured = await self._window(command, own)
            if self.stopping():
                raise WindowFailed(ENDED_IN_WINDOW)
            made = self.profiler.keep(own.job, command.attempt, measured, self.ready(), self.sampler)
        except WindowFailed as failed:
            error = str(failed)
        except (OSError, UnfitEnvironment):
            raise
        except Exception as defect:  # a failed measurement must not end the run
            error = f"no profile could be made: {defect!r}"
        finally:
            self.windows -= 1
        memory, alone = (None, None) if made is None else (demand(made), solo(made))
        self.tell(partial(Profiled, command=command.id, memory=memory, error=error, solo=alone))
        if self.profiler.stops_the_run:
            self.tell(partial(StopRequested, at_once=False))

    async def _window(self, command: ProfileJob, own: RunningAttempt) -> WindowResult:
        window = Window(
            tables=dict(self.tables),
            place=own.places[0],
            folder=self.folder.job(command.job),
            attempt=command.attempt,
            key=samples.attempt_key(command.job, command.attempt),
            sampler=self.sampler,
            limits=self.profiler.limits,
            now_s=self.now_s,
            usage=partial(self._usage_of, command.job, own),
            on_gpu=not self.plan.device.on_processors,
        )
        watch = await asyncio.to_thread(self.bystanders.watch)
        measured = await window.measure()
        measured.disturbed = await asyncio.to_thread(self.bystanders.disturbed, watch)
        return measured

    def _usage_of(self, job: str, own: RunningAttempt) -> Usage | None:
        """Usage so far of an attempt; None if the attempt has ended or the run is being stopped."""
        return self.usage(job) if self.attempts.get(job) is own and not self.stopping() else None

    # A packing at a setting

    async def _apply(self, command: ApplySetting) -> None:
        assert self.settings is not None, "the core asks for settings only where they may be set"
        error = await self.settings.apply(command.setting)
        if error:
            self.tell(partial(Refused, command=command.id, error=error))
        else:
            self.tell(partial(Done, command=command.id))

    async def _measure_trial(self, command: MeasureSetting) -> None:
        try:
            trial = await self._trial(command)
        except MeasurementVoid as void:
            trial = Measurement(command.setting, MeasurementStatus.CONTAMINATED, note=str(void))
        except (OSError, UnfitEnvironment):
            raise
        except Exception as defect:  # a failed measurement must not end the run
            trial = Measurement(
                command.setting, MeasurementStatus.CONTAMINATED, note=f"could not be measured: {defect!r}"
            )
        self.tell(partial(SettingMeasured, command=command.id, measurement=trial))

    async def _trial(self, command: MeasureSetting) -> Measurement:
        own = {job: self.attempts[job] for job in command.jobs if job in self.attempts}
        if len(own) < len(command.jobs):
            raise MeasurementVoid("a job ended before the trial")
        places = {
            job: LanePosition(self.tables[lane], slot, self.folder.job(job), each.attempt)
            for job, each in own.items()
            for lane, slot in each.places[:1]
        }
        window = SettingMeasurement(
            command=command,
            places=places,
            sampler=self.sampler,
            now_s=self.now_s,
            usage=lambda job: self._usage_of(job, own[job]),
            clocks=self._clocks,
            readings=self._readings,
            most_s=self._most_s(command),
            for_joules=self.adviser is not None,
        )
        trial = await window.measure()
        if self.settings is not None and not command.setting:
            await self.settings.look()  # the jobs keep the device busy now
        return trial

    async def _clocks(self) -> Clocks | None:
        return await self.settings.clocks() if self.settings is not None else None

    async def _readings(self) -> Mapping[str, float]:
        return await self.settings.readings() if self.settings is not None else {}

    def _most_s(self, command: MeasureSetting) -> Mapping[str, float]:
        """Longest time (s) of an iteration that the limit of each job allows; empty for the default setting."""
        return {} if self.adviser is None or not command.setting else self.adviser.most_s(command.jobs)

    async def _ask(self, command: AskSetting) -> None:
        assert self.adviser is not None, "the core asks only where a search was asked for"
        advice = await asyncio.to_thread(self.adviser.answer, command)
        self.tell(advice.told(command.id))
        if advice.over and self.then_stop:
            self.tell(partial(StopRequested, at_once=False))
