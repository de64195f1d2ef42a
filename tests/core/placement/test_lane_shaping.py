"""Lanes that are drawn anew: best fit, joined for a large job, split when they idle, and a bound on passing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, MoveJob, SetCaching, StartJob
from ecoshare.core.events import SCHEMA, Config, Done, Event, IterationsDone, JobArrived, JobExited, Refused, RunOpened
from ecoshare.core.placement.admission import MOST_PASSED
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler

GIB = 1 << 30


class Lanes:
    """Scheduler of a device of 16 GiB with several lanes; starts are carried out at once, moves when asked to.

    Attributes:
        moves: Moves that have no answer yet.
        caching: Whether caches were to be kept, in the order of the commands.
        answers_moves: Whether moves are carried out at once.
    """

    def __init__(self, policy: str = "fair", lanes: int = 2, places: int = 8, answers_moves: bool = True) -> None:
        self.scheduler, self.moves, self.answers_moves = Scheduler(), list[MoveJob](), answers_moves
        self.caching: list[bool] = []
        self.tell(
            RunOpened(
                0.0, SCHEMA, Config(policy, lanes, places, enforces_memory=True), (Device("cuda:0", "here", 16 * GIB),)
            )
        )

    def tell(self, event: Event) -> None:
        for command in self.scheduler.handle(event):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, SetCaching):
            self.caching.append(command.is_kept)
        elif isinstance(command, MoveJob) and not self.answers_moves:
            self.moves.append(command)
            return
        elif type(command).__name__ == "SetShares":
            return
        self.tell(Done(0.0, command.id))

    def arrive(self, name: str, kept_gib: float, work_gib: float = 0.0, **spec: object) -> None:
        demand = MemoryDemand(int(kept_gib * GIB), int(work_gib * GIB))
        self.tell(JobArrived(0.0, replace(JobSpec(name, name, memory=demand, profiled=True), **spec)))  # type: ignore[arg-type]
        self.iterate()
        assert self.needed_bytes <= 16 * GIB, "more than the device has"

    def iterate(self) -> None:
        """Report iterations of all running jobs that have none yet."""
        for name, job in self.scheduler.jobs.items():
            if job.state is JobState.RUNNING and not job.usage.done:
                self.tell(IterationsDone(0.5, name, Usage(iterations=1)))

    @property
    def needed_bytes(self) -> int:
        """Memory that the jobs of the device may have now, also those that are on their way."""
        return self.scheduler.view.fit.needed_bytes("cuda:0")

    def end(self, *names: str) -> None:
        for name in names:
            attempt = self.scheduler.jobs[name].attempt
            self.tell(JobExited(1.0, name, attempt, Outcome.COMPLETED, 0, "", Usage()))

    @property
    def drawing(self) -> list[list[str]]:
        """Names of the jobs of each lane."""
        return [sorted(lane.jobs) for lane in self.scheduler.lanes.values()]

    def waits(self, name: str) -> bool:
        return self.scheduler.jobs[name].state is JobState.QUEUED


@pytest.mark.parametrize("policy", ["fifo", "srtf", "pack", "fair", "priority"])
def test_a_job_larger_than_half_the_device_runs_in_one_of_two_lanes(policy: str) -> None:
    """Fails if lanes are fixed halves: the job needs 12 of 16 GiB."""
    core = Lanes(policy)
    core.arrive("large", 4.0, 8.0)
    assert core.drawing == [["large"], []]


def test_only_a_job_larger_than_the_device_fails_and_its_end_names_both_sizes() -> None:
    core = Lanes()
    core.arrive("huge", 10.0, 7.0)
    job = core.scheduler.jobs["huge"]
    assert job.state is JobState.FAILED
    assert str(17 * GIB) in job.history[-1].cause and str(16 * GIB) in job.history[-1].cause


def test_a_small_job_goes_beside_a_small_one() -> None:
    """Fails if the emptiest lane is filled: the lane of the large job has fewer jobs."""
    core = Lanes()
    core.arrive("large", 2.0, 9.0)
    core.arrive("small", 0.2, 0.3)
    core.arrive("other", 0.2, 0.3)
    core.arrive("third", 0.2, 0.3)
    assert core.drawing == [["large"], ["other", "small", "third"]]


def test_an_empty_lane_is_opened_first() -> None:
    """Fails if a best fit leaves a lane idle that the user asked for."""
    core = Lanes()
    core.arrive("a", 0.2, 0.3)
    core.arrive("b", 0.2, 0.3)
    assert core.drawing == [["a"], ["b"]]


def test_lanes_join_for_a_job_that_has_no_room_beside_two_ephemeral_regions() -> None:
    """In two lanes the jobs have two ephemeral regions of 5.9 GiB, allowances included; in one lane they have one."""
    core = Lanes()
    core.arrive("a", 1.0, 4.5)
    core.arrive("b", 1.0, 4.5)
    assert core.drawing == [["a"], ["b"]]
    core.arrive("large", 4.0, 2.0)
    assert sorted(map(len, core.drawing)) == [1, 2] and not core.waits("large")
    assert {"a", "b"} in [set(lane) for lane in core.drawing]


def test_no_lane_needs_more_while_jobs_are_on_their_way() -> None:
    """Fails if jobs of a large T move beside jobs of a small one: two of them would have a T each on the way."""
    core = Lanes(answers_moves=False)
    for name, kept, work in (("a", 2.0, 5.0), ("z1", 1.0, 0.1), ("b", 2.0, 5.0), ("z2", 1.0, 0.1)):
        core.arrive(name, kept, work)
    assert core.drawing == [["a", "b"], ["z1", "z2"]]
    core.arrive("j", 3.1, 0.1)
    assert {move.job for move in core.moves} == {"z1", "z2"}
    for move in list(core.moves):
        core.tell(Done(0.0, move.id))
        assert core.needed_bytes <= 16 * GIB
    assert not core.waits("j")


def test_jobs_without_iterations_are_not_asked_to_move() -> None:
    """Fails if the lanes of a device wait for the move of a job that never comes to a boundary."""
    core = Lanes()
    core.iterate = lambda: None  # type: ignore[method-assign]
    core.arrive("a", 1.0, 4.5)
    core.arrive("b", 1.0, 4.5)
    core.arrive("large", 4.0, 2.0)
    assert core.drawing == [["a"], ["b"]] and core.waits("large")


def test_room_of_a_move_counts_only_once_the_job_has_moved() -> None:
    """Fails if a job starts in memory that another one still has."""
    core = Lanes(answers_moves=False)
    core.arrive("a", 1.0, 4.5)
    core.arrive("b", 1.0, 4.5)
    core.arrive("large", 4.0, 2.0)
    (move,) = core.moves
    assert core.waits("large")
    core.arrive("more", 4.0, 2.0)
    assert core.moves == [move], "one change of a device is under way at a time"
    core.tell(Done(0.0, move.id))
    assert not core.waits("large")


def test_a_refused_move_leaves_the_job_where_it_is_and_is_not_asked_for_again() -> None:
    core = Lanes(answers_moves=False)
    core.arrive("a", 1.0, 4.5)
    core.arrive("b", 1.0, 4.5)
    core.arrive("large", 4.0, 2.0)
    first, *_ = core.moves
    core.tell(Refused(0.0, first.id, "it cannot go"))
    assert core.drawing == [["a"], ["b"]] and core.waits("large")
    (_, second) = core.moves
    assert second.job != first.job, "the other job, of equal T, may go in its place"
    core.tell(Refused(0.0, second.id, "nor can it"))
    assert len(core.moves) == 2
    core.end("a")
    assert not core.waits("large")


def test_the_end_of_a_job_on_its_way_ends_its_move() -> None:
    core = Lanes(answers_moves=False)
    core.arrive("a", 1.0, 4.5)
    core.arrive("b", 1.0, 4.5)
    core.arrive("large", 4.0, 2.0)
    core.end(core.moves[0].job)
    assert not core.waits("large")
    assert all(not lane.coming for lane in core.scheduler.lanes.values())


def test_a_lane_is_split_when_another_one_is_empty_and_no_job_waits() -> None:
    core = Lanes()
    for name in "abc":
        core.arrive(name, 1.0, 1.0)
    alone, pair = sorted(core.drawing, key=len)
    core.end(*alone)
    assert sorted(map(len, core.drawing)) == [1, 1]
    assert sorted(name for lane in core.drawing for name in lane) == pair


def test_a_lane_is_not_split_if_the_memory_does_not_suffice() -> None:
    core = Lanes()
    core.arrive("a", 1.0, 6.0)
    core.arrive("b", 1.0, 6.0)
    assert core.drawing == [["a", "b"], []]
    core.arrive("c", 0.2, 0.2)
    core.end("c")
    assert core.drawing == [["a", "b"], []]


def test_caches_are_emptied_only_while_they_do_not_fit() -> None:
    """Fails if a lane pays for hand-overs that need no memory back, or keeps caches that do not fit."""
    core = Lanes(lanes=1)
    core.arrive("a", 1.0, 4.0)
    core.arrive("b", 1.0, 4.0)
    assert core.caching == []
    core.arrive("c", 1.0, 4.0)
    assert core.drawing == [["a", "b", "c"]] and core.caching == [False]
    core.end("a")
    assert core.caching == [False, True]


def test_a_command_about_caches_goes_before_the_start_that_needs_it() -> None:
    core = Lanes(lanes=1)
    core.arrive("a", 1.0, 9.0)
    event = JobArrived(0.0, JobSpec("b", "b", memory=MemoryDemand(GIB, 9 * GIB), profiled=True))
    kinds = [type(command) for command in core.scheduler.handle(event)]
    assert kinds.index(SetCaching) < kinds.index(StartJob)


@pytest.mark.parametrize("policy", ["srtf", "pack", "fair", "priority"])
def test_jobs_that_start_before_a_large_one_are_bounded(policy: str) -> None:
    """Fails if a stream of small jobs keeps a large one waiting: at most `MOST_PASSED` start before it."""
    core = Lanes(policy)
    core.arrive("first", 1.0, 0.5)
    core.arrive("large", 14.0, 1.5)
    names = ["first"]
    for number in range(3 * MOST_PASSED):
        names.append(f"small{number}")
        core.arrive(names[-1], 1.0, 0.5)
        if len(names) > 2:  # one small job or more is always there
            present = [name for lane in core.drawing for name in lane if name != "large"]
            core.end(*present[:1])
        if not core.waits("large"):
            break
    assert not core.waits("large")
    assert core.scheduler.jobs["large"].passed <= MOST_PASSED + 2
