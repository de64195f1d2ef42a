"""Real-time driver of the core: it passes events to the core, and the commands of the core to what carries them out.

::

                    ┌───────────── driver ─────────────┐
    arrivals ─────► │  queue ──► core.handle ──► log   │
    signals ──────► │    ▲           │                 │
                    │    │           └──► carry out ───│ ──OpenLane, StartJob, ...──► node ──► lanes, devices
                    │    └─────────────────────────────│ ◄──Done, JobExited, ...───── node
                    └──────────────────────────────────┘ ──AskSampler, ...──► sweeps, advisers

Every event goes through one queue. It gets its time when it is handled, so times in the log never decrease.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.base.clock import SideTasks, first_error
from ecoshare.core.commands import (
    AskInterference,
    AskPlanner,
    AskPower,
    AskSampler,
    AskSetting,
    Command,
    DropJob,
    WakeAt,
)
from ecoshare.core.driving import CoreDriver
from ecoshare.core.events import (
    DeviceFailed,
    Done,
    Event,
    InterferencePredicted,
    IterationsDone,
    JobExited,
    Planned,
    PowerPredicted,
    RunOpened,
    StopRequested,
    WorkOver,
)
from ecoshare.core.placement.colocation_estimates import GPU_GUESS, PROCESSORS_GUESS
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.quantities import format_duration
from ecoshare.lane.messages import GRACE_S
from ecoshare.record.accounts.run_energy import LiveEnergy
from ecoshare.record.event_log import EventLog
from ecoshare.record.kept_file import lacks_room
from ecoshare.record.run_folder import RunFolder, unwritable
from ecoshare.record.run_view import ProgressDisplay, RunView
from ecoshare.runtime.job_arrivals import Arrivals
from ecoshare.runtime.live_sweeps import LISTEN_S, Sweeping
from ecoshare.runtime.live_views import DeviceViews, ServiceViews, Viewing
from ecoshare.runtime.log_turnover import LogTurnover
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.measuring.setting_searches import RunSearches
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.nodes.run_node import JoiningDevices, LeavingDevices, NodeRun, RunNode
from ecoshare.runtime.on_end import OnEnd
from ecoshare.runtime.open_run import DISK, JobSource, OpenRun
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_knowledge import energy_rates


@dataclass(slots=True)
class LiveQuestions:
    """Asks the advisers of a run.

    Attributes:
        searches: Searches for settings.
        stops_after_search: Whether the run is for one search only, and stops after it.
        profiler: Stores the co-location measurements that a question brings.
        on_processors: Whether the jobs run on the processors.
        tell: Reports an event to the core.
        begin: Begins work beside the driver's loop; the end of the run cancels it.
    """

    searches: RunSearches
    stops_after_search: bool
    profiler: Profiler
    on_processors: bool
    tell: Callable[[Callable[..., Event]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]

    def ask(self, command: AskSetting | AskInterference | AskPlanner | AskPower) -> None:
        """Ask the adviser that a command names."""
        match command:
            case AskSetting():
                self.begin(self._search(command))
            case AskInterference():
                self.begin(self._predict(command))
            case AskPlanner():
                self.begin(self._plan(command))
            case AskPower():
                self.begin(self._respond(command))

    async def _search(self, command: AskSetting) -> None:
        """Ask for the next setting of a search."""
        advice = await asyncio.to_thread(self.searches.answer, command)
        self.tell(advice.told(command.id))
        if advice.over and self.stops_after_search:
            self.tell(partial(StopRequested, at_once=False))

    async def _respond(self, command: AskPower) -> None:
        """Ask for the response of a packing to power limits."""
        from ecoshare.knowledge.advisers.power_adviser import respond

        self.tell(partial(PowerPredicted, command=command.id, response=await asyncio.to_thread(respond, command)))

    async def _plan(self, command: AskPlanner) -> None:
        """Ask a planner for the shares of a round."""
        from ecoshare.knowledge.advisers.planners import shares

        self.tell(partial(Planned, command=command.id, shares=await asyncio.to_thread(shares, command)))

    async def _predict(self, command: AskInterference) -> None:
        """Predict the speeds of co-located jobs."""
        from ecoshare.knowledge.advisers.interference_adviser import foresee

        self.profiler.keep_seen(command.colocations)
        guess = PROCESSORS_GUESS if self.on_processors else GPU_GUESS
        pairs, prices = await asyncio.to_thread(foresee, command, guess)
        self.tell(partial(InterferencePredicted, command=command.id, pairs=pairs, prices=prices))


@dataclass(frozen=True, slots=True)
class RunParts:
    """Parts of a run that exist before its first event.

    Attributes:
        plan: The plan to run.
        jobs: Jobs of the run, by name; trials are added when they are drawn.
        folder: The run folder.
        log: Event log of the run.
        began_s: Monotonic time (s) at which the run was first opened.
        progress: Display that gets every event and the state of the run.
        profiler: Makes profiles from windows, and stores them.
        host: The process that the driver runs in.
        node: Makes the node of the run.
        searches: Searches for settings on the devices.
        know: Adds facts about a machine that has come to `environment.json` and `plan.json`.
        source: Source of more jobs, if the run stays open; otherwise None.
    """

    plan: Plan
    jobs: dict[str, PlannedJob]
    folder: RunFolder
    log: EventLog
    began_s: float
    progress: ProgressDisplay
    profiler: Profiler
    host: RunHost
    node: Callable[[NodeRun], RunNode]
    searches: RunSearches
    know: Callable[[Mapping[str, Any]], None]
    source: JobSource | None = None

    @property
    def only_measures(self) -> bool:
        """Whether the run is for a profile or for a search only."""
        return self.plan.only_tune or self.profiler.stops_the_run


_ANSWERS_WITHIN_S = 5.0
"""Longest time (s) for the server to carry out a stop and to report it."""

_OTHERS_WITHIN_S = 30.0
"""Extra time (s) to stop jobs that share a process: each ends only in its own turn."""

_SHOW_S = 0.25

FULL_DISK_S = 600.0
"""Longest time (s) for which a run waits for room on the disk of its log."""

_LOG = "log"
"""Subject of the trouble that the log grows."""

_TRY_AGAIN_S = 1.0
"""Time (s) between two attempts to write the log on a full disk."""


class Driver:
    """Runs a plan in real time. It carries out the commands that concern no single machine, and its node the others.

    Attributes:
        core: Scheduler, which makes all decisions.
        node: The machine with the lanes and devices of the run.
        energy: Joules so far.
        sweeping: Sweeps of the run.
    """

    def __init__(self, parts: RunParts, core: Scheduler | None = None) -> None:
        """Prepare to run the plan of these parts.

        Args:
            parts: Parts of the run.
            core: Scheduler without a run yet; None for a new one.
        """
        self._parts, self._plan = parts, parts.plan
        self._queue: asyncio.Queue[Callable[..., Event | None]] = asyncio.Queue()
        self._tasks = SideTasks()
        self._stops = 0
        self.core = core or Scheduler()
        self.energy = LiveEnergy(energy_rates(parts.jobs, parts.profiler.made, parts.plan.known))
        self._services = ServiceViews(self.now_s)
        hear = [] if parts.source is None else [self.energy.hear]  # only clients of a queue ask for joules so far
        self.sweeping = Sweeping(parts.folder, parts.jobs, self._tell)
        self.node = parts.node(
            NodeRun(
                now_s=self.now_s,
                tell=self._tell,
                begin=self._tasks.begin,
                stopping=lambda: self.core.stopping,
                live_jobs=lambda: self.core.live_jobs,
                hear_samples=hear,
                hear_requests=self._services.hear,
                attempt_over=partial(self.sweeping.listen, over=True),
                join=self._join,
                leave=self._leave,
                waiting_jobs=lambda: sum(job.state is JobState.QUEUED for job in self.core.jobs.values()),
            ),
        )
        self._drive = CoreDriver(self.core, self.node, self)
        self._warnings: dict[str, str] = {}
        self._arrivals = Arrivals(parts.jobs, self.sweeping, self.now_s, self._tell)
        self._arrivals.add(parts.plan)
        self._questions = LiveQuestions(
            parts.searches,
            parts.plan.only_tune,
            parts.profiler,
            parts.plan.on_processors,
            self._tell,
            self._tasks.begin,
        )
        of_queue = parts.source is not None
        self._on_end = None if parts.only_measures else OnEnd(parts.folder, parts.jobs, parts.profiler.notes, of_queue)
        devices = list(parts.plan.devices)
        self._viewing = Viewing(
            parts.plan,
            devices,
            self.core,
            self.node,
            self.sweeping,
            self._services,
            self._arrivals,
            self._warnings,
        )
        self._device_views = DeviceViews(self.core, devices, self.node, self.energy)
        own = (self._arrivals, self.sweeping, self._viewing, self._services, self.node, self.energy, self._on_end)
        self._turnover = LogTurnover(
            parts.plan,
            devices,
            parts.source is not None,
            parts.log,
            self.core,
            parts.jobs,
            self._arrivals,
            parts.profiler,
            own,
        )

    def now_s(self) -> float:
        """Seconds since the run was first opened."""
        return self._parts.host.clock.monotonic_s() - self._parts.began_s

    async def run(self) -> None:
        """Run every job of the plan to its end.

        Raises:
            UnfitEnvironment: The run cannot go on: the disk is full, or torch cannot be loaded. It is cleaned up then.
        """
        self._tell(partial(RunOpened, **self._plan.opening()))  # first, since a Ctrl-C may come at once
        with self._parts.host.heard(self._asked_to_stop):  # to the end: a late Ctrl-C must not cost the result
            try:
                await self.node.open()
                async with self._tasks:
                    for work in (
                        *self.node.works(),
                        self._show_progress(),
                        self._hear_trials(),
                        *([] if self._parts.source is None else [self._parts.source.keep(self._open_run())]),
                    ):
                        self._tasks.begin(work)
                    await self.node.first_samples()  # this costs no time: the server loads for longer
                    self._arrivals.is_open = self._parts.source is not None
                    self._arrivals.submit(self._plan)
                    await self._decide()
                await self.node.finish()
                if self._on_end is not None:
                    await self._on_end.finish(self.core.jobs)
            except* OSError as errors:
                raise self._unwritable(first_error(errors)) from errors
            except* UnfitEnvironment as errors:
                raise first_error(errors) from None
            finally:
                await self._clear_up()

    def _unwritable(self, error: OSError) -> UnfitEnvironment:
        told = unwritable(self._parts.folder.path, error)
        if not lacks_room(error):
            return told
        again = (
            f"up --resume --queue {self._plan.queue}" if self._plan.queue else f"run --resume {self._parts.folder.path}"
        )
        return UnfitEnvironment(str(told), f"`ecoshare {again}` goes on where there is room")

    async def _decide(self) -> None:
        """Handle one event at a time, until every job has ended."""
        while True:
            make = await self._queue.get()
            event = make(at_s=self.now_s())
            if event is not None and not self._is_late(event):
                await self._handle(event)
            if self.core.only_services_left and not self._arrivals.to_come:
                await self._handle(WorkOver(self.now_s()))
            if self._queue.empty() and (self._parts.source is None or self._parts.source.is_settled):
                await self._begin_segment()
            self._warn(_LOG, self._turnover.overdue())
            await asyncio.sleep(0)  # lets a Ctrl-C in, even if the queue is never empty
            more = self.core.live_jobs or self.core.open_sweeps or (self._arrivals.to_come and not self.core.stopping)
            if not more and self.core.lanes and not self.node.is_measuring and self._queue.empty():
                return

    def _is_late(self, event: Event) -> bool:
        """Whether an event is about a job that does not run any more, or about a device that is not used yet."""
        if isinstance(event, DeviceFailed):
            is_used = any(lane.device.name == event.device for lane in self.core.lanes.values())
            return self._turnover.never_joins(event.device) or not is_used
        if not isinstance(event, IterationsDone):
            return False
        job = self.core.jobs.get(event.job)
        return job is None or job.state is not JobState.RUNNING

    async def _handle(self, event: Event) -> None:
        commands = await self._decided(event)
        self._look(event)
        if self._parts.source is not None:
            self._parts.source.look(event, commands, self.core)
        if isinstance(event, JobExited) and self._plan.only_tune and not self.core.stopping:
            self._tell(partial(StopRequested, at_once=False))  # the packing to be tuned is gone

    def _look(self, event: Event) -> None:
        """Let the parts of the run follow an event, which the core has handled."""
        self.sweeping.look(self.core.ended)
        self._arrivals.look(event, self.core)
        if self._on_end is not None:
            self._on_end.look(event, self.core)

    def _join(self, coming: JoiningDevices) -> None:
        """Use devices of a machine that has come, from the next segment of the log on."""
        self._parts.know(coming.environment)
        self._turnover.join(coming)
        self._tell(lambda at_s: None)  # a segment may begin now

    def _leave(self, leaving: LeavingDevices) -> None:
        """Do without the devices of a machine, if that can be now."""
        self._turnover.leave(leaving)
        self._tell(lambda at_s: None)

    async def _begin_segment(self) -> None:
        """Begin a segment of the log, if there is a reason for it and nothing holds it up."""
        if (opened := self._turnover.opening(self.now_s())) is not None:
            self.view()  # the views of jobs that have ended are kept; the core forgets these
            commands = await self._decided(opened)
            self._look(opened)
            ended = self._turnover.begun()
            if self._parts.source is not None:
                self._parts.source.look(opened, commands, self.core)
            self._tasks.begin(self._turnover.learn(ended))

    async def _decided(self, event: Event) -> list[Command]:
        """Let the core decide what follows from an event, note it in the log, and carry it out."""
        commands = self.core.handle(event)
        try:
            self._parts.log.write(event, commands, self.core)
        except OSError as error:
            await self._write_held(error)
        self._parts.progress.event(event, commands)
        self._drive.carry_out(event, commands)
        return commands

    def _warn(self, subject: str, words: str) -> None:
        """Tell of a trouble in all displays; without words it is over."""
        if words:
            self._warnings[subject] = words
        else:
            self._warnings.pop(subject, None)

    async def _write_held(self, error: OSError) -> None:
        """Wait until the disk has room for the log. The jobs go on meanwhile, and nothing is decided.

        Raises:
            OSError: The log cannot be written for another reason, the wait was too long, or the user asks for the end.
        """
        log, until_s = self._parts.log, self.now_s() + FULL_DISK_S
        words = f"no space is left for {self._parts.folder.events}: jobs that run go on, and nothing new begins. "
        self._warn(DISK, words + f"The run is given up after {format_duration(FULL_DISK_S)}, and can be resumed")
        while True:
            if not log.holds or not lacks_room(error) or self.now_s() >= until_s or self._stops:
                raise error  # a line in the file may not be on the disk
            await asyncio.sleep(_TRY_AGAIN_S)
            try:
                log.write_held()
                break
            except OSError as again:
                error = again
        self._warn(DISK, "")

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
            self._device_views,
            self.energy,
            self._services.counts,
            lambda: self.node.ready is not None,
            self._asked_to_stop,
            self._warnings,
        )

    def _tell(self, make: Callable[..., Event | None]) -> None:
        """Let an event happen. `make` may find that there is none any more when its turn comes."""
        self._queue.put_nowait(make)

    async def _hear_trials(self) -> None:
        """Report to the core the values that running trials report."""
        while True:
            await asyncio.sleep(LISTEN_S)
            for name in self.sweeping.live:
                job = self.core.jobs.get(name)
                if job is not None and job.state is JobState.RUNNING:
                    self.sweeping.listen(name, job.attempt)

    async def _show_progress(self) -> None:
        while True:
            if self._parts.progress.is_due(self.now_s()):
                self._parts.progress.show(self.view())
            await asyncio.sleep(_SHOW_S)

    def view(self) -> RunView:
        """Present state of the run, for a display."""
        return self._viewing.run(self.now_s(), self.node.ready is not None)

    def _asked_to_stop(self) -> None:
        self._stops += 1
        if self._stops > 2 and self._on_end is not None:
            self._on_end.give_up()
        if self._stops <= 2:
            at_once = self._stops == 2
            self._tell(partial(StopRequested, at_once=at_once))
            within_s = _ANSWERS_WITHIN_S if at_once else 2 * GRACE_S + _OTHERS_WITHIN_S
            asyncio.get_running_loop().call_later(within_s, self.node.end_silent_server)

    # Commands

    def drop_job(self, command: DropJob, now_s: float) -> None:
        """See `RunCommands`. A paused trial has no process."""

    def _ask(self, command: AskSetting | AskInterference | AskPlanner | AskPower, now_s: float) -> None:
        """See `RunCommands`: one of the questions to an adviser."""
        self._questions.ask(command)

    ask_setting = ask_interference = ask_planner = ask_power = _ask

    def ask_sampler(self, command: AskSampler, now_s: float) -> None:
        self.sweeping.ask(command, self._tasks)

    def wake_at(self, command: WakeAt, now_s: float) -> None:
        wait_s, segment = max(0.0, command.at_s - self.now_s()), self._turnover.count

        def woken(at_s: float) -> Event | None:
            return Done(at_s, command.id) if segment == self._turnover.count else None

        asyncio.get_running_loop().call_later(wait_s, self._tell, woken)

    async def _clear_up(self) -> None:
        """End everything that is left, and restore the devices. Each step runs even if another one fails."""
        async with contextlib.AsyncExitStack() as steps:  # the last step runs first
            if self._on_end is not None:
                steps.push_async_callback(self._on_end.end)
            steps.push_async_callback(self.node.close)
