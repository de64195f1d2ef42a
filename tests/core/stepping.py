"""Scheduler of one device that gets one event after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from ecoshare.core.commands import Command, KillJob
from ecoshare.core.events import SCHEMA, Config, Done, InterferencePredicted, JobArrived, RunOpened
from ecoshare.core.scheduler import Scheduler
from ecoshare.values.class_profile import MemoryDemand, Solo
from ecoshare.values.device import Device
from ecoshare.values.job_spec import JobSpec
from ecoshare.values.measurement import PairSpeed

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
