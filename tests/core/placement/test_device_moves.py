"""Running jobs that move from a shared device to an idle one, at their own checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec, SweepSpec
from ecoshare.core.commands import AskSampler, Command, KillJob
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    Event,
    Exhausted,
    IterationsDone,
    JobArrived,
    JobExited,
    RunOpened,
    SweepOpened,
)
from ecoshare.core.placement.device_moves import GAIN, LEAST_COST_S, REST
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler

GIB = 1 << 30
LONG_S = 1000.0
OBJECTIVES = ["energy", "jct", "makespan", "edp"]
QUEUES = ["fair", "pack", "priority", "srtf", "tiresias", "gittins", "srsf"]


def device(number: int, **values: Any) -> Device:
    return Device(f"d{number}", "here", 8 * GIB, **values)


class World:
    """Scheduler of several devices; jobs start and exit when the test says so.

    Attributes:
        told: Stops of jobs that no test has looked at, as (job, reason).
        asked: Questions to samplers.
    """

    def __init__(
        self,
        policy: str = "fair",
        *devices: Device,
        lanes: int = 1,
        places: int = 4,
        displaces: bool = True,
        **config: Any,
    ) -> None:
        self.core, self.now_s = Scheduler(), 0.0
        self.told: list[tuple[str, str]] = []
        self.asked: list[int] = []
        self._log: list[tuple[Event, list[Command]]] = []
        made = Config(policy, lanes, places, displaces=displaces, **config)
        self.tell(RunOpened(0.0, SCHEMA, made, devices or (device(0), device(1))))

    def tell(self, event: Event) -> None:
        """Handle an event. Lanes open, and jobs start and move, at once."""
        commands = self.core.handle(event)
        self._log.append((event, commands))
        for command in commands:
            if type(command).__name__ in ("OpenLane", "StartJob", "MoveJob"):
                self.tell(Done(self.now_s, command.id))
            elif isinstance(command, KillJob):
                self.told.append((command.job, command.reason))
            elif isinstance(command, AskSampler):
                self.asked.append(command.id)

    def arrive(self, *names: str, **spec: Any) -> None:
        """Let movable jobs of a thousand seconds arrive."""
        known: dict[str, Any] = {"service_s": LONG_S, "movable": True, "memory": MemoryDemand(GIB), "profiled": True}
        for name in names:
            self.tell(JobArrived(self.now_s, JobSpec(name, spec.get("job_class", "c"), **{**known, **spec})))

    def progress(self, name: str, held_s: float, boundary_s: float = 1.0, **usage: Any) -> None:
        """Report that a job has held its turn for so long, and reached its first boundary after `boundary_s`."""
        started_s = next(
            step.at_s for step in reversed(self.core.jobs[name].history) if step.after is JobState.STARTING
        )
        span_s = max(0.0, self.now_s - started_s - boundary_s)
        told = Usage(iterations=max(1, int(held_s)), held_s=held_s, span_s=span_s, left_s=LONG_S - held_s)
        self.tell(IterationsDone(self.now_s, name, replace(told, **usage)))

    def exit(self, name: str, outcome: Outcome = Outcome.COMPLETED) -> None:
        """Let an attempt end."""
        job = self.core.jobs[name]
        self.tell(JobExited(self.now_s, name, job.attempt, outcome, 0, outcome.value, job.usage))

    def where(self) -> str:
        """Jobs of each device, such as `a c|b`."""
        devices: dict[str, list[str]] = {}
        for lane in self.core.lanes.values():
            devices.setdefault(lane.device.name, []).extend(lane.jobs)
        return "|".join(" ".join(sorted(names)) for names in devices.values())

    def moves(self) -> list[tuple[str, str]]:
        """Stops since the last call, as (job, reason)."""
        told, self.told = self.told, []
        return told

    def check_replay(self) -> None:
        """Check that the same events lead to the same commands."""
        again = Scheduler()
        assert all(again.handle(event) == commands for event, commands in self._log)


def shared(policy: str = "fair", *devices: Device, held_s: float = 5.0, **spec: Any) -> World:
    """World in which a and c share the first device, all jobs have run for 10 s, and b is alone on the other one."""
    world = World(policy, *devices)
    world.arrive("a", "b", "c", **spec)
    assert world.where() == "a c|b"
    world.now_s = 10.0
    for name in "abc":
        world.progress(name, held_s)
    assert not world.moves()
    return world


@pytest.mark.parametrize("policy", QUEUES)
def test_a_job_that_takes_turns_moves_to_a_device_that_has_become_idle(policy: str) -> None:
    world = shared(policy)
    world.exit("b")
    assert world.moves() == [("c", "moves to d1, which is idle")]
    assert world.core.jobs["c"].state is JobState.STOPPING
    world.exit("c", Outcome.STOPPED)
    assert world.where() == "a|c"
    assert world.core.jobs["c"].attempt == 2
    world.progress("a", 6.0)
    assert not world.moves(), "each has its device to itself"
    world.check_replay()


@pytest.mark.parametrize("policy", OBJECTIVES)
def test_a_job_of_a_group_moves_to_a_device_that_has_become_idle(policy: str) -> None:
    world = World(policy, lanes=3)
    world.arrive("a", "b", "c", "d")
    first, second = (names.split() for names in world.where().split("|"))
    assert len(first) > 1
    world.now_s = 10.0
    for name in "abcd":
        world.progress(name, 5.0)
    for name in second:
        world.exit(name)
    ((name, reason),) = world.moves()
    assert name in first and reason == "moves to d1, which is idle"
    world.exit(name, Outcome.STOPPED)
    assert world.where().split("|")[1] == name
    world.check_replay()


def test_a_job_beside_another_one_moves_if_they_slow_each_other_down() -> None:
    """Each has a lane of its own, as under every policy with several lanes. Nothing is known of the pair."""
    world = World("fifo", lanes=2)
    world.arrive("a", "b", "c", "d")
    assert world.where() == "a c|b d"
    world.now_s = 10.0
    for name in "abcd":
        world.progress(name, 5.0)
    for name in "bd":
        world.exit(name)
    assert [name for name, _ in world.moves()] == ["c"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [({"movable": False}, "it cannot continue elsewhere"), ({"sweep": "s"}, "it is a trial")],
    ids=["not movable", "trial"],
)
def test_a_job_that_cannot_be_stopped_stays(spec: dict[str, Any], why: str) -> None:
    world = shared(**spec)
    world.exit("b")
    assert not world.moves(), why


def test_no_job_moves_in_a_run_without_preemptible_jobs() -> None:
    world = World("fair", displaces=False)
    world.arrive("a", "b", "c")
    world.now_s = 10.0
    for name in "abc":
        world.progress(name, 5.0)
    world.exit("b")
    assert not world.moves()


@pytest.mark.parametrize(("left_s", "moves"), [(2 * LEAST_COST_S + 1.0, True), (2 * LEAST_COST_S - 0.5, False)])
def test_a_job_moves_only_if_that_pays(left_s: float, moves: bool) -> None:
    """Sharing ends when the first of the two jobs does, so its remaining time is the gain."""
    assert GAIN == 2.0
    world = shared()
    world.progress("a", LONG_S - left_s)
    world.exit("b")
    assert bool(world.moves()) == moves


def test_a_slow_start_makes_a_move_dear() -> None:
    for boundary_s, moves in ((5.0, True), (30.0, False)):
        world = World("fair")
        world.arrive("a", "b", "c")
        world.now_s = 40.0
        for name in "abc":
            world.progress(name, LONG_S - 50.0, boundary_s)
        world.exit("b")
        assert bool(world.moves()) == moves


def test_a_job_without_an_iteration_waits_for_its_first() -> None:
    world = World("fair")
    world.arrive("a", "b", "c")
    world.now_s = 10.0
    world.exit("b")
    assert not world.moves()
    world.progress("a", 5.0)
    assert [name for name, _ in world.moves()] == ["a"]


def test_the_last_in_a_lane_of_ranks_moves_first() -> None:
    """The first has its turn in any case, the second waits for one job, and the last for both."""
    world = World("priority")
    for name, priority in zip("abcde", (3, 3, 1, 3, 2), strict=True):
        world.arrive(name, priority=priority)
    assert world.where() == "a c e|b d"
    world.now_s = 10.0
    for name in "abcde":
        world.progress(name, 5.0)
    for name in "bd":
        world.exit(name)
    assert [name for name, _ in world.moves()] == ["c"]


def test_a_job_of_unknown_length_has_as_much_left_as_it_has_had() -> None:
    world = World("fair")
    world.arrive("a", "b", "c", service_s=None)
    world.now_s = 10.0
    for name in "abc":
        world.progress(name, 3.0, left_s=None)
    world.exit("b")
    assert not world.moves(), "3 s of gain do not pay for 2 s of cost"
    world.now_s = 20.0
    world.progress("a", 8.0, left_s=None)
    assert not world.moves(), "c has had 3 s only"
    world.progress("c", 8.0, left_s=None)
    assert len(world.moves()) == 1


def test_a_slow_device_is_no_gain() -> None:
    """At half the speed the work takes as long alone as with half of the turns."""
    world = shared("fair", device(0), device(1, speeds=(("", 0.5),)), service_s=LONG_S)
    world.exit("b")
    assert not world.moves()
    world = shared("fair", device(0), device(1, speeds=(("", 0.8),)))
    world.exit("b")
    assert len(world.moves()) == 1


def test_two_idle_devices_get_a_job_each() -> None:
    world = World("fair", *(device(number) for number in range(3)))
    world.arrive(*"abcdef")
    assert world.where() == "a d|b e|c f"
    world.now_s = 10.0
    for name in "abcdef":
        world.progress(name, 5.0)
    for name in "be":
        world.exit(name)
    ((first, reason),) = world.moves()
    assert reason == "moves to d1, which is idle"
    world.exit(first, Outcome.STOPPED)
    assert not world.moves()
    here = [names for names in world.where().split("|") if len(names) == 1]
    for name in here:
        world.exit(name)
    left = [name for name in "acdf" if not world.core.jobs[name].state.ended]
    assert len(left) == 2 and len(world.moves()) == 1, "of the last two that share"
    world.check_replay()


def test_a_job_that_comes_meanwhile_takes_another_place() -> None:
    world = shared()
    world.exit("b")
    world.arrive("new")
    assert world.where() == "a c new|", "c will be on the idle device in a moment"
    world.exit("c", Outcome.STOPPED)
    assert world.where() == "a new|c"


def test_a_job_that_has_no_other_place_takes_the_idle_device() -> None:
    """The job that was to move there goes back, rather than to share that device."""
    world = World(places=2)
    world.arrive("a", "b", "c")
    world.now_s = 10.0
    for name in "abc":
        world.progress(name, 5.0)
    world.exit("b")
    assert [name for name, _ in world.moves()] == ["c"]
    world.arrive("new")
    assert world.where() == "a c|new"
    world.exit("c", Outcome.STOPPED)
    assert world.where() == "a c|new"
    world.check_replay()


def test_a_neighbour_that_ends_soon_is_no_reason_to_move() -> None:
    """Beside another job each loses a third of its speed, but only for 8 s."""
    for left_s, moves in ((8.0, False), (80.0, True)):
        world = World("fifo", lanes=2)
        world.arrive("a", "b", "c")
        world.now_s = 10.0
        for name, held_s in (("a", 5.0), ("b", 5.0), ("c", LONG_S - left_s)):
            world.progress(name, held_s)
        world.exit("b")
        assert bool(world.moves()) == moves


@pytest.mark.parametrize("movable", [True, False])
def test_a_job_waits_for_one_that_keeps_its_lane(movable: bool) -> None:
    """The latter has child processes on the device, so it does not move."""
    world = World("priority")
    for name, priority in (("a", 1), ("b", 1), ("c", 2)):
        world.arrive(name, priority=priority, movable=name != "c" or movable)
    world.now_s = 10.0
    world.progress("a", 5.0, keeps_lane="its children use the device")
    world.progress("c", 5.0)
    world.exit("b")
    assert [name for name, _ in world.moves()] == (["c"] if movable else [])


def test_no_job_moves_while_a_sampler_is_asked_for_a_trial() -> None:
    world = shared()
    world.tell(SweepOpened(10.0, SweepSpec("s", 1)))
    world.exit("b")
    assert not world.moves()
    (asked,) = world.asked
    world.tell(Exhausted(10.0, asked))
    world.progress("a", 5.1)
    assert len(world.moves()) == 1


def test_no_job_moves_to_a_device_for_which_there_is_no_power() -> None:
    """The second device could draw more than is left of the budget."""
    drawing = device(0, draws_w=(20.0, 100.0)), device(1, draws_w=(20.0, 300.0))
    world = World("fair", *drawing, power_budget_w=200.0, budget_by_placement=True)
    world.arrive("a", "b")
    assert world.where() == "a b|"
    world.now_s = 10.0
    for name in "ab":
        world.progress(name, 5.0)
    assert not world.moves()


def test_a_job_that_ends_instead_keeps_no_device() -> None:
    world = shared()
    world.exit("b")
    world.exit("c")
    world.arrive("new")
    assert world.where() == "a|new"


def test_no_job_moves_to_a_device_that_a_gang_waits_for() -> None:
    world = shared()
    world.arrive("gang", gpus=2, movable=False)
    world.exit("b")
    assert not world.moves()


def test_a_job_that_has_moved_stays_for_a_while() -> None:
    """It shares a device again, and another one is idle again: it moves once its rest is over."""
    world = shared()
    world.exit("b")
    world.exit("c", Outcome.STOPPED)
    world.moves()
    world.arrive("d", movable=False)
    world.arrive("e", movable=False)
    assert world.where() == "a d|c e"
    world.progress("c", 1.0, boundary_s=0.0)
    world.now_s = 15.0
    world.progress("c", 3.0)
    world.exit("a")
    world.exit("d")
    assert world.where() == "|c e" and not world.moves()
    rest_s = REST * LEAST_COST_S
    world.now_s = 10.0 + rest_s - 0.1
    world.progress("e", 5.0)
    assert not world.moves()
    world.now_s = 10.0 + rest_s
    world.progress("e", 5.1)
    assert world.moves() == [("c", "moves to d0, which is idle")]
    world.check_replay()
