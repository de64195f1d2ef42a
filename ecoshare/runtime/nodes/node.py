"""One machine of a run: it carries out commands about lanes, processes and devices, and tells what becomes of them.

::

    command ──► Node ─┬► lane tables (shared memory), supervisor ──► processes of the jobs
                      └► device sessions ──► windows, settings, measurements
    event   ◄── Node ◄── messages of the supervisor, looks at tables and devices

A node knows nothing of the scheduler: a command says what to do, and an event what has happened. A method that is named
after a command carries it out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import (
    ApplySetting,
    AwaitRequests,
    KillJob,
    LimitMemory,
    MeasureSetting,
    MoveJob,
    OpenLane,
    ParkJob,
    ProfileJob,
    ResumeJob,
    SetCaching,
    SetShares,
    ShareMemory,
    StartJob,
)
from ecoshare.core.events import Done, Refused
from ecoshare.devices import registry
from ecoshare.devices.torch_build import TorchBuild
from ecoshare.lane.messages import GRACE_S, Ended, Ready, StopAttempt
from ecoshare.lane.tables.table_layout import SlotState
from ecoshare.record.samples import SampleFile
from ecoshare.runtime.measuring.device_session import DeviceSession, DeviceWatch, LiveRun
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.attempt_messages import AttemptAnswers, AttemptLaunches, ChildrenWatch
from ecoshare.runtime.nodes.attempts import Attempts
from ecoshare.runtime.nodes.job_looks import ProgressReports, TargetReports, WaitingWatch
from ecoshare.runtime.nodes.live_memory import LiveParking, MemoryRelease, transfers
from ecoshare.runtime.nodes.run_host import Supervisor
from ecoshare.runtime.nodes.run_memory import RunMemory
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, LaneReading, NodeMachine, NodeRun
from ecoshare.runtime.nodes.run_slices import RunSlices

_METER_WITHIN_S = 5.0


def check_torch(devices: Sequence[DeviceInfo], ready: Ready) -> None:
    """Check that the torch of a server can use the devices of its jobs.

    Raises:
        UnfitEnvironment: It cannot use one of them.
    """
    registry.check_torch(devices, TorchBuild(ready.torch, ready.cuda, ready.hip, ready.architectures))


class Node:
    """A machine of a run.

    Attributes:
        attempts: Attempts in progress, and the lanes' tables.
        children: Child processes of the jobs.
        memory: Memory that jobs give back, and the starts that wait until they have done so.
        sessions: Session of each device, by its name.
        slices: Slices in which the run has the devices.
        supervisor: Server of the lanes.
        targets: Requests of services against their targets.
        waiting: Watch over programs that wait, if the run only measures; otherwise None.
        watch: Watch over failing devices.
        knobs: Knobs of each device that may be set, by its name.
    """

    def __init__(self, machine: NodeMachine, run: NodeRun) -> None:
        """Node of a run that has not begun."""
        self._machine, self._run = machine, run
        plan, folder = run.for_nodes, run.folder
        only_measures = plan.only_tunes or run.profiler.stops_the_run
        check = partial(check_torch, [each.device for each in machine.devices])
        self.supervisor = Supervisor(run.host, run.token, folder.supervisor_log, check, plan.starts_many)
        self.attempts = Attempts(
            machine.shared, plan.places, self.supervisor.send, run.tell, run.context_bytes, run.host.clock
        )
        self.children = ChildrenWatch(folder, self.attempts, self.supervisor.send)
        self.memory = MemoryRelease(self.attempts, self.supervisor.send, run.tell, run.begin)
        self.targets = TargetReports(self.attempts, folder.job, run.now_s, run.tell, run.hear_requests)
        self.waiting = WaitingWatch(self.attempts, run.tell) if only_measures else None
        self._samples = SampleFile(folder.samples, run.hear_sample)
        self._launches = AttemptLaunches(machine, run, self.attempts)
        live = LiveRun(
            run,
            self._samples,
            self.attempts,
            lambda: self.supervisor.ready,
            self.targets.missed_share,
            lambda: self.slices.shared_s,
        )
        self.sessions = {each.device.name: DeviceSession(each, live) for each in machine.devices}
        # Read now: later, a thread that applies a setting may drop a knob meanwhile.
        self.knobs = {
            name: session.settings.control.specs
            for name, session in self.sessions.items()
            if session.settings is not None
        }
        self.watch = DeviceWatch(self.sessions, self.attempts, run.profiler.notes, run.now_s, run.tell, run.begin)
        self._parking = LiveParking(
            attempts=self.attempts,
            sessions=self.sessions,
            transfers=transfers(self.sessions.values(), run.token) if plan.parks else {},
            is_releasing=self.memory.is_releasing,
            send=self.supervisor.send,
            tell=run.tell,
            begin=run.begin,
        )
        self._answers = AttemptAnswers(
            folder,
            self.attempts,
            self.memory,
            self.children,
            self.watch,
            self._parking,
            run.attempt_over,
            run.tell,
        )
        self.slices = RunSlices(machine.slices, self.attempts.tables, self.sessions.values(), run)
        most_bytes = {each.device.name: each.device.memory_bytes for each in machine.devices}
        self._memory_of_runs = RunMemory(machine.claims, most_bytes, run.tell, run.warn)
        self._progress = ProgressReports(
            self.attempts,
            machine.on_processors,
            any(self.knobs.values()) and plan.knows_phases and not only_measures,  # one packing is measured then
            run.now_s,
            run.tell,
        )

    @property
    def is_measuring(self) -> bool:
        return any(each.windows for each in self.sessions.values())

    @property
    def waited(self) -> bool:
        return self.waiting is not None and self.waiting.is_over

    @property
    def ready(self) -> Ready | None:
        return self.supervisor.ready

    # Readings

    @property
    def in_progress(self) -> Collection[str]:
        return self.attempts.live.keys()

    def attempt(self, name: str) -> AttemptReading:
        usage, places = self.attempts.usage(name), self.attempts.live[name].places
        turns = tuple(lane for lane, slot in places if self.attempts.tables[lane].header.holder == slot)
        slot, now_s = self.attempts.slot(name), self._run.host.clock.monotonic_s()
        waits_s = now_s - slot.since_s if slot.seat == SlotState.WAITING else 0.0
        is_held = slot.seat == SlotState.HOLDING
        silent_s = now_s - max(slot.since_s, slot.last_s) + slot.inside_s if is_held else 0.0
        lanes = tuple(lane for lane, _ in places)
        return AttemptReading(usage, lanes, turns, max(0.0, waits_s), max(0.0, silent_s))

    def device(self, name: str) -> DeviceReading:
        slots = {place: job for job, own in self.attempts.live.items() for place in own.places}
        lanes = {
            lane: LaneReading(
                slots.get((lane, table.header.holder), ""), tuple(table.header.waits), table.header.waited_s
            )
            for lane, table in self.attempts.tables_of(name).items()
        }
        return DeviceReading(self.sessions[name].setting, self.watch.failed.get(name, ""), lanes)

    # Life

    async def open(self) -> None:
        await self.supervisor.open()

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        for session in self.sessions.values():
            yield session.sampler.keep(self._run.now_s)
        yield self._machine.guard.keep()
        yield self.supervisor.listen(self._answers.hear, self._answers.lost, lambda: self._run.live_jobs)
        yield self.children.keep([(each.device, each.sampler.on_device) for each in self.sessions.values()])
        yield self._progress.keep()
        yield self._progress.keep_early()
        yield self.targets.keep()
        yield self.watch.keep()
        yield self.slices.keep()
        yield self._memory_of_runs.keep()
        if self.waiting is not None:
            yield self.waiting.keep()

    def keep_only(self, names: Collection[str]) -> None:
        self.targets.keep_only(names)

    async def first_samples(self) -> None:
        for session in self.sessions.values():
            await session.sampler.first_sample(_METER_WITHIN_S)

    async def finish(self) -> None:
        for session in self.sessions.values():
            await session.sampler.finish(self._run.now_s)

    def end_silent_server(self) -> None:
        if self.attempts.live:
            self.supervisor.kill()

    async def close(self) -> None:
        async with contextlib.AsyncExitStack() as steps:  # the last step runs first
            steps.callback(self._samples.close)
            steps.callback(self._launches.close)
            for each in self.sessions.values():  # after the jobs: their limits may exceed the power budget
                steps.push_async_callback(asyncio.to_thread, each.restore)
            steps.push_async_callback(asyncio.to_thread, cleanup.end_all, self._run.token)
            steps.push_async_callback(asyncio.to_thread, self._machine.sharing.end)
            steps.push_async_callback(self.supervisor.close)

    # Commands

    def take_port(self) -> int:
        """A port for the rendezvous of a gang over several nodes that has its rank 0 here.

        Raises:
            OSError: No port is left.
        """
        return self._launches.take_port()

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        self.attempts.open_lane(command, self.supervisor.kill_if_stopped, self.slices.is_closed)
        self._run.tell(partial(Done, command=command.id))

    def start_job(self, command: StartJob, now_s: float) -> None:
        own = self.attempts.start(command, self._run.job(command.job))
        names = [self.attempts.device_of(lane) for lane, _ in own.places]
        try:
            launch = self._launches.launch(command, own, names)
        except OSError as error:
            self.attempts.give_up(command.id)
            self._run.tell(partial(Refused, command=command.id, error=f"no port for its ranks: {error}"))
            return
        self.memory.launch(launch, set(names))

    def set_caching(self, command: SetCaching, now_s: float) -> None:
        self.memory.set_caching(command)

    def limit_memory(self, command: LimitMemory, now_s: float) -> None:
        self.memory.limit_memory(command)

    def share_memory(self, command: ShareMemory, now_s: float) -> None:
        self._memory_of_runs.share(command)

    def park_job(self, command: ParkJob, now_s: float) -> None:
        self._parking.park(command)

    def resume_job(self, command: ResumeJob, now_s: float) -> None:
        self._parking.resume(command)

    def move_job(self, command: MoveJob, now_s: float) -> None:
        self.attempts.moving.start(command, self._run.begin)

    def set_shares(self, command: SetShares, now_s: float) -> None:
        self.attempts.set_shares(command)

    def kill_job(self, command: KillJob, now_s: float) -> None:
        if (held := self.memory.give_up(command.job)) is not None:
            self.attempts.free(self.attempts.live[command.job])
            outcome = Outcome.PRUNED if command.pruned else Outcome.STOPPED
            self._answers.end(Ended(command.job, held.attempt, outcome.value, None, command.reason))
            return
        self.supervisor.send(
            StopAttempt(command.job, command.attempt, command.at_once, command.reason, GRACE_S, command.pruned)
        )

    def profile_job(self, command: ProfileJob, now_s: float) -> None:
        """See `NodeCommands`. If the attempt has ended meanwhile, any device tells so."""
        own = self.attempts.live.get(command.job)
        device = next(iter(self.sessions)) if own is None else self.attempts.device_of(own.places[0][0])
        self.sessions[device].profile(command)

    def apply_setting(self, command: ApplySetting, now_s: float) -> None:
        self.sessions[command.device].apply(command)

    def measure_setting(self, command: MeasureSetting, now_s: float) -> None:
        self.sessions[command.device].measure(command)

    def await_requests(self, command: AwaitRequests, now_s: float) -> None:
        self.sessions[command.device].await_requests(command)
