"""One device of a run: its meter, settings, profiling windows and measurements.

::

    ProfileJob     ──► Window              a job alone on the device   ──► profile ──► Profiled
    ApplySetting   ──► AppliedSettings     knobs, under a journal      ──► Done | Refused
    MeasureSetting ──► SettingMeasurement  all its jobs at a setting   ──► SettingMeasured
    AwaitRequests  ──► LiveQueues       the services recover        ──► Done | Refused

Each command is a task beside the driver's loop. A window or a measurement keeps the jobs of this device in their lanes;
jobs of other devices go on. The core gets an answer even if a measurement fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.core.commands import ApplySetting, AwaitRequests, MeasureSetting, ProfileJob
from ecoshare.core.events import Done, Event, Profiled, Refused, SettingMeasured, StopRequested
from ecoshare.devices.knob import Clocks
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import processes
from ecoshare.lane.messages import Ready
from ecoshare.record import samples
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.sample_file import SampleFile
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.runtime.bystanders import Bystanders
from ecoshare.runtime.class_knowledge import demand, solo
from ecoshare.runtime.device_claim import ClaimedDevice
from ecoshare.runtime.live_queues import LiveQueues
from ecoshare.runtime.measured_requests import MeasuredRequests
from ecoshare.runtime.meter_sampler import MeterSampler
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.profiling_window import ENDED_IN_WINDOW, Window, WindowFailed, WindowResult
from ecoshare.runtime.setting_measurement import LanePosition, MeasurementVoid, SettingMeasurement
from ecoshare.values.attempt import Usage
from ecoshare.values.measurement import Measurement, MeasurementStatus
from ecoshare.values.setting import AS_FOUND, BATCH, Setting


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Parts of a run that its device sessions use.

    Attributes:
        folder: The run folder.
        samples: File that gets the samples of all devices.
        token: Token that marks the processes of the run.
        attempts: Attempts in progress.
        profiler: Makes profiles from windows, and stores them.
        now_s: Time (s) since the run was opened.
        stopping: Whether the run is being stopped.
        ready: Start message of the warm server; None before it has loaded torch.
        tell: Reports an event to the core.
        begin: Begins work beside the driver's loop; the end of the run cancels it.
        most_s: Most time (s) that an iteration of each job of a measurement may take; see `RunSearches.most_s`.
        missed_share: Part of the requests of a service of the last minute that missed its target, by the name of the
            service.
    """

    folder: RunFolder
    samples: SampleFile
    token: str
    attempts: Attempts
    profiler: Profiler
    now_s: Callable[[], float]
    stopping: Callable[[], bool]
    ready: Callable[[], Ready | None]
    tell: Callable[[Callable[..., Event]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]
    most_s: Callable[[MeasureSetting], Mapping[str, float] | None]
    missed_share: Callable[[str], float]


class DeviceSession:
    """One device of a run.

    Attributes:
        device: The device.
        sampler: Sampler of its meter.
        settings: Settings of the claimed device; None if nothing may be set.
        setting: Setting in force, with the knobs of services.
        windows: Number of open windows. The job of an open window may have ended, with its profile still to be stored.
    """

    def __init__(self, claimed: ClaimedDevice, run: LiveRun) -> None:
        """Session of a device in a run. The meter is opened when the sampler begins."""
        self.device, self.settings = claimed.device, claimed.settings
        self._run = run
        self.sampler = MeterSampler(
            run.samples,
            claimed,
            partial(run.attempts.progress_on, claimed.device),
            self._overhead_s,
        )
        self.setting: Setting = AS_FOUND
        self.windows = 0
        self._bystanders = Bystanders(run.token, self.sampler.processes)

    def _overhead_s(self) -> float | None:
        """Processor time (s) of the controller and of the warm server so far; None before the server is there."""
        if (ready := self._run.ready()) is None:
            return None
        return time.process_time() + processes.processor_s([ready.pid], with_children=False)

    def profile(self, command: ProfileJob) -> None:
        """Measure a job in a profiling window."""
        self._run.begin(self._profile(command))

    def measure(self, command: MeasureSetting) -> None:
        """Measure the jobs of the device at a setting."""
        self._run.begin(self._measure(command))

    def apply(self, command: ApplySetting) -> None:
        """Set the device."""
        self._run.begin(self._apply(command))

    def await_requests(self, command: AwaitRequests) -> None:
        """Wait until the services of the device have recovered."""
        self._run.begin(self._await_requests(command))

    def restore(self) -> None:
        """Restore all knobs."""
        if self.settings is not None:
            self.settings.restore()

    @contextlib.contextmanager
    def _jobs_stay(self) -> Iterator[None]:
        """Context manager: every job of this device stays in its lane, as a measurement needs."""
        moving, lanes = self._run.attempts.moving, list(self._run.attempts.tables_of(self.device.name))
        moving.pin(lanes)
        try:
            yield
        finally:
            moving.unpin(lanes)

    # A job alone

    async def _profile(self, command: ProfileJob) -> None:
        run, made, error = self._run, None, ""
        self.windows += 1
        try:
            own = run.attempts.live.get(command.job)
            if own is None or own.attempt != command.attempt:
                raise WindowFailed("the job ended before its window")
            with self._jobs_stay():
                measured = await self._window(command, own)
            limit_w = await self.sampler.power_limit_w()
            if run.stopping():
                raise WindowFailed(ENDED_IN_WINDOW)
            made = run.profiler.keep(
                self.device, own.job, command.attempt, measured, run.ready(), self.sampler, limit_w
            )
        except WindowFailed as failed:
            error = str(failed)
        except (OSError, UnfitEnvironment):
            raise
        except Exception as defect:  # a failed measurement must not end the run
            error = f"no profile could be made: {defect!r}"
        finally:
            self.windows -= 1
        memory, alone = (None, None) if made is None else (demand(made), solo(made))
        run.tell(partial(Profiled, command=command.id, memory=memory, error=error, solo=alone))
        if run.profiler.stops_the_run:
            run.tell(partial(StopRequested, at_once=False))

    async def _window(self, command: ProfileJob, own: LiveAttempt) -> WindowResult:
        window = Window(
            tables=self._run.attempts.tables_of(self.device.name),
            place=own.places[0],
            folder=self._run.folder.job(command.job),
            attempt=command.attempt,
            key=samples.attempt_key(command.job, command.attempt),
            sampler=self.sampler,
            limits=self._run.profiler.window_limits(command.job, command.attempt),
            now_s=self._run.now_s,
            usage=partial(self._usage_of, command.job, own),
            on_gpu=not self.device.on_processors,
        )
        watch = await asyncio.to_thread(self._bystanders.watch)
        measured = await window.measure()
        disturbed = await self.sampler.calls.answer(partial(self._bystanders.disturbed, watch))
        measured.disturbed = "the driver did not answer" if disturbed is None else disturbed
        return measured

    def _usage_of(self, job: str, own: LiveAttempt) -> Usage | None:
        """Usage so far of an attempt; None if the attempt has ended or the run is being stopped."""
        attempts = self._run.attempts
        return attempts.usage(job) if attempts.live.get(job) is own and not self._run.stopping() else None

    # All jobs at a setting

    async def _apply(self, command: ApplySetting) -> None:
        assert self.settings is not None, "the core asks for settings only where they may be set"
        setting = tuple((knob, value) for knob, value in command.setting if knob != BATCH)
        error = await self.settings.apply(setting)
        if error:
            self._run.tell(partial(Refused, command=command.id, error=error))
        else:
            self.setting = command.setting
            self._run.attempts.limit_batches(self.device, int(dict(command.setting).get(BATCH, 0)))
            limit_w = await self.settings.other_limit_w(setting)
            self._run.tell(partial(Done, command=command.id, limit_w=limit_w))

    async def _measure(self, command: MeasureSetting) -> None:
        try:
            with self._jobs_stay():
                found = await self._measured(command)
        except MeasurementVoid as void:
            found = Measurement(command.setting, MeasurementStatus.CONTAMINATED, note=str(void))
        except (OSError, UnfitEnvironment):
            raise
        except Exception as defect:  # a failed measurement must not end the run
            found = Measurement(
                command.setting, MeasurementStatus.CONTAMINATED, note=f"could not be measured: {defect!r}"
            )
        self._run.tell(partial(SettingMeasured, command=command.id, measurement=found))

    async def _measured(self, command: MeasureSetting) -> Measurement:
        attempts = self._run.attempts
        own = {job: attempts.live[job] for job in command.jobs if job in attempts.live}
        if len(own) < len(command.jobs):
            raise MeasurementVoid("a job ended before the measurement")
        places = {
            job: LanePosition(attempts.tables[lane], slot, self._run.folder.job(job), each.attempt)
            for job, each in own.items()
            for lane, slot in each.places[:1]
        }
        queues, most_s = LiveQueues(attempts, command.jobs), self._run.most_s(command)
        is_search = most_s is not None
        measurement = SettingMeasurement(
            command=command,
            places=places,
            sampler=self.sampler,
            now_s=self._run.now_s,
            usage=lambda job: self._usage_of(job, own[job]),
            services={
                job: MeasuredRequests(places[job].requests)
                for job, each in own.items()
                if each.job.spec.service is not None
            },
            heads=queues.heads,
            targets_s=queues.targets_s,
            clocks=self._clocks,
            readings=self._readings,
            most_s=most_s or {},
            for_joules=is_search,
            processors=self.settings.processors if self.settings is not None and is_search else None,
        )
        found = await measurement.measure()
        if self.settings is not None and not command.setting:
            await self.settings.look()  # the jobs keep the device busy now
        return found

    async def _await_requests(self, command: AwaitRequests) -> None:
        run, queues = self._run, LiveQueues(self._run.attempts, command.jobs)
        is_over = await queues.emptied(
            lambda: all(run.missed_share(job) <= command.missed_share for job in command.jobs), command.most_s
        )
        if is_over:
            run.tell(partial(Done, command=command.id))
        else:
            late = f"the requests have not recovered within {command.most_s:g} s"
            run.tell(partial(Refused, command=command.id, error=late))

    async def _clocks(self) -> Clocks | None:
        return await self.settings.clocks() if self.settings is not None else None

    async def _readings(self) -> Mapping[str, float | str]:
        return await self.settings.readings() if self.settings is not None else {}
