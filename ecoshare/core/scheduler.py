"""The scheduler: `handle(event) -> list[Command]`.

::

    events                         Scheduler                           commands
    RunOpened             ──►   lanes of every device           ──►   OpenLane
    JobArrived            ──►   queue, ordered by the policy    ──►   StartJob, KillJob (preemption)
    Done, Refused         ──►   resources taken or freed        ──►   StartJob
    JobExited             ──►   end, or another attempt         ──►   StartJob, SetShares
    Parked, Resumed       ──►   places taken or freed           ──►   StartJob, ResumeJob
    IterationsDone        ──►   ranks inside the lane           ──►   SetShares, ProfileJob
    InterferencePredicted ──►   groups of co-located jobs       ──►   StartJob, MoveJob, SetShares
    Planned               ──►   jobs of the round               ──►   StartJob, KillJob
    Reported, ...         ──►   early stopping of trials        ──►   KillJob, DropJob, AskSampler
    (time)                ──►   levels and rounds               ──►   WakeAt, AskPlanner, KillJob (preemption)
    Profiled              ──►   memory demand of the class      ──►   StartJob, AskInterference
    SettingAdvised, ...   ──►   settings of the packings        ──►   ApplySetting, MeasureSetting, AskSetting
    StopRequested         ──►   end of all jobs                 ──►   KillJob
    CancelRequested, ...  ──►   one job: its end, its place     ──►   KillJob, DropJob
    DrainRequested        ──►   end of the jobs that wait
    WorkOver              ──►   end of open-ended services      ──►   KillJob
    TargetMissed          ──►   neighbours of the service       ──►   MoveJob, ParkJob, KillJob
    PhaseBegan            ──►   settings of the packing         ──►   ApplySetting, AskSetting
    DeviceFailed          ──►   lanes of the device close       ──►   KillJob, StartJob elsewhere
    SliceChanged          ──►   nothing is measured or set while other runs share the devices
    MemoryLeft            ──►   jobs start within the memory that other runs leave

The scheduler is deterministic: equal events give equal commands, so the log of a run replays to the same decisions. No
event costs a scan of all jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from ecoshare.base.attempt import Outcome
from ecoshare.base.segment import Segment
from ecoshare.core.commands import Command, DropJob, KillJob
from ecoshare.core.events import (
    CancelRequested,
    ClassesKnown,
    DeviceFailed,
    Done,
    DrainRequested,
    Event,
    Exhausted,
    HoldRequested,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    JobExited,
    MemoryLeft,
    Parked,
    PhaseBegan,
    Planned,
    PriorityChanged,
    Profiled,
    Refused,
    ReleaseRequested,
    Reported,
    Resumed,
    RetryRequested,
    RunOpened,
    SettingAnswer,
    SliceChanged,
    StopRequested,
    SweepOpened,
    TargetMissed,
    WorkOver,
)
from ecoshare.core.job_ends import DeviceFailures, JobEnds, OpenServices, Stops
from ecoshare.core.moves import Parking
from ecoshare.core.placement.allocator_rules import AllocatorRules
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.steps import GiveWay, Park, RankLanes, ReviewSettings, Start, Step
from ecoshare.core.placement.strategies.strategy_choice import placement_strategy
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.places import LaneOpening, LaneRanks, Places
from ecoshare.core.records import Job, JobState, Lane, LaneState
from ecoshare.core.run_state import CommandIds, RunState
from ecoshare.core.segments import Segments
from ecoshare.core.settings.power_budget import PowerBudget
from ecoshare.core.settings.profiling_windows import Profiling
from ecoshare.core.settings.setting_review import SettingReview, WindowChoice
from ecoshare.core.settings.setting_selection import SettingSelector
from ecoshare.core.sweeps import Sweeps
from ecoshare.core.user_requests import UserRequests


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """Parts of a scheduler after its run was opened.

    Attributes:
        placement: Placement strategy, with the queue.
        lane_index: Index of the lanes.
        fit: Memory fit of jobs and lanes.
        profiling: Profiling windows.
        settings: Selection of settings; in a run with a power budget, the budget.
        opening: Whether a lane is still being opened.
    """

    placement: PlacementStrategy
    lane_index: LaneIndex
    fit: MemoryFit
    profiling: Profiling
    settings: SettingSelector | PowerBudget
    opening: bool


class Scheduler:
    """Decides which jobs run, in which lanes, and which job goes first in each lane.

    Attributes:
        jobs: All jobs that have arrived, by name.
        lanes: All lanes, by number.
    """

    def __init__(self) -> None:
        """Scheduler without a run. The first event must be `RunOpened`."""
        self._state = RunState()
        self.jobs, self.lanes = self._state.jobs, dict[int, Lane]()
        self._opening, self._starting = self._state.opening, self._state.starting
        self._begin_anew(0)

    def _begin_anew(self, commands: int) -> None:
        """Forget everything, as a new scheduler. Ids of commands go on from this one."""
        self._state.clear()
        self._next_id = CommandIds(commands)
        self._arrivals = count()
        self._sweeps = Sweeps(self._next_id)

    @property
    def stopping(self) -> bool:
        """Whether a `StopRequested` event has come."""
        return self._state.stopping

    @property
    def draining(self) -> bool:
        """Whether a `DrainRequested` event has come."""
        return self._state.draining

    @property
    def live_jobs(self) -> int:
        """Number of jobs that have arrived and not ended."""
        return self._state.live

    @property
    def open_sweeps(self) -> int:
        """Number of sweeps that will draw more trials."""
        return 0 if self.stopping else self._sweeps.open

    @property
    def only_services_left(self) -> bool:
        """Whether the jobs and sweeps that are left are open-ended services alone. Then `WorkOver` may follow."""
        return self._state.only_services and not self.open_sweeps

    @property
    def watches_neighbours(self) -> bool:
        """Whether progress must be told even of a job that has its lane, but not its device, to itself."""
        return self._placement.watches_neighbours

    @property
    def view(self) -> SchedulerView:
        """Parts of the scheduler, for `core/reasons.py`, which changes nothing. A run must have been opened."""
        return SchedulerView(
            placement=self._placement,
            lane_index=self._lane_index,
            fit=self._fit,
            profiling=self._profiling,
            settings=self._settings,
            opening=bool(self._opening),
        )

    @property
    def ended(self) -> list[Job]:
        """Jobs that have ended with the last event, in the order of their ends."""
        return self._ends.ended

    @property
    def sweeps(self) -> list[str]:
        """Names of the sweeps that have trials, or more of them to come."""
        return self._sweeps.names

    def is_sweep_over(self, name: str) -> bool:
        """Whether a sweep that was opened has no trial any more, and none is to come."""
        return self._sweeps.is_over(name)

    def handle(self, event: Event) -> list[Command]:
        """Commands that follow from the next event, in the order in which the driver must carry them out.

        Raises:
            IllegalMove: The event cannot follow the earlier events; the driver or the core has a defect.
        """
        if isinstance(event, RunOpened):
            self._begin_anew(event.segment.commands if event.segment is not None else 0)
        else:
            self._ends.ended = []
            self._segments.unanswered.heard(event)
        commands = self._follow(event)
        if not self._state.stopping:
            commands += self._decided(event.at_s)
            commands += self._sweeps.draw()
        commands = self._memory.with_limits(commands)
        commands += self._memory.shares(self._placement.waiting)
        self._segments.unanswered.gave(commands)
        return commands

    @property
    def segment(self) -> Segment | None:
        """Facts that another segment of the log would take over now; None if something is under way that it cannot."""
        return self._segments.present(self._next_id.last)

    def known(self, classes: Collection[str]) -> dict[str, Any]:
        """Fields of a `RunOpened` that continues the log, with what is known of packings of these classes."""
        return self._segments.known(classes)

    def _follow(self, event: Event) -> list[Command]:
        if isinstance(event, RunOpened):
            return self._open(event)
        if self._failures.ignores(event):
            return []
        match event:
            case JobArrived():
                return self._arrive(event)
            case ClassesKnown():
                self._placement.knows(event)
                self._settings.knows(event)
                return []
            case SweepOpened():
                self._sweeps.opened(event)
                return []
            case Exhausted():
                self._sweeps.exhausted(event)
                return self._carry_out(self._placement.exhausted(event.at_s), event.at_s)
            case Reported():
                return self._reported(event)
            case Done():
                return self._done(event)
            case Refused():
                return self._refused(event)
            case IterationsDone():
                return self._progressed(event)
            case JobExited():
                return self._exited(event)
            case Parked():
                return self._parked(event)
            case Resumed():
                job = self._parking.resumed(event)
                return [] if job is None else self._carry_out(self._placement.started(job, event.at_s), event.at_s)
            case Profiled():
                return self._profiled(event)
            case Planned() | InterferencePredicted():
                return self._carry_out(self._placement.answered(event), event.at_s)
            case StopRequested():
                return self._stop(event)
            case DrainRequested():
                self._requests.drain(event.at_s)
                return self._fill(event.at_s)
            case CancelRequested() | HoldRequested() | ReleaseRequested() | PriorityChanged() | RetryRequested():
                return [*self._requests.follow(event), *self._fill(event.at_s)]
            case WorkOver():
                return [*self._services.over(event.at_s)]
            case TargetMissed():
                if self._profiling.others:  # the jobs and the setting here are not at fault
                    return []
                back = self._review.missed(job := self.jobs[event.job])
                return [*self._carry_out(self._placement.missed(job), event.at_s)] if back is None else back
            case PhaseBegan():
                job = self.jobs[event.job]
                job.phase = event.phase
                return self._look_at_settings(job.device_names) if job.lanes else []
            case DeviceFailed():
                return self._device_failed(event)
            case SliceChanged():
                is_alone, self._profiling.others = not self._profiling.others, event.others
                return self._look_at_settings() if is_alone is bool(event.others) else []
            case MemoryLeft():
                self._memory.leave(event)
                return self._fill(event.at_s)
            case _:
                return self._settings_answered(event)

    def _open(self, event: RunOpened) -> list[Command]:
        self._config = event.config
        # A window under a power limit would tell nothing about the class.
        self._profiling = Profiling(
            event.config.profile and not event.config.sets_limits, any(each.threads for each in event.devices)
        )
        self._placement = placement_strategy(
            event, self._state, self._profiling, self._next_id, self._is_held, lambda: self._sweeps.coming
        )
        self._lane_index, self._fit = self._placement.lane_index, self._placement.fit
        self.lanes = self._lane_index.lanes
        self._ranks = LaneRanks(self._placement.policy, self._next_id)
        self._memory = AllocatorRules(self._fit, self._lane_index, self.jobs, self._next_id)
        self._parking = Parking(self._placement.host, self._state, self._next_id)
        self._places = Places(self._placement, self._parking, self._memory, self._state, self._next_id)
        self._review = SettingReview(event, self._placement, self._profiling, self._state, self._next_id)
        self._settings = self._review.selector
        self._stops = Stops(self._placement, self._next_id)
        self._failures = DeviceFailures(
            self._placement, self._profiling, self._settings, self._state, self._stops, self._next_id
        )
        self._ends = JobEnds(self._placement, self._sweeps, self._failures, self._state)
        self._services = OpenServices(self._state, self._stops, self._placement, self._ends.end, self._next_id)
        self._requests = UserRequests(
            self._placement, self._sweeps, self._stops, self._ends, self._ranks, self._state, self._next_id
        )
        if event.config.shares_memory:
            self._fit.left = {each.name: 0 for each in event.devices}
        self._windows = WindowChoice(self._profiling, self._placement, self._settings, self._state, self._next_id)
        self._segments = Segments(
            self._placement, self._places, self._memory, self._settings, self._requests, self._sweeps, self._state
        )
        opening = LaneOpening(event, self._placement, self._state, self._next_id).begin()
        if event.segment is None:
            return [*opening, *self._review.begin()]
        return [*opening, *self._go_on(event.segment, event.at_s)]

    def _go_on(self, segment: Segment, at_s: float) -> list[Command]:
        running = self._segments.go_on(segment, partial(next, self._arrivals), at_s)
        commands = [*self._ranks.changed(self.lanes.values()), *self._review.begin()]
        for job in running:
            commands += self._carry_out(self._placement.started(job, at_s), at_s)
        return [*commands, *self._fill(at_s), *self._look_at_settings()]

    def _is_held(self, device: str) -> bool:
        """Whether a window or a measurement is under way on the device. No job may come, go or move meanwhile."""
        return self._profiling.occupies(self._lane_index.devices[device][0]) or self._settings.is_measuring(device)

    def _arrive(self, event: JobArrived) -> list[Command]:
        before = event.job.earlier_attempts
        job = Job(event.job, event.at_s, next(self._arrivals), attempt=before.attempts, failures=before.failures)
        job.whole_device, job.level_s = before.out_of_memory, event.at_s
        self.jobs[event.job.name] = job
        self._state.arrived(event.job)
        self._sweeps.arrived(event)
        job.iterations_until_rung = self._sweeps.iterations_until_rung(job)
        self._placement.arrived(job)
        self._placement.waits(job, event.at_s)
        if self._state.stopping or self._state.draining:
            state, reason = self._failures.end_at_stop()
            self._ends.end(job, state, event.at_s, reason)
        elif self._sweeps.is_cancelled(event.job):
            job.cancelled = True
            self._ends.end(job, JobState.CANCELLED, event.at_s, "its sweep was cancelled")
        elif not self._ends.ends_unplaceable(job, event.at_s):
            return self._fill(event.at_s, newcomer=job)
        return []

    def _done(self, event: Done) -> list[Command]:
        if (lane := self._opening.pop(event.command, None)) is not None:
            lane.move(LaneState.OPEN, event.at_s, "opened")
            self._lane_index.opened(lane)
            return self._fill(event.at_s)
        if (job := self._starting.pop(event.command, None)) is not None:
            return self._started(job, event.at_s)
        self._memory.caches_are_set(event.command)
        if self._memory.owns(event.command):
            self._memory.answered(event.command, is_limited=True)
            return []
        if self._placement.owns(event.command):
            return self._carry_out(self._placement.answered(event), event.at_s)
        return self._settings_answered(event) if self._settings.owns(event.command) else []

    def _started(self, job: Job, at_s: float) -> list[Command]:
        job.command = None
        if job.state is not JobState.STARTING:
            return []
        job.move(JobState.RUNNING, at_s, "started")
        job.told_s = at_s
        return self._carry_out(self._placement.started(job, at_s), at_s)

    def _refused(self, event: Refused) -> list[Command]:
        if (lane := self._opening.pop(event.command, None)) is not None:
            lane.move(LaneState.CLOSED, event.at_s, event.error)
            self._lane_index.closed(lane)
            for job in [job for job in self._placement.waiting if self._fit.never(job)]:
                self._ends.end(job, JobState.FAILED, event.at_s, event.error)
            return self._fill(event.at_s)
        if self._settings.owns(event.command):
            return self._settings_answered(event)
        if self._memory.owns(event.command):
            job = self._memory.answered(event.command, is_limited=False)
            return self._carry_out(self._placement.outgrown(job), event.at_s)
        if self._placement.owns(event.command):
            return self._carry_out(self._placement.answered(event), event.at_s)
        if event.command in self._state.parking:
            job = self._parking.refused(event.command, event.at_s, event.error)
            if job.state is JobState.RUNNING:  # it runs on
                self._placement.runs(job, event.at_s)
            return self._fill(event.at_s)
        job = self._starting.pop(event.command)
        job.command = None
        self._places.leave(job)
        # A start usually fails for a lasting reason, such as a missing interpreter. It counts as a failure, so that
        # `retries` of the job decides about another attempt.
        job.failures += job.state is not JobState.STOPPING
        if job.state is JobState.STOPPING and not job.again:
            self._ends.end(job, JobState.CANCELLED, event.at_s, event.error)
        elif job.failures > job.spec.retries:
            self._ends.end(job, JobState.FAILED, event.at_s, event.error)
        else:
            self._ends.requeue(job, event.at_s, event.error)
        return self._fill(event.at_s)

    def _parked(self, event: Parked) -> list[Command]:
        """A job has given up its place with its process alive: it waits for a place again."""
        job = self._parking.parked(event)
        if job is None:
            return []
        devices = job.device_names
        self._places.leave(job)
        job.lanes = ()
        self._placement.waits(job, event.at_s)
        return self._fill(event.at_s) + self._look_at_settings(devices)

    def _profiled(self, event: Profiled) -> list[Command]:
        devices = self._profiling.devices_of(event.command)
        job_class = self._profiling.ended(event)
        # The next window follows at once, since others wait already, and what it shows may change the group.
        commands = self._windows.open_on(devices, event.at_s)
        commands += self._carry_out(self._placement.profiled(job_class, event), event.at_s)
        return [*commands, *self._look_at_settings()]

    def _progressed(self, event: IterationsDone) -> list[Command]:
        job = self.jobs[event.job]
        self._placement.stops(job)  # news of a job may change its place in the order
        if not job.usage.done:
            self._memory.look(job.lanes)  # from its first boundary on its limit may be changed
        job.tell(event.usage, event.at_s)
        if job.state is JobState.RUNNING:
            self._placement.runs(job, event.at_s)
        commands = self._ranks.changed(job.lanes)
        granted_bytes = job.demand.peak_bytes
        if self._fit.grew(job):
            commands += self._carry_out(self._placement.outgrown(job), event.at_s)
        if job.demand.peak_bytes < granted_bytes or self._services.kept_out:
            # It was granted a guess, and other jobs may wait for the rest; or its iterations have become shorter.
            commands += self._fill(event.at_s)
        at_default = all(self._settings.at_default(lane) for lane in job.lanes)
        commands += self._carry_out(self._placement.progressed(job, at_default, event.at_s), event.at_s)
        return commands + (self._windows.open_for(job, event.at_s) or self._look_at_settings(job.device_names))

    def _reported(self, event: Reported) -> list[Command]:
        """A trial has reported a value: it goes on, ends early, or pauses at a rung."""
        job = self.jobs[event.job]
        reason = self._sweeps.reported(job, event)
        job.iterations_until_rung = self._sweeps.iterations_until_rung(job)
        if not reason or job.state is not JobState.RUNNING:
            return []
        self._placement.stops(job)
        job.move(JobState.STOPPING, event.at_s, reason)
        pruned = not self._sweeps.pauses(job)
        return [KillJob(self._next_id(), job.spec.name, job.attempt, False, reason, pruned)]

    def _decided(self, at_s: float) -> list[Command]:
        """Resume or end the paused trials of each rung that is complete."""
        decided = self._sweeps.decided()
        commands: list[Command] = []
        for name, reason in decided.items():
            job = self.jobs[name]
            if reason:
                self._ends.end(job, JobState.PRUNED, at_s, reason)
                commands.append(DropJob(self._next_id(), name, reason, pruned=True))
            else:
                job.move(JobState.QUEUED, at_s, "is among the best of its rung")
                self._placement.resumes(job, at_s)
                self._ends.ends_unplaceable(job, at_s)
        return [*commands, *self._fill(at_s), *self._decided(at_s)] if decided else []

    def _exited(self, event: JobExited) -> list[Command]:
        job = self.jobs[event.job]
        self._placement.stops(job)
        job.tell(event.usage, event.at_s)
        devices = job.device_names
        if event.outcome is Outcome.COMPLETED:
            self._fit.took(job, event.usage.peak_bytes)
            self._placement.completed(job)
        if job.state is JobState.PARKED:
            self._placement.waiting.remove(job)
            job.move(JobState.STOPPING, event.at_s, "it ended while it was parked")
        self._parking.ended(job)
        if job.command is not None:  # the answer to a start was lost with the supervisor
            self._starting.pop(job.command, None)
            job.command = None
        self._places.leave(job)
        outcome = self._ends.attempt_over(job, event)
        suspects: list[Command] = []
        if outcome is Outcome.CRASHED and self._config.shared_context:
            suspects = self._stops.neighbours(job, event)
        return suspects + self._fill(event.at_s) + self._look_at_settings(devices)

    def _device_failed(self, event: DeviceFailed) -> list[Command]:
        """Jobs of a failed device begin again elsewhere. Jobs for which too few devices are left end."""
        commands: list[Command] = [*self._failures.failed(event, self._sweeps.pauses)]
        self._segments.unanswered.drop(event.device, self._state.dropped)
        self._ends.end_unplaceable(event.at_s)
        if self._failures.over:
            for job in [*(self.jobs[name] for name in self._sweeps.paused), *self._state.held.values()]:
                self._ends.end(job, JobState.CANCELLED, event.at_s, self._failures.over)
        return commands + self._fill(event.at_s) + self._look_at_settings()

    def _stop(self, event: StopRequested) -> list[Command]:
        self._state.stopping = True
        aside = [*(self.jobs[name] for name in self._sweeps.paused), *self._state.held.values()]
        reason, at_once = "the run was stopped", event.at_once
        return [*self._stops.all_jobs(event.at_s, reason, JobState.CANCELLED, self._ends.end, at_once, aside)]

    def _fill(self, at_s: float, newcomer: Job | None = None) -> list[Command]:
        """Use the free places; see `PlacementStrategy.fill`."""
        commands = self._carry_out(self._placement.fill(at_s, newcomer), at_s)
        return [*commands, *self._services.refuse(at_s)]

    def _carry_out(self, steps: Iterable[Step], at_s: float) -> list[Command]:
        """Commands of the steps of the placement strategy. Each step is done before the next is asked for."""
        commands: list[Command] = []
        for step in steps:
            match step:
                case Start(job, lanes):
                    commands.append(self._places.take(job, lanes, at_s))
                case GiveWay(jobs, to, reason):
                    why = f"gives way to {to.spec.name}" if to is not None else reason or "its round is over"
                    commands += [self._stops.for_now(job, at_s, why, at_once=False) for job in jobs]
                case Park(job, to, reason):
                    self._placement.stops(job)
                    why = f"gives its place to {to.spec.name}" if to is not None else reason
                    commands.append(self._parking.park(job, at_s, why))
                case RankLanes(lanes):
                    commands += self._ranks.changed(lanes)
                case ReviewSettings(devices):
                    commands += self._look_at_settings(devices)
                case _:
                    commands.append(step)
        return commands

    def _settings_answered(self, event: SettingAnswer) -> list[Command]:
        """Handle the answer to a command of the setting selection."""
        if self._state.stopping:
            return []
        waits = self._state.over_budget
        device, commands = self._review.answered(event)
        if waits and not self._state.over_budget:
            commands += self._fill(event.at_s)
        if self._state.refusal:
            self._ends.end_unplaceable(event.at_s)
        return commands + self._carry_out(self._placement.settings_answered(device, event), event.at_s)

    def _look_at_settings(self, devices: tuple[str, ...] = ()) -> list[Command]:
        """Commands that set or search the settings of these devices, or of all devices if none is named."""
        return [] if self._state.stopping else self._review.look(devices)
