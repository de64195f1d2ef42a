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
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.clock import loop_s
from ecoshare.base.measurement import AS_FOUND, BATCH, Measurement, MeasurementStatus, Setting
from ecoshare.base.plural import counted
from ecoshare.core.commands import ApplySetting, AwaitRequests, MeasureSetting, ProfileJob
from ecoshare.core.events import DeviceFailed, Done, Event, Profiled, Refused, SettingMeasured, StopRequested
from ecoshare.devices.knob import Clocks
from ecoshare.devices.nvidia import mps
from ecoshare.devices.processor_load import LoadWatch
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import processes
from ecoshare.lane.messages import Ended, Ready
from ecoshare.lane.tables.table_layout import SlotState
from ecoshare.record import samples
from ecoshare.record.samples import SampleFile
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.meter_sampler import MeterSampler
from ecoshare.runtime.measuring.profiling_window import ENDED_IN_WINDOW, Window, WindowFailed, WindowResult
from ecoshare.runtime.measuring.setting_measurement import (
    LanePosition,
    MeasuredRequests,
    MeasurementVoid,
    SettingMeasurement,
)
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.attempts import Attempts, LiveAttempt
from ecoshare.runtime.nodes.run_node import NodeRun
from ecoshare.runtime.planning.planned_knowledge import known_demand, known_solo


class Bystanders:
    """Detects disturbance of a measurement by programs outside the run."""

    def __init__(self, token: str, on_gpu: Callable[[], Mapping[int, int]]) -> None:
        """Detect programs outside the run with this token.

        Args:
            on_gpu: Memory (bytes) of each process on the GPU of the run; empty on processors.
        """
        self._token, self._on_gpu = token, on_gpu

    def watch(self) -> LoadWatch:
        """Start to watch the processors now."""
        return LoadWatch.begin(lambda: processes.processor_s(self._own()))

    def disturbed(self, watch: LoadWatch) -> str:
        """Describe the disturbance, in words; empty if there was none, or if it is unknown.

        The load of the processors counts from the start of the watch. Processes on the GPU count if they are there now.
        """
        load = watch.disturbance()
        if load is not None:
            return f"other programs kept {load} busy"
        on_gpu = self._on_gpu()
        strangers = {pid for pid in on_gpu.keys() - self._own() if not mps.is_server(pid)} if on_gpu else set()
        # In a container, the driver may report the process IDs of the host. Then none of them is ours.
        if strangers and strangers != on_gpu.keys():
            return f"{counted(len(strangers), 'other process', 'other processes')} used the GPU"
        return ""

    def _own(self) -> list[int]:
        return [os.getpid(), *cleanup.members(self._token)]


_QUEUE_LOOK_S = 0.02

_RECORDED_S = 2.5
"""Time (s) after which a request is in the record of its service, and this was read: both happen once a second."""


class LiveQueues:
    """Queues of the services among some jobs.

    A service says in its slot when the request that it answers, or that waits first, is due. It wants the turn for as
    long as there is such a request. A server that sleeps keeps its turn without a request, so its queue cannot be seen.

    Attributes:
        targets_s: Target (s) of each service with a queue that can be seen.
    """

    def __init__(self, attempts: Attempts, jobs: Iterable[str]) -> None:
        """Queues of the attempts in progress.

        Args:
            attempts: Attempts in progress.
            jobs: Names of jobs. Those that are no services are left out.
        """
        self._attempts = attempts
        self._own = {name: attempts.live[name] for name in jobs if name in attempts.live}
        specs = {name: own.job.spec.service for name, own in self._own.items()}
        self.targets_s = {name: spec.p99_s for name, spec in specs.items() if spec is not None and not spec.sleep}

    def heads(self) -> dict[str, float | None]:
        """Time (s, monotonic) at which the first request of each service is due; None if there is none.

        A service that has ended is left out.
        """
        found: dict[str, float | None] = {}
        for name in self.targets_s:
            if self._attempts.live.get(name) is self._own[name]:
                slot = self._attempts.slot(name)
                is_busy = slot.seat in (SlotState.WAITING, SlotState.HOLDING) and slot.due_s > 0.0
                found[name] = slot.due_s if is_busy else None
        return found

    async def emptied(self, is_well: Callable[[], bool], most_s: float) -> bool:
        """Wait until each queue has been empty once, and the records are well. Return whether that came to be.

        Args:
            is_well: Returns whether the records of the services are well. It is called when they have all requests
                from before the wait.
            most_s: Longest wait (s).
        """
        began_s, waits = loop_s(), set(self.targets_s)
        while (waited_s := loop_s() - began_s) < most_s:
            heads = self.heads()
            waits = {name for name in waits if heads.get(name) is not None}
            if not waits and waited_s >= _RECORDED_S and is_well():
                return True
            await asyncio.sleep(_QUEUE_LOOK_S)
        return False


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run with what its device sessions use of the machine.

    Attributes:
        run: The run.
        samples: File that gets the samples of all devices.
        attempts: Attempts in progress.
        ready: Returns the start message of the warm server; None before it has loaded torch.
        missed_share: Returns the part of the requests of a service of the last minute that missed its target, by the
            name of the service.
        shared_s: Returns times (s) that tell of other runs; see `MeterSampler`.
    """

    run: NodeRun
    samples: SampleFile
    attempts: Attempts
    ready: Callable[[], Ready | None]
    missed_share: Callable[[str], float]
    shared_s: Callable[[], tuple[float | None, float | None]] = lambda: (None, None)


class DeviceSession:
    """One device of a run.

    Attributes:
        device: The device.
        sampler: Sampler of its meter.
        settings: Settings of the claimed device; None if nothing may be set.
        setting: Setting in force, with the knobs of services.
        windows: Number of open windows. The job of an open window may have ended, with its profile still to be stored.
        measurements: Number of measurements of settings under way.
    """

    def __init__(self, claimed: ClaimedDevice, live: LiveRun) -> None:
        """Session of a device in a run. The meter is opened when the sampler begins."""
        self.device, self.settings = claimed.device, claimed.settings
        self._live, self._run = live, live.run
        self.sampler = MeterSampler(
            live.samples,
            claimed,
            partial(live.attempts.progress_on, claimed.device),
            self._overhead_s,
            live.shared_s,
        )
        self.setting: Setting = AS_FOUND
        self.windows = self.measurements = 0
        self._bystanders = Bystanders(live.run.token, self.sampler.processes)

    def _overhead_s(self) -> float | None:
        """Processor time (s) of the controller and of the warm server so far; None before the server is there."""
        if (ready := self._live.ready()) is None:
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
        moving, lanes = self._live.attempts.moving, list(self._live.attempts.tables_of(self.device.name))
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
            own = self._live.attempts.live.get(command.job)
            if own is None or own.attempt != command.attempt:
                raise WindowFailed("the job ended before its window")
            with self._jobs_stay():
                measured = await self._window(command, own)
            limit_w = await self.sampler.power_limit_w()
            if run.stopping:
                raise WindowFailed(ENDED_IN_WINDOW)
            made = run.profiler.keep(
                self.device, own.job, command.attempt, measured, self._live.ready(), self.sampler, limit_w
            )
        except WindowFailed as failed:
            error = str(failed)
        except (OSError, UnfitEnvironment):
            raise
        except Exception as defect:  # a failed measurement must not end the run
            error = f"no profile could be made: {defect!r}"
        finally:
            self.windows -= 1
        memory, alone = (None, None) if made is None else (known_demand(made), known_solo(made))
        run.tell(partial(Profiled, command=command.id, memory=memory, error=error, solo=alone))
        if run.profiler.stops_the_run:
            run.tell(partial(StopRequested, at_once=False))

    async def _window(self, command: ProfileJob, own: LiveAttempt) -> WindowResult:
        window = Window(
            tables=self._live.attempts.tables_of(self.device.name),
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
        attempts = self._live.attempts
        return attempts.usage(job) if attempts.live.get(job) is own and not self._run.stopping else None

    # All jobs at a setting

    async def _apply(self, command: ApplySetting) -> None:
        assert self.settings is not None, "the core asks for settings only where they may be set"
        setting = tuple((knob, value) for knob, value in command.setting if knob != BATCH)
        error = await self.settings.apply(setting)
        if error:
            self._run.tell(partial(Refused, command=command.id, error=error))
        else:
            self.setting = command.setting
            self._live.attempts.limit_batches(self.device, int(dict(command.setting).get(BATCH, 0)))
            limit_w = await self.settings.other_limit_w(setting)
            self._run.tell(partial(Done, command=command.id, limit_w=limit_w))

    async def _measure(self, command: MeasureSetting) -> None:
        self.measurements += 1
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
        finally:
            self.measurements -= 1
        self._run.tell(partial(SettingMeasured, command=command.id, measurement=found))

    async def _measured(self, command: MeasureSetting) -> Measurement:
        attempts = self._live.attempts
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
        run, queues = self._run, LiveQueues(self._live.attempts, command.jobs)
        is_over = await queues.emptied(
            lambda: all(self._live.missed_share(job) <= command.missed_share for job in command.jobs), command.most_s
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


_DEVICE_LOOK_S = 1.0
"""Time (s) between two looks at a device."""

_NEEDS_NO_LOOK = (Outcome.COMPLETED, Outcome.PRUNED, Outcome.STOPPED, Outcome.MOVED_OUT)


class DeviceWatch:
    """Watch over the devices of a run.

    ::

        once a second            ──► health of each device ──► DeviceFailed
        an attempt has failed    ──► health of its devices ──► DeviceFailed, and then its JobExited
                                                               so the core hears of the device first

    A device that has failed is not asked again. The joules up to then are kept.

    Attributes:
        failed: Reason of each failure, in words, by the name of the device.
    """

    def __init__(
        self,
        sessions: Mapping[str, DeviceSession],
        attempts: Attempts,
        notes: list[str],
        now_s: Callable[[], float],
        tell: Callable[[Callable[..., Event]], None],
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Watch nothing yet.

        Args:
            sessions: Session of each device, by its name.
            attempts: Attempts in progress.
            notes: Notes for the user, one line each; facts about devices are added.
            now_s: Time (s) since the run was opened.
            tell: Reports an event to the core.
            begin: Begins a task that ends with the run.
        """
        self._samplers = {name: each.sampler for name, each in sessions.items() if not each.device.on_processors}
        self._attempts, self._notes, self._now_s, self._tell, self._begin = attempts, notes, now_s, tell, begin
        self.failed: dict[str, str] = {}

    async def keep(self) -> None:
        """Look at all devices once a second, until cancelled. Processors do not fail alone."""
        while self._samplers:
            await asyncio.sleep(_DEVICE_LOOK_S)
            await self._look(self._samplers)

    def ended(self, ended: Ended, pass_on: Callable[[Ended], None]) -> None:
        """Pass on the end of an attempt, after a look at its devices if it has failed."""
        own = self._attempts.live.get(ended.job)
        devices = [name for name in self._devices(own) if name in self._samplers and name not in self.failed]
        if devices and Outcome(ended.outcome) not in _NEEDS_NO_LOOK:
            self._begin(self._look_first(devices, ended, pass_on))
        else:
            pass_on(ended)

    async def _look_first(self, devices: list[str], ended: Ended, pass_on: Callable[[Ended], None]) -> None:
        await self._look(devices)
        pass_on(ended)

    def verdict(self, own: LiveAttempt | None, outcome: Outcome, reason: str) -> tuple[Outcome, str]:
        """Outcome and reason of an attempt that has ended: the failure of its device is no fault of its own."""
        name = next(filter(self.failed.__contains__, self._devices(own)), None)
        if name is None or outcome.is_the_end:
            return outcome, reason
        said = "" if outcome is Outcome.STOPPED or not reason else f"; it said: {reason}"
        return Outcome.DEVICE_FAILED, f"{name} failed: {self.failed[name]}{said}"

    def _devices(self, own: LiveAttempt | None) -> list[str]:
        return [] if own is None else [self._attempts.device_of(lane) for lane, _ in own.places]

    async def _look(self, devices: Iterable[str]) -> None:
        for name in devices:
            if name in self.failed:
                continue
            sampler = self._samplers[name]
            health = await sampler.health()
            note = f"{name}: {health.note}"
            if health.note and note not in self._notes:
                self._notes.append(note)
            if health.failure and name not in self.failed:  # two looks may have been under way
                self.failed[name] = health.failure
                await sampler.take(self._now_s)  # a GPU that is too hot still counts its joules
                sampler.fail(f"the device failed: {health.failure}")
                self._tell(partial(DeviceFailed, device=name, reason=health.failure))
