"""The queue as the run sees it (a source of jobs), and as its clients see it (submit, status, cancel, ...).

::

    submit:  job file ──► plan ──► queue.db on the disk ──► acknowledged ──► Run.submit ──► JobArrived
    retry:   queue.db ──► plan ──► queue.db on the disk ──► RetryRequested ──► Run.submit ──► JobArrived
    cancel:  CancelRequested ──► core ──► in the log on the disk ──► acknowledged
    ends:    core.ended ──► noted ──► queue.db a moment later; the log has them already
    down:    last ends noted ──► clients that wait hear of them, or that their jobs are put off ──► no more clients

All methods run in the loop of the run. Blocking work, on the disk and in the planning of jobs, runs in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from ecoshare.base.clock import REAL, Clock
from ecoshare.core.arrival_gate import in_words, never_arrives
from ecoshare.core.commands import Command
from ecoshare.core.events import (
    CancelRequested,
    DeviceFailed,
    DrainRequested,
    Event,
    HoldRequested,
    JobArrived,
    JobExited,
    PriorityChanged,
    ReleaseRequested,
    RetryRequested,
    RunOpened,
    StopRequested,
    SweepOpened,
)
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.errors import EcoshareError, QueueDown, UnfitEnvironment, UsageError, did_you_mean
from ecoshare.jobs.load import LoadedJobs
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.sweep import sweep_of, trial_name
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.queue.job_store import JobEnd, JobRow, JobStore
from ecoshare.queue.old_jobs import remove_daily
from ecoshare.queue.queue_documents import Acknowledged, EndingKind, JobsChanged, Submission
from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.queue.queue_totals import QueueTotals
from ecoshare.queue.submission_plan import (
    Environment,
    KnownMeasurements,
    Planner,
    by_submission,
    check_startable,
    free_names,
    inherited,
    loaded_again,
    loaded_jobs,
    missing,
    planned_again,
    renamed,
    with_environment,
)
from ecoshare.record import run_documents
from ecoshare.record.run_documents import read_records
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.driver import DISK, Driver
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.plan_checks import write_arrivals
from ecoshare.runtime.run import Run

_NOTE_S = 0.2
"""Time (s) between two notes of ends in the store."""

_SETTLED_WITHIN_S = 5.0
"""Longest time (s) to wait until the store has the ends of jobs that have ended."""

_STORE = "store"
"""Subject of the trouble that the store cannot be written."""

BY_USER = "cancelled by the user"
ON_END_NOTE = "the `on_end:` of the file does not run in a queue; that of `defaults:` runs at the end of each job"

Serve = Callable[["LiveQueue"], AbstractAsyncContextManager[None]]
"""Serves the queue to its clients inside the context."""


class LiveQueue:
    """A queue in progress.

    Attributes:
        name: Name of the queue.
        store: Jobs of the queue on the disk.
        clock: Time of the run.
        opened_unix_s: Time at which this session began (s since 1970).
        ending: How the queue comes to its end: `drain`, `stop` or empty.
        is_down: Whether the run has ended, and the store has all ends.
        totals: Counts over this session.
    """

    def __init__(
        self,
        name: str,
        store: JobStore,
        planner: Planner,
        serve: Serve,
        keep_s: float | None = None,
        clock: Clock = REAL,
    ) -> None:
        """Queue before its run.

        Args:
            name: Name of the queue.
            store: Jobs of the queue on the disk.
            planner: Plans jobs on the devices of the queue.
            serve: Serves the queue to its clients.
            keep_s: Time (s) for which the data of a job are kept after its end; None for ever.
            clock: Time of the run.
        """
        self.clock = clock
        self.name, self.store, self.opened_unix_s = name, store, clock.unix_s()
        self.ending: EndingKind = ""
        self.is_down = False
        self.totals = QueueTotals()
        self._planner, self._serve, self._keep_s = planner, serve, keep_s
        self._driver: Driver | None = None
        self._submitting, self._holding, self._changed = asyncio.Lock(), asyncio.Lock(), asyncio.Condition()
        self._notes = 0  # how often clients that wait were woken
        self._is_news = False  # whether a job was put off since then
        self._handled: dict[int, asyncio.Future[None]] = {}  # by the identity of an event that was asked for
        self._ends: list[JobEnd] = []
        self._noted_starts: set[str] = set()  # names of jobs with a place and a start in the store
        self._priorities: dict[str, int] = {}
        self._open_sweeps: set[str] = set()
        self._classes: set[str] = set()
        self._known = KnownMeasurements()
        self._segments = 0  # how often the run has forgotten what had ended

    # Methods of the source of jobs

    def resumed(self, plan: Plan) -> None:
        """See `JobSource`. Jobs without an end in the store have ended just before the queue was killed."""
        now_s = self.clock.unix_s()
        left = {row.name for row in self.store.left()}
        self.store.end(JobEnd(name, state, now_s) for name, state in plan.ended.items() if name in left)

    @property
    def is_settled(self) -> bool:
        """See `JobSource`. The store has all ends, and no submission is between its plan and its arrival."""
        return self._driver is not None and not (self._ends or self._handled or self._submitting.locked())

    async def keep(self, driver: Driver) -> None:
        """See `JobSource`. Serves the queue until cancelled."""
        self._driver, run = driver, driver.run
        self._known.begin(run.plan)
        self._classes.update(job.spec.job_class for job in run.jobs.values())
        try:
            async with self._serve(self):  # to the last note, so that each client hears of the end that it waits for
                try:
                    await self._note()
                finally:
                    await asyncio.shield(self._go_down())
        finally:
            await asyncio.shield(self._note_ends())

    async def _note(self) -> None:
        """Note ends, and remove old data, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(remove_daily(self.run, self.store, self.clock, self._keep_s, self._submitting))
            while True:
                await asyncio.sleep(_NOTE_S)
                await self._try_to_note()

    async def _try_to_note(self) -> None:
        """Note ends. If the store cannot be written, say so and go on: the log has the ends, and clients hear of them.

        Another process may lock the store, a backup, say, or its disk is full.
        """
        try:
            await self._note_ends()
        except UnfitEnvironment as error:
            self.run.warnings[_STORE] = f"{error}: ends are kept in the log of the run, and it is tried again"
            await self._wake()
        else:
            self.run.warnings.pop(_STORE, None)

    async def _go_down(self) -> None:
        await self._try_to_note()  # once more when no client is left
        self.is_down = True
        await self._wake()

    def look(self, event: Event, commands: Sequence[Command], core: Scheduler) -> None:
        if (asked := self._handled.pop(id(event), None)) is not None and not asked.done():
            asked.set_result(None)
        match event:
            case RunOpened() if event.segment is not None:
                self._segments += 1
                self._known.begin(event)
                self._classes = {job.spec.job_class for job in self.run.jobs.values()}
                self._priorities = {name: each for name, each in self._priorities.items() if name in self.run.jobs}
            case SweepOpened():
                self._open_sweeps.add(event.sweep.name)
            case JobArrived() if (priority := self._priorities.pop(event.job.name, None)) is not None:
                self.run.tell(partial(PriorityChanged, job=event.job.name, priority=priority))
            case DrainRequested():
                self.ending = self.ending or "drain"
        if core.stopping:
            self.ending = "stop"
        ends_now = isinstance(event, DrainRequested | StopRequested | DeviceFailed)
        self._is_news |= ends_now or any(job.resumable for job in core.ended)
        jobs, sweeps = list(self._jobs_ended(event, core)), list(self._sweeps_ended(event, core))
        self._ends += [*jobs, *sweeps]
        self.totals.look(event, commands, core)
        self.totals.ended([("job", end.state) for end in jobs] + [("sweep", end.state) for end in sweeps])

    def _jobs_ended(self, event: Event, core: Scheduler) -> Iterator[JobEnd]:
        """Final ends of jobs with this event. A job that the end of the queue stops goes on in another session."""
        if isinstance(event, CancelRequested) and event.job in self.run.arrivals.never:
            yield JobEnd(event.job, JobState.CANCELLED.value, self.unix_s(event.at_s), reason=event.reason)
        for job in core.ended:
            if job.spec.sweep or job.resumable:
                continue
            done = job.state in (JobState.COMPLETED, JobState.PRUNED)
            reason = event.reason if isinstance(event, CancelRequested) else job.history[-1].cause
            code = event.exit_code if isinstance(event, JobExited) and event.job == job.spec.name else None
            yield JobEnd(
                job.spec.name,
                job.state.value,
                self.unix_s(event.at_s),
                None if job.first_start_s is None else self.unix_s(job.first_start_s),
                code,
                "" if done else reason,
                job.attempt,
            )

    def _sweeps_ended(self, event: Event, core: Scheduler) -> Iterator[JobEnd]:
        # A sweep that draws no more trials because the queue goes down has not ended.
        is_over = self._has_all_ends if core.stopping or core.draining else core.is_sweep_over
        over = [name for name in self._open_sweeps if is_over(name)]
        self._open_sweeps.difference_update(over)
        for name in over:
            state = self.run.sweeping.final_state(name)
            reason = {JobState.CANCELLED: BY_USER, JobState.FAILED: "no trial completed"}.get(state, "")
            yield JobEnd(name, state.value, self.unix_s(event.at_s), reason=reason)

    def _has_all_ends(self, sweep: str) -> bool:
        """Whether all trials of a sweep have ended, so that none is left for another session."""
        return self.run.sweeping.ended_in[sweep].total() >= self.run.arrivals.sweeps[sweep].options.count

    def _starts(self) -> dict[str, float]:
        """Times (s since 1970) of the starts of jobs with a place that the store lacks, by name.

        The end of a job has its start, too. But the core of a later session knows the starts of that session alone.
        """
        placed = {name: job for lane in self.run.core.lanes.values() for name, job in lane.jobs.items()}
        self._noted_starts.intersection_update(placed)
        new = [job for name, job in placed.items() if name not in self._noted_starts]
        return {job.spec.name: self.unix_s(job.first_start_s) for job in new if job.first_start_s is not None}

    async def _note_ends(self) -> None:
        started, is_news = self._starts(), self._is_news
        if not (self._ends or started or is_news):
            return
        ends = list(self._ends)
        if ends or started:
            await asyncio.to_thread(self.store.end, ends, started)
        self._noted_starts.update(started)
        del self._ends[: len(ends)]  # only now, so that each end is always found in one of the two
        self._is_news = False
        self.run.tell(lambda at_s: None)  # the run may have waited for this to begin a segment of its log
        await self._wake()

    async def _wake(self) -> None:
        """Let clients that wait look again."""
        async with self._changed:
            self._notes += 1
            self._changed.notify_all()

    # Methods for clients

    @property
    def driver(self) -> Driver:
        """Driver of the run, which must have begun."""
        assert self._driver is not None, "the queue is served from the beginning of its run"
        return self._driver

    @property
    def run(self) -> Run:
        """The run, which must have begun."""
        return self.driver.run

    @property
    def open_sweeps(self) -> int:
        """Number of sweeps that have begun and not ended."""
        return len(self._open_sweeps)

    async def submit(self, submission: Submission) -> Acknowledged:
        """Add the jobs of a submission; they are on the disk when this returns.

        Raises:
            InvalidJobFile: The job file has mistakes.
            UsageError: The queue takes no more jobs, or the jobs contradict its options.
            UnfitEnvironment: The machine cannot run the jobs, or the disk is full.
        """
        async with self._submitting:  # one at a time: each sees the names of those before
            if before := await asyncio.to_thread(self.store.of_submission, submission.id):
                return Acknowledged(jobs=[row.name for row in before])
            self._check_open()
            loaded, plan = await asyncio.to_thread(self._planned, submission)
            rows = [(job.name, loaded.given[job.name], job.sweep is not None) for job in loaded.jobs]
            run = self.run.folder.path.name
            await self._add(plan, lambda: self.store.add(submission, rows, run, self.clock.unix_s()))
            held = frozenset(job.name for job in loaded.jobs) if submission.held else frozenset[str]()
            self.run.submit(replace(plan, ended=self._ended(plan.awaited), held=held))
        notes = [*plan.notes, *([ON_END_NOTE] if loaded.on_end else [])]
        return Acknowledged(jobs=[job.name for job in loaded.jobs], notes=notes)

    def _check_open(self) -> None:
        self._check_free_of(DISK)
        if self.ending:
            raise UsageError(
                f"the queue {self.name!r} is coming to its end, and takes no more jobs",
                f"`ecoshare up --resume{QueueFolder.of(self.name).option}` opens it again",
            )

    def _check_free_of(self, subject: str) -> None:
        if (trouble := self.run.warnings.get(subject)) is not None:
            raise UnfitEnvironment(trouble)

    async def _add(self, plan: Plan, keep: Callable[[], None]) -> None:
        """Add jobs to the run, and write them to the disk: into the run folder first, and then into the store.

        Raises:
            EcoshareError: Either cannot be done. Then neither is.
        """
        self.run.arrivals.add(plan)
        try:
            await asyncio.to_thread(self._keep, plan)
            await asyncio.to_thread(keep)
        except EcoshareError:
            self.run.arrivals.forget(plan)
            raise
        self._known.add(plan)  # and not before: later jobs would lack what a failed submission has
        self._classes.update(job.spec.job_class for job in plan.everything)

    def _ended(self, names: Collection[str]) -> dict[str, str]:
        """Final states of those of the named jobs and sweeps that have ended."""
        unnoted = {each.name: each.state for each in self._ends if each.name in names}
        return {**self.store.states(names), **unnoted}

    def _planned(self, submission: Submission) -> tuple[LoadedJobs, Plan]:
        """Jobs of a submission that is new, with the names that they get, and their plan."""
        names = self.store.names()
        loaded = loaded_jobs(submission, names)
        given = free_names([job.name for job in loaded.jobs], names, self.store.sweeps())
        loaded = renamed(loaded, given)
        awaited = {name for job in loaded.jobs for name in job.after}
        check_startable(loaded, self._ended(awaited), self.store.sweeps())
        plan = self._planner(loaded, self._classes)
        plan = with_environment(plan, dict.fromkeys(given.values(), inherited(submission)))
        return loaded, self._known.new_of(plan)

    def _keep(self, plan: Plan) -> None:
        """Write jobs into the run folder."""
        folder = self.run.folder
        write_arrivals(plan.jobs, folder)
        kept = ProfileStore(folder.profiles)
        for profile in plan.known.values():
            kept.save(profile)
        run_documents.append(folder.submitted, plan.described())

    async def retry(self, names: Sequence[str]) -> JobsChanged:
        """Run jobs again that have failed or were cancelled, with those that were cancelled because of them.

        Raises:
            UsageError: None of them can run again, or the queue takes no more jobs.
            UnfitEnvironment: The machine cannot run the jobs, or the disk is full.
        """
        async with self._submitting:
            self._check_open()
            await self._settle()
            self._check_free_of(_STORE)  # an old end that is written later would end the new attempt
            rows, refused = await self._rows(names, self._why_not_again)
            plan, again, still, left_out = await asyncio.to_thread(self._planned_again, rows)
            refused |= left_out
            if again:
                run = self.run.folder.path.name
                await self._add(plan, lambda: self.store.retry(again, still, run, self.clock.unix_s()))
                for name in again:
                    await self._happens(partial(RetryRequested, job=name))
                self.run.submit(replace(plan, ended=self._ended(plan.awaited)))
        return _done(list(again), refused)

    async def _settle(self) -> None:
        """Wait until the store has all ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_WITHIN_S), self._changed:
                await self._changed.wait_for(lambda: not self._ends)

    def _why_not_again(self, row: JobRow) -> str:
        """Reason why a job cannot run again; empty if it can."""
        if row.state is None:
            return f"{row.name} has not ended"
        if JobState(row.state) not in (JobState.FAILED, JobState.CANCELLED):
            return f"{row.name} has completed: submit it again"
        if row.is_sweep and any(self.run.folder.path.with_name(row.run).glob(f"jobs/{row.name}.*")):
            return f"{row.name} is a sweep that has begun: submit it again"
        return ""

    def _planned_again(self, asked: Sequence[JobRow]) -> tuple[Plan, dict[str, int], dict[str, str], dict[str, str]]:
        """Jobs that run again, with their dependents.

        Returns:
            Their plan, the number of the attempts that each has had in the run, why each other dependent stays
            cancelled, and why each other job that was asked for cannot run again.
        """
        rows = {row.name: row for row in (*asked, *self.store.behind(row.name for row in asked))}
        others, refused, still = self.store.names(), dict[str, str](), dict[str, str]()
        jobs: dict[str, JobConfig] = {}
        environments: dict[str, Environment] = {}
        for own in by_submission(list(rows.values())):
            try:
                loaded, environment = loaded_again(self.store, own, others)
            except EcoshareError as error:
                refused |= {row.name: f"{row.name} cannot run again: {str(error).splitlines()[0]}" for row in own}
                continue
            jobs |= {job.name: job for job in loaded.jobs}
            environments |= dict.fromkeys((row.name for row in own), environment)
        ended = self._ended({name for job in jobs.values() for name in job.after})
        while True:
            over = {name: state for name, state in ended.items() if name not in jobs}
            lacking = {name: short for name, job in jobs.items() if (short := missing(job, over))}
            if not lacking:
                break
            for name, short in lacking.items():
                del jobs[name]
                why = f"{name} waits for {short}, which {in_words(over[short])}: `ecoshare retry {short}` runs both"
                refused[name], still[name] = why, never_arrives(short, over[short])
        own = sorted((rows[name] for name in jobs), key=lambda row: row.number)
        attempts = {row.name: _attempts(row, self.run.folder) for row in own}
        plan = planned_again(self.name, list(jobs.values()), environments, attempts, self._planner, self._classes)
        wanted = {row.name for row in asked}
        left_out = {name: why for name, why in refused.items() if name in wanted}
        return self._known.new_of(plan), attempts, still, left_out

    async def _rows(
        self, names: Sequence[str], why_not: Callable[[JobRow], str]
    ) -> tuple[list[JobRow], dict[str, str]]:
        """Rows of those of the named jobs for which something can be done, and why it cannot for the others.

        Args:
            names: Names of the jobs.
            why_not: Returns the reason why it cannot be done for a job; empty if it can.
        """
        rows, refused = list[JobRow](), dict[str, str]()
        for name in dict.fromkeys(names):
            try:
                row = await self.row(name)
                why = why_not(row)
            except UsageError as error:
                why = f"{error}; {error.hint}" if error.hint else str(error)
            if why:
                refused[name] = why
            else:
                rows.append(row)
        return rows, refused

    async def cancel(self, names: Sequence[str], at_once: bool) -> JobsChanged:
        """Cancel jobs and sweeps; their ends are on the way, and in the log, when this returns.

        Raises:
            UsageError: None of them can be cancelled: there is no such job, or it has ended.
        """

        def why_not(row: JobRow) -> str:
            state = self.state(row)
            return f"{row.name} has ended already: it {in_words(state.value)}" if state.ended else ""

        rows, refused = await self._rows(names, why_not)
        await asyncio.gather(*(self._happens(partial(self._cancels, row.name, at_once)) for row in rows))
        return _done([row.name for row in rows], refused)

    async def cancel_all(self, at_once: bool) -> JobsChanged:
        """Cancel all jobs and sweeps that have not ended; see `cancel`."""
        left = [row.name for row in await asyncio.to_thread(self.store.left) if not self.state(row).ended]
        return await self.cancel(left, at_once)

    def _cancels(self, name: str, at_once: bool, at_s: float) -> Event | None:
        job = self.run.core.jobs.get(name)
        has_ended = job.state.ended and not job.resumable if job is not None else not self._is_here(name)
        return None if has_ended else CancelRequested(at_s, name, BY_USER, at_once)

    def _is_here(self, name: str) -> bool:
        """Whether the run knows a job or sweep that was not cancelled before its arrival.

        The run forgets jobs and sweeps some time after their ends.
        """
        arrivals = self.run.arrivals
        return (name in self.run.jobs or name in arrivals.sweeps) and name not in arrivals.never

    def _asks(self, make: Callable[..., Event], name: str, at_s: float) -> Event | None:
        return make(at_s=at_s, job=name) if name in self.run.core.jobs else None

    async def hold(self, name: str) -> None:
        """Keep a job that waits from starting.

        Raises:
            UsageError: There is no such job, or it does not wait.
        """
        async with self._holding:  # the store has what was asked for last
            row = await self.row(name)
            gate, before = self.run.arrivals.gate, self.state(row)
            if name in gate:
                gate.hold(name)
            elif row.is_sweep:
                raise UsageError(f"{name} is a sweep that has begun, and cannot be held")
            elif before is not JobState.HELD and (before.ended or not self.is_put_off(name)):
                await self._happens(partial(self._asks, HoldRequested, name))
                if (state := self.state(row)) is not JobState.HELD:
                    raise UsageError(f"{name} is {state.value}: only a job that waits for a place can be held")
            await asyncio.to_thread(self.store.hold, name, True)

    async def release(self, name: str) -> None:
        """Let a held job start again.

        Raises:
            UsageError: There is no such job, or it is not held.
        """
        async with self._holding:
            row = await self.row(name)
            arrivals = self.run.arrivals
            if arrivals.gate.is_held(name):
                arrivals.release(name)
            elif self.state(row) is JobState.HELD:
                await self._happens(partial(self._asks, ReleaseRequested, name))
            else:
                raise UsageError(f"{name} is not held")
            await asyncio.to_thread(self.store.hold, name, False)

    async def prioritise(self, name: str, priority: int) -> None:
        """Give a job another priority.

        Raises:
            UsageError: There is no such job, it has ended, or it is a sweep.
        """
        row = await self.row(name)
        if row.is_sweep:
            raise UsageError(f"{name} is a sweep: its trials have the priority of the job file")
        if self.state(row).ended:
            raise UsageError(f"{name} has ended already")
        await asyncio.to_thread(self.store.prioritise, name, priority)
        if name in self.run.core.jobs:
            await self._happens(partial(self._asks, partial(PriorityChanged, priority=priority), name))
        else:
            self._priorities[name] = priority

    def end(self, how: str) -> None:
        """Bring the queue to its end: `drain`, `stop` or `now`. The second `stop` is the first."""
        if how == "drain":
            self.run.tell(DrainRequested)
            return
        if self.ending != "stop":
            self.ending = "stop"
            self.driver.ask_to_stop()
        if how == "now":
            self.driver.ask_to_stop()

    async def row(self, name: str) -> JobRow:
        """Job or sweep of the queue.

        Raises:
            UsageError: There is none of this name.
        """
        row = await asyncio.to_thread(self.store.find, name)
        if row is None:
            names = self.store.names()
            if sweep_of(name) in names:
                raise UsageError(f"{name} is a trial: give the name of its sweep, {sweep_of(name)}")
            hint = await asyncio.to_thread(did_you_mean, name, names)
            raise UsageError(f"the queue {self.name!r} has no job {name!r}", hint)
        return self.noted(row)

    def noted(self, row: JobRow) -> JobRow:
        """Row of a job or sweep with its end, also while the store cannot be written."""
        if row.state is not None or _STORE not in self.run.warnings:
            return row
        end = next((asdict(each) for each in self._ends if each.name == row.name), {})
        return replace(row, **{**end, "started_unix_s": row.started_unix_s or end.get("started_unix_s")})

    async def output_of(self, name: str) -> tuple[Path, Callable[[], bool]]:
        """Folder of a job or trial that has its output, and a function that tells whether it has ended.

        Raises:
            UsageError: There is no such job, or it is a sweep.
        """
        trial_of = sweep_of(name)
        is_trial = trial_of and trial_of in await asyncio.to_thread(self.store.sweeps)
        row = await self.row(trial_of if is_trial else name)
        if row.is_sweep and not is_trial:
            raise UsageError(f"{name} is a sweep: give the name of a trial, such as {trial_name(name, 0, 1)}")

        known, segments = row, self._segments

        def is_over() -> bool:
            nonlocal known, segments
            if (job := self.run.core.jobs.get(name)) is not None:
                return job.state.ended
            if segments != self._segments:  # the run may have forgotten the job
                known, segments = self.store.find(row.name) or row, self._segments
            return known.state is not None or self.is_put_off(name)

        return self.run.folder.path.with_name(row.run) / "jobs" / name, is_over

    def state(self, row: JobRow) -> JobState:
        """Present state of a job or sweep."""
        if row.state is not None:
            return JobState(row.state)
        if (job := self.run.core.jobs.get(row.name)) is not None:
            return job.state if not job.resumable else JobState.HELD if row.held else JobState.QUEUED
        end = next((each for each in self._ends if each.name == row.name), None)
        if end is not None:
            return JobState(end.state)
        if row.is_sweep and row.name in self._open_sweeps:
            return JobState.RUNNING
        return JobState.HELD if self.run.arrivals.gate.is_held(row.name) else JobState.QUEUED

    def is_put_off(self, name: str) -> bool:
        """Whether a job or sweep that has not ended does not end in this session any more."""
        if self.is_down or not self.ending:
            return self.is_down
        job = self.run.core.jobs.get(name)
        return job.resumable if job is not None else name not in self._open_sweeps

    def unix_s(self, at_s: float) -> float:
        """Time (s since 1970) of a time (s) of the run."""
        return self.clock.unix_s() - self.run.now_s() + at_s

    async def wait(self, name: str, within_s: float) -> None:
        """Wait until the store has the end of a job or sweep, if it can be written, or until the time is over.

        Raises:
            UsageError: There is no such job.
            QueueDown: The job does not end in this session any more.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    seen = self._notes  # before the look: an end that is noted during it counts
                    is_put_off = self.is_put_off(name)  # before that look, too: the store has all ends by then
                    if (await self.row(name)).state is not None:
                        return
                    if is_put_off:
                        raise QueueDown(f"the queue {self.name!r} is going down, and {name} waits for another session")
                    async with self._changed:
                        while self._notes == seen:
                            await self._changed.wait()

    async def _happens(self, make: Callable[..., Event | None]) -> None:
        """Let an event happen, and return when the core has handled it and the log has it.

        Raises:
            UnfitEnvironment: The log cannot have it, since the disk is full.
        """
        self._check_free_of(DISK)
        happened = asyncio.get_running_loop().create_future()

        def made(at_s: float) -> Event | None:
            event = make(at_s=at_s)
            if event is None:
                happened.set_result(None)
            else:
                self._handled[id(event)] = happened
            return event

        self.run.tell(made)
        await happened


def _done(names: list[str], refused: dict[str, str]) -> JobsChanged:
    """What came of a request about several jobs.

    Raises:
        UsageError: Nothing did.
    """
    if refused and not names:
        raise UsageError("\n".join(refused.values()))
    return JobsChanged(jobs=names, refused=refused)


def _attempts(row: JobRow, folder: RunFolder) -> int:
    """Number of the attempts of a job in a run. A session that was killed has not noted it in the store."""
    if row.run != folder.path.name:
        return 0
    return max([row.attempts, *(each.attempt for each in read_records(folder.job(row.name)))])
