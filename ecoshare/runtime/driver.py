"""Real-time driver of the core: it passes events to the core and carries out the commands of the core.

::

                    ┌───────────── driver ─────────────┐
    arrivals ─────► │  queue ──► core.handle ──► log   │
    signals ──────► │              │                   │ ──claims──► lane tables (shared memory)
    supervisor ───► │              └──► carry out ─────│ ──Launch, Move, Stop──► supervisor
    lane tables ──► │  (progress, once a second)       │
                    └───────────────┬──────────────────┘
                                    └── guard (told when all is well)

Every event goes through one queue. It gets its time when it is handled, so times in the log never decrease.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.common.plural import counted
from ecoshare.core.commands import (
    ApplySetting,
    AskInterference,
    AskPlanner,
    AskSampler,
    AskSetting,
    Command,
    KillJob,
    MeasureSetting,
    MoveJob,
    OpenLane,
    ProfileJob,
    SetShares,
    StartJob,
    WakeAt,
)
from ecoshare.core.events import (
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    Outcome,
    Profiled,
    Refused,
    RunOpened,
    SettingMeasured,
    StopRequested,
    SweepOpened,
    Usage,
)
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.states import JobState
from ecoshare.devices.power_model import PowerModel
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.lane import attempt_process, exit_records, processes
from ecoshare.lane.lane_table import LaneTable, Slot, SlotState, lane_path
from ecoshare.lane.messages import GRACE_S, Ended, Launched, Message, NotLaunched, NotMoved, Ready, StopAttempt
from ecoshare.record import samples
from ecoshare.record.event_log import EventLog
from ecoshare.record.run_documents import read_records
from ecoshare.record.run_folder import RunFolder, unwritable
from ecoshare.record.run_view import ProgressDisplay, RunView
from ecoshare.runtime import reaping
from ecoshare.runtime.bystanders import Bystanders
from ecoshare.runtime.device_claim import Settings
from ecoshare.runtime.guard_client import Guard
from ecoshare.runtime.lane_moves import Moving
from ecoshare.runtime.live_measurements import LiveMeasurements
from ecoshare.runtime.live_sweeps import LISTEN_S, Sweeping
from ecoshare.runtime.memory_watch import Footprints
from ecoshare.runtime.meter_sampler import MeterSampler
from ecoshare.runtime.on_end import OnEnd
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.run_host import RunHost
from ecoshare.runtime.view_builder import Viewing
from ecoshare.runtime.warm_server import LaneServer

if TYPE_CHECKING:
    from ecoshare.advisers.setting_adviser import TunerAdviser

_PROGRESS_S = 1.0
_PROGRESS_SHARE = 0.01
_PROGRESS_AT_LEAST_S = 60.0
"""Progress of a job is reported at most once a second.

It is reported when the job has done a hundredth more than was known, when a minute has passed, or when its memory has
grown. This is enough for any policy, and gives a log of a few megabytes a day.
"""

_GROWTH = 1.1
"""Ratio of the memory of a job to its reported memory above which the memory is reported at once."""

_ANSWERS_WITHIN_S = 5.0
"""Longest time (s) for the server to carry out a stop and to report it."""

_OTHERS_WITHIN_S = 30.0
"""Extra time (s) to stop jobs that share a process: each ends only in its own turn."""

_METER_WITHIN_S = 5.0
_SHOW_S = 0.25
_MOST_DEATHS = 6
"""Number of deaths of the supervisor that ends the run, if no job ends meanwhile."""


@dataclass(slots=True)
class _Process:
    """An attempt that the supervisor was asked to start, and that has no reported end.

    Attributes:
        places: Lane and slot on each device of the job.
        owner: ID of the command that the slots were prepared for.
        known: Usage that was last reported to the core.
        seen: Usage that was last read.
        told_s: Time (s) in the run of the last report to the core.
    """

    job: PlannedJob
    attempt: int
    places: tuple[tuple[int, int], ...]
    owner: int
    known: Usage = field(default_factory=Usage)
    seen: Usage = field(default_factory=Usage)
    told_s: float = 0.0


@dataclass(slots=True)
class Driver:
    """Runs a plan in real time.

    Attributes:
        plan: The plan to run.
        folder: The run folder.
        log: Event log of the run.
        shared: Private folder in memory, for lane tables and sockets.
        token: Token that marks the processes of the run.
        began_s: Monotonic time (s) at which the run was first opened.
        progress: Display that gets every event and the state of the run.
        after_jobs: Function that is called when no job is left.
        profiler: Makes profiles from windows, and stores them.
        guard: Cleans up after the controller; kept alive during the run.
        host: The process that the driver runs in.
        power: Power model of the device, used without a meter.
        settings: Settings of the claimed device; None if nothing may be set.
        adviser: Adviser that searches settings; None without a search.
        core: Scheduler, which makes all decisions.
        tables: Table of each open lane.
        processes: Attempts in progress, by job name.
        ready: Start message of the supervisor; None before it has loaded torch.
    """

    plan: Plan
    folder: RunFolder
    log: EventLog
    shared: Path
    token: str
    began_s: float
    progress: ProgressDisplay
    after_jobs: Callable[[], None]
    profiler: Profiler
    guard: Guard
    host: RunHost
    power: PowerModel | None = None
    settings: Settings | None = None
    adviser: TunerAdviser | None = None
    core: Scheduler = field(default_factory=Scheduler)
    tables: dict[int, LaneTable] = field(default_factory=dict)
    processes: dict[str, _Process] = field(default_factory=dict)
    ready: Ready | None = None
    _ended: dict[str, samples.AttemptProgress] = field(default_factory=dict)
    _footprints: Footprints = field(default_factory=Footprints)
    _queue: asyncio.Queue[Callable[..., Event]] = field(default_factory=asyncio.Queue)
    _jobs: dict[str, PlannedJob] = field(default_factory=dict)
    _commands: dict[int, str] = field(default_factory=dict)
    _to_arrive: int = 0
    _stops: int = 0
    _sampler: MeterSampler | None = None
    _measuring: LiveMeasurements | None = None
    _moving: Moving | None = None
    _sweeping: Sweeping | None = None
    _on_end: OnEnd | None = None
    _supervisor: LaneServer | None = None
    _tasks: asyncio.TaskGroup | None = None

    def now_s(self) -> float:
        """Seconds since the run was first opened."""
        return time.monotonic() - self.began_s

    async def run(self) -> None:
        """Run every job of the plan to its end.

        Raises:
            UnfitEnvironment: The run cannot go on: the disk is full, or torch cannot be loaded. It is cleaned up then.
        """
        self._jobs = {job.spec.name: job for job in self.plan.jobs}
        self._sweeping = self._sweeper()
        if not (self.plan.only_tune or self.profiler.stops_the_run):  # these runs stop their jobs on purpose
            self._on_end = OnEnd(self.folder, self._jobs, self.profiler.notes)
        self._tell(partial(RunOpened, **self.plan.opening()))  # first, since a Ctrl-C may come at once
        with self.host.heard(self._asked_to_stop):  # to the end: a late Ctrl-C must not cost the result
            try:
                self._supervisor = await self.host.server(self.token, self.folder.supervisor_log)
                self._sampler = MeterSampler(
                    self.folder.samples, self.plan.device, self.power, self._progress_of_jobs, self.plan.idle_w
                )
                self._measuring = self._measurer(self._sampler)
                self._moving = Moving(self.tables, self.processes, self._startable, self._send, self._tell)
                async with asyncio.TaskGroup() as tasks:
                    self._tasks = tasks
                    beside = (
                        self._sampler.keep(self.now_s),
                        self.guard.keep(),
                        self._listen(),
                        self._tell_progress(),
                        self._show_progress(),
                        self._hear_trials(),
                    )
                    running = [tasks.create_task(each) for each in beside]
                    # Joules are counted from the first sample on. This wait costs nothing: the server loads for longer.
                    await self._sampler.first_sample(_METER_WITHIN_S)
                    self._schedule_arrivals()
                    await self._decide()
                    for task in (*running, *self._measuring.tasks):
                        task.cancel()
                await self._sampler.finish(self.now_s)
                if self._on_end is not None:
                    await self._on_end.finish(self.core.jobs)
            except* OSError as errors:
                raise unwritable(self.folder.path, _first(errors)) from errors
            except* UnfitEnvironment as errors:
                raise _first(errors) from None
            finally:
                await self._clear_up()

    async def _decide(self) -> None:
        """Handle one event at a time, until every job has ended."""
        while True:
            make = await self._queue.get()
            event = make(at_s=self.now_s())
            if isinstance(event, Profiled | SettingMeasured):
                self.moving.unpin()
            commands = self.core.handle(event)
            self.log.write(event, commands)
            self.progress.event(event, commands)
            for command in commands:
                self._carry_out(command)
            self.sweeping.look(event, self.core.jobs)
            if self._on_end is not None:
                self._on_end.look(event, commands, self.core.jobs)
            await asyncio.sleep(0)  # lets a Ctrl-C in, even if the queue is never empty
            more = self.core.live_jobs or self.core.open_sweeps or (self._to_arrive and not self.core.stopping)
            assert self._measuring is not None
            if not more and self.core.lanes and not self._measuring.windows:
                return

    @property
    def moving(self) -> Moving:
        """Moves of jobs between lanes; available once the run has begun."""
        assert self._moving is not None
        return self._moving

    @property
    def sweeping(self) -> Sweeping:
        """Sweeps of the run; available once the run has begun."""
        assert self._sweeping is not None
        return self._sweeping

    def _tell(self, make: Callable[..., Event]) -> None:
        self._queue.put_nowait(make)

    # Events

    def _schedule_arrivals(self) -> None:
        loop = asyncio.get_running_loop()
        self._to_arrive = len(self.plan.jobs) + len(self.plan.sweeps)
        coming: list[tuple[float, Callable[..., Event]]] = [
            (sweep.template.arrival_s, partial(SweepOpened, sweep=sweep.spec)) for sweep in self.plan.sweeps
        ]
        coming += [(job.arrival_s, partial(JobArrived, job=job.spec)) for job in self.plan.jobs]
        for arrival_s, make in coming:  # sweeps first: the jobs include their earlier trials
            wait_s = arrival_s - self.now_s()
            if wait_s <= 0:
                self._arrive(make)
            else:
                loop.call_later(wait_s, self._arrive, make)

    def _arrive(self, make: Callable[..., Event]) -> None:
        def made(at_s: float) -> Event:
            self._to_arrive -= 1
            return make(at_s=at_s)

        self._tell(made)

    async def _listen(self) -> None:
        """Report messages of the supervisor to the core. If the supervisor dies, its jobs are lost and it is replaced.

        Raises:
            UnfitEnvironment: The supervisor has died several times, and no job ended meanwhile.
        """
        deaths, live = 0, self.core.live_jobs
        while deaths < _MOST_DEATHS:
            assert self._supervisor is not None
            async for message in self._supervisor.messages():
                match message:
                    case Ready():
                        self.ready = message
                    case Launched():
                        self._tell(partial(Done, command=message.command))
                    case NotLaunched():
                        self._forget_command(message.command)
                        self._tell(partial(Refused, command=message.command, error=message.error))
                    case NotMoved():
                        self.moving.refused(message.command, message.error)
                    case Ended():
                        self._end(message)
            deaths = 1 if self.core.live_jobs < live else deaths + 1
            live = self.core.live_jobs
            await self._replace_supervisor()
        raise UnfitEnvironment(
            f"the jobs' supervisor died {counted(deaths, 'time')}, and no job ended meanwhile",
            f"see {self.folder.supervisor_log}",
        )

    async def _replace_supervisor(self) -> None:
        assert self._supervisor is not None
        code = await self._supervisor.close()
        if self.ready is None and code > 0:
            said = exit_records.last_line(self.folder.supervisor_log)
            raise UnfitEnvironment(f"torch cannot be loaded: {said or 'no reason given'}", "see `ecoshare doctor`")
        await asyncio.to_thread(reaping.end_all, self.token, spare=True)
        # No other task runs between this assignment and the loop. Every later launch goes to the new server, and every
        # earlier one is lost.
        self._supervisor = await self.host.server(self.token, self.folder.supervisor_log)
        for process in list(self.processes.values()):
            recorded = []
            with contextlib.suppress(UsageError):  # a damaged record does not show that the attempt ended
                ended = read_records(self.folder.job(process.job.spec.name))
                recorded = [each for each in ended if each.attempt == process.attempt]
            self._free(process)
            lost = Ended(
                process.job.spec.name,
                process.attempt,
                Outcome.LOST.value,
                None,
                "its supervisor died with it",
            )
            self._end(recorded[0] if recorded else lost)

    def _end(self, ended: Ended) -> None:
        process = self.processes.get(ended.job)
        if process is None or process.attempt != ended.attempt:
            return
        del self.processes[ended.job]
        usage = Usage(**ended.usage) if ended.usage else process.seen
        key = samples.attempt_key(ended.job, ended.attempt)
        self._ended[key] = _progress(process.places[0][0], usage, None)
        self._footprints.forget(key)
        self.sweeping.listen(ended.job, ended.attempt, over=True)
        self._tell(
            partial(
                JobExited,
                job=ended.job,
                attempt=ended.attempt,
                outcome=Outcome(ended.outcome),
                exit_code=ended.exit_code,
                reason=ended.reason,
                usage=usage,
            )
        )
        self.moving.ended(ended.job)
        if self.plan.only_tune and not self.core.stopping:
            self._tell(partial(StopRequested, at_once=False))  # the packing to be tuned is gone

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_S)
            for name, process in self.processes.items():
                if self.core.jobs[name].state is not JobState.RUNNING:
                    continue
                usage, now_s = replace(self.usage(name), peak_bytes=self._peak_bytes(name)), self.now_s()
                known = process.known.done
                more = usage.done - known
                late = now_s - process.told_s > _PROGRESS_AT_LEAST_S
                has_grown = usage.peak_bytes > _GROWTH * process.known.peak_bytes
                if has_grown or (more and (more >= _PROGRESS_SHARE * known or late)):
                    process.known, process.told_s = usage, now_s
                    self._tell(partial(IterationsDone, job=name, usage=usage))

    async def _hear_trials(self) -> None:
        """Report to the core the values that running trials report."""
        while True:
            await asyncio.sleep(LISTEN_S)
            for name, process in self.processes.items():
                if self.core.jobs[name].state is JobState.RUNNING:
                    self.sweeping.listen(name, process.attempt)

    async def _show_progress(self) -> None:
        while True:
            self.progress.show(self.view())
            await asyncio.sleep(_SHOW_S)

    def view(self) -> RunView:
        """Present state of the run, for a display."""
        viewing = Viewing(self.plan, self.core, self.processes, self.tables, self.sweeping, self.usage)
        return viewing.run(self.now_s(), self.ready is not None)

    def _sweeper(self) -> Sweeping:
        """Open the sweeps of the plan, and add the trials of earlier sessions that run again."""
        sweeping = Sweeping(self.folder, self._jobs, self._tell)
        for sweep in self.plan.sweeps:
            sweeping.open(sweep)
        for job in self.plan.jobs:
            if job.spec.sweep:
                sweeping.add(job)
        return sweeping

    def _measurer(self, sampler: MeterSampler) -> LiveMeasurements:
        return LiveMeasurements(
            plan=self.plan,
            folder=self.folder,
            tables=self.tables,
            attempts=self.processes,
            sampler=sampler,
            profiler=self.profiler,
            usage=self.usage,
            now_s=self.now_s,
            stopping=lambda: self.core.stopping,
            ready=lambda: self.ready,
            tell=self._tell,
            bystanders=Bystanders(self.token, sampler.processes),
            settings=self.settings,
            adviser=self.adviser,
            then_stop=self.plan.only_tune,
        )

    def usage(self, name: str) -> Usage:
        """Usage so far of a job in progress, from the table of its lane."""
        process = self.processes[name]
        for _ in range(2):  # twice, since the job may move to another lane meanwhile
            slot = self._slot(name)
            usage = Usage(**attempt_process.usage(slot))
            if slot.seat != SlotState.EMPTY:
                # A read within a turn may exceed its final value by a few microseconds, and totals must not decrease.
                process.seen = replace(usage, held_s=max(usage.held_s, process.seen.held_s))
                break
        return process.seen  # the last value read, if the job has ended and its end is not reported yet

    def _peak_bytes(self, name: str) -> int:
        """Largest memory (bytes) seen of a job on the processors; 0 on a GPU, and for a job that shares its process."""
        pid, is_fused = self._slot(name).process()
        if not self.plan.device.on_processors or is_fused or not pid:
            return 0
        key = samples.attempt_key(name, self.processes[name].attempt)
        return self._footprints.peak_bytes(key, processes.family(pid))

    def _slot(self, name: str) -> Slot:
        """Present slot of a job in progress."""
        self.moving.follow(name)
        lane, index = self.processes[name].places[0]
        return self.tables[lane].slots[index]

    def _progress_of_jobs(self, on_device: Mapping[int, int]) -> dict[str, samples.AttemptProgress]:
        """Progress of each attempt in progress, and once more of each attempt that ended since the last call."""
        done, self._ended = self._ended, {}
        usages = {name: self.usage(name) for name in self.processes}
        shown = {name: self._slot(name).process() for name in self.processes}  # once, as processes come and go
        sharing = Counter(pid for pid, _ in shown.values())
        for name, process in self.processes.items():
            usage = usages[name]
            pid, is_fused = shown[name]
            family = processes.family(pid)
            spent_s = usage.cpu_s if is_fused else max(processes.processor_s(family), usage.cpu_s)
            key = samples.attempt_key(name, process.attempt)
            on_gpu = None if self.plan.device.on_processors else on_device
            memory_bytes = self._footprints.bytes(key, family, on_gpu, sharing[pid])
            done[key] = _progress(process.places[0][0], replace(usage, cpu_s=spent_s), memory_bytes)
        return done

    def _asked_to_stop(self) -> None:
        self._stops += 1
        if self._stops > 2 and self._on_end is not None:
            self._on_end.give_up()
        if self._stops <= 2:
            at_once = self._stops == 2
            self._tell(partial(StopRequested, at_once=at_once))
            within_s = _ANSWERS_WITHIN_S if at_once else 2 * GRACE_S + _OTHERS_WITHIN_S
            asyncio.get_running_loop().call_later(within_s, self._end_silent_server)

    def _end_silent_server(self) -> None:
        """Kill the server if a job is left after the time limit of a stop. The server does not answer then."""
        if self.processes:
            self._kill_server()

    def _kill_server(self) -> None:
        """Kill the present server, whether it answers or not. All jobs die with it, and a new server replaces it."""
        if self._supervisor is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._supervisor.pid, signal.SIGKILL)

    # Commands

    def _carry_out(self, command: Command) -> None:
        match command:
            case OpenLane():
                self._open_lane(command)
            case StartJob():
                self._start_job(command)
            case SetShares():
                self._set_shares(command)
            case MoveJob():
                assert self._tasks is not None
                self.moving.start(command, self._tasks)
            case ProfileJob() | ApplySetting() | MeasureSetting() | AskSetting() | AskInterference() | AskPlanner():
                assert self._measuring is not None and self._tasks is not None
                if isinstance(command, ProfileJob | MeasureSetting):
                    self.moving.pin()
                self._measuring.start(command, self._tasks)
            case AskSampler():
                assert self._tasks is not None
                self.sweeping.ask(command, self._tasks)
            case WakeAt():
                wait_s = max(0.0, command.at_s - self.now_s())
                asyncio.get_running_loop().call_later(wait_s, self._tell, partial(Done, command=command.id))
            case KillJob():
                self._send(
                    StopAttempt(command.job, command.attempt, command.at_once, command.reason, GRACE_S, command.pruned)
                )

    def _open_lane(self, command: OpenLane) -> None:
        try:
            table = LaneTable.create(lane_path(self.shared, command.lane))
        except OSError as error:
            raise UnfitEnvironment(
                f"cannot write the table of a lane in {self.shared}: {error.strerror or error}",
                f"make room in {self.shared.parent}, or lift the limit on the size of files (`ulimit -f`)",
            ) from error
        table.tell_of_hung(self._look_at_server)
        self.tables[command.lane] = table
        self._tell(partial(Done, command=command.id))

    def _start_job(self, command: StartJob) -> None:
        job = self._jobs[command.job]
        places = tuple((lane, self.moving.free_slots(lane)[0]) for lane in command.lanes)
        for lane, slot in places:
            self.tables[lane].seat(slot, command.id)
        self.processes[command.job] = _Process(job, command.attempt, places, command.id)
        self._commands[command.id] = command.job
        tables = [(self.tables[lane].path, slot) for lane, slot in places]
        lane_bytes = self.core.lanes[command.lanes[0]].budget_bytes
        self._send(
            job.launch(
                command,
                tables,
                self.folder.job(command.job),
                self.plan.device,
                self.plan.environment,
                self.began_s,
                lane_bytes,
            )
        )

    def _look_at_server(self, _hung: int) -> None:
        """Kill the server if it is stopped. Called when a stopped process holds the lock of a lane.

        A server that runs ends that process itself.
        """
        if self._supervisor is not None and processes.is_stopped(self._supervisor.pid):
            self._kill_server()

    def _startable(self, lane: int) -> int:
        """Number of further jobs that the core may start in a lane."""
        return self.core.lanes[lane].places - len(self.core.lanes[lane].jobs)

    def _forget_command(self, command: int) -> None:
        name = self._commands.pop(command)
        self._free(self.processes.pop(name))
        self.moving.ended(name)

    def _free(self, process: _Process) -> None:
        for lane, slot in process.places:
            self.tables[lane].free(slot, process.owner)

    def _set_shares(self, command: SetShares) -> None:
        claims = {}
        for share in command.shares:
            process = self.processes.get(share.job)
            for lane, slot in process.places if process is not None else ():
                if lane == command.lane:
                    claims[slot] = (share.rank, share.weight)
        self.tables[command.lane].claim(claims)

    def _send(self, message: Message) -> None:
        assert self._supervisor is not None
        self._supervisor.send(message)

    async def _clear_up(self) -> None:
        """Restore the device and end everything that is left. Each step runs even if another one fails."""
        async with contextlib.AsyncExitStack() as steps:  # the last step runs first
            if self._on_end is not None:
                steps.push_async_callback(self._on_end.end)
            if self._sampler is not None:
                steps.callback(self._sampler.close)
            steps.push_async_callback(asyncio.to_thread, reaping.end_all, self.token)
            steps.push_async_callback(asyncio.to_thread, self.after_jobs)
            if self._supervisor is not None:
                steps.push_async_callback(self._supervisor.close)
            if self.settings is not None:
                steps.push_async_callback(asyncio.to_thread, self.settings.restore)


def _progress(lane: int, usage: Usage, memory_bytes: int | None) -> samples.AttemptProgress:
    return samples.AttemptProgress(
        lane, usage.held_s, usage.iterations, usage.eval_iterations, usage.cpu_s, memory_bytes
    )


def _first(errors: BaseExceptionGroup[Any]) -> Any:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
