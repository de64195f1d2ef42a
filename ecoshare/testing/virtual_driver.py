"""Driver of the core for tests of policies: time is virtual, jobs are numbers, and every end is scripted.

It is the third driver, beside the live run and the simulator, and the strictest: after each event it checks what must
always hold, and at the end it replays all events through a fresh core::

    driver = VirtualDriver(
        Config("mine", lanes_per_device=2),
        (Device("cuda:0", "here", 16 << 30),),
        {name: (JobSpec(name, "class"), ScriptedJob(arrival_s=0.1 * place)) for place, name in enumerate("abc")},
    ).run()
    assert set(driver.states().values()) == {JobState.COMPLETED}
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import POWER_LIMIT, KnownResponse, MemoryDemand, PowerPoint
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import JobPhase, KnownSetting, Measurement, MeasurementStatus, ServiceFigures, Setting
from ecoshare.base.segment import Segment
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
    Config,
    DeviceFailed,
    Done,
    Event,
    Exhausted,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    PhaseBegan,
    Planned,
    PowerPredicted,
    Profiled,
    Refused,
    Resumed,
    RunOpened,
    SettingAdvised,
    SettingMeasured,
    StopRequested,
    TargetMissed,
    WorkOver,
)
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.knowledge.advisers.planners import shares
from ecoshare.testing.invariants import Invariants

_OF_DEVICE = (OpenLane, SetCaching, ApplySetting, MeasureSetting, AwaitRequests)

PROGRESS_S, WINDOW_S = 0.5, 0.7
"""Time (s) between two reports of the progress of a job; time (s) that a profiling window takes."""

_ANSWER_S, _ADVICE_S, _PLAN_S, _APPLY_S, _MEASURE_S, _TRANSFER_S = 0.01, 0.1, 0.2, 0.05, 0.4, 0.15
"""Time (s) until a command is answered, by its kind."""

_ITERATIONS_A_SECOND = 20


@dataclass(frozen=True)
class ScriptedJob:
    """Course of a job.

    Attributes:
        arrival_s: Time (s) of its arrival.
        attempts: For each attempt how long (s) it runs and how it ends; the last one repeats. An attempt of infinite
            length does not end by itself.
        refused: Number of starts that are refused first.
        stays: Number of moves to another lane that are refused first.
        profile: Result of a profiling window, or the reason why it has none.
        longest_s: Longest iteration (s) of late that it tells, by the time (s) since its start; None for none.
    """

    arrival_s: float = 0.0
    attempts: tuple[tuple[float, Outcome], ...] = ((1.0, Outcome.COMPLETED),)
    refused: int = 0
    stays: int = 0
    profile: MemoryDemand | str | None = None
    longest_s: Callable[[float], float] | None = None


@dataclass
class VirtualDriver:
    """Carries out commands in virtual time, and checks what must hold after each event.

    Attributes:
        config: Decisions that were made before the run.
        devices: Devices of the run.
        jobs: Description and course of each job, by name.
        stop_s: Time (s) at which the user stops the run; None for never.
        known_settings: Settings from earlier searches.
        known_responses: Measurements under power limits from earlier runs.
        advises: Answers questions for a setting with the setting and whether the search is over.
        requests: Time (s) of each request of the user, with the function that makes its event.
        segments_s: Times (s) from which a new segment of the log begins as soon as it can.
        joins: Time (s) from which each other device joins the run, as soon as it can.
        spares: Whether a segment that begins when all jobs have arrived does without devices that they do not use.
        failures: Time (s) and name of each device that fails.
        silent: Whether a failed device answers no command any more, as that of a lost machine.
        phases: Times (s) at which jobs are in another phase, if they run then.
        misses: Times (s) at which services have missed their targets for a minute, with their names.
        refuses: Settings that every device refuses.
        overloads: Settings that overload every service.
        never_recover: Whether no service recovers from such a setting.
        rounds_up_w: Power (W) by which a device rounds each power limit up, by its name.
        settings: Setting in force on each device.
        core: The core.
        log: Each event with the commands that followed from it.
        ended: Final state of each job that has ended.
        segments: Number of segments of the log.
        now_s: Present time (s).
    """

    config: Config
    devices: tuple[Device, ...]
    jobs: dict[str, tuple[JobSpec, ScriptedJob]]
    stop_s: float | None = None
    failures: tuple[tuple[float, str], ...] = ()
    silent: bool = False
    phases: tuple[tuple[float, str, JobPhase], ...] = ()
    misses: tuple[tuple[float, str], ...] = ()
    requests: tuple[tuple[float, Callable[..., Event]], ...] = ()
    segments_s: tuple[float, ...] = ()
    joins: tuple[tuple[float, Device], ...] = ()
    spares: bool = False
    known_settings: tuple[KnownSetting, ...] = ()
    known_responses: tuple[KnownResponse, ...] = ()
    advises: Callable[[AskSetting], tuple[Setting, bool]] | None = None
    refuses: frozenset[Setting] = frozenset()
    overloads: frozenset[Setting] = frozenset()
    never_recover: bool = False
    rounds_up_w: Mapping[str, float] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    core: Scheduler = field(default_factory=Scheduler)
    log: list[tuple[Event, tuple[Command, ...]]] = field(default_factory=list)
    ended: dict[str, JobState] = field(default_factory=dict)
    segments: int = 1
    now_s: float = 0.0

    def __post_init__(self) -> None:
        """Begin without an event."""
        self._order = count()
        self._events: list[tuple[float, int, Callable[..., Event], Callable[[], bool]]] = []
        self._attempt: dict[str, int] = {}
        self._began_s: dict[str, float] = {}  # start of the last attempt, by job
        self._refusals: dict[str, int] = {}
        self._stayed: dict[str, int] = {}
        self._windows: dict[str, tuple[str, set[str]]] = {}  # by job: its class, and its devices
        self._failed: set[str] = set()
        self._of_device: dict[int, str] = {}  # of each command to a device
        self._known = list(self.devices)
        self._invariants = Invariants(self.core, self._known, self._failed)
        self._arrived: set[str] = set()

    def run(self) -> VirtualDriver:
        """Run until no event is left, and check that the log replays to the same commands.

        Raises:
            AssertionError: The core broke an invariant, or it is not deterministic.
        """
        drive = CoreDriver(self.core, self, self, lambda event, commands: self.log.append((event, tuple(commands))))
        opened = partial(
            RunOpened,
            schema=SCHEMA,
            config=self.config,
            devices=self.devices,
            known_settings=self.known_settings,
            known_responses=self.known_responses,
        )
        self._at(0.0, opened)
        due_s = sorted([*self.segments_s, *(at_s for at_s, _ in self.joins)])
        for spec, script in self.jobs.values():
            self._at(script.arrival_s, partial(JobArrived, job=spec))
        if self.stop_s is not None:
            self._at(self.stop_s, partial(StopRequested, at_once=False), self._goes_on)
        for at_s, make in self.requests:
            self._at(at_s, make, self._goes_on)
        for at_s, device in self.failures:
            self._at(at_s, partial(self._fails, device), partial(self._is_used, device))
        for at_s, _ in self.joins:
            self._at(at_s, opened, lambda: False)  # nothing is told, but a segment may begin
        for at_s, name, phase in self.phases:
            self._at(at_s, partial(PhaseBegan, job=name, phase=phase), partial(self._may_be_in_phase, name))
        for at_s, name in self.misses:
            self._at(at_s, partial(TargetMissed, job=name, requests=100, missed=2), partial(self._runs, name))
        while self._events:
            self.now_s, _, make, wanted = heapq.heappop(self._events)
            if wanted() and not self._is_unheard(event := make(at_s=self.now_s)):
                self._tell(drive, event)
            if self.core.only_services_left and len(self._arrived) == len(self.jobs):
                self._tell(drive, WorkOver(self.now_s))
            if due_s and due_s[0] <= self.now_s and (segment := self.core.segment) is not None:
                del due_s[0]
                self._tell(drive, self._segment(opened, segment))
        again = Scheduler()
        assert all(tuple(again.handle(event)) == commands for event, commands in self.log), "it does not replay"
        return self

    def _segment(self, opened: Callable[..., RunOpened], segment: Segment) -> RunOpened:
        """Opening of a segment: failed devices and spare ones are gone, and others join."""
        self.segments += 1
        if self.spares and len(self._arrived) == len(self.jobs):
            spare = frozenset[str]()
            for _, name in segment.lanes:
                spare |= {name} if segment.spares(spare | {name}) else frozenset()
            segment = segment.without(spare)
        before = {name for _, name in segment.lanes}
        kept = [each for each in self._known if each.name in before]
        joined = [each for at_s, each in self.joins if at_s <= self.now_s and each not in self._known]
        self._known += joined
        classes = {spec.job_class for spec, _ in self.jobs.values()}
        devices = (*kept, *joined)
        return opened(at_s=self.now_s, devices=devices, segment=segment, **self.core.known(classes))

    def _tell(self, drive: CoreDriver, event: Event) -> None:
        if isinstance(event, JobArrived):
            self._arrived.add(event.job.name)
        drive.tell(event)
        for each in self.log[-1][1]:
            if isinstance(each, ProfileJob):
                self._of_device[each.id] = self.core.jobs[each.job].lanes[0].device.name
            elif isinstance(each, _OF_DEVICE):
                self._of_device[each.id] = each.device
        self.ended.update({job.spec.name: job.state for job in self.core.ended})
        self._invariants.check()

    def _is_unheard(self, event: Event) -> bool:
        """Whether an event is the answer of a device that answers nothing any more."""
        return self.silent and self._of_device.get(getattr(event, "command", 0)) in self._failed

    def _is_used(self, device: str) -> bool:
        return any(lane.device.name == device for lane in self.core.lanes.values())

    def _fails(self, device: str, at_s: float) -> DeviceFailed:
        self._failed.add(device)
        self._windows = {job: each for job, each in self._windows.items() if device not in each[1]}
        return DeviceFailed(at_s, device, "it is lost")

    def states(self) -> dict[str, JobState]:
        """State of every job that has arrived."""
        return {**self.ended, **{name: job.state for name, job in self.core.jobs.items()}}

    def _at(self, at_s: float, make: Callable[..., Event], wanted: Callable[[], bool] = lambda: True) -> None:
        if at_s < math.inf:
            heapq.heappush(self._events, (at_s, next(self._order), make, wanted))

    def _later(self, after_s: float, make: Callable[..., Event]) -> None:
        self._at(self.now_s + after_s, make)

    # Commands

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        self._later(0.0, partial(Done, command=command.id))

    def start_job(self, command: StartJob, now_s: float) -> None:
        _, script = self.jobs[command.job]
        assert not self._failed & {self.core.lanes[lane].device.name for lane in command.lanes}, "on a failed device"
        if self._refusals.setdefault(command.job, 0) < script.refused:
            self._refusals[command.job] += 1
            self._later(_ANSWER_S, partial(Refused, command=command.id, error="no such interpreter"))
            return
        self._invariants.check_memory(command.lanes)
        self._invariants.check_start(command.job)
        busy = {device for _, devices in self._windows.values() for device in devices}
        assert not busy & {self.core.lanes[lane].device.name for lane in command.lanes}, "started into a window"
        self._later(_ANSWER_S, partial(Done, command=command.id))
        self._attempt[command.job], self._began_s[command.job] = command.attempt, self.now_s
        if self.config.profile or self.config.host_bytes or self.config.displaces or script.longest_s:
            self._tell_progress(command.job, command.attempt, PROGRESS_S)
        length_s, outcome = script.attempts[min(command.attempt, len(script.attempts)) - 1]
        self._exit(command.job, command.attempt, 2 * _ANSWER_S + length_s, outcome)

    def set_caching(self, command: SetCaching, now_s: float) -> None:
        """See `NodeCommands`. It is answered before any later start."""
        self._later(_ANSWER_S, partial(Done, command=command.id))

    def limit_memory(self, command: LimitMemory, now_s: float) -> None:
        self._later(_ANSWER_S, partial(Done, command=command.id))

    def share_memory(self, command: ShareMemory, now_s: float) -> None:
        self._later(_ANSWER_S, partial(Done, command=command.id))

    def park_job(self, command: ParkJob, now_s: float) -> None:
        usage = self.core.jobs[command.job].usage
        self._answer_while(command, partial(Parked, command=command.id, usage=usage, took_s=_TRANSFER_S))

    def resume_job(self, command: ResumeJob, now_s: float) -> None:
        self._invariants.check_memory([lane.number for lane in self.core.jobs[command.job].lanes])
        self._answer_while(command, partial(Resumed, command=command.id, took_s=_TRANSFER_S))

    def _answer_while(self, command: ParkJob | ResumeJob, make: Callable[..., Event]) -> None:
        """Answer after a transfer, unless the attempt has ended by then."""
        self._at(self.now_s + _TRANSFER_S, make, lambda: self._attempt.get(command.job) == command.attempt)

    def move_job(self, command: MoveJob, now_s: float) -> None:
        if self._stayed.setdefault(command.job, 0) < self.jobs[command.job][1].stays:
            self._stayed[command.job] += 1
            self._later(_MEASURE_S, partial(Refused, command=command.id, error="it came to no end of an iteration"))
        else:
            self._later(_ANSWER_S, partial(Done, command=command.id))

    def set_shares(self, command: SetShares, now_s: float) -> None:
        assert {share.job for share in command.shares} <= set(self.jobs)

    def kill_job(self, command: KillJob, now_s: float) -> None:
        """See `NodeCommands`. A job whose start is refused has nothing to end."""
        attempt = self._attempt.get(command.job)
        if attempt is not None:
            self._exit(command.job, attempt, _ANSWER_S, Outcome.PRUNED if command.pruned else Outcome.STOPPED)

    def drop_job(self, command: DropJob, now_s: float) -> None:
        assert command.job not in self._attempt, "a paused trial does not run"

    def profile_job(self, command: ProfileJob, now_s: float) -> None:
        spec, script = self.jobs[command.job]
        devices = {lane.device.name for lane in self.core.jobs[command.job].lanes}
        assert not any(self.settings.get(device) for device in devices), "measured alone at another than the default"
        assert self.core.jobs[command.job].state is JobState.RUNNING
        for other_class, others in self._windows.values():
            assert not devices & others and other_class != spec.job_class, "two windows at once"
        self._windows[command.job] = spec.job_class, devices

        def make(at_s: float) -> Event:
            self._windows.pop(command.job, None)  # its device may have failed
            if isinstance(script.profile, str):
                return Profiled(at_s, command.id, None, script.profile)
            return Profiled(at_s, command.id, script.profile)

        self._later(WINDOW_S, make)

    def apply_setting(self, command: ApplySetting, now_s: float) -> None:

        def make(at_s: float) -> Event:
            if command.setting in self.refuses:
                return Refused(at_s, command.id, "value refused")
            self.settings[command.device] = command.setting
            return Done(at_s, command.id, self.shown_w(command) if command.device in self.rounds_up_w else None)

        self._later(_APPLY_S, make)

    def shown_w(self, command: ApplySetting) -> float:
        """Power limit (W) that a device has after a command. None is above the limit that was found."""
        found_w = next(each.power_limits_w[-1] for each in self.devices if each.name == command.device)
        limit_w = float(dict(command.setting).get(POWER_LIMIT, found_w))
        return min(found_w, limit_w + self.rounds_up_w.get(command.device, 0.0))

    def measure_setting(self, command: MeasureSetting, now_s: float) -> None:
        """See `NodeCommands`. A measurement is of the setting in force, and of jobs that run on the device.

        Under a policy that packs, jobs that get left-over turns alone are no part of it.
        """
        assert self.settings.get(command.device, ()) == command.setting
        running = {
            name
            for lane in self.core.lanes.values()
            for name, job in lane.jobs.items()
            if lane.device.name == command.device and job.state is JobState.RUNNING
        }
        assert command.jobs and set(command.jobs) <= running
        services = [name for name in command.jobs if self.core.jobs[name].spec.service is not None]
        found = Measurement(
            command.setting,
            MeasurementStatus.MEASURED,
            power_w=100.0,
            joules=100.0 * _MEASURE_S,
            duration_s=_MEASURE_S,
            times_s=dict.fromkeys(command.jobs, 0.1),
            services={name: ServiceFigures(100, 0, 10.0, 0.01, 1.0, 0.005) for name in services},
        )
        if command.setting in self.overloads and services:
            found = Measurement(command.setting, MeasurementStatus.CENSORED, overloaded=tuple(services))
        self._later(_MEASURE_S, partial(SettingMeasured, command=command.id, measurement=found))

    def await_requests(self, command: AwaitRequests, now_s: float) -> None:
        """See `NodeCommands`. Services recover at once, unless `never_recover` is set."""
        assert command.jobs and all(self.core.jobs[name].spec.service is not None for name in command.jobs)
        if self.never_recover:
            self._later(command.most_s, partial(Refused, command=command.id, error="they have not recovered"))
        else:
            self._later(_ADVICE_S, partial(Done, command=command.id))

    def ask_setting(self, command: AskSetting, now_s: float) -> None:
        assert self.advises is not None, "a search needs an adviser: give `advises`"
        setting, over = self.advises(command)
        self._later(_ADVICE_S, partial(SettingAdvised, command=command.id, setting=setting, over=over))

    def ask_interference(self, command: AskInterference, now_s: float) -> None:
        """See `RunCommands`. Nothing is known of any pair, so the policy goes by its own expectation."""
        self._later(_ADVICE_S, partial(InterferencePredicted, command=command.id, pairs=(), prices={}))

    def ask_power(self, command: AskPower, now_s: float) -> None:
        """See `RunCommands`. The speed grows with the square root of the limit, and a device draws its limit."""
        most_w = command.limits_w[-1]
        response = tuple(PowerPoint(each, (each / most_w) ** 0.5, each) for each in command.limits_w)
        self._later(_ADVICE_S, partial(PowerPredicted, command=command.id, response=response))

    def ask_planner(self, command: AskPlanner, now_s: float) -> None:
        self._later(_PLAN_S, partial(Planned, command=command.id, shares=shares(command)))

    def ask_sampler(self, command: AskSampler, now_s: float) -> None:
        """See `RunCommands`. No sweep has a trial here."""
        self._later(0.0, partial(Exhausted, command=command.id))

    def wake_at(self, command: WakeAt, now_s: float) -> None:
        segment = self.segments
        self._at(command.at_s, partial(Done, command=command.id), lambda: self.segments == segment)

    # Jobs

    def _tell_progress(self, name: str, attempt: int, after_s: float) -> None:
        """Report the progress of a job for as long as it runs."""

        def wanted() -> bool:
            return self._attempt.get(name) == attempt and self._runs(name)

        def make(at_s: float) -> Event:
            self._tell_progress(name, attempt, after_s + PROGRESS_S)
            done = int(_ITERATIONS_A_SECOND * after_s)
            tells = self.jobs[name][1].longest_s
            longest_s = 0.0 if tells is None else tells(after_s)
            usage = Usage(iterations=done, span_s=after_s, held_s=after_s, longest_iteration_s=longest_s)
            return IterationsDone(at_s, name, usage)

        self._at(self.now_s + PROGRESS_S, make, wanted)

    def _goes_on(self) -> bool:
        """Whether a job has not ended or is to come."""
        return self.core.live_jobs > 0 or len(self._arrived) < len(self.jobs)

    def _runs(self, name: str) -> bool:
        return name in self.core.jobs and self.core.jobs[name].state is JobState.RUNNING

    def _may_be_in_phase(self, name: str) -> bool:
        job = self.core.jobs.get(name)
        return job is not None and job.state in (
            JobState.RUNNING,
            JobState.PARKING,
            JobState.PARKED,
            JobState.RESUMING,
        )

    def _exit(self, name: str, attempt: int, after_s: float, outcome: Outcome) -> None:
        """End an attempt, unless an earlier cause has ended it."""

        def wanted() -> bool:
            return self._attempt.get(name) == attempt

        def make(at_s: float) -> Event:
            del self._attempt[name]
            return JobExited(at_s, name, attempt, outcome, 0, outcome.value, Usage(held_s=at_s - self._began_s[name]))

        self._at(self.now_s + after_s, make, wanted)
