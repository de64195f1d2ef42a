"""Memory that a job gives back after it was measured: free only once the allocator of the job is limited."""

from __future__ import annotations

import pytest

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
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.states import JobState
from ecoshare.values.attempt import Outcome, Usage
from ecoshare.values.class_profile import MemoryDemand, Solo
from ecoshare.values.device import Device
from ecoshare.values.job_spec import JobSpec
from tests.core.test_scheduler import LONG, drive, job

GIB = 1 << 30


class Measured:
    """Device on which a job of an unseen class runs and was measured, while another job waits.

    Attributes:
        limits: Limits that have no answer yet.
    """

    def __init__(self, enforces: bool = True, threads: int = 0) -> None:
        self.scheduler, self.limits = Scheduler(), list[LimitMemory]()
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
        match command:
            case LimitMemory():
                self.limits.append(command)
            case ProfileJob():
                self._window = command.id
            case _ if type(command).__name__ in ("OpenLane", "StartJob"):
                self.tell(Done(0.0, command.id))

    def state(self, name: str) -> JobState:
        return self.scheduler.jobs[name].state


def test_room_is_given_only_once_the_allocator_is_limited() -> None:
    """Fails if a second job starts in memory that the first may still take."""
    device = Measured()
    (limit,) = device.limits
    assert (limit.job, limit.cap_bytes) == ("first", int(2.5 * GIB)), "P + T, and an allowance"
    assert device.state("second") is JobState.QUEUED
    assert device.scheduler.jobs["first"].cap_bytes == 8 * GIB
    device.tell(Done(7.0, limit.id))
    assert device.scheduler.jobs["first"].cap_bytes == limit.cap_bytes
    assert device.scheduler.jobs["first"].demand == MemoryDemand(GIB, int(1.5 * GIB))
    assert device.state("second") is JobState.RUNNING


def test_a_job_that_keeps_more_has_all_that_it_had() -> None:
    device = Measured()
    device.tell(Refused(7.0, device.limits[0].id, "it keeps more"))
    assert device.scheduler.jobs["first"].demand == MemoryDemand(8 * GIB)
    assert device.state("second") is JobState.QUEUED and len(device.limits) == 1


def test_the_end_of_the_job_is_the_answer() -> None:
    device = Measured()
    device.tell(JobExited(7.0, "first", 1, Outcome.COMPLETED, 0, "", Usage()))
    assert device.state("second") is JobState.RUNNING


@pytest.mark.parametrize(("enforces", "threads"), [(False, 0), (True, 4)])
def test_memory_that_no_allocator_limits_is_free_at_once(enforces: bool, threads: int) -> None:
    device = Measured(enforces, threads)
    assert device.limits == [] and device.state("second") is JobState.RUNNING


def test_a_start_follows_the_limit_in_the_commands() -> None:
    device = Measured()
    kinds = [type(command) for command in device.scheduler.handle(Done(7.0, device.limits[0].id))]
    assert StartJob in kinds


@pytest.mark.parametrize("policy", ["energy", "jct"])
@pytest.mark.parametrize("threads", [0, 4], ids=["simulated", "processors"])
def test_a_job_that_turns_out_larger_than_its_grant_gives_way(policy: str, threads: int) -> None:
    """Fails if a window of its class on another device leaves the jobs beside it without the memory of their grants."""
    devices = tuple(Device(name, "here", 8 * GIB, threads=threads) for name in ("cpu:0", "cpu:1"))
    large = {"job_class": "large", "attempts": LONG, "profile": MemoryDemand(5 * GIB)}
    known = job("known", job_class="known", attempts=LONG, memory=MemoryDemand(4 * GIB), profiled=True)
    late = job("late", arrival_s=1.2, **large)  # it starts while `early` is measured
    config = {"profile": True, "lanes_per_device": 2, "enforces_memory": threads > 0}
    driver = drive(policy, job("early", **large), known, late, devices=devices, config=config)
    kills = [(event, each) for event, commands in driver.log for each in commands if isinstance(each, KillJob)]
    [(event, kill)] = kills
    assert isinstance(event, Profiled)
    assert (kill.job, kill.reason) == ("late", "the jobs beside it need its memory"), "it alone has outgrown its grant"
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert driver.core.jobs["late"].demand.peak_bytes >= 5 * GIB
