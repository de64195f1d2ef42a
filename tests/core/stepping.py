"""Schedulers that get one event after the other: of one device, and of devices of different speeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import PairSpeed
from ecoshare.core.commands import Command, KillJob, StartJob, WakeAt
from ecoshare.core.events import SCHEMA, Config, Done, Event, InterferencePredicted, JobArrived, JobExited, RunOpened
from ecoshare.core.scheduler import Scheduler

GIB = 1 << 30
IDLE_W, ALONE_W = 40.0, 200.0
ERROR = 0.01


def solo(name: str) -> Solo:
    return Solo(name, 0.1, ALONE_W, IDLE_W)


AnyCommand = TypeVar("AnyCommand")


class Core:
    """Scheduler of one device that gets one event after the other; classes and the given pairs are known.

    Attributes:
        stopped: Jobs that the scheduler has stopped, in order.
        commands: All commands, in order.
        is_slow: Whether a job that the scheduler starts is still on its way; `begin` lets it run.
    """

    def __init__(
        self,
        policy: str = "energy",
        lanes: int = 3,
        places: int = 4,
        profile: bool = False,
        threads: int = 0,
        search: bool = False,
        enforces: bool = False,
    ) -> None:
        self.scheduler, self.now_s = Scheduler(), 0.0
        self.stopped: list[str] = []
        self.commands: list[Command] = []
        self.is_slow, self._starting = False, list[int]()
        device = Device("cpu" if threads else "cuda:0", "here", 8 * GIB, threads=threads)
        opened = self.scheduler.handle(
            RunOpened(
                0.0,
                SCHEMA,
                Config(policy, lanes, places, profile=profile, search=search, enforces_memory=enforces),
                (device,),
            )
        )
        for command in opened:
            self.scheduler.handle(Done(0.0, command.id))

    def arrive(self, name: str, gib: float = 1.0, **spec: object) -> None:
        known = JobSpec(name, name[0], memory=MemoryDemand(int(gib * GIB)), profiled=True, solo=solo(name[0]))
        self.tell(JobArrived(self.now_s, replace(known, **spec)))  # type: ignore[arg-type]

    def tell(self, event: object) -> None:
        """Handle an event; jobs move at once when the scheduler asks, and start at once unless they are slow."""
        commands = self.scheduler.handle(event)  # type: ignore[arg-type]
        self.commands += commands
        for command in commands:
            kind = type(command).__name__
            if kind == "StartJob" and self.is_slow:
                self._starting.append(command.id)
            elif kind in ("StartJob", "MoveJob"):
                self.tell(Done(self.now_s, command.id))
            elif kind == "AskInterference":
                self._asked = command.id
            elif isinstance(command, KillJob):
                self.stopped.append(command.job)

    def begin(self) -> None:
        """Let the jobs that are on their way run."""
        starting, self._starting = self._starting, []
        for command in starting:
            self.tell(Done(self.now_s, command))

    def last(self, kind: type[AnyCommand]) -> AnyCommand | None:
        """Last command of a kind; None if there was none."""
        return next((each for each in reversed(self.commands) if isinstance(each, kind)), None)

    def foresee(self, **speeds: float) -> None:
        """Predict speeds of pairs: `ab=0.9` is a beside b, and b beside a."""
        both = [(pair[place], pair[1 - place], speed) for pair, speed in speeds.items() for place in (0, 1)]
        pairs = [PairSpeed(one, other, speed, ERROR) for one, other, speed in both]
        self.tell(InterferencePredicted(self.now_s, self._asked, tuple(pairs), {}))


Speeds = Mapping[str, Mapping[str, float]]
"""Speeds by device, such as `a0` of node `a`, and by class."""


def devices(speeds: Speeds) -> tuple[Device, ...]:
    return tuple(Device(name, name[0], 8 * GIB, tuple(sorted(of.items()))) for name, of in speeds.items())


class Run:
    """Scheduler with a device for each job that gets its events from the test; commands are done at once.

    Attributes:
        places: Devices of each job that runs.
    """

    def __init__(
        self, speeds: Speeds, *jobs: JobSpec, policy: str = "pal", preempt: bool = True, **options: float
    ) -> None:
        """Open all lanes, and begin the first round with these jobs."""
        self.core = Scheduler()
        self.stopped: list[str] = []
        self.places: dict[str, tuple[str, ...]] = {}
        self._wakes: list[WakeAt] = []
        config = Config(policy, 1, 1, preempt=preempt, options=tuple(sorted(options.items())))
        opening = self.core.handle(RunOpened(0.0, SCHEMA, config, devices(speeds)))
        self.come(*jobs)
        for command in opening:
            self.tell(Done(0.0, command.id))

    def tell(self, event: Event) -> None:
        for command in self.core.handle(event):
            self._done(command, event.at_s)

    def come(self, *jobs: JobSpec, at_s: float = 0.0) -> None:
        for job in jobs:
            self.tell(JobArrived(at_s, job))

    def wait_until(self, at_s: float) -> None:
        """Wake the scheduler at each time that it asked for, up to `at_s`."""
        while due := [wake for wake in self._wakes if wake.at_s <= at_s]:
            self._wakes.remove(due[0])
            self.tell(Done(at_s, due[0].id))

    def end(self, job: str, at_s: float, outcome: Outcome = Outcome.COMPLETED) -> None:
        del self.places[job]
        self.tell(JobExited(at_s, job, self.core.jobs[job].attempt, outcome, 0, "", Usage()))

    def _done(self, command: Command, at_s: float) -> None:
        match command:
            case StartJob():
                self.places[command.job] = tuple(self.core.lanes[lane].device.name for lane in command.lanes)
                self.tell(Done(at_s, command.id))
            case KillJob():
                self.stopped.append(command.job)
                self.end(command.job, at_s, Outcome.STOPPED)
            case WakeAt():
                self._wakes.append(command)
