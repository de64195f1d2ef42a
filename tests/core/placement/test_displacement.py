"""Running jobs that are parked or stopped, so that a waiting job ahead of them in the order has room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, KillJob, MoveJob, OpenLane, ParkJob, ResumeJob, StartJob, WakeAt
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    Refused,
    Resumed,
    RunOpened,
    StopRequested,
)
from ecoshare.core.memory import LEAST_STAY_S, TRANSFER_SHARE
from ecoshare.core.reasons import Doing
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.record import event_log
from ecoshare.record.event_log import EventLog
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.explanation import explain

GIB = 1 << 30
LONG_S = 1000.0
"""Time (s) after which any job of these tests may be displaced."""


class World:
    """Scheduler of devices of 8 GiB, one by default; answers are given by hand.

    Attributes:
        commands: Commands without an answer, in order.
        now_s: Time (s) of the next event.
    """

    def __init__(
        self,
        policy: str,
        lanes: int = 1,
        places: int = 2,
        host_gib: float = 64,
        displaces: bool = False,
        devices: int = 1,
    ):
        self.core, self.now_s = Scheduler(), 0.0
        self.commands: list[Command] = []
        config = Config(policy, lanes, places, host_bytes=int(host_gib * GIB), displaces=displaces)
        found = tuple(Device(f"cuda:{number}", "here", 8 * GIB) for number in range(devices))
        self.tell(RunOpened(0.0, SCHEMA, config, found))
        for command in self.take(object):
            self.tell(Done(0.0, command.id))

    def tell(self, event: Event) -> None:
        """Let the scheduler handle an event."""
        self.commands += self.core.handle(event)

    def take(self, kind: type) -> list:  # type: ignore[type-arg]
        """Take out the commands of a kind."""
        found = [each for each in self.commands if isinstance(each, kind)]
        self.commands = [each for each in self.commands if not isinstance(each, kind)]
        return found

    def arrive(self, name: str, persistent_gib: float = 1.0, ephemeral_gib: float = 1.0, **spec: object) -> None:
        """Let a job arrive."""
        memory = MemoryDemand(int(persistent_gib * GIB), int(ephemeral_gib * GIB))
        job = JobSpec(name, name[0], memory=memory, profiled=True)
        self.tell(JobArrived(self.now_s, replace(job, **spec)))  # type: ignore[arg-type]

    def start(self, *names: str) -> None:
        """Acknowledge the starts of these jobs, and let them show an iteration."""
        starts = self.take(StartJob)
        assert [each.job for each in starts] == list(names)
        for start in starts:
            self.tell(Done(self.now_s, start.id))
            self.progress(start.job, 1.0)

    def progress(self, name: str, held_s: float, **usage: object) -> None:
        """Report that a job has held its turn for this time."""
        given = Usage(iterations=int(10 * held_s) or 1, held_s=held_s)
        self.tell(IterationsDone(self.now_s, name, replace(given, **usage)))  # type: ignore[arg-type]

    def wait(self, seconds: float) -> None:
        """Let time pass; the scheduler is woken as it asked."""
        until_s = self.now_s + seconds
        while wakes := [each for each in self.commands if isinstance(each, WakeAt) and each.at_s <= until_s]:
            first = min(wakes, key=lambda each: each.at_s)
            self.commands.remove(first)
            self.now_s = max(self.now_s, first.at_s)
            self.tell(Done(self.now_s, first.id))
        self.now_s = until_s

    def park(self, *names: str, took_s: float = 0.1) -> None:
        """Acknowledge that these jobs are parked."""
        parks = self.take(ParkJob)
        assert [each.job for each in parks] == list(names)
        for park in parks:
            self.tell(Parked(self.now_s, park.id, self.core.jobs[park.job].usage, took_s))

    def resume(self, *names: str, took_s: float = 0.1) -> None:
        """Acknowledge that these jobs have their memory back."""
        resumes = self.take(ResumeJob)
        assert [each.job for each in resumes] == list(names)
        for resume in resumes:
            self.tell(Resumed(self.now_s, resume.id, took_s))

    def end(self, name: str, outcome: Outcome = Outcome.COMPLETED) -> None:
        """End an attempt of a job."""
        job = self.core.jobs[name]
        self.tell(JobExited(self.now_s, name, job.attempt, outcome, 0, "", job.usage))

    def states(self) -> str:
        """States of the jobs, in the order of arrival."""
        return " ".join(job.state.value for job in self.core.jobs.values())


def full(policy: str = "priority", **options: object) -> World:
    """World with two running jobs of priority 0 in its two places, which may be displaced."""
    world = World(policy, **options)  # type: ignore[arg-type]
    world.arrive("a")
    world.arrive("b")
    world.start("a", "b")
    world.wait(LONG_S)
    return world


def test_an_urgent_job_gets_the_place_of_the_last_one_in_the_order() -> None:
    """Four jobs of 28 hours would otherwise keep a job of five seconds from running."""
    world = full()
    world.arrive("urgent", priority=99)
    world.park("b")
    assert world.states() == "running parked starting"
    world.start("urgent")
    assert not world.take(ParkJob), "the order is kept now"
    world.end("urgent")
    world.resume("b")
    assert world.states() == "running running completed"
    assert world.core.jobs["b"].attempt == 1, "the process lived on"


def test_without_host_memory_jobs_keep_their_places() -> None:
    world = full(host_gib=0)
    world.arrive("urgent", priority=99)
    assert not world.take(ParkJob) and world.states() == "running running queued"


def test_a_place_alone_does_not_help_a_job_without_memory() -> None:
    """It takes all of both jobs' memory, so both are parked; and one of 9 GiB is not helped by any."""
    world = full()
    world.arrive("huge", 1.0, 8.5, priority=99)
    assert world.core.jobs["huge"].state is JobState.FAILED
    world.arrive("large", 1.0, 7.0, priority=99)
    world.park("b", "a")
    world.start("large")


def test_no_more_jobs_leave_than_must() -> None:
    """The last job in the order is small, and its memory is not enough: the one before it leaves alone."""
    world = World("priority", places=4)
    world.arrive("a", 4.0, 1.0, priority=2)
    world.arrive("b", 0.1, 0.1, priority=1)
    world.start("a", "b")
    world.wait(LONG_S)
    world.arrive("urgent", 5.0, 1.0, priority=99)
    world.park("a")
    world.start("urgent")
    assert world.states() == "parked running running"


def test_the_last_job_in_the_order_leaves_whatever_its_device() -> None:
    """If it failed, the job of the first device would leave, and then the other one for it."""
    world = World("priority", places=1, devices=2)
    world.arrive("a", priority=2)
    world.arrive("b", priority=1)
    world.start("a", "b")
    world.wait(LONG_S)
    world.arrive("urgent", priority=99)
    world.arrive("late")  # while b is on its way to the host
    world.park("b")
    world.start("urgent")
    world.wait(LONG_S)
    assert not world.take(ParkJob) and world.states() == "running parked running queued"


def test_an_equally_urgent_job_waits() -> None:
    world = full()
    world.arrive("c")
    world.wait(LONG_S)
    assert not world.take(ParkJob) and world.states() == "running running queued"


def test_a_job_keeps_its_place_until_the_transfers_are_worth_it() -> None:
    world = World("priority")
    world.arrive("a")
    world.arrive("b")
    world.start("a", "b")
    world.arrive("urgent", priority=99)
    transfer_s = world.core.view.placement.host.transfer_s(world.core.jobs["b"], "cuda:0")
    world.wait(0.9 * 2 * 2 * transfer_s / TRANSFER_SHARE)
    assert not world.take(ParkJob)
    world.wait(0.2 * 2 * 2 * transfer_s / TRANSFER_SHARE)
    world.park("b", took_s=10 * transfer_s)
    world.start("urgent")
    assert world.core.view.placement.host.transfer_s(world.core.jobs["b"], "cuda:0") == 10 * transfer_s, "as measured"


def test_parked_jobs_take_no_more_than_the_host_has() -> None:
    world = full(host_gib=1.5)
    world.arrive("large", 7.0, 1.0, priority=99)
    assert not world.take(ParkJob), "it would need both places, and the host has room for one job"
    world.arrive("urgent", priority=99)
    world.park("b")
    world.start("urgent")
    world.arrive("another", priority=99)
    assert not world.take(ParkJob)


@pytest.mark.parametrize(
    "spec",
    [{"fused": True}, {"sweep": "s"}],
    ids=["a job that may share its process", "a trial"],
)
def test_these_jobs_are_never_parked(spec: dict[str, Any]) -> None:
    world = World("priority")
    world.arrive("a", **spec)
    world.arrive("b", **spec)
    world.start("a", "b")
    world.wait(LONG_S)
    world.arrive("urgent", priority=99)
    assert not world.take(ParkJob)


def test_a_job_that_keeps_its_lane_is_not_parked() -> None:
    world = full()
    world.progress("b", 2.0, keeps_lane="its children use the device")
    world.arrive("urgent", priority=99)
    world.park("a")


def test_a_refused_job_runs_on_and_another_one_is_parked() -> None:
    world = full()
    world.arrive("urgent", priority=99)
    (park,) = world.take(ParkJob)
    world.tell(Refused(world.now_s, park.id, "it uses managed memory"))
    assert world.core.jobs["b"].state is JobState.RUNNING
    world.park("a")
    world.start("urgent")
    world.end("urgent")
    world.resume("a")


def test_room_is_kept_for_the_job_that_others_leave_for() -> None:
    """While one of two victims is gone already, a small job behind in the order does not take its room."""
    world = full(places=3)
    world.arrive("large", 6.0, 2.0, priority=99)
    first, second = world.take(ParkJob)
    world.tell(Parked(world.now_s, first.id, Usage(iterations=10, held_s=1.0), 0.1))
    world.arrive("small", 0.1, 0.1)
    assert not world.take(StartJob)
    world.tell(Parked(world.now_s, second.id, Usage(iterations=10, held_s=1.0), 0.1))
    world.start("large")


def test_a_job_that_ends_instead_of_being_parked_makes_room_as_well() -> None:
    world = full()
    world.arrive("urgent", priority=99)
    (park,) = world.take(ParkJob)
    world.end(park.job)
    world.start("urgent")
    assert world.states() == "running completed running"


def test_a_parked_job_that_dies_begins_again() -> None:
    world = full()
    world.arrive("urgent", priority=99)
    world.park("b")
    world.start("urgent")
    world.end("b", Outcome.LOST)
    assert world.core.jobs["b"].state is JobState.QUEUED
    world.end("urgent")
    world.start("b")
    assert world.core.jobs["b"].attempt == 2


def test_a_parked_job_may_end_by_itself() -> None:
    world = full()
    world.arrive("urgent", priority=99)
    world.park("b")
    world.start("urgent")
    world.end("b")
    world.end("urgent")
    world.end("a")
    assert world.states() == "completed completed completed" and world.core.live_jobs == 0


def test_memory_that_does_not_come_back_ends_the_attempt_only() -> None:
    world = full()
    world.arrive("urgent", priority=99)
    world.park("b")
    world.start("urgent")
    world.end("urgent")
    world.take(ResumeJob)
    world.end("b", Outcome.NOT_RESUMED)
    world.start("b")
    assert world.states() == "running running completed" and world.core.jobs["b"].attempt == 2


def test_a_stop_kills_parked_jobs_and_ends_the_others_at_their_boundaries() -> None:
    world = full()
    world.arrive("urgent", priority=99)
    world.park("b")
    world.start("urgent")
    world.tell(StopRequested(world.now_s, at_once=False))
    assert {(each.job, each.at_once) for each in world.take(KillJob)} == {("a", False), ("b", True), ("urgent", False)}
    for name in ("a", "b", "urgent"):
        world.end(name, Outcome.STOPPED)
    assert world.states() == "cancelled cancelled cancelled" and world.core.live_jobs == 0


def test_a_stop_during_a_transfer_ends_the_job() -> None:
    world = full()
    world.arrive("urgent", priority=99)
    (park,) = world.take(ParkJob)
    world.tell(StopRequested(world.now_s, at_once=False))
    world.tell(Parked(world.now_s, park.id, Usage(iterations=10, held_s=1.0), 0.1))
    world.end("a", Outcome.STOPPED)
    world.end("b", Outcome.STOPPED)
    assert world.states() == "cancelled cancelled cancelled"


def test_preemptible_jobs_are_stopped_where_none_can_be_parked() -> None:
    """The script of such a job saves its state on SIGTERM."""
    world = World("srtf", displaces=True, host_gib=0)
    world.arrive("a", movable=True, service_s=LONG_S * 10)
    world.arrive("b", service_s=LONG_S * 20)
    world.start("a", "b")
    world.wait(LONG_S)
    world.arrive("short", service_s=5.0)
    (kill,) = world.take(KillJob)
    assert (kill.job, kill.at_once) == ("a", False), "b cannot be stopped, though it is behind a"
    world.end("a", Outcome.STOPPED)
    world.start("short")
    world.end("short")
    world.start("a")
    assert world.core.jobs["a"].attempt == 2


def test_equal_jobs_take_turns_in_the_places() -> None:
    """Three jobs have two places in turn, each for as long as its transfers cost little."""
    world = full("fair")
    world.arrive("c")
    world.wait(LONG_S)
    shown = []
    for _ in range(6):
        (park,) = world.take(ParkJob)
        shown.append(park.job)
        world.tell(Parked(world.now_s, park.id, world.core.jobs[park.job].usage, 0.01))
        for command in [*world.take(StartJob), *world.take(ResumeJob)]:
            event = (
                Done(world.now_s, command.id)
                if isinstance(command, StartJob)
                else Resumed(world.now_s, command.id, 0.01)
            )
            world.tell(event)
            world.progress(command.job, 1.0)
        assert sum(job.state is JobState.RUNNING for job in world.core.jobs.values()) == 2
        world.wait(LEAST_STAY_S + 1.0)
    assert shown in (["a", "b", "c"] * 2, ["b", "a", "c"] * 2)


def test_a_queue_in_levels_displaces_jobs_that_have_sunk() -> None:
    """Tiresias: a new job goes before those that have had more than the limit of the first queue."""
    world = World("tiresias")
    world.arrive("a")
    world.arrive("b")
    world.start("a", "b")
    world.progress("a", 4000.0)
    world.progress("b", 4000.0)
    world.wait(5 * LONG_S)
    world.arrive("c")
    assert [each.job for each in world.take(ParkJob)] == ["b"]


def test_a_job_that_was_not_chosen_for_the_round_is_parked() -> None:
    """Max-min fairness gives each round to the job that has had least; the others use the time that it leaves."""
    world = full("max-min")
    world.progress("a", 500.0)
    world.progress("b", 400.0)
    world.wait(120.0)
    assert [world.core.jobs[name].level for name in "ab"] == [1, 0]
    world.arrive("c")
    world.park("a")
    world.start("c")


def test_a_more_urgent_newcomer_gets_the_room_that_was_made_for_another_job() -> None:
    world = full()
    world.arrive("urgent", priority=5)
    (park,) = world.take(ParkJob)
    world.arrive("more", priority=99)
    world.tell(Parked(world.now_s, park.id, Usage(iterations=10, held_s=1.0), 0.1))
    assert [each.job for each in world.take(StartJob)] == ["more"]


def test_a_refused_job_is_asked_again_when_the_reason_may_have_passed() -> None:
    world = World("priority", places=1)
    world.arrive("a")
    world.start("a")
    world.wait(LONG_S)
    world.arrive("urgent", priority=99)
    for minutes in (1, 2, 4):
        (park,) = world.take(ParkJob)
        world.tell(Refused(world.now_s, park.id, "the host has too little memory"))
        world.wait(0.9 * 60.0 * minutes)
        assert not world.take(ParkJob)
        world.wait(0.2 * 60.0 * minutes)
    world.park("a")
    world.start("urgent")


def test_jobs_of_equal_rank_are_not_stopped_for_each_other() -> None:
    """Each stop would cost a start of the script, again and again."""
    world = World("fair", places=1, displaces=True, host_gib=0)
    world.arrive("a", movable=True)
    world.start("a")
    world.arrive("b", movable=True)
    world.wait(LONG_S)
    assert not world.take(KillJob)


def test_a_job_on_its_way_to_another_lane_is_parked_when_it_has_arrived() -> None:
    world = World("priority", lanes=2, places=2)
    for name in "abc":
        world.arrive(name)
    world.start("a", "b", "c")
    world.end("b")
    (move,) = world.take(MoveJob)
    world.wait(LONG_S)
    for name in ("u1", "u2", "u3"):
        world.arrive(name, 0.1, 0.1, priority=99)
    assert move.job not in [each.job for each in world.take(ParkJob)]
    world.tell(Done(world.now_s, move.id))
    world.wait(10.0)


def test_the_explanation_of_a_parked_job_that_room_is_kept_from(tmp_path: Path) -> None:
    """The first of two jobs is parked for a large one, and would fit while the second is on its way to the host."""
    world = World("priority", places=4)
    log = EventLog(tmp_path / "events.jsonl")
    handle = world.core.handle

    def logged(event: Event) -> list[Command]:
        commands = handle(event)
        log.write(event, commands)
        return commands

    device = Device("cuda:0", "here", 8 * GIB)
    log.write(
        RunOpened(0.0, SCHEMA, Config("priority", 1, 4, host_bytes=64 * GIB), (device,)),
        [OpenLane(1, 0, "cuda:0", 8 * GIB)],
    )
    log.write(Done(0.0, 1), [])
    with mock.patch.object(world.core, "handle", logged):
        world.arrive("a", 3.0, 0.5, priority=1)
        world.arrive("b", 3.0, 0.5, priority=2)
        world.start("a", "b")
        world.wait(LONG_S)
        world.arrive("large", 6.0, 1.0, priority=9)
        first, _second = world.take(ParkJob)
        world.tell(Parked(world.now_s, first.id, Usage(iterations=10, held_s=1.0), 0.5))
    log.close()
    explained = explain(RunHistory(event_log.read(tmp_path / "events.jsonl")), None)
    assert explained.stories[first.job].intervals[-1].reason.doing is Doing.PARKED
