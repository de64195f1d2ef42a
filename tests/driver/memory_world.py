"""A device in virtual time on which jobs allocate: the real core decides, and one memory shows whether it was right.

::

    core ──StartJob──► held until caches are empty ──► context ──► first turn: P ──► turns: T ──► exit, or a kill
         ──SetCaching─► lanes ──► each waiting job empties its cache some time later ──► Done
         ──MoveJob────► the job leaves its lane at a boundary some time later ──► Done
         ──ParkJob────► the same, and all of its memory leaves the device some time later ──► Parked
         ──ResumeJob──► its memory comes back some time later ──► Resumed
         ──LimitMemory► the job lowers or raises the limit of its allocator at a boundary ──► Done, or Refused

Turns, caches and delays are drawn at random, in the order in which lanes of real processes may have them. The rules at
a hand-over are written here a second time, in a few lines: `tests/lane/test_caches.py` checks them with real processes.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any
from unittest import mock

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core import memory
from ecoshare.core.commands import (
    AskInterference,
    Command,
    KillJob,
    LimitMemory,
    MoveJob,
    OpenLane,
    ParkJob,
    ResumeJob,
    SetCaching,
    SetShares,
    StartJob,
    WakeAt,
)
from ecoshare.core.driving import CoreDriver
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    Event,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    Refused,
    Resumed,
    RunOpened,
)
from ecoshare.core.memory import KEPT_ALLOWANCE_BYTES, LOST_SHARE
from ecoshare.core.placement import displacement
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from tests.driver.caching import SEGMENT_BYTES, CachingAllocator, rounded

MIB = 1 << 20
STEP_BYTES = 64 * MIB
"""Memory (bytes) by which a job grows at most at once, in segments."""


class RefusedByDevice(Exception):
    """The device had not enough memory, though the job was within its limit."""


@contextmanager
def short_stays() -> Iterator[None]:
    """Jobs keep their places for moments only, so that many are parked in the short life of these worlds."""
    with (
        mock.patch.multiple(memory, LEAST_STAY_S=0.05, BYTES_PER_S_AT_FIRST=1 << 50),
        mock.patch.object(displacement, "LOOK_AGAIN_S", 0.05),
    ):
        yield


@dataclass(frozen=True)
class Load:
    """Course of a job.

    Attributes:
        context_bytes: Memory of its process outside the allocator; a part of P.
        kept: Sizes (bytes) of the allocations that it keeps.
        work: Sizes (bytes) of the allocations of an iteration.
        iterations: Iterations until its end.
        killed_after: Iterations after which its process is killed once; None for never.
        grows: Allocations that it keeps from an iteration on, which its profile does not have: (iteration, bytes).
    """

    context_bytes: int
    kept: tuple[int, ...]
    work: tuple[int, ...]
    iterations: int
    killed_after: int | None = None
    grows: tuple[tuple[int, int], ...] = ()

    @property
    def demand(self) -> MemoryDemand:
        """Memory that a profile of the job would show."""
        allocator = CachingAllocator(lambda size: True, MemoryError, 1 << 62)
        for size in self.kept:
            allocator.allocate(size)
        persistent = allocator.reserved.current
        for size in self.work:
            allocator.allocate(size)
        return MemoryDemand(self.context_bytes + persistent, allocator.reserved.peak - persistent)

    def fits(self, device_bytes: int) -> bool:
        """Whether the job comes to its end alone on a device."""
        allocator = CachingAllocator(lambda size: True, MemoryError, device_bytes - self.context_bytes)
        try:
            for size in self.kept:
                allocator.allocate(size)
            for done in range(self.iterations):
                for size in self.work:
                    allocator.allocate(size)
                for size in self.work:
                    allocator.free(size)
                for _, size in (each for each in self.grows if each[0] == done):
                    allocator.allocate(size)
        except MemoryError:
            return False
        return True


@dataclass(eq=False)
class Process:
    """Process of one attempt.

    Attributes:
        cap_bytes: Limit of the process, its context included.
        lane: Lane in which it takes turns.
        goal: Move that it was asked to make; None for none.
        parks: Command to park it, until it rests; None for none.
        limit: Limit that it was asked to keep; None for none.
        emptied: Whether its cache is empty while it waits.
        work: Allocations (bytes) that are still to be made in the present iteration, before which it was cut.
        made: Allocations (bytes) of that iteration so far.
    """

    name: str
    attempt: int
    load: Load
    allocator: CachingAllocator
    cap_bytes: int
    lane: int
    goal: MoveJob | None = None
    parks: ParkJob | None = None
    limit: LimitMemory | None = None
    emptied: bool = True
    began: bool = False
    done: int = 0
    work: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        """Whether it waits inside an iteration."""
        return bool(self.work)


@dataclass
class Lane:
    """Lane of the device.

    Attributes:
        members: Processes in the lane.
        holder: Process that has the turn.
    """

    device: str
    members: list[Process] = field(default_factory=list)
    holder: Process | None = None


class MemoryWorld:
    """Devices, their memory and their jobs under the real core.

    Attributes:
        most_bytes: Most memory of a device that was taken at once.
        hand_overs: Number of turns that went from one job to another.
        emptied: Number of hand-overs at which a cache was emptied.
        parks: Number of times that a job was parked.
        cuts: Number of turns that ended inside an iteration.
        failures: Jobs to which a device refused memory that they were promised, in words.
        hasty: Jobs that met the limit of their allocator while the device had memory for them, in words.
        restarts: Attempts after the first of each job that has grown.
    """

    def __init__(
        self,
        seed: int,
        config: Config,
        device_bytes: int,
        loads: dict[str, Load],
        obeys: bool = True,
        devices: int = 1,
        cut_share: float = 0.0,
        cuts_without_memory: bool = False,
    ) -> None:
        """World without an event.

        Args:
            seed: Seed of all that is drawn.
            config: Decisions before the run.
            device_bytes: Memory of each device.
            loads: Jobs by name; they arrive in this order, at random times.
            obeys: Whether jobs empty caches when they are told to. False shows what is missing without it.
            devices: Number of devices.
            cut_share: Part of the iterations in which a turn is cut, if it may be, before another job has its own.
            cuts_without_memory: Whether turns are cut where caches are emptied, too. True shows why they must not be.
        """
        self._cut_share, self._cuts_without_memory = cut_share, cuts_without_memory
        self._draw, self._config, self._bytes, self._loads, self._obeys = (
            random.Random(seed),
            config,
            device_bytes,
            loads,
            obeys,
        )
        self._devices = tuple(Device(f"cuda:{number}", "here", device_bytes) for number in range(devices))
        self.core = Scheduler()
        self.log: list[tuple[Event, list[Command]]] = []
        self._drive = CoreDriver(self.core, self, self, lambda event, commands: self.log.append((event, commands)))
        self._events: list[tuple[float, int, Callable[[float], Event | None]]] = []
        self._order, self._now_s = count(), 0.0
        self._lanes: dict[int, Lane] = {}
        self._taken: dict[str, dict[str, int]] = {device.name: {} for device in self._devices}
        self._empties: set[str] = set()
        self._releasing: dict[str, list[int]] = {}
        self._parked: dict[str, Process] = {}
        self._held: dict[str, list[StartJob]] = {device.name: [] for device in self._devices}
        self.most_bytes = self.hand_overs = self.emptied = self.parks = self.cuts = 0
        self.failures: list[str] = []
        self.hasty: list[str] = []
        self.restarts: Counter[str] = Counter()

    def run(self) -> MemoryWorld:
        """Run until no event is left."""
        self.begin()
        while self._events:
            self.step()
        return self

    @property
    def next_s(self) -> float:
        """Time (s) of the next event; infinity if none is left."""
        return self._events[0][0] if self._events else math.inf

    def begin(self) -> None:
        """Open the run, and let its jobs arrive."""
        self._later(0.0, lambda at_s: RunOpened(at_s, SCHEMA, self._config, self._devices))
        at_s = 0.0
        for number, (name, load) in enumerate(self._loads.items()):
            at_s += self._draw.choice((0.0, 0.0, 0.3, 1.0)) * self._draw.random()
            spec = JobSpec(name, f"class{number}", memory=load.demand, profiled=True, priority=number % 3, solo=Solo())
            self._later(at_s, partial(JobArrived, job=spec))

    def step(self) -> None:
        """Let the next event happen."""
        self._now_s, _, make = heapq.heappop(self._events)
        event = make(self._now_s)
        if event is not None:
            self._drive.tell(event)

    def states(self) -> set[JobState]:
        """States of the jobs."""
        return {job.state for job in self.core.jobs.values()}

    # Commands

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        """Open a lane, and let turns begin there."""
        self._lanes[command.lane] = Lane(command.device)
        self._answer(command)

    def start_job(self, command: StartJob, now_s: float) -> None:
        """Start a process, or hold its start until caches are empty."""
        device = self._lanes[command.lanes[0]].device
        if self._loads[command.job].grows:
            self.restarts[command.job] += command.attempt > 1
        if self._is_releasing(device):
            self._held[device].append(command)
        else:
            self._launch(command)

    def set_caching(self, command: SetCaching, now_s: float) -> None:
        """Tell the processes of a device whether they keep their caches."""
        self._releasing.setdefault(command.device, []).append(command.id)
        if command.is_kept:
            self._empties.discard(command.device)
        else:
            self._empties.add(command.device)
            for process in self._idle(command.device):
                self._after(0.2, partial(self._empties_now, process))
        self._look(command.device)

    def limit_memory(self, command: LimitMemory, now_s: float) -> None:
        """Ask a process to limit its allocator; it answers at a boundary."""
        process = self._process(command.job)
        if process is not None and process.attempt == command.attempt:
            process.limit = command

    def set_shares(self, command: SetShares, now_s: float) -> None:
        """Turns are drawn, whatever the shares."""

    def move_job(self, command: MoveJob, now_s: float) -> None:
        """Ask a process to move; it goes while it waits, or at a boundary."""
        process = self._process(command.job)
        if process is None or process.attempt != command.attempt:
            return
        process.goal = command
        self._after(0.3, partial(self._moves_now, process))

    def kill_job(self, command: KillJob, now_s: float) -> None:
        """End a process, or take its start back."""
        for held in self._held.values():
            for start in held:
                if start.job == command.job:
                    held.remove(start)
                    self._exited(command.job, start.attempt, Outcome.STOPPED)
                    return
        process = self._process(command.job)
        if process is not None:
            self._after(0.1, partial(self._ends, process, Outcome.STOPPED))

    def park_job(self, command: ParkJob, now_s: float) -> None:
        """Ask a process to rest; it does while it waits, or at a boundary."""
        process = self._process(command.job)
        if process is not None and process.attempt == command.attempt:
            process.parks = command
            self._after(0.3, partial(self._parks_now, process))

    def resume_job(self, command: ResumeJob, now_s: float) -> None:
        """Give a process its memory back, once no cache takes it any more."""
        process = self._parked[command.job]

        def back(at_s: float) -> Event | None:
            if self._is_releasing(self._lanes[process.lane].device):
                self._later(0.01, back)
                return None
            del self._parked[command.job]
            assert self._resize(process, process.load.context_bytes + process.allocator.reserved.current)
            self._lanes[process.lane].members.append(process)
            self._after(0.05, partial(self._turn, process.lane))
            return Resumed(at_s, command.id, 0.0)

        self._later(0.05 * self._draw.random(), back)

    def ask_interference(self, command: AskInterference, now_s: float) -> None:
        """Nothing is known of any pair."""
        self._later(0.05, partial(InterferencePredicted, command=command.id, pairs=(), prices={}))

    def wake_at(self, command: WakeAt, now_s: float) -> None:
        """Answer when the time has come."""
        self._later(max(0.0, command.at_s - now_s), partial(Done, command=command.id))

    def __getattr__(self, name: str) -> Any:
        """Commands that these runs never have."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda command, now_s: pytest_fail(command)

    # Processes

    def _launch(self, command: StartJob) -> None:
        load, lane = self._loads[command.job], self._lanes[command.lanes[0]]

        def resize(size_bytes: int) -> bool:
            return self._resize(process, load.context_bytes + size_bytes)

        allocator = CachingAllocator(resize, MemoryError, command.cap_bytes - load.context_bytes)
        process = Process(command.job, command.attempt, load, allocator, command.cap_bytes, command.lanes[0])

        def begin(at_s: float) -> Event:
            self._resize(process, load.context_bytes)
            lane.members.append(process)
            self._after(0.05, partial(self._turn, command.lanes[0]))
            return Done(at_s, command.id)

        self._later(0.05 * self._draw.random(), begin)

    def _resize(self, process: Process, size_bytes: int) -> bool:
        taken = self._taken[self._lanes[process.lane].device]
        together = sum(taken.values()) - taken.get(process.name, 0) + size_bytes
        if together > self._bytes + KEPT_ALLOWANCE_BYTES * len(taken):  # a run leaves that free
            self.failures.append(f"{process.name} wants {size_bytes // MIB} MiB of its {process.cap_bytes // MIB} MiB")
            return False
        taken[process.name] = size_bytes
        self.most_bytes = max(self.most_bytes, together)
        return True

    def _turn(self, number: int, at_s: float) -> None:
        """Let the turn of a lane change hands, and its new holder do an iteration."""
        lane = self._lanes[number]
        before = lane.holder if lane.holder in lane.members else None
        if before is not None and not before.is_cut and (before.goal is not None or before.parks is not None):
            self._moves_now(before, at_s)
            self._parks_now(before, at_s)
            before = None
        if not lane.members:
            lane.holder = None
            return
        empties = lane.device in self._empties and self._obeys
        may_cut = not empties or self._cuts_without_memory
        after = self._draw.choice(lane.members)
        if before is not None and before.is_cut and not may_cut:
            after = before
        if before is not None and after is not before:
            self.hand_overs += 1
            self.cuts += before.is_cut
            if empties and not before.is_cut:
                self.emptied += 1
                before.allocator.empty_cache()
                before.emptied = True
        lane.holder = after
        after.emptied = False
        if after.done and not after.is_cut:
            self._limits_now(after)
        self._look(lane.device)
        self._iterate(after, at_s)
        if lane.members:
            self._after(0.1, partial(self._turn, number))

    def _iterate(self, process: Process, at_s: float) -> None:
        allocator = process.allocator
        try:
            if not process.began:
                process.began = True
                for size in process.load.kept:
                    allocator.allocate(size)
            if process.work:
                work, process.work = process.work, []
            else:
                work = list(process.load.work)
                self._draw.shuffle(work)
            if self._cut_share and self._draw.random() < self._cut_share:
                place = self._draw.randrange(len(work) + 1)
                work, process.work = work[:place], work[place:]
            for size in work:
                allocator.allocate(size)
                process.made.append(size)
            if process.is_cut:
                return
            for size in process.made:
                allocator.free(size)
            process.made.clear()
            for _, size in (each for each in process.load.grows if each[0] == process.done):
                allocator.allocate(size)
        except MemoryError as error:
            self._note_hasty(process, int(str(error).split()[0]))
            self._ends(process, Outcome.OUT_OF_MEMORY, at_s)
            return
        process.done += 1
        if process.done == 1 or process.load.grows:
            peak_bytes, kept_bytes = allocator.allocated.peak, allocator.kept_bytes
            context_bytes = process.load.context_bytes
            usage = Usage(process.done, peak_bytes=context_bytes + peak_bytes, kept_bytes=context_bytes + kept_bytes)
            self._later(0.0, partial(IterationsDone, job=process.name, usage=usage))
        if process.done == process.load.killed_after and process.attempt == 1:
            self._ends(process, Outcome.LOST, at_s)
        elif process.done >= process.load.iterations:
            self._ends(process, Outcome.COMPLETED, at_s)

    def _note_hasty(self, process: Process, wanted_bytes: int) -> None:
        """Note a process at its limit, if its step was smaller than its part of the memory that no job was promised.

        Args:
            process: Process that has failed.
            wanted_bytes: Memory that its allocator wanted to reserve in all.
        """
        device = self._lanes[process.lane].device
        taken = self._taken[device]
        others = [each for each in self.core.jobs.values() if device in each.device_names]
        others = [each for each in others if each.spec.name != process.name]
        promised = sum(max(taken.get(each.spec.name, 0), each.demand.peak_bytes) for each in others)
        free_bytes = self._bytes - promised - process.load.context_bytes - wanted_bytes
        # All jobs have equal parts of the free memory as room. Fragments may cost the largest block once more.
        step_bytes = STEP_BYTES + max(process.load.work, default=0)
        if free_bytes > len(others) * step_bytes:
            self.hasty.append(
                f"{process.name} ended at {process.cap_bytes // MIB} MiB with {free_bytes // MIB} MiB free"
            )

    def _limits_now(self, process: Process) -> None:
        """Answer a limit at a boundary."""
        command, process.limit = process.limit, None
        if command is None:
            return
        allocator, most_bytes = process.allocator, command.cap_bytes - process.load.context_bytes
        if allocator.reserved.current > most_bytes:
            allocator.empty_cache()
        needed_bytes = max(allocator.reserved.current, (1.0 + LOST_SHARE) * allocator.allocated.peak)
        if needed_bytes > most_bytes < allocator.cap_bytes:
            self._later(0.0, partial(Refused, command=command.id, error="the job keeps more memory than that"))
        else:
            allocator.cap_bytes, process.cap_bytes = most_bytes, command.cap_bytes
            self._later(0.0, partial(Done, command=command.id))

    def _is_releasing(self, device: str) -> bool:
        """Whether jobs of a device still have to give memory back, so that no other job may take any."""
        here = (each for lane in self._lanes.values() if lane.device == device for each in lane.members)
        return device in self._releasing or any(each.limit is not None for each in here)

    def _ends(self, process: Process, outcome: Outcome, at_s: float) -> None:
        lane = self._lanes[process.lane]
        if process not in lane.members:
            return
        lane.members.remove(process)
        if lane.holder is process:
            lane.holder = None
            self._after(0.05, partial(self._turn, process.lane))
        del self._taken[lane.device][process.name]
        self._exited(process.name, process.attempt, outcome)
        self._look(lane.device)

    def _exited(self, name: str, attempt: int, outcome: Outcome) -> None:
        self._later(
            0.0,
            partial(JobExited, job=name, attempt=attempt, outcome=outcome, exit_code=None, reason="", usage=Usage()),
        )

    def _moves_now(self, process: Process, at_s: float) -> None:
        move, lane = process.goal, self._lanes[process.lane]
        if move is None or process not in lane.members:
            return
        if process.is_cut and lane.device in self._empties:
            return  # it moves at its boundary
        process.goal = None
        if lane.device in self._empties and self._obeys:
            process.allocator.empty_cache()
            process.emptied = True
        self._leave_lane(process)
        process.lane = move.lane
        self._lanes[move.lane].members.append(process)
        self._after(0.05, partial(self._turn, move.lane))
        self._answer(move)

    def _parks_now(self, process: Process, at_s: float) -> None:
        park, lane = process.parks, self._lanes[process.lane]
        if park is None or process not in lane.members or process.is_cut:
            return
        process.parks = None
        process.allocator.empty_cache()
        process.emptied = True
        self._leave_lane(process)
        self._look(lane.device)
        self._parked[process.name] = process
        self.parks += 1

        def gone(at_s: float) -> Event:
            del self._taken[lane.device][process.name]
            return Parked(at_s, park.id, Usage(iterations=process.done), 0.0)

        self._later(0.05 * self._draw.random(), gone)

    def _leave_lane(self, process: Process) -> None:
        lane = self._lanes[process.lane]
        lane.members.remove(process)
        if lane.holder is process:
            lane.holder = None
            self._after(0.05, partial(self._turn, process.lane))

    def _empties_now(self, process: Process, at_s: float) -> None:
        lane = self._lanes[process.lane]
        if process in lane.members and lane.holder is not process and self._obeys and not process.is_cut:
            process.allocator.empty_cache()
            process.emptied = True
        self._look(lane.device)

    def _look(self, device: str) -> None:
        """Answer the commands about caches, and start what waits, once no idle process has a cache."""
        waits = device in self._empties and self._obeys and any(not each.emptied for each in self._idle(device))
        if waits:
            return
        for command in self._releasing.pop(device, []):
            self._later(0.0, partial(Done, command=command))
        if self._is_releasing(device):
            return
        held, self._held[device] = self._held[device], []
        for start in held:
            self._launch(start)

    def _idle(self, device: str) -> list[Process]:
        """Processes of a device without the turn."""
        lanes = [lane for lane in self._lanes.values() if lane.device == device]
        return [each for lane in lanes for each in lane.members if each is not lane.holder]

    def _process(self, name: str) -> Process | None:
        return next((each for lane in self._lanes.values() for each in lane.members if each.name == name), None)

    # Time

    def _answer(self, command: Any) -> None:
        self._later(0.02 * self._draw.random(), partial(Done, command=command.id))

    def _after(self, most_s: float, act: Callable[[float], None]) -> None:
        def make(at_s: float) -> None:
            act(at_s)

        self._later(most_s * self._draw.random(), make)

    def _later(self, after_s: float, make: Callable[[float], Event | None]) -> None:
        heapq.heappush(self._events, (self._now_s + after_s, next(self._order), make))


def pytest_fail(command: Command) -> None:
    """Fail: no run of this world has such a command."""
    raise AssertionError(f"unexpected {command}")


def drawn(seed: int, device_bytes: int, jobs: int, growing: bool = False) -> dict[str, Load]:
    """Random jobs that each fit the device alone, with contexts of 300 to 500 MiB.

    Args:
        seed: Seed of all that is drawn.
        device_bytes: Memory of the device.
        jobs: Number of jobs.
        growing: Whether every other job keeps more and more memory that its profile does not have.
    """
    draw = random.Random(seed)
    loads = {f"job{number}": _drawn(draw, device_bytes) for number in range(jobs)}
    return {name: _grown(draw, each, device_bytes) if growing else each for name, each in loads.items()}


def _grown(draw: random.Random, load: Load, device_bytes: int) -> Load:
    if draw.random() < 0.5:
        return load
    room_bytes = 0.8 * (device_bytes - load.demand.peak_bytes) * draw.random()
    step_bytes = draw.randrange(8, 33) * MIB
    steps, first = min(int(room_bytes // step_bytes), 60), draw.randrange(2, 6)
    while steps > 0:
        grows = tuple((first + number, step_bytes) for number in range(steps))
        larger = replace(load, grows=grows, iterations=load.iterations + steps)
        if larger.fits(
            int(0.9 * device_bytes)
        ):  # the order of its allocations is drawn, and with it what fragments take
            return larger
        steps //= 2
    return load


def _drawn(draw: random.Random, device_bytes: int) -> Load:
    context_bytes = draw.randrange(300, 501) * MIB
    room_bytes = int((device_bytes - context_bytes) * draw.choice((0.1, 0.15, 0.2, 0.4, 0.5, 0.95)))
    kept_bytes = int(room_bytes * draw.choice((0.1, 0.3, 0.6, 0.97, 0.97)))
    kept = _pieces(draw, kept_bytes)
    work = _pieces(draw, room_bytes - kept_bytes - len(kept) * SEGMENT_BYTES)
    killed = draw.randrange(1, 5) if draw.random() < 0.2 else None
    return Load(context_bytes, kept, work, draw.randrange(10, 60), killed)


def _pieces(draw: random.Random, total_bytes: int) -> tuple[int, ...]:
    """Sizes of a few allocations. Their segments together take about this much."""
    pieces = [draw.randrange(1000, 500_000) for _ in range(draw.randrange(3))]
    left_bytes = total_bytes - SEGMENT_BYTES
    while left_bytes > 64 * MIB and len(pieces) < 6:
        piece = rounded(int(left_bytes * draw.uniform(0.3, 0.9)), SEGMENT_BYTES)
        pieces.append(piece)
        left_bytes -= piece
    return tuple(pieces)
