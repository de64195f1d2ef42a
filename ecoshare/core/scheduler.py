"""The scheduler: `handle(event) -> list[Command]`.

::

    events                         Scheduler                           commands
    RunOpened             ──►   lanes of every device           ──►   OpenLane
    JobArrived            ──►   queue, ordered by the policy    ──►   StartJob, KillJob (preemption)
    Done, Refused         ──►   resources taken or freed        ──►   StartJob
    JobExited             ──►   end, or another attempt         ──►   StartJob, SetShares
    IterationsDone        ──►   ranks inside the lane           ──►   SetShares, ProfileJob
    InterferencePredicted ──►   groups of co-located jobs       ──►   StartJob, MoveJob, SetShares
    Planned               ──►   jobs of the round               ──►   StartJob, KillJob
    Reported, ...         ──►   early stopping of trials        ──►   KillJob, DropJob, AskSampler
    (time)                ──►   levels and rounds               ──►   WakeAt, AskPlanner, KillJob (preemption)
    Profiled              ──►   memory demand of the class      ──►   StartJob, AskInterference
    SettingAdvised, ...   ──►   settings of the packings        ──►   ApplySetting, MeasureSetting, AskSetting
    StopRequested         ──►   end of all jobs                 ──►   KillJob

The scheduler is deterministic: equal events give equal commands, so the log of a run replays to the same decisions. No
event costs a scan of all jobs.
"""

from __future__ import annotations

from itertools import count
from typing import cast

from ecoshare.core.commands import (
    AskPlanner,
    Command,
    DropJob,
    KillJob,
    OpenLane,
    ProfileJob,
    SetShares,
    Share,
    StartJob,
)
from ecoshare.core.events import (
    Device,
    Done,
    Event,
    Exhausted,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    JobExited,
    Outcome,
    Planned,
    Profiled,
    Refused,
    Reported,
    RunOpened,
    SettingAdvised,
    SettingMeasured,
    StopRequested,
    SweepOpened,
    Usage,
)
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.packer import Packer
from ecoshare.core.placement.preemption import GiveWay, Start
from ecoshare.core.placement.trial_packing import TrialPacking
from ecoshare.core.policies import make
from ecoshare.core.policies.base import GangPlacementPolicy, PackingPolicy, PlannedPolicy, TrialPackingPolicy
from ecoshare.core.policy_timers import PolicyTimers
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job, Lane
from ecoshare.core.retries import again
from ecoshare.core.scheduler_view import SchedulerView
from ecoshare.core.setting_selection import SettingSelector, running
from ecoshare.core.states import JobState, LaneState
from ecoshare.core.sweeps import Sweeps


class Scheduler:
    """Decides which jobs run, in which lanes, and which job goes first in each lane.

    Attributes:
        jobs: All jobs that have arrived, by name.
        lanes: All lanes, by number.
        stopping: Whether a `StopRequested` event has come.
    """

    def __init__(self) -> None:
        """Scheduler without a run. The first event must be `RunOpened`."""
        self.jobs: dict[str, Job] = {}
        self.lanes: dict[int, Lane] = {}
        self.stopping = False
        self._live = self._placed = 0
        self._ids = count(1)
        self._starting: dict[int, Job] = {}
        self._opening: dict[int, Lane] = {}
        self._arrivals = count()
        self._planning: int | None = None
        self._trials: TrialPacking | None = None
        self._packer: Packer | None = None
        self._sweeps = Sweeps(lambda: next(self._ids))

    @property
    def live_jobs(self) -> int:
        """Number of jobs that have arrived and not ended."""
        return self._live

    @property
    def open_sweeps(self) -> int:
        """Number of sweeps that will draw more trials."""
        return 0 if self.stopping else self._sweeps.open

    @property
    def watches_neighbours(self) -> bool:
        """Whether progress must be told even of a job that has its lane, but not its device, to itself."""
        return self._trials is not None

    @property
    def view(self) -> SchedulerView:
        """Parts of the scheduler, for `core/reasons.py`, which changes nothing. A run must have been opened."""
        return SchedulerView(
            config=self._config,
            policy=self._policy,
            lane_index=self._lane_index,
            fit=self._fit,
            profiling=self._profiling,
            admission=self._seating,
            settings=self._tuning,
            packer=self._packer,
            opening=bool(self._opening),
        )

    def handle(self, event: Event) -> list[Command]:
        """Commands that follow from the next event, in the order in which the driver must carry them out.

        Raises:
            IllegalMove: The event cannot follow the earlier events; the driver or the core has a defect.
        """
        commands = self._follow(event)
        return commands if self.stopping else [*commands, *self._decided(event.at_s), *self._sweeps.draw()]

    def _follow(self, event: Event) -> list[Command]:
        match event:
            case RunOpened():
                return self._open(event)
            case JobArrived():
                return self._arrive(event)
            case SweepOpened():
                self._sweeps.opened(event)
                return []
            case Exhausted():
                self._sweeps.exhausted(event)
                return self._fill(event.at_s) if self._seating.pours else []
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
            case Profiled():
                return self._profiled(event)
            case Planned():
                return self._planned(event)
            case InterferencePredicted():
                return self._foreseen(event)
            case SettingMeasured() | SettingAdvised():
                return self._tuned(event)
            case StopRequested():
                return self._stop(event)

    def _open(self, event: RunOpened) -> list[Command]:
        self._config = event.config
        self._profiling = Profiling(event.config.profile)
        self._policy = make(event.config)
        placing = self._policy if isinstance(self._policy, GangPlacementPolicy) else None
        if placing is not None:
            placing.meet(event.devices)
        self._lane_index = LaneIndex(self._policy.lane, placing)
        self.lanes = self._lane_index.lanes
        self._fit = MemoryFit(self._lane_index, self._profiling, isinstance(self._policy, PackingPolicy))
        if isinstance(self._policy, TrialPackingPolicy):
            places = self._policy.places or event.config.places_per_lane
            self._trials = TrialPacking(self._policy, self._lane_index, places > 1 or event.config.lanes_per_device > 2)
        if isinstance(self._policy, PackingPolicy):
            self._packer = Packer(
                self._policy,
                self._lane_index,
                self._fit,
                lambda: self._seating.waiting,
                self._is_held,
                event.config.lanes_per_device,
                lambda: next(self._ids),
                event.colocations,
            )
        finder = self._trials or self._packer
        self._seating = Admission(self._policy, self._lane_index, event.config.preempt, self._fit.fits, finder)
        self._pace = PolicyTimers(self._policy, event.at_s, lambda: next(self._ids))
        self._tuning = self._tuning_of(event)
        return [self._open_lane(device) for device in event.devices for _ in range(event.config.lanes_per_device)]

    def _tuning_of(self, event: RunOpened) -> SettingSelector:
        search, ids = event.config.search, lambda: next(self._ids)
        if self._packer is None:
            return SettingSelector(event.known_settings, search, ids, running)
        observe = event.config.profile and not search
        return SettingSelector(event.known_settings, search, ids, self._packer.present, observe, self._packer.bear)

    def _open_lane(self, device: Device) -> OpenLane:
        lane = Lane(
            number=len(self.lanes),
            device=device,
            budget_bytes=device.memory_bytes // (1 if self._packer is not None else self._config.lanes_per_device),
            places=self._policy.places or self._config.places_per_lane,
            command=next(self._ids),
        )
        self._opening[lane.command] = lane
        self._lane_index.add(lane)
        return OpenLane(lane.command, lane.number, device.name, lane.budget_bytes)

    def _arrive(self, event: JobArrived) -> list[Command]:
        before = event.job.earlier_attempts
        job = Job(event.job, event.at_s, next(self._arrivals), attempt=before.attempts, failures=before.failures)
        job.whole_lane, job.level_s = before.out_of_memory, event.at_s
        self.jobs[event.job.name] = job
        self._live += 1
        self._sweeps.arrived(event)
        job.iterations_until_rung = self._sweeps.iterations_until_rung(job)
        if self._packer is not None:
            self._packer.arrived(job)
        self._wait(job, event.at_s)
        if self.stopping:
            self._end(job, JobState.CANCELLED, event.at_s, "the run was being stopped")
        elif (reason := self._fit.never(job)) is not None:
            self._end(job, JobState.FAILED, event.at_s, reason)
        else:
            return self._fill(event.at_s, newcomer=job)
        return []

    def _done(self, event: Done) -> list[Command]:
        if (lane := self._opening.pop(event.command, None)) is not None:
            lane.move(LaneState.OPEN, event.at_s, "opened")
            self._lane_index.opened(lane)
            return self._fill(event.at_s)
        if (job := self._starting.pop(event.command, None)) is not None:
            return self._started(job, event.at_s)
        if self._packer is not None and self._packer.owns(event.command):
            return self._moved(self._packer, event)
        if self._pace.owns(event.command):
            return self._woken(event)
        return self._tuned(event) if self._tuning.owns(event.command) else []

    def _started(self, job: Job, at_s: float) -> list[Command]:
        job.command = None
        if job.state is not JobState.STARTING:
            return []
        job.move(JobState.RUNNING, at_s, "started")
        job.told_s = at_s
        self._seating.runs(job, at_s)
        if self._trials is not None:
            self._trials.started(job)
        self._pace.look(job, at_s)
        if self._packer is not None or self._seating.pours:
            return self._fill(at_s)
        return self._pace.wake() + self._settings(*self._devices_of(job))

    def _moved(self, packer: Packer, event: Done) -> list[Command]:
        """A job has moved to another lane of its device."""
        before, after = packer.moved(event.command)
        return [*self._shares(before), *self._shares(after), *self._fill(event.at_s)]

    def _woken(self, event: Done) -> list[Command]:
        """A timer is due: jobs may change their levels, or a round begins."""
        names, round_begins = self._pace.due(event)
        commands: list[Command] = []
        for name in names:
            job = self.jobs[name]
            self._seating.change(job, event.at_s)
            self._pace.look(job, event.at_s)
            commands += [command for lane in job.lanes for command in self._shares(lane)]
        if round_begins:
            return commands + self._begin_round(event.at_s)
        return commands + self._fill(event.at_s)

    def _begin_round(self, at_s: float) -> list[Command]:
        """Choose the jobs of the round that begins. If the policy has a planner to ask, its answer comes first."""
        if self._planning is not None:
            return self._pace.wake()
        if not self._live:
            self._pace.rest()
            return []
        self._pace.round_begins(at_s)
        devices, jobs = self._seating.question(self._running(), at_s)
        if not jobs:
            return self._choose(at_s)
        self._planning = next(self._ids)
        policy = cast(PlannedPolicy, self._policy)
        plan = AskPlanner(self._planning, policy.planner, devices, jobs, policy.planned_by)
        return [plan, *self._pace.wake()]

    def _planned(self, event: Planned) -> list[Command]:
        self._planning = None
        cast(PlannedPolicy, self._policy).told(event.shares)
        return self._choose(event.at_s)

    def _choose(self, at_s: float) -> list[Command]:
        self._seating.begin_round(self._running(), at_s)
        commands = self._seat(at_s)
        return commands + [command for lane in self.lanes.values() for command in self._shares(lane)]

    def _refused(self, event: Refused) -> list[Command]:
        if (lane := self._opening.pop(event.command, None)) is not None:
            lane.move(LaneState.CLOSED, event.at_s, event.error)
            self._lane_index.closed(lane)
            for job in [job for job in self._seating.waiting if self._fit.never(job)]:
                self._end(job, JobState.FAILED, event.at_s, event.error)
            return self._fill(event.at_s)
        if self._tuning.owns(event.command):
            return self._tuned(event)
        if self._packer is not None and event.command not in self._starting:
            self._packer.refused(event.command)
            return self._fill(event.at_s)
        job = self._starting.pop(event.command)
        job.command = None
        self._leave(job)
        # A start usually fails for a lasting reason, such as a missing interpreter. It counts as a failure, so that
        # `retries` of the job decides about another attempt.
        job.failures += 1
        if job.state is JobState.STOPPING:
            self._end(job, JobState.CANCELLED, event.at_s, event.error)
        elif job.failures > job.spec.retries:
            self._end(job, JobState.FAILED, event.at_s, event.error)
        else:
            self._requeue(job, event.at_s, event.error)
        return self._fill(event.at_s)

    def _profiled(self, event: Profiled) -> list[Command]:
        name = self._profiling.ended(event)
        if self._packer is not None:
            if event.solo is not None:
                self._packer.learned(name, event.solo)
            for job in self._running():
                if job.spec.job_class == name:
                    self._fit.give_back(job)
        return self._fill(event.at_s) + self._settings()

    def _foreseen(self, event: InterferencePredicted) -> list[Command]:
        assert self._packer is not None, "who asked packs"
        self._packer.foreseen(event)
        return self._pack(self._packer, event.at_s, answered=True)

    def _progressed(self, event: IterationsDone) -> list[Command]:
        job = self.jobs[event.job]
        self._seating.stops(job)  # news of a job may change its place in the order
        job.tell(event.usage, event.at_s)
        if job.state is JobState.RUNNING:
            self._seating.runs(job, event.at_s)
        commands = [command for lane in job.lanes for command in self._shares(lane)]
        commands += self._outgrown(job, event.at_s) if self._fit.grew(job) else []
        at_default = all(self._tuning.at_default(lane) for lane in job.lanes)
        commands += self._undone(job, at_default, event.at_s)
        if self._packer is not None:
            gives_back = self._profiling.too_short(job, event.at_s) and self._fit.give_back(job)
            if gives_back or self._packer.holds_up(job):
                commands += self._fill(event.at_s)
            if gives_back:
                return commands
        if not self.stopping and at_default and self._may_measure(job) and self._profiling.wants(job, event.at_s):
            command = next(self._ids)
            self._profiling.begin(command, job)
            commands.append(ProfileJob(command, job.spec.name, job.attempt))
            return commands
        return commands + self._settings(*self._devices_of(job))

    def _outgrown(self, job: Job, at_s: float) -> list[Command]:
        """A job has grown. If memory no longer suffices, some of the jobs stop, and start again when there is room."""
        commands: list[Command] = []
        while not self.stopping and (loser := self._fit.outgrown(job.lanes[0])) is not None:
            loser.least_bytes = loser.demand.peak_bytes
            commands.append(self._stop_for_now(loser, at_s, "the jobs beside it need its memory", at_once=False))
        return commands

    def _reported(self, event: Reported) -> list[Command]:
        """A trial has reported a value: it goes on, ends early, or pauses at a rung."""
        job = self.jobs[event.job]
        reason = self._sweeps.reported(job, event)
        job.iterations_until_rung = self._sweeps.iterations_until_rung(job)
        if not reason or job.state is not JobState.RUNNING:
            return []
        self._seating.stops(job)
        job.move(JobState.STOPPING, event.at_s, reason)
        pruned = not self._sweeps.pauses(job)
        return [KillJob(next(self._ids), job.spec.name, job.attempt, False, reason, pruned)]

    def _decided(self, at_s: float) -> list[Command]:
        """Resume or end the paused trials of each rung that is complete."""
        decided = self._sweeps.decided()
        commands: list[Command] = []
        for name, reason in decided.items():
            job = self.jobs[name]
            if reason:
                self._end(job, JobState.PRUNED, at_s, reason)
                commands.append(DropJob(next(self._ids), name, reason))
            else:
                job.move(JobState.QUEUED, at_s, "is among the best of its rung")
                self._seating.wait_again(job, at_s)
                self._pace.look(job, at_s)
        return [*commands, *self._fill(at_s)] if decided else []

    def _may_measure(self, job: Job) -> bool:
        return self._packer is None or not job.lanes or self._packer.may_measure(job)

    def _undone(self, job: Job, at_default: bool, at_s: float) -> list[Command]:
        """Undo a trial packing that does not pay, after news of one of its jobs: the newcomer gives way."""
        if self._trials is None or self.stopping or job.state is not JobState.RUNNING:
            return []
        settled = at_default and not any(self._profiling.occupies(lane) for lane in job.lanes)
        is_over, loser = self._trials.told(job, settled)
        if loser is not None:
            reason = "the two were slower beside each other than in turn"
            return [self._stop_for_now(loser, at_s, reason, at_once=False)]
        return self._fill(at_s) if is_over else []  # a decided trial packing opens its lanes to more jobs

    def _exited(self, event: JobExited) -> list[Command]:
        job = self.jobs[event.job]
        self._seating.stops(job)
        job.tell(event.usage, event.at_s)
        devices = self._devices_of(job)
        if event.outcome is Outcome.COMPLETED:
            self._fit.took(job, event.usage.peak_bytes)
            if self._packer is not None:
                self._packer.took(job, event.usage)
        if job.command is not None:  # the answer to `StartJob` was lost with the supervisor
            del self._starting[job.command]
            job.command = None
        self._leave(job)
        cause = event.reason or event.outcome.value
        if event.outcome is Outcome.COMPLETED:
            self._end(job, JobState.COMPLETED, event.at_s, cause)
        elif event.outcome is Outcome.PRUNED:
            self._end(job, JobState.PRUNED, event.at_s, cause)
        elif not self.stopping and self._goes_on(job, event.outcome):
            self._requeue(job, event.at_s, cause)
        elif event.outcome in (Outcome.STOPPED, Outcome.LOST, Outcome.MOVED_OUT) and self.stopping:
            self._end(job, JobState.CANCELLED, event.at_s, cause)
        else:
            self._end(job, JobState.FAILED, event.at_s, cause)
        suspects: list[Command] = []
        if event.outcome is Outcome.CRASHED and self._config.shared_context:
            suspects = self._restart_neighbours(job, event)
        return suspects + self._fill(event.at_s) + self._settings(*devices)

    def _goes_on(self, job: Job, outcome: Outcome) -> bool:
        """Whether another attempt follows. The counts of the job are updated."""
        if outcome is Outcome.STOPPED and self._sweeps.pauses(job):
            return True
        goes_on = again(job, outcome, self._fit.largest_bytes(), self._packer is not None)
        if job.is_suspect:
            self._fit.suspects(job)
        return goes_on

    def _restart_neighbours(self, culprit: Job, event: JobExited) -> list[Command]:
        """Restart all jobs that shared a context with the culprit: its unclean death may have corrupted them."""
        devices = {lane.device.name for lane in culprit.lanes}
        reason = f"suspect: {culprit.spec.name} died beside it ({event.reason})"
        commands: list[Command] = []
        for lane in self.lanes.values():
            if lane.device.name not in devices:
                continue
            for job in lane.jobs.values():
                if job.state in (JobState.STARTING, JobState.RUNNING):
                    commands.append(self._stop_for_now(job, event.at_s, reason, at_once=True))
        return commands

    def _stop_for_now(self, job: Job, at_s: float, reason: str, at_once: bool) -> KillJob:
        """End an attempt that another attempt will follow."""
        self._seating.stops(job)
        job.again = True
        job.move(JobState.STOPPING, at_s, reason)
        return KillJob(next(self._ids), job.spec.name, job.attempt, at_once, reason)

    def _stop(self, event: StopRequested) -> list[Command]:
        self.stopping = True
        for job in [*self._seating.waiting, *(self.jobs[name] for name in self._sweeps.paused)]:
            self._end(job, JobState.CANCELLED, event.at_s, "the run was stopped")
        commands: list[Command] = []
        for job in self._running():
            job.again = False
            if job.state is not JobState.STOPPING:
                self._seating.stops(job)
                job.move(JobState.STOPPING, event.at_s, "the run was stopped")
            elif not event.at_once:
                continue
            commands.append(KillJob(next(self._ids), job.spec.name, job.attempt, event.at_once, "the run was stopped"))
        return commands

    def _fill(self, at_s: float, newcomer: Job | None = None) -> list[Command]:
        """Use the free resources: start waiting jobs, or begin a round if all jobs of the last round have ended.

        Under a policy that packs, the running jobs are rearranged, too, and the adviser is asked for more.
        """
        if self._packer is not None:
            return self._pack(self._packer, at_s)
        is_over = self._pace.in_rounds and not self._placed and self._live and at_s > self._pace.began_s
        if is_over and not self.stopping and not self._opening:
            return self._begin_round(at_s)
        return self._seat(at_s, newcomer)

    def _pack(self, packer: Packer, at_s: float, answered: bool = False) -> list[Command]:
        """Choose the groups of all devices again.

        Args:
            packer: Packer of the policy.
            at_s: Time (s) of the event.
            answered: Whether the adviser has just answered. The groups are then rearranged before the next question;
                otherwise a stream of questions could put that off for ever.
        """
        if self.stopping or self._opening:
            return []
        packer.look(at_s)
        commands = self._seat(at_s)
        if not answered:
            commands += packer.ask()
        if not packer.awaits:  # until the answer comes, running jobs stay as they are
            commands += self._rearrange(packer, at_s)
        return [*commands, *packer.ask(), *self._settings()]

    def _rearrange(self, packer: Packer, at_s: float) -> list[Command]:
        commands: list[Command] = []
        for name, lanes in self._lane_index.devices.items():
            moves, is_new = packer.rearrange(name, at_s)
            commands += moves
            if is_new:
                commands += [command for lane in lanes for command in self._shares(lane)]
        return commands

    def _is_held(self, device: str) -> bool:
        """Whether a window or a measurement is under way on the device. No job may come, go or move meanwhile."""
        return self._profiling.occupies(self._lane_index.devices[device][0]) or self._tuning.is_measuring(device)

    def _seat(self, at_s: float, newcomer: Job | None = None) -> list[Command]:
        """Start every waiting job that has a place now, and stop the jobs that give way.

        No job starts before the last lane is open, because the first lane would get all jobs. Under an elastic policy
        no job starts while a sampler still draws, because the first trial would get the devices of all.
        """
        if self.stopping or self._opening or (self._seating.pours and self._sweeps.coming):
            return self._pace.wake()
        commands: list[Command] = []
        touched: dict[int, Lane] = {}
        for step in self._seating.walk(at_s, newcomer):
            match step:
                case Start(job, lanes):
                    commands.append(self._start(job, lanes, at_s))
                    touched.update({lane.number: lane for lane in lanes})
                case GiveWay(jobs, to, reason):
                    why = f"gives way to {to.spec.name}" if to is not None else reason or "its round is over"
                    commands += [self._stop_for_now(job, at_s, why, at_once=False) for job in jobs]
        for lane in touched.values():
            commands += self._shares(lane)
        return commands + self._pace.wake()

    def _start(self, job: Job, lanes: tuple[Lane, ...], at_s: float) -> StartJob:
        self._seating.waiting.remove(job)
        job.lanes, job.demand = lanes, self._fit.granted(job, lanes[0])
        job.attempt += 1
        job.command = next(self._ids)
        if job.first_start_s is None:
            job.first_start_s = at_s
        self._starting[job.command] = job
        job.move(JobState.STARTING, at_s, "there is room")
        self._lane_index.take(job)
        if self._trials is not None:
            self._trials.takes(job)
        self._placed += 1
        numbers = tuple(lane.number for lane in lanes)
        fused = self._fit.fuses(job)
        if fused and self._packer is not None:
            self._packer.stays(job)
        job.cap_bytes = self._fit.cap(job, lanes)
        return StartJob(job.command, job.spec.name, job.attempt, numbers, job.cap_bytes, fused)

    def _tuned(self, event: Done | Refused | SettingMeasured | SettingAdvised) -> list[Command]:
        """Handle the answer to a command of the setting selection."""
        device = self._tuning.device_of(event.command)
        if self.stopping:
            return []
        commands = self._tuning.answered(event, self._lane_index.devices[device])
        if self._packer is None:
            return commands + self._settings(device)
        if isinstance(event, SettingMeasured):
            self._packer.measured(event.measurement, self._lane_index.devices[device])
        return commands + self._fill(event.at_s)

    def _settings(self, *devices: str) -> list[Command]:
        """Commands that set or search the settings of these devices, or of all devices if none is named."""
        if self.stopping or not self._tuning.active:
            return []
        commands: list[Command] = []
        for name in devices or self._lane_index.devices:
            ready = self._tuning.tries and self._is_ready(name)
            commands += self._tuning.look(name, self._lane_index.devices[name], ready)
        return commands

    def _is_ready(self, device: str) -> bool:
        """Whether the packing of a device will last, as a search needs: no job will start, move or be profiled."""
        lanes = self._lane_index.devices[device]
        if any(self._profiling.occupies(lane) for lane in lanes):
            return False
        if self._packer is not None:
            return self._packer.is_settled(device) and all(map(self._profiling.settled, self._packer.present(lanes)))
        may_come = len(self._seating.waiting) and any(len(lane.jobs) < lane.places for lane in lanes)
        everybody = (job for lane in lanes for job in lane.jobs.values())
        return not self._starting and not may_come and all(map(self._profiling.settled, everybody))

    @staticmethod
    def _devices_of(job: Job) -> tuple[str, ...]:
        return tuple(lane.device.name for lane in job.lanes)

    def _shares(self, lane: Lane) -> list[Command]:
        """`SetShares` if the order of the jobs of a lane has changed. Ranks are sent as small whole numbers."""
        if lane.places == 1:
            return []
        ranks = {name: self._policy.rank(job) for name, job in lane.jobs.items()}
        dense = {rank: place for place, rank in enumerate(sorted(set(ranks.values())))}
        shares = tuple(Share(name, dense[rank], 1.0) for name, rank in ranks.items())
        if shares == lane.shares_sent or not shares:
            return []
        lane.shares_sent = shares
        return [SetShares(next(self._ids), lane.number, shares)]

    def _leave(self, job: Job) -> None:
        """Free the places of a job. The claims of the remaining jobs keep their order, so nothing is sent."""
        self._seating.gone(job)
        if self._trials is not None:
            self._trials.left(job)
        if self._packer is not None:
            self._packer.left(job)
        self._lane_index.give(job)
        self._placed -= 1

    def _wait(self, job: Job, at_s: float) -> None:
        self._seating.wait(job, at_s)
        self._pace.look(job, at_s)

    def _requeue(self, job: Job, at_s: float, cause: str) -> None:
        """Put a job back into the queue for its next attempt, or pause it at its rung."""
        pauses = self._sweeps.pauses(job)
        job.move(JobState.PAUSED if pauses else JobState.QUEUED, at_s, cause)
        job.again = False
        job.earlier_s += job.usage.held_s
        if job.spec.movable:
            job.earlier_iterations += job.usage.iterations
        job.usage, job.boundary_s, job.stood_s = Usage(), None, 0.0
        job.lanes = ()
        if pauses:
            self._pace.forget(job)
            self._sweeps.left(job)
        else:
            self._wait(job, at_s)

    def _end(self, job: Job, state: JobState, at_s: float, cause: str) -> None:
        if job.state is JobState.QUEUED:
            self._seating.waiting.remove(job)
        self._pace.forget(job)
        if self._packer is not None:
            self._packer.ended(job)
        job.move(state, at_s, cause)
        self._fit.ended(job)
        self._live -= 1
        self._sweeps.ended(job)

    def _running(self) -> list[Job]:
        """Jobs that have a place, each once, in the order of the lanes."""
        return list({job.spec.name: job for lane in self.lanes.values() for job in lane.jobs.values()}.values())
