"""Driver of the core in virtual time: it passes events to the core and carries out the commands.

::

    trace ──arrivals──►  heap of coming events  ──► core.handle ──► commands
                            ▲                                            │
                            ├── acknowledged (after its cost in time) ───┤
                            ├── ends and turns of the lanes ◄────────────┤
                            └── times to wake at ◄───────────────────────┘

Live runs use the same core; the simulator makes no decision. Events at one moment come in the order of their kinds
(`coming_events.What`), with arrivals last. Events of one kind come in the order in which they were caused. So equal
inputs give equal traces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ecoshare.base.attempt import Outcome
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.plural import counted
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
    ShareMemory,
    StartJob,
    WakeAt,
)
from ecoshare.core.driving import CoreDriver
from ecoshare.core.events import (
    SCHEMA,
    ClassesKnown,
    Config,
    DeviceFailed,
    Done,
    Event,
    Exhausted,
    IterationsDone,
    JobArrived,
    JobExited,
    Planned,
    Reported,
    RunOpened,
    WorkOver,
)
from ecoshare.core.policies import make
from ecoshare.core.policies.base import ElasticPolicy, PackingPolicy
from ecoshare.core.scheduler import Scheduler
from ecoshare.errors import UsageError
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.result import Finished, SimulationResult, UsageIntegrals
from ecoshare.simulation.simulated_attempt import ServiceAttempt, SimulatedAttempt
from ecoshare.simulation.simulated_job import SimulatedJob, SimulatedParking, SimulatedSweeps, spec_of
from ecoshare.simulation.simulated_services import Foresee, SimulatedMeasurements, SimulatedServices
from ecoshare.simulation.traces.job_trace import Trace, TraceJob
from ecoshare.simulation.virtual_lanes import TOLD_SHARE, ComingEvents, VirtualLane, VirtualLanes, What
from ecoshare.simulation.world import Truth

_MOST_IDLE_WAKES = 10_000
"""Most wakes in a row with all jobs arrived and no device at work. With more, the policy lets jobs wait for ever."""

Watch = Callable[[Event, list[Command]], None]
"""Function that gets each event and the commands that followed from it."""


class Simulator:
    """Simulation of one trace under one policy.

    Attributes:
        lanes: Lanes and devices.
        account: Integrals over time.
        measuring: Executor of windows and measurements.
        memory_answers: Last words of the core about memory that it shares, by device, until they are heard.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        config: Config,
        world: Truth,
        costs: Costs,
        tuner: Callable[[AskSetting], Advice] | None = None,
        foresee: Foresee | None = None,
        failures: Sequence[tuple[float, str]] = (),
        known: ClassesKnown | None = None,
    ) -> None:
        """Prepare a simulation; `run` starts it.

        Args:
            tuner: Adviser on settings; needed if `config.search` is on.
            foresee: Adviser on interference; None for ecoshare's own.
            failures: Time (s) and device of each failure. The jobs there go on elsewhere from where they were.
            known: Packings that earlier runs have measured; None for none.

        Raises:
            UsageError: A job asks for more GPUs or memory than the cluster has.
        """
        self._trace, self._cluster, self._config = trace, cluster, config
        self._world, self._costs, self._failures, self._known = world, costs, failures, known
        self._core = Scheduler()
        self._jobs: dict[str, SimulatedJob] = {}
        self._coming = ComingEvents()
        self._push = self._coming.push
        self.memory_answers: dict[str, ShareMemory] = {}
        self._finished: list[Finished] = []
        self.account = UsageIntegrals(cluster.size, cluster.gpu.idle_w)
        self._idle_wakes = 0
        policy = make(config)
        self._packs, self._is_elastic = isinstance(policy, PackingPolicy), isinstance(policy, ElasticPolicy)
        self._sweeps = SimulatedSweeps(trace, self._later)
        varies = config.search or world.changes_s < math.inf or config.lanes_per_device > 1
        self.lanes = VirtualLanes(world, self.account, varies, self._push)
        self.measuring = SimulatedMeasurements(world, costs, tuner, foresee, self.lanes.reserve, self._later)
        self._parking = SimulatedParking(
            costs.transfer_s_per_gib, self._jobs, self._core.jobs, self.lanes.leave, self._begin, self._later
        )
        self._services = SimulatedServices(self.lanes, self._later, self._served, self.tell)
        # The widest job comes first, so that its number of GPUs is the one that is told.
        for job in sorted(trace.all_jobs, key=lambda job: -job.gpus):
            cluster.check(job, f"{trace.file}:{job.line}")

    def run(self, watch: Watch | None = None, progress: Callable[[int], None] | None = None) -> SimulationResult:
        """Run until every job has ended.

        Args:
            watch: Gets each event and the commands that followed from it.
            progress: Gets the number of jobs that have ended.
        """
        self.begin(watch, progress)
        while not self.is_over:
            self.step()
        return self.result()

    def begin(self, watch: Watch | None = None, progress: Callable[[int], None] | None = None) -> None:
        """Open the run; see `run`. Then `step` goes on until `is_over`."""
        self._progress = progress
        self._drive = CoreDriver(self._core, self, self, watch)
        self.tell(RunOpened(0.0, SCHEMA, self._config, self._cluster.devices()))
        if self._known is not None:
            self.tell(self._known)
        self.lanes.watches = self._core.watches_neighbours
        if self._world.changes_s < math.inf:
            self._push(self._world.changes_s, What.MEASURED, None)
        for at_s, device in self._failures:
            self._later(at_s, partial(DeviceFailed, device=device, reason="it is lost"))
        self._sweeps.schedule()
        self._arrivals = iter(self._trace.jobs)
        self._next_job = next(self._arrivals, None)

    @property
    def begins_s(self) -> float:
        """Time (s) of the first arrival."""
        return self._trace.begins_s

    @property
    def is_over(self) -> bool:
        """Whether every job has ended."""
        return not (self._next_job is not None or self._jobs or self._sweeps.are_unfinished)

    @property
    def next_s(self) -> float:
        """Time (s) of the next step; infinite if none will come."""
        coming = self._next_job
        return self._coming.next_s if coming is None else min(coming.arrival_s, self._coming.next_s)

    def step(self) -> None:
        """Process what comes next.

        Raises:
            UsageError: No event will come, because the policy lets jobs wait for ever.
        """
        coming = self._next_job
        if coming is not None and coming.arrival_s < self._coming.next_s:
            self._arrive(coming)
            coming = self._next_job = next(self._arrivals, None)
        else:
            self._next(coming is None)
            if self._progress is not None:
                self._progress(len(self._finished))
        if coming is None and self._core.only_services_left and not self._sweeps.are_unfinished:
            self._end_services()

    def result(self) -> SimulationResult:
        """Result of a run that is over."""
        return SimulationResult.of(self._trace, self._cluster, self._config, self._finished, self.account)

    def _next(self, all_came: bool) -> None:
        """Process the next event of the heap.

        Raises:
            UsageError: No event will come, because the policy lets jobs wait for ever.
        """
        if self._coming.next_s == math.inf or (all_came and self._idle_wakes > _MOST_IDLE_WAKES):
            names = ", ".join(list(self._jobs)[:3])
            raise UsageError(
                f"policy {self._config.policy} lets {counted(len(self._jobs), 'job')} wait for ever: {names}"
            )
        at_s, what, subject = self._coming.pop()
        match what:
            case What.LANE:
                lane, version = subject
                if version == lane.version:
                    self._lane_event(lane, at_s)
            case What.DONE:
                command, more = subject
                if isinstance(more, SimulatedAttempt) and not more.is_killed:
                    self._idle_wakes = 0
                    if more.job.memory is not None and more.job.memory.peak_bytes > more.cap_bytes:
                        self._exit(more, Outcome.OUT_OF_MEMORY, at_s)
                        return
                    self._begin(more, at_s)
                self.tell(more if isinstance(more, Planned) else Done(at_s, command))
            case What.STOPPED:
                seat, outcome = subject
                self._exit(seat, outcome, at_s)
            case What.MEASURED:
                if subject is None:
                    self._change(at_s)
                elif (event := subject(at_s)) is not None:
                    self.tell(event)
            case What.WAKE:
                self._idle_wakes += not self.account.busy
                self.tell(Done(at_s, subject))

    def _arrive(self, job: TraceJob) -> None:
        self.tell(JobArrived(job.arrival_s, self._come(job, job.arrival_s)))

    def _come(self, job: TraceJob, now_s: float, sweep: str = "", curve: tuple[float, ...] = ()) -> JobSpec:
        """Add an arriving job, and return its specification for the core."""
        job = self._cluster.with_share(job)
        self.account.want(job.wanted_gpus, now_s)
        work_s = job.service_s
        self._jobs[job.name] = SimulatedJob(job, work_s, work_s, now_s, self.account.demand_s, sweep, curve)
        return spec_of(job, sweep, self._config, self._cluster, self._world, now_s)

    def _sample(self, command: AskSampler, now_s: float) -> JobArrived | Exhausted:
        """Arrival of the next trial of a sweep, or `Exhausted`."""
        trial = self._sweeps.trial(command.sweep, command.number)
        if trial is None:
            return Exhausted(now_s, command.id)
        return JobArrived(now_s, self._come(trial.job, now_s, command.sweep, trial.curve), command.id)

    def tell(self, event: Event) -> None:
        """Tell the core of an event that no command has caused."""
        self._now_s = event.at_s
        self._drive.tell(event)

    def _end_services(self) -> None:
        """End the open-ended services; those that wait for a place have ended at once."""
        self.tell(WorkOver(self._now_s))
        for running in [each for each in self._jobs.values() if self._core.jobs[each.job.name].state.ended]:
            self._finish(running, self._now_s)
            self._forget(running, self._now_s)

    # Commands

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        closely = self._packs or self._is_elastic or self._config.profile or self._config.host_bytes > 0
        early = closely and self._cluster.threads > 0
        self.lanes.open(command.lane, command.device, VirtualLane(self._costs.handover_s, closely, early))
        self._push(now_s, What.DONE, (command.id, None))

    def set_caching(self, command: SetCaching, now_s: float) -> None:
        """See `NodeCommands`. A hand-over takes longer while caches are emptied, and no turn is cut."""
        cost_s = 0.0 if command.is_kept else self._costs.empty_s
        for number in self.lanes.devices[command.device].lanes:
            lane = self.lanes.lanes[number]
            lane.handover_s, lane.empties = self._costs.handover_s + cost_s, not command.is_kept
        self._push(now_s + cost_s, What.DONE, (command.id, None))

    def limit_memory(self, command: LimitMemory, now_s: float) -> None:
        """See `NodeCommands`. A simulated job keeps what it states, from its start on."""
        self._push(now_s, What.DONE, (command.id, None))

    def share_memory(self, command: ShareMemory, now_s: float) -> None:
        """See `NodeCommands`."""
        self.memory_answers[command.device] = command
        self._push(now_s, What.DONE, (command.id, None))

    def set_shares(self, command: SetShares, now_s: float) -> None:
        lane = self.lanes.lanes[command.lane]
        lane.claim(command.shares, now_s)  # the holder keeps the turn until its iteration ends
        self.lanes.plan(lane)

    def drop_job(self, command: DropJob, now_s: float) -> None:
        running = self._jobs[command.job]
        self._finish(running, now_s)
        self._forget(running, now_s)

    def profile_job(self, command: ProfileJob, now_s: float) -> None:
        self.measuring.profile(command, self._seat_of(command.job), now_s)

    def apply_setting(self, command: ApplySetting, now_s: float) -> None:
        self._push(now_s + self._costs.apply_s, What.MEASURED, partial(self._apply, command))

    def measure_setting(self, command: MeasureSetting, now_s: float) -> None:
        seats = [self._seat_of(name) for name in command.jobs]
        self.measuring.measure(command, self.lanes.devices[command.device], seats, now_s)

    def await_requests(self, command: AwaitRequests, now_s: float) -> None:
        """See `NodeCommands`. No setting of a simulated device makes a service slower, so none must recover."""
        self._push(now_s, What.DONE, (command.id, None))

    def _ask(self, command: AskSetting | AskInterference | AskPower, now_s: float) -> None:
        """See `RunCommands`: a question to an adviser."""
        self.measuring.ask(command, now_s)

    ask_setting = ask_interference = ask_power = _ask

    def ask_planner(self, command: AskPlanner, now_s: float) -> None:
        from ecoshare.knowledge.advisers.planners import shares  # imports scipy, so only on demand

        self._push(now_s, What.DONE, (command.id, Planned(now_s, command.id, shares(command))))

    def ask_sampler(self, command: AskSampler, now_s: float) -> None:
        self._later(now_s, partial(self._sample, command))

    def wake_at(self, command: WakeAt, now_s: float) -> None:
        self._push(command.at_s, What.WAKE, command.id)

    def start_job(self, command: StartJob, now_s: float) -> None:
        running = self._jobs[command.job]
        seat = running.begin(command, now_s)
        running.start_s = min(running.start_s, now_s)
        launch_s = self._costs.start_s if running.job.launch_s is None else running.job.launch_s
        cost_s = launch_s + (self._costs.restart_s if command.attempt > 1 else 0.0)
        seat.starts_s = now_s + cost_s
        self._push(seat.starts_s, What.DONE, (command.id, seat))

    def _begin(self, seat: SimulatedAttempt, now_s: float) -> None:
        """Let a job that has started join its lane."""
        self._tell_of_neighbours(seat, now_s)
        self.lanes.join(seat, now_s)
        if isinstance(seat, ServiceAttempt):
            self._services.joined(seat, now_s)

    def _served(self, seat: ServiceAttempt, now_s: float) -> None:
        """End a service that has answered its last request."""
        self.lanes.leave(seat, now_s)
        self._exit(seat, Outcome.COMPLETED, now_s)

    def _later(self, at_s: float, what: Callable[[float], Event | None]) -> None:
        self._push(at_s, What.MEASURED, what)

    def _seat_of(self, job: str) -> SimulatedAttempt:
        seat = self._jobs[job].seat
        assert seat is not None, "only a job with an attempt is measured, moved or killed"
        return seat

    def move_job(self, command: MoveJob, now_s: float) -> None:
        """See `NodeCommands`. The job moves at once; in virtual time it need not reach a boundary first."""
        seat = self._seat_of(command.job)
        self.lanes.leave(seat, now_s)
        seat.lanes = (command.lane,)
        self.lanes.join(seat, now_s)
        self._push(now_s, What.DONE, (command.id, None))

    def park_job(self, command: ParkJob, now_s: float) -> None:
        self._parking.park(command, now_s)

    def resume_job(self, command: ResumeJob, now_s: float) -> None:
        self._parking.resume(command, now_s)

    def _apply(self, command: ApplySetting, now_s: float) -> Done:
        self.lanes.apply(command.device, command.setting, now_s)
        return Done(now_s, command.id)

    def _change(self, now_s: float) -> None:
        """Apply a change of the world to all devices, and schedule the next change."""
        for device in self.lanes.devices.values():
            self.lanes.feel(device, now_s)
        self._push(now_s + self._world.changes_s, What.MEASURED, None)

    def kill_job(self, command: KillJob, now_s: float) -> None:
        """See `NodeCommands`. A job that starts ends when its start was answered, as on a node."""
        seat = self._seat_of(command.job)
        seat.is_killed = True
        if seat.job.name in self.lanes.of(seat).seats:  # else it starts, stops, or moves its memory
            self.lanes.leave(seat, now_s)
        outcome = Outcome.PRUNED if command.pruned else Outcome.STOPPED
        self._push(max(now_s + self._costs.stop_s, seat.starts_s), What.STOPPED, (seat, outcome))

    def _lane_event(self, lane: VirtualLane, now_s: float) -> None:
        holder = lane.holder
        assert holder is not None, "a turn or the work of a job is over"
        lane.advance(now_s)
        if holder.has_report:
            self._report(holder, lane, now_s)
            return
        if lane.ends and isinstance(holder, ServiceAttempt):
            self._services.answered(holder, lane, now_s)
            return
        if lane.ends:
            self.lanes.leave(holder, now_s)
            holder.left_s = 0.0
            self._exit(holder, Outcome.COMPLETED, now_s)
            return
        tells = lane.tells
        lane.go_on(now_s)
        self.lanes.changed(lane, now_s, holder)
        for seat in [*lane.seats.values()] if tells else ():
            if lane.is_watched or seat.held_s - seat.told_s > TOLD_SHARE * seat.told_s:
                self._tell_of(seat, now_s)

    def _report(self, seat: SimulatedAttempt, lane: VirtualLane, now_s: float) -> None:
        """Report the next value of a trial, after its progress."""
        running = self._jobs[seat.job.name]
        running.reported = seat.reported = seat.reported + 1
        lane.heard(now_s)
        self.lanes.plan(lane)
        self._tell_of(seat, now_s)
        self.tell(Reported(now_s, seat.job.name, seat.reported, running.curve[seat.reported - 1]))

    def _tell_of(self, seat: SimulatedAttempt, now_s: float) -> None:
        seat.told_s = seat.held_s
        self.tell(IterationsDone(now_s, seat.job.name, seat.usage()))

    def _tell_of_neighbours(self, seat: SimulatedAttempt, now_s: float) -> None:
        """Report progress of jobs in other lanes up to now, because their neighbours change from now on."""
        for other in self.lanes.beside(seat) if self.lanes.watches else ():
            self.lanes.of(other).advance(now_s)
            if other.held_s > other.told_s:
                self._tell_of(other, now_s)

    def _exit(self, seat: SimulatedAttempt, outcome: Outcome, now_s: float) -> None:
        """End an attempt and free its places."""
        running = self._jobs.get(seat.job.name)
        if running is None or running.seat is not seat:
            return  # it was killed twice: its device failed while it stopped
        running.end(seat, now_s)
        reason = "" if outcome is Outcome.COMPLETED else outcome.value
        exited = JobExited(now_s, seat.job.name, seat.attempt, outcome, 0, reason, seat.usage())
        over = outcome.is_the_end or (seat.job.service is not None and not self._core.jobs[seat.job.name].again)
        if over:
            self._finish(running, now_s)
        self.tell(exited)
        self._tell_of_neighbours(seat, now_s)
        if over:
            self._forget(running, now_s)

    def _finish(self, running: SimulatedJob, now_s: float) -> None:
        """Record the result of a job that has completed, or of a trial that its sweep stopped early."""
        self.account.want(-running.job.wanted_gpus, now_s)
        del self._jobs[running.job.name]
        self._finished.append(running.result(self.account, self._cluster.size, now_s))

    def _forget(self, running: SimulatedJob, now_s: float) -> None:
        """Drop a job that the core knows to be over, so that memory holds only live jobs of a trace of millions."""
        del self._core.jobs[running.job.name]
        if running.sweep:
            self._sweeps.ended(running.sweep, now_s)
