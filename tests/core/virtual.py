"""Driver of the core in virtual time, for tests: jobs are numbers, and every end is scripted."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from ecoshare.advisers.planners import shares
from ecoshare.core.commands import (
    ApplySetting,
    AskPlanner,
    AskSetting,
    Command,
    KillJob,
    MeasureSetting,
    OpenLane,
    ProfileJob,
    SetShares,
    StartJob,
    WakeAt,
)
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Device,
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    JobSpec,
    KnownSetting,
    Measurement,
    MeasurementStatus,
    Outcome,
    Planned,
    Profiled,
    Refused,
    RunOpened,
    Setting,
    SettingAdvised,
    SettingMeasured,
    StopRequested,
    Usage,
)
from ecoshare.core.memory import MemoryDemand
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.states import JobState


@dataclass
class Script:
    """Script of a job: length and outcome of each attempt; the last repeats.

    Attributes:
        profile: Result of a profiling window, or the reason why there is none.
    """

    arrival_s: float = 0.0
    attempts: tuple[tuple[float, Outcome], ...] = ((1.0, Outcome.COMPLETED),)
    refused: int = 0
    profile: MemoryDemand | str | None = None


TELLS_EVERY_S = 0.5
WINDOW_S = 0.7


@dataclass
class VirtualDriver:
    """Carries out commands in virtual time and checks what must hold after each event."""

    config: Config
    devices: tuple[Device, ...]
    jobs: dict[str, tuple[JobSpec, Script]]
    stop_s: float | None = None
    tuned: tuple[KnownSetting, ...] = ()
    advises: Callable[[AskSetting], tuple[Setting, bool]] | None = None
    refuses: frozenset[Setting] = frozenset()
    settings: dict[str, Setting] = field(default_factory=dict)
    core: Scheduler = field(default_factory=Scheduler)
    log: list[tuple[Event, tuple[Command, ...]]] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self._order = count()
        self._events: list[tuple[float, int, Callable[..., Event], Callable[[], bool]]] = []
        self._attempt: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._windows: dict[str, tuple[str, set[str]]] = {}  # class and devices of each job

    def run(self) -> VirtualDriver:
        """Run until no event is left."""
        self._at(
            0.0, partial(RunOpened, schema=SCHEMA, config=self.config, devices=self.devices, known_settings=self.tuned)
        )
        for spec, script in self.jobs.values():
            self._at(script.arrival_s, partial(JobArrived, job=spec))
        if self.stop_s is not None:
            self._at(self.stop_s, partial(StopRequested, at_once=False))
        while self._events:
            self.now_s, _, make, wanted = heapq.heappop(self._events)
            if not wanted():
                continue
            event = make(at_s=self.now_s)
            commands = tuple(self.core.handle(event))
            self.log.append((event, commands))
            for command in commands:
                self._carry_out(command)
            self._check()
        again = Scheduler()
        assert all(tuple(again.handle(event)) == commands for event, commands in self.log), "it does not replay"
        return self

    def states(self) -> dict[str, JobState]:
        """Outcome of every job."""
        return {name: job.state for name, job in self.core.jobs.items()}

    def _at(self, at_s: float, make: Callable[..., Event], wanted: Callable[[], bool] = lambda: True) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), make, wanted))

    def _carry_out(self, command: Command) -> None:
        match command:
            case OpenLane():
                self._at(self.now_s, partial(Done, command=command.id))
            case StartJob():
                self._start(command)
            case KillJob():
                attempt = self._attempt.get(command.job)
                if attempt is not None:  # else its start is refused, and there is nothing to end
                    self._exit(command.job, attempt, 0.01, Outcome.STOPPED)
            case ProfileJob():
                self._open_window(command)
            case ApplySetting():
                self._apply(command)
            case MeasureSetting():
                self._measure(command)
            case AskSetting():
                self._ask(command)
            case AskPlanner():
                self._at(self.now_s + 0.2, partial(Planned, command=command.id, shares=shares(command)))
            case WakeAt():
                self._at(command.at_s, partial(Done, command=command.id))
            case SetShares():
                assert {share.job for share in command.shares} <= set(self.jobs)

    def _start(self, command: StartJob) -> None:
        _, script = self.jobs[command.job]
        if self._refusals.setdefault(command.job, 0) < script.refused:
            self._refusals[command.job] += 1
            self._at(self.now_s + 0.01, partial(Refused, command=command.id, error="no such interpreter"))
            return
        busy = {device for _, devices in self._windows.values() for device in devices}
        assert not busy & {self.core.lanes[lane].device.name for lane in command.lanes}, "started into a window"
        self._at(self.now_s + 0.01, partial(Done, command=command.id))
        self._attempt[command.job] = command.attempt
        if self.config.profile:
            self._tell_progress(command.job, command.attempt, TELLS_EVERY_S)
        length_s, outcome = script.attempts[min(command.attempt, len(script.attempts)) - 1]
        self._exit(command.job, command.attempt, 0.02 + length_s, outcome)

    def _tell_progress(self, name: str, attempt: int, after_s: float) -> None:
        """Report the progress of a job for as long as it runs."""

        def wanted() -> bool:
            return self._attempt.get(name) == attempt and self.core.jobs[name].state is JobState.RUNNING

        def make(at_s: float) -> Any:
            self._tell_progress(name, attempt, after_s + TELLS_EVERY_S)
            return IterationsDone(at_s, name, Usage(iterations=int(20 * after_s), span_s=after_s, held_s=after_s))

        self._at(self.now_s + TELLS_EVERY_S, make, wanted)

    def _open_window(self, command: ProfileJob) -> None:
        spec, script = self.jobs[command.job]
        devices = {lane.device.name for lane in self.core.jobs[command.job].lanes}
        assert not any(self.settings.get(device) for device in devices), "measured alone at another than the default"
        assert self.core.jobs[command.job].state is JobState.RUNNING
        for other_class, others in self._windows.values():
            assert not devices & others and other_class != spec.job_class, "two windows at once"
        self._windows[command.job] = spec.job_class, devices

        def make(at_s: float) -> Any:
            del self._windows[command.job]
            if isinstance(script.profile, str):
                return Profiled(at_s, command.id, None, script.profile)
            return Profiled(at_s, command.id, script.profile)

        self._at(self.now_s + WINDOW_S, make)

    def _apply(self, command: ApplySetting) -> None:
        def make(at_s: float) -> Any:
            if command.setting in self.refuses:
                return Refused(at_s, command.id, "value refused")
            self.settings[command.device] = command.setting
            return Done(at_s, command.id)

        self._at(self.now_s + 0.05, make)

    def _measure(self, command: MeasureSetting) -> None:
        """Check that a measurement is of the setting in force and of all running jobs."""
        assert self.settings.get(command.device, ()) == command.setting
        running = {
            name
            for lane in self.core.lanes.values()
            for name, job in lane.jobs.items()
            if lane.device.name == command.device and job.state is JobState.RUNNING
        }
        assert set(command.jobs) == running and running
        times_s = dict.fromkeys(command.jobs, 0.1)
        trial = Measurement(
            command.setting, MeasurementStatus.MEASURED, power_w=100.0, joules=40.0, duration_s=0.4, times_s=times_s
        )
        self._at(self.now_s + 0.4, partial(SettingMeasured, command=command.id, measurement=trial))

    def _ask(self, command: AskSetting) -> None:
        assert self.advises is not None, "there is no adviser to ask"
        setting, over = self.advises(command)
        self._at(self.now_s + 0.1, partial(SettingAdvised, command=command.id, setting=setting, over=over))

    def _exit(self, name: str, attempt: int, after_s: float, outcome: Outcome) -> None:
        """End the attempt, once, by the first cause."""

        def wanted() -> bool:
            return self._attempt.get(name) == attempt

        def make(at_s: float) -> Any:
            del self._attempt[name]
            return JobExited(at_s, name, attempt, outcome, 0, outcome.value, Usage(held_s=after_s))

        self._at(self.now_s + after_s, make, wanted)

    def _check(self) -> None:
        """Check the safety condition of every lane, that gangs run wholly or not, and that no place counts twice."""
        for lane in self.core.lanes.values():
            demands = [job.demand for job in lane.jobs.values()]
            persistent = sum(demand.persistent_bytes for demand in demands)
            assert persistent + max((demand.ephemeral_bytes for demand in demands), default=0) <= lane.budget_bytes
            assert len(lane.jobs) <= lane.places
            gangs = [job for job in lane.jobs.values() if job.spec.gpus > 1]
            assert not gangs or len(lane.jobs) == 1
        for job in self.core.jobs.values():
            placed = [lane for lane in self.core.lanes.values() if job.spec.name in lane.jobs]
            active = job.state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
            assert len(placed) == (job.spec.gpus if active else 0), (job.spec.name, job.state)
            assert len({lane.device.name for lane in placed}) == len(placed)
            assert len({lane.device.node for lane in placed}) <= 1
        assert self.core.live_jobs == sum(not job.state.ended for job in self.core.jobs.values())
