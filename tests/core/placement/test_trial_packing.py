"""Packing on probation: from the rates of two jobs beside each other, the scheduler keeps the packing or undoes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, KillJob, OpenLane, ParkJob, ResumeJob, StartJob
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    Resumed,
    RunOpened,
    StopRequested,
)
from ecoshare.core.placement.admission import MOST_LOOKED_AT, MOST_PASSED
from ecoshare.core.placement.strategies.trial_placement import TrialPacking, TrialPlacement
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.core.scheduler import Scheduler

GIB = 1 << 30


@dataclass
class Told:
    """Core that gets its events from the test; lanes open and jobs start at once when it asks."""

    gpus: int = 1
    lanes: int = 2
    places: int = 1
    policy: str = "gandiva"
    options: tuple[tuple[str, float], ...] = ()
    host_bytes: int = 0
    core: Scheduler = field(default_factory=Scheduler)
    usages: dict[str, Usage] = field(default_factory=dict)
    log: list[tuple[Event, list[Command]]] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        config = Config(self.policy, self.lanes, self.places, options=self.options, host_bytes=self.host_bytes)
        devices = tuple(Device(f"g{number}", "here", 16 * GIB) for number in range(self.gpus))
        self.tell(RunOpened(0.0, SCHEMA, config, devices))

    def tell(self, event: Event) -> list[Command]:
        """Commands that follow from an event."""
        commands = self.core.handle(event)
        self.log.append((event, commands))
        for command in list(commands):
            if isinstance(command, OpenLane | StartJob):
                commands = [*commands, *self.tell(Done(self.now_s, command.id))]
        return commands

    def arrive(self, *names: str, **spec: Any) -> list[Command]:
        """Jobs with 0.1 s an iteration alone; the first letter of a name is the class."""
        known = {"iterations": 10_000, "service_s": 1000.0, "movable": True, "profiled": True, **spec}
        return [each for name in names for each in self.tell(JobArrived(self.now_s, JobSpec(name, name[0], **known)))]

    def iterate(self, name: str, iterations: int, iteration_s: float) -> list[Command]:
        """Report more iterations of a job, each with this share of its turn."""
        before = self.usages.get(name, Usage())
        passed_s = iterations * iteration_s
        self.now_s += passed_s
        self.usages[name] = replace(
            before,
            iterations=before.iterations + iterations,
            held_s=before.held_s + passed_s,
            # From the first boundary on, as real jobs count it.
            span_s=before.span_s + passed_s - (0.0 if before.iterations else iteration_s),
        )
        return self.tell(IterationsDone(self.now_s, name, self.usages[name]))

    def exit(self, name: str, outcome: Outcome = Outcome.COMPLETED) -> list[Command]:
        usage = self.usages.pop(name, Usage())
        attempt = self.core.jobs[name].attempt
        return self.tell(JobExited(self.now_s, name, attempt, outcome, 0, outcome.value, usage))

    def together(self, one: str, other: str, one_s: float, other_s: float) -> list[Command]:
        """Let two jobs beside each other do enough work to be judged."""
        self.iterate(other, 5, other_s)
        self.iterate(one, 5, one_s)
        return [*self.iterate(other, 60, other_s), *self.iterate(one, 60, one_s)]


def trial_packing(core: Scheduler) -> TrialPacking:
    placement = core.view.placement
    assert isinstance(placement, TrialPlacement)
    return placement.trial_packing


def started(commands: list[Command]) -> dict[str, tuple[int, ...]]:
    return {each.job: each.lanes for each in commands if isinstance(each, StartJob)}


def stopped(commands: list[Command]) -> list[str]:
    return [each.job for each in commands if isinstance(each, KillJob)]


def test_empty_devices_come_first() -> None:
    run = Told(gpus=2)
    assert started(run.arrive("a", "b", "c", "d", "e")) == {"a": (0,), "b": (2,), "c": (1,), "d": (3,)}


def test_two_that_slow_each_other_down_are_parted_and_not_tried_again() -> None:
    run = Told()
    run.arrive("a")
    run.iterate("a", 5000, 0.1)  # the mean over its attempt would look as fast as alone for hours
    run.arrive("b")
    commands = run.together("a", "b", 0.25, 0.25)
    assert stopped(commands) == ["b"]
    [kill] = [each for each in commands if isinstance(each, KillJob)]
    assert not kill.at_once and "slower beside each other" in kill.reason
    assert started(run.exit("b", Outcome.STOPPED)) == {}, "it waits"
    assert started(run.arrive("b2")) == {}, "nor is another one of its class tried there"
    assert started(run.arrive("c")) == {"c": (1,)}, "others may"
    run.exit("c")
    assert started(run.exit("a")) == {"b": (0,), "b2": (1,)}, "b beside b is unknown"


def test_two_that_gain_stay_and_are_not_judged_again() -> None:
    run = Told(places=2)
    run.arrive("a", "b")
    assert stopped(run.together("a", "b", 0.125, 0.125)) == []
    assert stopped(run.together("a", "b", 0.5, 0.5)) == []


@pytest.mark.parametrize(("margin", "parted"), [(0.0, []), (0.3, ["b"])])
def test_the_margin_is_what_must_be_gained(margin: float, parted: list[str]) -> None:
    run = Told(options=(("margin", margin),))
    run.arrive("a", "b")
    assert stopped(run.together("a", "b", 0.16, 0.16)) == parted  # 1.25 together


def test_the_sum_decides_not_the_slower_one() -> None:
    run = Told()
    run.arrive("a", "b")
    assert stopped(run.together("a", "b", 0.11, 0.4)) == []  # 0.91 + 0.25


def test_no_pair_is_judged_before_both_have_done_enough() -> None:
    run = Told(options=(("trial", 200.0),))
    run.arrive("a", "b")
    assert stopped(run.together("a", "b", 0.4, 0.4)) == []
    run.iterate("a", 200, 0.4)
    assert stopped(run.iterate("b", 100, 0.4)) == []
    assert stopped(run.iterate("b", 50, 0.4)) == ["b"]


def test_what_a_job_did_while_its_neighbour_warmed_up_does_not_count() -> None:
    run = Told()
    run.arrive("a", "b")
    run.iterate("a", 3000, 0.1)  # b loads its data for minutes
    assert stopped(run.together("a", "b", 0.3, 0.3)) == ["b"]


def test_a_pair_that_cannot_be_moved_stays_and_is_remembered() -> None:
    run = Told(gpus=2)
    run.arrive("a", "b", "c", movable=False)
    run.exit("b")
    assert run.core.jobs["c"].lanes[0].device.name == "g0"
    assert stopped(run.together("a", "c", 0.3, 0.3)) == []
    assert started(run.arrive("c2", "a2")) == {"c2": (2,)}, "beside c2 no job of class a is tried any more"


def test_a_newcomer_that_cannot_be_stopped_is_parked() -> None:
    """It comes back with its process when the device is free, and is not tried beside the same job again."""
    run = Told(host_bytes=16 * GIB)
    run.arrive("a", "b", movable=False, memory=MemoryDemand(GIB, GIB))
    commands = run.together("a", "b", 0.25, 0.25)
    [park] = [each for each in commands if isinstance(each, ParkJob)]
    assert park.job == "b" and not stopped(commands)
    assert not run.tell(Parked(run.now_s, park.id, run.usages["b"], 0.1))
    [resume] = [each for each in run.exit("a") if isinstance(each, ResumeJob)]
    assert (resume.job, resume.attempt, resume.lane) == ("b", 1, 1)
    run.tell(Resumed(run.now_s, resume.id, 0.1))
    assert run.core.jobs["b"].state is JobState.RUNNING


def test_speeds_alone_are_those_that_the_job_showed_itself() -> None:
    run = Told()
    run.arrive("a", "b", iterations=None, service_s=None)
    assert stopped(run.together("a", "b", 0.5, 0.5)) == [], "their speeds alone are unknown"
    run.exit("b")
    run.iterate("a", 10, 0.1)
    run.iterate("a", 30, 0.1)
    run.exit("a")
    run.arrive("b2", "a2", iterations=None, service_s=None)
    assert stopped(run.together("b2", "a2", 0.5, 0.5)) == [], "of one it is known, not of the other"
    run.exit("a2")
    run.iterate("b2", 10, 0.2)
    run.iterate("b2", 30, 0.2)
    run.arrive("a3", iterations=None, service_s=None)
    assert stopped(run.together("b2", "a3", 0.5, 0.5)) == ["a3"]  # 0.4 + 0.2


def test_the_lowest_use_of_a_device_is_joined_first() -> None:
    run = Told(gpus=2)
    run.arrive("a", active_w=200.0)
    run.arrive("b", active_w=100.0)
    assert started(run.arrive("c", "d")) == {"c": (3,), "d": (1,)}


def test_of_equals_the_one_that_was_seen_to_gain_is_joined_first() -> None:
    run = Told(gpus=2)
    run.arrive("a", "b", "c")
    run.exit("c")
    run.arrive("c2")
    run.together("a", "c2", 0.15, 0.15)
    run.exit("c2")
    run.exit("a")
    run.arrive("d")  # on the first device, and b is on the second
    run.exit("b")
    run.arrive("a2")
    assert started(run.arrive("c3")) == {"c3": (3,)}, "beside a, not d"


def test_lanes_are_shared_only_beside_pairs_that_are_settled() -> None:
    run = Told(places=2)
    run.arrive("a", "b")
    assert started(run.arrive("b2")) == {}, "the trial of the two would not be one of two any more"
    commands = run.together("a", "b", 0.12, 0.12)
    assert started(commands) == {"b2": (1,)}, "beside a as b is; beside b it would be uncertain again"
    assert started(run.arrive("c")) == {}


def test_what_was_parted_goes_on_in_turn_where_lanes_may_be_shared() -> None:
    run = Told(places=2)
    run.arrive("a", "b")
    assert stopped(run.together("a", "b", 0.3, 0.3)) == ["b"]
    assert started(run.exit("b", Outcome.STOPPED)) == {"b": (0,)}, "in the lane of a, in turns with it"


def test_a_gang_waits_for_empty_devices_and_is_not_passed_for_ever() -> None:
    run = Told(gpus=2)
    run.arrive("a", "b")
    run.arrive("gang", gpus=2, nodes=1)
    run.arrive(*(f"x{number}" for number in range(100)))
    ended = 0
    while True:
        running = {name: job for lane in run.core.lanes.values() for name, job in lane.jobs.items()}
        if "gang" in running:
            break
        run.exit(min(running, key=lambda name: running[name].number))
        ended += 1
    assert {lane.device.name for lane in run.core.jobs["gang"].lanes} == {"g0", "g1"}
    assert MOST_PASSED <= ended <= MOST_PASSED + 4, "others go before it, and not for ever"


def test_no_job_is_tried_beside_a_gang() -> None:
    run = Told(gpus=2)
    run.arrive("gang", gpus=2, nodes=1)
    assert started(run.arrive("a")) == {}


def test_one_lane_is_no_place_to_try() -> None:
    run = Told(lanes=1)
    run.arrive("a", "b")
    assert not trial_packing(run.core).has_room


def test_a_stopped_run_parts_no_pair() -> None:
    run = Told()
    run.arrive("a", "b")
    assert stopped(run.tell(StopRequested(run.now_s, at_once=False))) == ["a", "b"]
    assert run.together("a", "b", 0.5, 0.5) == []


def test_a_queue_of_many_classes_is_not_walked_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Told(places=2)
    run.arrive("a", "b")
    many = [JobSpec(f"j{number}", f"class {number}", movable=True) for number in range(3 * MOST_LOOKED_AT)]
    for spec in many:
        run.tell(JobArrived(run.now_s, spec))
    looked_at: list[Job] = []
    trials = trial_packing(run.core)
    fits = trials._is_certain

    def look(job: Job, lane: Lane) -> bool:
        looked_at.append(job)
        return fits(job, lane)

    monkeypatch.setattr(trials, "_is_certain", look)
    run.arrive("z")
    assert len(set(looked_at)) == MOST_LOOKED_AT


def test_other_policies_ask_for_no_news_of_neighbours() -> None:
    assert Told().core.watches_neighbours
    assert not Told(policy="fair").core.watches_neighbours
