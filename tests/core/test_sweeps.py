"""Sweeps in the core: trials are drawn one by one, never too many at once, and bad trials end early."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import EarlierTrial, JobSpec, StoppingSpec, SweepSpec, own_configuration
from ecoshare.core.commands import AskInterference, AskSampler, Command, KillJob, MoveJob, StartJob
from ecoshare.core.events import (
    SCHEMA,
    Config,
    DeviceFailed,
    Done,
    Event,
    Exhausted,
    InterferencePredicted,
    JobArrived,
    JobExited,
    Reported,
    RunOpened,
    StopRequested,
    SweepOpened,
)
from ecoshare.core.placement.colocation_estimates import PROCESSORS_GUESS
from ecoshare.core.placement.memory_fit import SPARE
from ecoshare.core.placement.packer import MEMBER
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.sweeps import LEAST_COMPLETED, rule
from ecoshare.knowledge.advisers.interference_adviser import foresee

GIB = 1 << 30


class World:
    """A device or more, a sampler of a number of trials, and trials that report their quality once a step."""

    def __init__(
        self, sweep: SweepSpec, trials: int, places: int = 4, policy: str = "fair", seed: int = 0, devices: int = 1
    ) -> None:
        self.core, self.dice, self.trials = Scheduler(), random.Random(seed), trials
        self.events: list[Event] = []
        self.commands: list[list[Command]] = []
        self.running: dict[str, int] = {}
        self.quality: dict[str, float] = {}
        self.steps: Counter[str] = Counter()
        self.most_live = 0
        self.asked: list[AskSampler] = []
        found = tuple(Device(f"d{number}", "here", 16 * GIB) for number in range(devices))
        self.tell(RunOpened(0.0, SCHEMA, Config(policy, 1, places), found))
        self.tell(SweepOpened(0.0, sweep))

    def tell(self, event: Event) -> None:
        commands = self.core.handle(event)
        self.events.append(event)
        self.commands.append(commands)
        for command in commands:
            match command:
                case AskSampler():
                    self.asked.append(command)
                case StartJob():
                    self.running[command.job] = command.attempt
                    self.tell(Done(0.0, command.id))
                case KillJob():
                    outcome = Outcome.PRUNED if command.pruned else Outcome.STOPPED
                    self.end(command.job, outcome, command.reason)
                case _:
                    if type(command).__name__ == "OpenLane":
                        self.tell(Done(0.0, command.id))

    def end(self, job: str, outcome: Outcome, reason: str = "") -> None:
        self.tell(JobExited(0.0, job, self.running.pop(job), outcome, 0, reason, Usage()))

    def answer(self) -> None:
        command = self.asked.pop(0)
        if command.number >= self.trials:
            self.tell(Exhausted(0.0, command.id))
            return
        name = f"s.{command.number:04d}"
        self.quality[name] = self.dice.random()
        self.tell(JobArrived(0.0, JobSpec(name, "c", sweep=command.sweep, retries=1), command.id))

    def go_on(self, steps: int, fails_after: int = 0) -> None:
        """Let possible next events happen in random order until none is left; the first device may fail after some."""
        passed = 0
        while self.asked or self.running:
            passed += 1
            if passed == fails_after:
                self.tell(DeviceFailed(0.0, "d0", "it is lost"))
                continue
            live = [job for job in self.core.jobs.values() if not job.state.ended]
            self.most_live = max(self.most_live, len(live) + len(self.asked))
            if self.asked and (not self.running or self.dice.random() < 0.5):
                self.answer()
                continue
            job = self.dice.choice(sorted(self.running))
            if self.dice.random() < 0.02:
                self.end(job, Outcome.FAILED, "by chance")
                continue
            self.steps[job] += 1
            if self.steps[job] > steps:
                self.end(job, Outcome.COMPLETED)
            else:
                self.tell(Reported(0.0, job, self.steps[job], self.quality[job] + 1.0 / self.steps[job]))


@pytest.mark.parametrize("policy", ["fair", "fifo", "srtf", "energy"])
@pytest.mark.parametrize("seed", range(5))
def test_every_trial_is_drawn_once_and_ends_and_never_too_many_are_there(policy: str, seed: int) -> None:
    world = World(SweepSpec("s", 7), 60, policy=policy, seed=seed)
    world.go_on(3)
    assert sorted(world.core.jobs) == [f"s.{number:04d}" for number in range(60)]
    assert all(job.state.ended for job in world.core.jobs.values())
    assert world.most_live == 7
    assert world.core.live_jobs == world.core.open_sweeps == 0


@pytest.mark.parametrize(
    "early_stopping", [StoppingSpec("asha", 1, 3), StoppingSpec("median", 2)], ids=["asha", "median"]
)
def test_early_stopping_spares_work_and_keeps_the_best(early_stopping: StoppingSpec) -> None:
    world = World(SweepSpec("s", 4, early_stopping=early_stopping), 200, seed=3)
    world.go_on(27)
    states = Counter(job.state for job in world.core.jobs.values())
    assert states[JobState.PRUNED] > 80
    done = sum(min(steps, 27) for steps in world.steps.values())
    assert done < 0.6 * 200 * 27
    ordered = sorted(world.quality, key=world.quality.__getitem__)
    kept = [name for name in ordered[:3] if world.core.jobs[name].state is not JobState.PRUNED]
    assert kept, "the three best trials were all ended early"


def test_a_stop_draws_no_more() -> None:
    world = World(SweepSpec("s", 3), 50)
    for _ in range(3):
        world.answer()
    world.tell(StopRequested(0.0, at_once=False))
    assert not world.asked and world.core.open_sweeps == 0
    assert {job.state for job in world.core.jobs.values()} == {JobState.CANCELLED}


def test_larger_values_can_be_the_better_ones() -> None:
    world = World(SweepSpec("s", 4, maximise=True, early_stopping=StoppingSpec("asha")), 4)
    for _ in range(4):
        world.answer()
    for number, value in enumerate((0.9, 0.8, 0.95)):
        world.tell(Reported(0.0, f"s.000{number}", 1, value))
    states = [world.core.jobs[f"s.000{number}"].state for number in range(3)]
    assert states == [JobState.RUNNING, JobState.PRUNED, JobState.RUNNING]


def test_trials_of_an_earlier_session_come_before_new_ones() -> None:
    core = Scheduler()
    (opened,) = core.handle(RunOpened(0.0, SCHEMA, Config("fair", 1, 20), (Device("d0", "here", 16 * GIB),)))
    core.handle(Done(0.0, opened.id))
    left = [JobArrived(0.0, JobSpec(f"s.{number:04d}", "k", sweep="s")) for number in (4, 6)]
    told: list[Event] = [SweepOpened(0.0, SweepSpec("s", 3, drawn=7), len(left)), *left]
    asked = [[each for each in core.handle(event) if isinstance(each, AskSampler)] for event in told]
    assert [[each.number for each in step] for step in asked] == [[], [], [7]]


def test_trials_that_differ_in_their_seed_stop_by_their_mean() -> None:
    """A lucky seed of a bad configuration does not go on, and an unlucky one of the best does not end."""
    spec = SweepSpec("s", 20, early_stopping=StoppingSpec("asha", least=5), replicates=("seed",))
    core = Scheduler()
    (opened,) = core.handle(RunOpened(0.0, SCHEMA, Config("fair", 1, 20), (Device("d0", "here", 16 * GIB),)))
    core.handle(Done(0.0, opened.id))
    asked = core.handle(SweepOpened(0.0, spec))
    values = {"a": (8.0, 8.0), "b": (7.0, 7.0), "c": (5.0, 5.0), "d": (4.0, 4.0), "e": (9.0, 3.0), "f": (2.0, 6.0)}
    names = [(config, place) for config in values for place in range(2)]
    for command, (config, place) in zip(asked, names, strict=False):
        of = (("lr", config), ("seed", str(place)))
        for start in core.handle(JobArrived(0.0, JobSpec(f"{config}{place}", "k", sweep="s", values=of), command.id)):
            core.handle(Done(0.0, start.id))
    ended = []
    for config, place in names:
        for command in core.handle(Reported(0.0, f"{config}{place}", 1, values[config][place])):
            assert isinstance(command, KillJob)
            ended.append(command.job)
    assert ended == ["e0", "e1"], "four configurations are no standard yet; e has the third mean of five, f the first"
    assert "place 3 of the 5 configurations (10 trials)" in core.jobs["e1"].history[-1].cause


def test_a_sampler_with_a_rule_of_its_own_has_the_last_word() -> None:
    world = World(SweepSpec("s", 2), 2)
    world.answer()
    world.tell(Reported(0.0, "s.0000", 1, 0.5, halt="step 1: MedianPruner of optuna"))
    job = world.core.jobs["s.0000"]
    assert job.state is JobState.PRUNED and "MedianPruner" in job.history[-1].cause


def test_a_sweep_that_goes_on_knows_what_its_trials_have_reported() -> None:
    past = tuple(EarlierTrial(f"s.{number:04d}", True, (0.1,)) for number in range(9))
    world = World(SweepSpec("s", 1, early_stopping=StoppingSpec("asha"), drawn=9, earlier_trials=past), 10)
    assert world.asked[0].number == 9
    world.answer()
    world.tell(Reported(0.0, "s.0009", 1, 0.2))
    assert world.core.jobs["s.0009"].state is JobState.PRUNED


def test_a_value_that_is_no_number_is_the_worst() -> None:
    for name in ("asha", "median"):
        early_stopping = rule(StoppingSpec(name))
        for number in range(max(3, LEAST_COMPLETED)):
            early_stopping.told(f"t{number}", own_configuration(f"t{number}"), 1, 1.0)
            early_stopping.ended(f"t{number}", completed=True)
        assert early_stopping.told("bad", own_configuration("bad"), 1, float("nan"))
        assert not early_stopping.told("good", own_configuration("good"), 1, 0.5)


def test_a_trial_that_is_started_again_counts_once() -> None:
    early_stopping = rule(StoppingSpec("asha", reduction=2))
    for _ in range(3):
        early_stopping.told("a", own_configuration("a"), 1, 0.1)
    assert not early_stopping.told("b", own_configuration("b"), 1, 0.05)
    assert early_stopping.told("c", own_configuration("c"), 1, 0.2)
    spec = replace(SweepSpec("s", 1), early_stopping=StoppingSpec("median"))
    assert spec.early_stopping is not None and not rule(spec.early_stopping).told("a", own_configuration("a"), 1, 9.0)


def short_trials(threads: int, cpu_s: float) -> tuple[list[str], list[str]]:
    """Starts of trials that are too short to be measured: at once, and in the group after the end of one."""
    core = Scheduler()
    device = Device("cpu", "here", 16 * GIB, threads=threads)
    commands = core.handle(RunOpened(0.0, SCHEMA, Config("energy", 4, 4, profile=True), (device,)))
    commands = [each for command in commands for each in core.handle(Done(0.0, command.id))]
    for number in range(8):
        commands += core.handle(JobArrived(0.0, JobSpec(f"s.000{number}", "c", sweep="s", iterations=10)))
    first = _carried_out(core, commands, 0.0)
    usage = Usage(iterations=10, held_s=1.0, span_s=1.0, cpu_s=cpu_s, peak_bytes=GIB)
    commands = core.handle(JobExited(1.0, "s.0000", 1, Outcome.COMPLETED, 0, "", usage))
    for started in _carried_out(core, commands, 1.0):
        assert core.jobs[started].demand.peak_bytes == SPARE * GIB
    group = [name for name, job in core.jobs.items() if job.state is JobState.RUNNING and job.level == MEMBER]
    return first, group


def _carried_out(core: Scheduler, commands: list[Command], at_s: float) -> list[str]:
    """Carry out commands and all that follow; returns the started jobs."""
    started = []
    while commands:
        command = commands.pop(0)
        match command:
            case StartJob() | MoveJob():
                commands += core.handle(Done(at_s, command.id))
                started += [command.job] if isinstance(command, StartJob) else []
            case AskInterference():
                pairs, prices = foresee(command, PROCESSORS_GUESS)
                commands += core.handle(InterferencePredicted(at_s, command.id, pairs, prices))
    return started


def test_trials_too_short_to_be_measured_go_by_what_the_first_has_taken() -> None:
    """If it failed, a sweep of one-thread trials would leave all processors but one idle."""
    for cpu_s, beside in ((1.0, 4), (4.0, 1)):
        first, group = short_trials(threads=4, cpu_s=cpu_s)
        assert len(first) == 2, "memory is watched: nothing is kept free for what was not seen yet"
        assert len(group) == beside, "each keeps one of four processors busy, or all of them"
