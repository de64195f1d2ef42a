"""Limits of allocators: a job gives room back before another one starts in it, and gets room before it needs it."""

from __future__ import annotations

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, KillJob, LimitMemory, ProfileJob, StartJob
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    Profiled,
    Refused,
    RunOpened,
)
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from tests.core.test_scheduler import LONG, drive, job

GIB = 1 << 30


class Measured:
    """Device on which a job of an unseen class runs and was measured, while another job waits.

    Attributes:
        limits: All limits that the scheduler asked for.
        killed: Jobs that it has stopped.
        order: Names of all commands.
    """

    def __init__(self, enforces: bool = True, threads: int = 0, slow_starts: bool = False) -> None:
        self.scheduler, self.limits = Scheduler(), list[LimitMemory]()
        self.killed, self.order = list[str](), list[str]()
        self._slow_starts, self._starting = slow_starts, list[int]()
        device = Device("cpu" if threads else "cuda:0", "here", 8 * GIB, threads=threads)
        config = Config("energy", 3, profile=True, enforces_memory=enforces)
        self.tell(RunOpened(0.0, SCHEMA, config, (device,)))
        self.tell(JobArrived(0.0, JobSpec("first", "first", solo=Solo("first.py"))))
        known = MemoryDemand(GIB, GIB)
        self.tell(JobArrived(0.0, JobSpec("second", "second", memory=known, profiled=True, solo=Solo("second.py"))))
        self._window: int | None = None
        if self.state("second") is JobState.RUNNING:
            self.tell(IterationsDone(2.0, "second", Usage(iterations=1)))
        self.tell(IterationsDone(2.0, "first", Usage(iterations=100, span_s=2.0, held_s=2.0)))
        assert self._window is not None
        self.tell(Profiled(6.0, self._window, MemoryDemand(GIB, GIB), solo=Solo("first.py", 0.02)))

    def tell(self, event: Event) -> None:
        for command in self.scheduler.handle(event):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        self.order.append(type(command).__name__)
        match command:
            case LimitMemory():
                self.limits.append(command)
            case KillJob():
                self.killed.append(command.job)
            case StartJob() if self._slow_starts and command.job == "second":
                self._starting.append(command.id)
            case ProfileJob():
                self._window = command.id
            case _ if type(command).__name__ in ("OpenLane", "StartJob"):
                self.tell(Done(0.0, command.id))

    def begin(self) -> None:
        """Let the jobs that are on their way run."""
        for command in self._starting:
            self.tell(Done(7.0, command))

    def state(self, name: str) -> JobState:
        return self.scheduler.jobs[name].state


def test_the_room_of_a_job_is_lowered_before_another_one_starts_in_it() -> None:
    """The driver holds the start until the first job has answered. Fails if both may take the same memory."""
    device = Measured(slow_starts=True)
    first, second = (device.scheduler.jobs[name] for name in ("first", "second"))
    (limit,) = device.limits
    assert first.demand == second.demand == MemoryDemand(GIB, int(1.5 * GIB)), "P + T, and an allowance"
    assert (limit.job, limit.cap_bytes) == ("first", 4 * GIB), "and half of what is left"
    assert first.cap_bytes == 8 * GIB and second.state is JobState.STARTING
    assert device.order[-3:] == ["LimitMemory", "StartJob", "SetShares"]
    device.tell(Done(7.0, limit.id))
    assert first.cap_bytes == 4 * GIB and second.cap_bytes == second.demand.peak_bytes
    device.begin()
    device.tell(IterationsDone(8.0, "second", Usage(iterations=1)))
    assert device.limits[1:] == [LimitMemory(device.limits[-1].id, "second", 1, 4 * GIB)], "it has shown a boundary"


def test_a_newcomer_gives_way_to_a_job_that_keeps_more() -> None:
    device = Measured(slow_starts=True)
    first, second = (device.scheduler.jobs[name] for name in ("first", "second"))
    device.tell(Refused(7.0, device.limits[0].id, "it keeps more"))
    assert first.demand.peak_bytes == 8 * GIB and second.state is JobState.STOPPING
    device.tell(JobExited(7.1, "second", 1, Outcome.STOPPED, None, "", Usage()))
    assert device.state("second") is JobState.QUEUED and not second.whole_device and len(device.limits) == 1
    device.tell(JobExited(8.0, "first", 1, Outcome.COMPLETED, 0, "", Usage()))
    assert device.state("second") is JobState.STARTING


def test_a_job_that_grows_gets_room_before_it_meets_its_limit() -> None:
    """The neighbour gives room up first. Fails if a job ends at a limit while memory is free."""
    device = Measured()
    first = device.scheduler.jobs["first"]
    device.tell(Done(7.0, device.limits[0].id))
    limits = len(device.limits)
    for tenths in range(25, 50):
        usage = Usage(iterations=100 + tenths, peak_bytes=tenths * GIB // 10, kept_bytes=(tenths - 10) * GIB // 10)
        device.tell(IterationsDone(7.0 + tenths, "first", usage))
        while limits < len(device.limits):
            limits += 1
            device.tell(Done(7.5 + tenths, device.limits[limits - 1].id))
        assert first.cap_bytes > usage.peak_bytes + GIB // 5, "room ahead of its demand"
    assert not device.killed and limits < 20


@pytest.mark.parametrize(("enforces", "threads"), [(False, 0), (True, 4)])
def test_memory_that_no_allocator_limits_is_free_at_once(enforces: bool, threads: int) -> None:
    device = Measured(enforces, threads)
    assert device.limits == [] and device.state("second") is JobState.RUNNING


@pytest.mark.parametrize("policy", ["energy", "jct"])
def test_a_job_that_turns_out_larger_than_its_grant_gives_way(policy: str) -> None:
    """Fails if a window of its class on another device leaves the jobs beside it without the memory of their grants."""
    devices = tuple(Device(name, "here", 8 * GIB) for name in ("gpu:0", "gpu:1"))
    large = {"job_class": "large", "attempts": LONG, "profile": MemoryDemand(5 * GIB)}
    known = job("known", job_class="known", attempts=LONG, memory=MemoryDemand(4 * GIB), profiled=True)
    late = job("late", arrival_s=1.2, **large)  # it starts while `early` is measured
    config = {"profile": True, "lanes_per_device": 2, "enforces_memory": False}
    driver = drive(policy, job("early", **large), known, late, devices=devices, config=config)
    kills = [(event, each) for event, commands in driver.log for each in commands if isinstance(each, KillJob)]
    [(event, kill)] = kills
    assert isinstance(event, Profiled)
    assert (kill.job, kill.reason) == ("late", "the jobs beside it need its memory"), "it alone has outgrown its grant"
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert driver.core.jobs["late"].demand.peak_bytes >= 5 * GIB
