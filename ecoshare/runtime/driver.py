"""Real-time driver of the core: it passes events to the core and carries out the commands of the core.

::

                    ┌───────────── driver ─────────────┐
    arrivals ─────► │  queue ──► core.handle ──► log   │
    signals ──────► │              │                   │ ──claims──► lane tables (shared memory)
    supervisor ───► │              └──► carry out ─────│ ──Launch, Move, Stop──► supervisor
    lane tables ──► │  (progress, once a second)       │ ──profile, apply, measure──► device session
                    └───────────────┬──────────────────┘
                                    └── guard (told when all is well)

Every event goes through one queue. It gets its time when it is handled, so times in the log never decrease.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.common.first_error import first_error
from ecoshare.core.commands import (
    ApplySetting,
    AskInterference,
    AskPlanner,
    AskPower,
    AskSampler,
    AskSetting,
    AwaitRequests,
    Command,
    DropJob,
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
    StartJob,
    WakeAt,
)
from ecoshare.core.driving import CoreDriver
from ecoshare.core.events import (
    Done,
    Event,
    JobExited,
    Refused,
    RunOpened,
    StopRequested,
    WorkOver,
)
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.states import JobState
from ecoshare.devices.context_sharing import ContextSharing
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.messages import GRACE_S, Ended, StopAttempt
from ecoshare.record.event_log import EventLog
from ecoshare.record.run_folder import RunFolder, unwritable
from ecoshare.record.run_view import ProgressDisplay, RunView
from ecoshare.record.sample_file import SampleFile
from ecoshare.runtime import reaping
from ecoshare.runtime.attempt_answers import AttemptAnswers
from ecoshare.runtime.attempt_launches import AttemptLaunches
from ecoshare.runtime.attempts import Attempts
from ecoshare.runtime.cache_release import CacheRelease
from ecoshare.runtime.children_watch import ChildrenWatch
from ecoshare.runtime.device_session import ClaimedDevice, DeviceSession, LiveRun
from ecoshare.runtime.device_watch import DeviceWatch
from ecoshare.runtime.guard_client import Guard
from ecoshare.runtime.job_arrivals import Arrivals
from ecoshare.runtime.live_parking import LiveParking, transfers
from ecoshare.runtime.live_questions import LiveQuestions
from ecoshare.runtime.live_sweeps import LISTEN_S, Sweeping
from ecoshare.runtime.memory_limits import MemoryLimits
from ecoshare.runtime.on_end import OnEnd
from ecoshare.runtime.open_run import JobSource, OpenRun
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.progress_reports import ProgressReports
from ecoshare.runtime.run_host import RunHost
from ecoshare.runtime.supervisor import Supervisor
from ecoshare.runtime.target_reports import TargetReports
from ecoshare.runtime.view_builder import Viewing
from ecoshare.runtime.waiting_watch import WaitingWatch
from ecoshare.values.attempt import Outcome

_ANSWERS_WITHIN_S = 5.0
"""Longest time (s) for the server to carry out a stop and to report it."""

_OTHERS_WITHIN_S = 30.0
"""Extra time (s) to stop jobs that share a process: each ends only in its own turn."""

_METER_WITHIN_S = 5.0
_SHOW_S = 0.25


@dataclass(frozen=True, slots=True)
class RunParts:
    """Parts of a run that exist before its first event.

    Attributes:
        plan: The plan to run.
        jobs: Jobs of the run, by name; trials are added when they are drawn.
        folder: The run folder.
        log: Event log of the run.
        shared: Private folder in memory, for lane tables and sockets.
        token: Token that marks the processes of the run.
        began_s: Monotonic time (s) at which the run was first opened.
        progress: Display that gets every event and the state of the run.
        devices: The devices of the run, claimed.
        sharing: Decision about the contexts of the jobs.
        profiler: Makes profiles from windows, and stores them.
        guard: Cleans up after the controller; kept alive during the run.
        source: Source of more jobs, if the run stays open; otherwise None.
        host: The process that the driver runs in.
    """

    plan: Plan
    jobs: dict[str, PlannedJob]
    folder: RunFolder
    log: EventLog
    shared: Path
    token: str
    began_s: float
    progress: ProgressDisplay
    devices: Sequence[ClaimedDevice]
    sharing: ContextSharing
    profiler: Profiler
    guard: Guard
    host: RunHost
    source: JobSource | None = None


class Driver:
    """Runs a plan in real time. A method that is named after a command carries it out.

    Attributes:
        core: Scheduler, which makes all decisions.
        attempts: Attempts in progress, and the lanes' tables.
        caches: Caches of the jobs' allocators, and the starts that wait until these are empty.
        limits: Memory limits of the jobs' allocators.
        supervisor: Server of the lanes.
        sessions: Session of each device, by its name.
        sweeping: Sweeps of the run.
        waiting: Watch over programs that wait, if the run only measures; otherwise None.
    """

    def __init__(self, parts: RunParts, core: Scheduler | None = None) -> None:
        """Prepare to run the plan of these parts.

        Args:
            parts: Parts of the run.
            core: Scheduler without a run yet; None for a new one.
        """
        self._parts, self._plan = parts, parts.plan
        self._queue: asyncio.Queue[Callable[..., Event | None]] = asyncio.Queue()
        self._tasks = asyncio.TaskGroup()
        self._beside: set[asyncio.Task[None]] = set()  # tasks that end with the loop
        self._stops = 0
        self._drive = CoreDriver(core or Scheduler(), self, self._noted)
        self.core = self._drive.core
        self.supervisor = Supervisor(parts.host, parts.token, parts.folder.supervisor_log)
        self.attempts = Attempts(parts.shared, self._startable, self.supervisor.send, self._tell)
        self.caches = CacheRelease(self.attempts.tables_of, self.supervisor.send, self._tell, self._begin)
        self._children = ChildrenWatch(parts.folder, self.attempts, self.supervisor.send)
        self.limits = MemoryLimits(parts.plan, parts.profiler.made, self.attempts, self._tell, self._begin)
        self._samples = SampleFile(parts.folder.samples)
        only_profile = parts.profiler.stops_the_run
        self._launches = AttemptLaunches(
            parts.plan, parts.folder, parts.sharing, parts.began_s, self.attempts, self.limits, only_profile
        )
        run = LiveRun(
            folder=parts.folder,
            samples=self._samples,
            token=parts.token,
            attempts=self.attempts,
            profiler=parts.profiler,
            now_s=self.now_s,
            stopping=lambda: self.core.stopping,
            ready=lambda: self.supervisor.ready,
            tell=self._tell,
            begin=self._begin,
            missed_share=lambda name: self._targets.missed_share(name),
            stops_after_search=parts.plan.only_tune,
        )
        self.sessions = {each.device.name: DeviceSession(each, run) for each in parts.devices}
        self._watch = DeviceWatch(
            self.sessions, self.attempts, parts.profiler.notes, self.now_s, self._tell, self._begin
        )
        self.sweeping = Sweeping(parts.folder, parts.jobs, self._tell)
        self._arrivals = Arrivals(parts.jobs, self.sweeping, self.now_s, self._tell)
        self._arrivals.add(parts.plan)
        self._parking = LiveParking(
            attempts=self.attempts,
            sessions=self.sessions,
            transfers=transfers(self.sessions.values(), parts.token) if parts.plan.host_bytes else {},
            startable=self._startable,
            is_releasing=self.caches.is_releasing,
            send=self.supervisor.send,
            tell=self._tell,
            begin=self._begin,
        )
        self._answers = AttemptAnswers(
            parts.folder,
            self.attempts,
            self.caches,
            self._children,
            self._watch,
            self._parking,
            self.sweeping,
            self._tell,
        )
        self._questions = LiveQuestions(parts.profiler, parts.plan.on_processors, self._tell, self._begin)
        stops_on_purpose = parts.plan.only_tune or only_profile
        self.waiting = WaitingWatch(self.attempts, self._tell) if stops_on_purpose else None
        self._on_end = None if stops_on_purpose else OnEnd(parts.folder, parts.jobs, parts.profiler.notes)
        self._progress = ProgressReports(
            self.core.jobs, self.attempts, parts.plan.on_processors, self.now_s, self._tell
        )
        self._targets = TargetReports(self.attempts, parts.folder.job, self.now_s, self._tell)
        live, tables, usage = self.attempts.live, self.attempts.tables, self.attempts.usage
        self._viewing = Viewing(
            parts.plan, self.core, live, tables, self.sweeping, usage, self._targets.view, self._arrivals
        )

    def now_s(self) -> float:
        """Seconds since the run was first opened."""
        return time.monotonic() - self._parts.began_s

    async def run(self) -> None:
        """Run every job of the plan to its end.

        Raises:
            UnfitEnvironment: The run cannot go on: the disk is full, or torch cannot be loaded. It is cleaned up then.
        """
        self._tell(partial(RunOpened, **self._plan.opening()))  # first, since a Ctrl-C may come at once
        with self._parts.host.heard(self._asked_to_stop):  # to the end: a late Ctrl-C must not cost the result
            try:
                await self.supervisor.open()
                async with self._tasks:
                    samplers = [each.sampler for each in self.sessions.values()]
                    for work in (
                        *(sampler.keep(self.now_s) for sampler in samplers),
                        self._parts.guard.keep(),
                        self.supervisor.listen(self._answers.hear, self._answers.lost, lambda: self.core.live_jobs),
                        self._children.keep([(each.device, each.sampler.on_device) for each in self.sessions.values()]),
                        self._progress.keep(),
                        self._targets.keep(),
                        self._watch.keep(),
                        self._show_progress(),
                        self._hear_trials(),
                        *([] if self.waiting is None else [self.waiting.keep()]),
                        *([] if self._parts.source is None else [self._parts.source.keep(self._open_run())]),
                    ):
                        self._begin(work)
                    # Joules are counted from the first sample on. This wait costs nothing: the server loads for longer.
                    for sampler in samplers:
                        await sampler.first_sample(_METER_WITHIN_S)
                    self._arrivals.is_open = self._parts.source is not None
                    self._arrivals.submit(self._plan)
                    await self._decide()
                    for task in self._beside:
                        task.cancel()
                for sampler in samplers:
                    await sampler.finish(self.now_s)
                if self._on_end is not None:
                    await self._on_end.finish(self.core.jobs)
            except* OSError as errors:
                raise unwritable(self._parts.folder.path, first_error(errors)) from errors
            except* UnfitEnvironment as errors:
                raise first_error(errors) from None
            finally:
                await self._clear_up()

    async def _decide(self) -> None:
        """Handle one event at a time, until every job has ended."""
        while True:
            make = await self._queue.get()
            if (event := make(at_s=self.now_s())) is not None:
                self._handle(event)
            if self.core.only_services_left and not self._arrivals.to_come:
                self._handle(WorkOver(self.now_s()))
            await asyncio.sleep(0)  # lets a Ctrl-C in, even if the queue is never empty
            more = self.core.live_jobs or self.core.open_sweeps or (self._arrivals.to_come and not self.core.stopping)
            is_measuring = any(each.windows for each in self.sessions.values())
            if not more and self.core.lanes and not is_measuring and self._queue.empty():
                return

    def _handle(self, event: Event) -> None:
        self._drive.tell(event)
        self.sweeping.look(self.core.ended)
        self._arrivals.look(event, self.core)
        if self._on_end is not None:
            self._on_end.look(event, self.core)
        if self._parts.source is not None:
            self._parts.source.look(event, self.core)
        if isinstance(event, JobExited) and self._plan.only_tune and not self.core.stopping:
            self._tell(partial(StopRequested, at_once=False))  # the packing to be tuned is gone

    def _noted(self, event: Event, commands: list[Command]) -> None:
        self._parts.log.write(event, commands, self.core)
        self._parts.progress.event(event, commands)

    def _open_run(self) -> OpenRun:
        parts = self._parts
        return OpenRun(
            parts.plan,
            parts.folder,
            self.core,
            self._arrivals,
            self.sweeping,
            parts.jobs,
            self._tell,
            self.now_s,
            self._viewing,
            lambda: self.supervisor.ready is not None,
            self._asked_to_stop,
        )

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def _tell(self, make: Callable[..., Event | None]) -> None:
        """Let an event happen. `make` may find that there is none any more when its turn comes."""
        self._queue.put_nowait(make)

    async def _hear_trials(self) -> None:
        """Report to the core the values that running trials report."""
        while True:
            await asyncio.sleep(LISTEN_S)
            for name, own in self.attempts.live.items():
                if self.core.jobs[name].state is JobState.RUNNING:
                    self.sweeping.listen(name, own.attempt)

    async def _show_progress(self) -> None:
        while True:
            if self._parts.progress.is_due(self.now_s()):
                self._parts.progress.show(self.view())
            await asyncio.sleep(_SHOW_S)

    def view(self) -> RunView:
        """Present state of the run, for a display."""
        return self._viewing.run(self.now_s(), self.supervisor.ready is not None)

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
        if self.attempts.live:
            self.supervisor.kill()

    # Commands

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        """See `CommandHandler`."""
        self.attempts.open_lane(command, self.supervisor.kill_if_stopped)
        self._tell(partial(Done, command=command.id))

    def start_job(self, command: StartJob, now_s: float) -> None:
        """See `CommandHandler`."""
        own = self.attempts.start(command, self._parts.jobs[command.job])
        lanes = [self.core.lanes[lane] for lane, _ in own.places]
        names = [lane.device.name for lane in lanes]
        try:
            launch = self._launches.launch(command, own, names, process_bytes=lanes[0].device.memory_bytes)
        except OSError as error:
            self.attempts.give_up(command.id)
            self._tell(partial(Refused, command=command.id, error=f"no port for its ranks: {error}"))
            return
        self.caches.launch(launch, set(names))

    def set_caching(self, command: SetCaching, now_s: float) -> None:
        """See `CommandHandler`."""
        self.caches.set_caching(command)

    def limit_memory(self, command: LimitMemory, now_s: float) -> None:
        """See `CommandHandler`."""
        self.limits.limit_memory(command)

    def park_job(self, command: ParkJob, now_s: float) -> None:
        """See `CommandHandler`."""
        self._parking.park(command)

    def resume_job(self, command: ResumeJob, now_s: float) -> None:
        """See `CommandHandler`."""
        self._parking.resume(command)

    def _startable(self, lane: int) -> int:
        """Number of further jobs that the core may start in a lane."""
        return self.core.lanes[lane].places - len(self.core.lanes[lane].jobs)

    def move_job(self, command: MoveJob, now_s: float) -> None:
        """See `CommandHandler`."""
        self.attempts.moving.start(command, self._tasks)

    def set_shares(self, command: SetShares, now_s: float) -> None:
        """See `CommandHandler`."""
        self.attempts.set_shares(command)

    def kill_job(self, command: KillJob, now_s: float) -> None:
        """See `CommandHandler`."""
        if (held := self.caches.give_up(command.job)) is not None:
            self.attempts.free(self.attempts.live[command.job])
            outcome = Outcome.PRUNED if command.pruned else Outcome.STOPPED
            self._answers.end(Ended(command.job, held.attempt, outcome.value, None, command.reason))
            return
        self.supervisor.send(
            StopAttempt(command.job, command.attempt, command.at_once, command.reason, GRACE_S, command.pruned)
        )

    def drop_job(self, command: DropJob, now_s: float) -> None:
        """See `CommandHandler`. A paused trial has no process."""

    def profile_job(self, command: ProfileJob, now_s: float) -> None:
        """See `CommandHandler`."""
        lanes = self.core.jobs[command.job].lanes
        self.sessions[lanes[0].device.name].profile(command)

    def apply_setting(self, command: ApplySetting, now_s: float) -> None:
        """See `CommandHandler`."""
        self.sessions[command.device].apply(command)

    def measure_setting(self, command: MeasureSetting, now_s: float) -> None:
        """See `CommandHandler`."""
        self.sessions[command.device].measure(command)

    def await_requests(self, command: AwaitRequests, now_s: float) -> None:
        """See `CommandHandler`."""
        self.sessions[command.device].await_requests(command)

    def ask_setting(self, command: AskSetting, now_s: float) -> None:
        """See `CommandHandler`."""
        self.sessions[command.device].ask(command)

    def _ask(self, command: AskInterference | AskPlanner | AskPower, now_s: float) -> None:
        """See `CommandHandler`: one of the questions that no device owns."""
        self._questions.ask(command)

    ask_interference = ask_planner = ask_power = _ask

    def ask_sampler(self, command: AskSampler, now_s: float) -> None:
        """See `CommandHandler`."""
        self.sweeping.ask(command, self._tasks)

    def wake_at(self, command: WakeAt, now_s: float) -> None:
        """See `CommandHandler`."""
        wait_s = max(0.0, command.at_s - self.now_s())
        asyncio.get_running_loop().call_later(wait_s, self._tell, partial(Done, command=command.id))

    async def _clear_up(self) -> None:
        """End everything that is left, and restore the devices. Each step runs even if another one fails."""
        async with contextlib.AsyncExitStack() as steps:  # the last step runs first
            if self._on_end is not None:
                steps.push_async_callback(self._on_end.end)
            steps.callback(self._samples.close)
            steps.callback(self._launches.close)
            for each in self.sessions.values():  # after the jobs: their limits may exceed the power budget
                steps.push_async_callback(asyncio.to_thread, each.restore)
            steps.push_async_callback(asyncio.to_thread, reaping.end_all, self._parts.token)
            steps.push_async_callback(asyncio.to_thread, self._parts.sharing.end)
            steps.push_async_callback(self.supervisor.close)
