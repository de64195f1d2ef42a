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
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ecoshare.base.clock import first_error
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
    PhaseBegan,
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
from ecoshare.record.kept_file import lacks_room
from ecoshare.record.run_folder import unwritable
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.runtime.live_sweeps import LISTEN_S
from ecoshare.runtime.live_views import RunViews
from ecoshare.runtime.log_turnover import LogTurnover
from ecoshare.runtime.on_end import OnEnd
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.run import Run


class JobSource(Protocol):
    """Source of the jobs of a run that stays open, such as a queue."""

    def resumed(self, plan: Plan) -> None:
        """Take note of what earlier sessions have left, and of what has ended in them (`Plan.ended`).

        Args:
            plan: Plan of the jobs and sweeps that are left.
        """

    async def keep(self, driver: Driver) -> None:
        """Give jobs to the run until cancelled.

        Args:
            driver: Driver of the run, which has begun.
        """

    def look(self, event: Event, commands: Sequence[Command], core: Scheduler) -> None:
        """Take note of an event, and of the commands that followed. The core has handled it already."""

    @property
    def is_settled(self) -> bool:
        """Whether the source needs nothing more of jobs that have ended, so that the run may forget them."""


class LiveQuestions:
    """Asks the advisers of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def ask(self, command: AskSetting | AskInterference | AskPlanner | AskPower) -> None:
        """Ask the adviser that a command names."""
        match command:
            case AskSetting():
                self._run.begin(self._search(command))
            case AskInterference():
                self._run.begin(self._predict(command))
            case AskPlanner():
                self._run.begin(self._plan(command))
            case AskPower():
                self._run.begin(self._respond(command))

    async def _search(self, command: AskSetting) -> None:
        """Ask for the next setting of a search."""
        advice = await asyncio.to_thread(self._run.searches.answer, command)
        self._run.tell(advice.told(command.id))
        if advice.over and self._run.plan.only_tune:
            self._run.tell(partial(StopRequested, at_once=False))

    async def _respond(self, command: AskPower) -> None:
        """Ask for the response of a packing to power limits."""
        from ecoshare.knowledge.advisers.power_adviser import respond

        self._run.tell(partial(PowerPredicted, command=command.id, response=await asyncio.to_thread(respond, command)))

    async def _plan(self, command: AskPlanner) -> None:
        """Ask a planner for the shares of a round."""
        from ecoshare.knowledge.advisers.planners import shares

        self._run.tell(partial(Planned, command=command.id, shares=await asyncio.to_thread(shares, command)))

    async def _predict(self, command: AskInterference) -> None:
        """Predict the speeds of co-located jobs."""
        from ecoshare.knowledge.advisers.interference_adviser import foresee

        self._run.profiler.keep_seen(command.colocations)
        guess = PROCESSORS_GUESS if self._run.plan.on_processors else GPU_GUESS
        pairs, prices = await asyncio.to_thread(foresee, command, guess)
        self._run.tell(partial(InterferencePredicted, command=command.id, pairs=pairs, prices=prices))


_PARKS = (JobState.PARKING, JobState.PARKED, JobState.RESUMING)

_ANSWERS_WITHIN_S = 5.0
"""Longest time (s) for the server to carry out a stop and to report it."""

_OTHERS_WITHIN_S = 30.0
"""Extra time (s) to stop jobs that share a process: each ends only in its own turn."""

_SHOW_S = 0.25

FULL_DISK_S = 600.0
"""Longest time (s) for which a run waits for room on the disk of its log."""

_LOG = "log"
"""Subject of the trouble that the log grows."""

DISK = "disk"
"""Subject of the trouble that the disk of the log is full."""

_TRY_AGAIN_S = 1.0
"""Time (s) between two attempts to write the log on a full disk."""


class Driver:
    """Drives a run in real time. It carries out the commands that concern no single machine, and its node the others.

    Attributes:
        run: The run.
        views: Present state of the run, for displays.
    """

    def __init__(self, run: Run, progress: ProgressDisplay, source: JobSource | None = None) -> None:
        """Prepare to drive a run with open machines.

        Args:
            run: The run.
            progress: Display that gets every event and the state of the run.
            source: Source of more jobs, if the run stays open; otherwise None.
        """
        self.run, self._progress, self._source = run, progress, source
        self._stops = 0
        self._drive = CoreDriver(run.core, run.node, self)
        run.arrivals.add(run.plan)
        self._questions = LiveQuestions(run)
        notes = run.profiler.notes
        self._on_end = None if run.only_measures else OnEnd(run.folder, run.jobs, notes, run.stays_open)
        self.views = RunViews(run)
        own = run.arrivals, run.sweeping, self.views, run.requests, run.node, run.energy, self._on_end
        self._turnover = LogTurnover(run, [each for each in own if each is not None])

    async def drive(self) -> None:
        """Run every job of the plan to its end.

        Raises:
            UnfitEnvironment: The run cannot go on: the disk is full, or torch cannot be loaded. It is cleaned up then.
        """
        self.run.tell(partial(RunOpened, **self.run.plan.opening()))  # first, since a Ctrl-C may come at once
        with self.run.host.heard(self.ask_to_stop):  # to the end: a late Ctrl-C must not cost the result
            try:
                await self.run.node.open()
                async with self.run.tasks:
                    for work in (
                        *self.run.node.works(),
                        self._show_progress(),
                        self._hear_trials(),
                        *([] if self._source is None else [self._source.keep(self)]),
                    ):
                        self.run.tasks.begin(work)
                    await self.run.node.first_samples()  # this costs no time: the server loads for longer
                    self.run.arrivals.is_open = self._source is not None
                    self.run.arrivals.submit(self.run.plan)
                    await self._decide()
                await self.run.node.finish()
                if self._on_end is not None:
                    await self._on_end.finish(self.run.core.jobs)
            except* OSError as errors:
                raise self._unwritable(first_error(errors)) from errors
            except* UnfitEnvironment as errors:
                raise first_error(errors) from None
            finally:
                await self._clear_up()

    def _unwritable(self, error: OSError) -> UnfitEnvironment:
        told = unwritable(self.run.folder.path, error)
        if not lacks_room(error):
            return told
        queue = self.run.plan.queue
        again = f"up --resume --queue {queue}" if queue else f"run --resume {self.run.folder.path}"
        return UnfitEnvironment(str(told), f"`ecoshare {again}` goes on where there is room")

    async def _decide(self) -> None:
        """Handle one event at a time, until every job has ended."""
        run, core = self.run, self.run.core
        while True:
            make = await run.events.get()
            event = make(at_s=run.now_s())
            if event is not None and not self._is_late(event):
                await self._handle(event)
            if core.only_services_left and not run.arrivals.to_come:
                await self._handle(WorkOver(run.now_s()))
            if run.events.empty() and (self._source is None or self._source.is_settled):
                await self._begin_segment()
            self.run.warn(_LOG, self._turnover.overdue())
            await asyncio.sleep(0)  # lets a Ctrl-C in, even if the queue is never empty
            more = core.live_jobs or core.open_sweeps or (run.arrivals.to_come and not core.stopping)
            if not more and core.lanes and not run.node.is_measuring and run.events.empty():
                return

    def _is_late(self, event: Event) -> bool:
        """Whether an event is about a job that does not run any more, or about a device that is not used yet."""
        if isinstance(event, DeviceFailed):
            is_used = any(lane.device.name == event.device for lane in self.run.core.lanes.values())
            return self._turnover.never_joins(event.device) or not is_used
        if not isinstance(event, IterationsDone | PhaseBegan):
            return False
        job = self.run.core.jobs.get(event.job)
        if isinstance(event, PhaseBegan):  # it is told once, so that of a job that is being parked counts, too
            return job is None or job.state not in (JobState.RUNNING, *_PARKS)
        return job is None or job.state is not JobState.RUNNING

    async def _handle(self, event: Event) -> None:
        commands = await self._decided(event)
        self._look(event)
        if self._source is not None:
            self._source.look(event, commands, self.run.core)
        if isinstance(event, JobExited) and self.run.plan.only_tune and not self.run.core.stopping:
            self.run.tell(partial(StopRequested, at_once=False))  # the packing to be tuned is gone

    def _look(self, event: Event) -> None:
        """Let the parts of the run follow an event, which the core has handled."""
        self.run.sweeping.look(self.run.core.ended)
        self.run.arrivals.look(event, self.run.core)
        if self._on_end is not None:
            self._on_end.look(event, self.run.core)

    async def _begin_segment(self) -> None:
        """Begin a segment of the log, if there is a reason for it and nothing holds it up."""
        if (opened := self._turnover.opening(self.run.now_s())) is not None:
            self.views.run()  # the views of jobs that have ended are kept; the core forgets these
            commands = await self._decided(opened)
            self._look(opened)
            ended = self._turnover.begun()
            if self._source is not None:
                self._source.look(opened, commands, self.run.core)
            self.run.tasks.begin(self._turnover.learn(ended))

    async def _decided(self, event: Event) -> list[Command]:
        """Let the core decide what follows from an event, note it in the log, and carry it out."""
        commands = self.run.core.handle(event)
        try:
            self.run.log.write(event, commands, self.run.core)
        except OSError as error:
            await self._write_held(error)
        self._progress.event(event, commands)
        self._drive.carry_out(event, commands)
        return commands

    async def _write_held(self, error: OSError) -> None:
        """Wait until the disk has room for the log. The jobs go on meanwhile, and nothing is decided.

        Raises:
            OSError: The log cannot be written for another reason, the wait was too long, or the user asks for the end.
        """
        log, until_s = self.run.log, self.run.now_s() + FULL_DISK_S
        words = f"no space is left for {self.run.folder.events}: jobs that run go on, and nothing new begins. "
        self.run.warn(DISK, words + f"The run is given up after {format_duration(FULL_DISK_S)}, and can be resumed")
        while True:
            if not log.holds or not lacks_room(error) or self.run.now_s() >= until_s or self._stops:
                raise error  # a line in the file may not be on the disk
            await asyncio.sleep(_TRY_AGAIN_S)
            try:
                log.write_held()
                break
            except OSError as again:
                error = again
        self.run.warn(DISK, "")

    async def _hear_trials(self) -> None:
        """Report to the core the values that running trials report."""
        while True:
            await asyncio.sleep(LISTEN_S)
            for name in self.run.sweeping.live:
                job = self.run.core.jobs.get(name)
                if job is not None and job.state is JobState.RUNNING:
                    self.run.sweeping.listen(name, job.attempt)

    async def _show_progress(self) -> None:
        while True:
            if self._progress.is_due(self.run.now_s()):
                self._progress.show(self.views.run())
            await asyncio.sleep(_SHOW_S)

    def ask_to_stop(self) -> None:
        """Stop the run: at the next boundaries of the jobs at the first call, at once at the second."""
        self._stops += 1
        if self._stops > 2 and self._on_end is not None:
            self._on_end.give_up()
        if self._stops <= 2:
            at_once = self._stops == 2
            self.run.tell(partial(StopRequested, at_once=at_once))
            within_s = _ANSWERS_WITHIN_S if at_once else 2 * GRACE_S + _OTHERS_WITHIN_S
            asyncio.get_running_loop().call_later(within_s, self.run.node.end_silent_server)

    # Commands

    def drop_job(self, command: DropJob, now_s: float) -> None:
        """See `RunCommands`. A paused trial has no process."""

    def _ask(self, command: AskSetting | AskInterference | AskPlanner | AskPower, now_s: float) -> None:
        """See `RunCommands`: one of the questions to an adviser."""
        self._questions.ask(command)

    ask_setting = ask_interference = ask_planner = ask_power = _ask

    def ask_sampler(self, command: AskSampler, now_s: float) -> None:
        self.run.sweeping.ask(command, self.run.tasks)

    def wake_at(self, command: WakeAt, now_s: float) -> None:
        wait_s, segment = max(0.0, command.at_s - self.run.now_s()), self._turnover.count

        def woken(at_s: float) -> Event | None:
            return Done(at_s, command.id) if segment == self._turnover.count else None

        asyncio.get_running_loop().call_later(wait_s, self.run.tell, woken)

    async def _clear_up(self) -> None:
        """End everything that is left, and restore the devices. Each step runs even if another one fails."""
        async with contextlib.AsyncExitStack() as steps:  # the last step runs first
            if self._on_end is not None:
                steps.push_async_callback(self._on_end.end)
            steps.push_async_callback(self.run.node.close)
