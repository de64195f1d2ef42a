"""Policies that choose which jobs run beside each other, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.measurement import Setting
from ecoshare.core.commands import AskInterference, KillJob, MoveJob, ProfileJob, StartJob
from ecoshare.core.events import ClassesKnown, Config, Done, JobExited, SettingMeasured
from ecoshare.core.placement.colocation_estimates import PROCESSORS_GUESS
from ecoshare.knowledge.advisers.interference_adviser import foresee
from ecoshare.simulation.cluster import GPUS, Cluster, GpuModel, Watts
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, TraceJob
from ecoshare.simulation.world import Pairs, World
from tests.simulation.simulating import Log, made, simulate

GPU = GPUS["v100"]
GIB = 1 << 30
PACKS = ("edp", "energy", "jct", "makespan")


def job(name: str, job_class: str, seconds: float = 60.0, arrival_s: float = 0.0, gib: float = 4.0) -> TraceJob:
    memory = MemoryDemand(int(0.75 * gib * GIB), int(0.25 * gib * GIB))
    return TraceJob(name, job_class, arrival_s, (Phase(round(seconds / 0.1), 0.1),), memory=memory)


def world(**speeds: float) -> World:
    """Predict speeds: `ab=0.9` is the speed of a beside b, and of b beside a; other pairs are unknown."""
    known = {}
    for pair, speed in speeds.items():
        one, other = ((each, 1) for each in pair)
        known[one, other] = known[other, one] = speed
    return World(GPU, pairs=Pairs("made", known))


def simulated(
    jobs: list[TraceJob], truth: World, config: Config, gpus: int = 1, costs: Costs = NO_COSTS
) -> tuple[SimulationResult, Log]:
    found = simulate(made(jobs), Cluster(1, gpus, GPU), config, truth, costs)
    return found.result, found.log


JOBS = st.lists(
    st.builds(
        lambda job_class, arrival_s, seconds, slowdown_limit, gpus: replace(
            job("", job_class, seconds, arrival_s), slowdown_limit=slowdown_limit, gpus=gpus
        ),
        st.sampled_from("abcd"),
        st.one_of(st.just(0.0), st.floats(0.0, 100.0)),
        st.floats(0.5, 120.0),
        st.one_of(st.none(), st.floats(1.0, 3.0)),
        st.sampled_from([1, 1, 1, 1, 2]),
    ),
    min_size=1,
    max_size=20,
).map(lambda jobs: [replace(each, name=f"j{place}") for place, each in enumerate(jobs)])

SIZES = st.fixed_dictionaries({each: st.floats(0.5, 31.0) for each in "abcd"})
"""Memory (GiB) of the jobs of a class."""

SPEEDS = st.fixed_dictionaries({pair: st.floats(0.2, 1.0) for pair in ("ab", "ac", "ad", "bc", "bd", "cd", "aa")})


@pytest.mark.slow
@given(
    JOBS, SIZES, SPEEDS, st.sampled_from(PACKS), st.integers(1, 3), st.integers(1, 4), st.booleans(), st.integers(2, 3)
)
def test_jobs_of_any_kind_are_packed(
    jobs: list[TraceJob],
    sizes: dict[str, float],
    speeds: dict[str, float],
    policy: str,
    lanes: int,
    places: int,
    profile: bool,
    gpus: int,
) -> None:
    jobs = [replace(each, memory=job("", "a", gib=sizes[each.job_class]).memory) for each in jobs]
    truth, config = world(**speeds), Config(policy, lanes, places, profile=profile)
    result, _ = simulated(jobs, truth, config, gpus, Costs())
    assert len(result.finished) == len(jobs)


def test_a_job_that_is_killed_while_it_starts_ends_after_its_start() -> None:
    """Two classes are known at one moment: by the first a job starts, by the second its memory is missing."""
    works = (("a", 17.2), ("a", 86.8), ("a", 0.5), ("b", 7.0), ("b", 115.1), ("d", 37.4), ("a", 72.7))
    sizes = {"a": 18.0, "b": 17.0, "d": 1.0}
    jobs = [job(f"j{place}", each, work_s, gib=sizes[each]) for place, (each, work_s) in enumerate(works)]
    jobs[-1] = replace(jobs[-1], arrival_s=1e-05)
    even = world(ab=1.0, ad=1.0, bd=1.0, aa=1.0)
    _, log = simulated(jobs, even, Config("edp", 2, 3, profile=True), 3, Costs())
    starts = {command.id: command.job for _, each in log for command in each if isinstance(command, StartJob)}
    killed = {command.job for _, each in log for command in each if isinstance(command, KillJob)}
    assert killed
    for job_name in killed:
        told = [
            "start" if isinstance(event, Done) else "end"
            for event, _ in log
            if (isinstance(event, Done) and starts.get(event.command) == job_name)
            or (isinstance(event, JobExited) and event.job == job_name)
        ]
        assert told == ["start", "end"] * (len(told) // 2)


@pytest.mark.parametrize("policy", PACKS)
def test_those_that_gain_run_beside_each_other(policy: str) -> None:
    jobs = [job("a0", "a"), job("b0", "b"), job("c0", "c")]
    found, log = simulated(jobs, world(ab=0.4, ac=0.95, bc=0.45), Config(policy, 2, 4, profile=True), costs=Costs())
    assert found.makespan_s < 180.0 + 3 * (Costs().rest_s + Costs().trial_s) + 60.0 * (policy == "makespan")
    assert any(isinstance(event, SettingMeasured) for event, _ in log), "the packing is measured"


def test_a_pair_that_was_measured_to_be_bad_is_parted_without_a_restart() -> None:
    jobs = [job("a0", "a", 300.0), job("b0", "b", 300.0)]
    result, log = simulated(jobs, world(ab=0.3), Config("energy", 2, 4, profile=True), costs=Costs())
    commands = [command for _, each in log for command in each]
    assert any(isinstance(each, MoveJob) for each in commands), "the two take turns in one lane"
    assert sum(isinstance(each, StartJob) for each in commands) == 2, "no job was restarted"
    assert result.makespan_s < 640.0, "in turn they take 600 s, beside each other 1000 s"


@pytest.mark.nightly
@pytest.mark.parametrize("policy", PACKS)
def test_more_jobs_than_a_lane_has_places_wait_behind_a_lone_member(policy: str) -> None:
    """One that stayed in a lane of its own would have the turn there, and slow the member all the time."""
    jobs = [job(f"{each}0", each, 100.0) for each in "abcdef"]
    slow = {one + other: 0.15 for one, other in combinations("abcdef", 2)}
    found, _ = simulated(jobs, world(**slow), Config(policy, 6, 4, profile=True), costs=Costs())
    assert found.makespan_s < 650.0, "in turn they take 600 s"


PROCESSORS = GpuModel("cpu", 7.0, 16 * GIB, Watts(1.5, 5.0))


@dataclass(frozen=True)
class ProcessorWorld(World):
    """Processors of which each class wants a part: jobs that want more than all of them wait for each other.

    Attributes:
        busy: Part of the processors that each class keeps busy alone.
    """

    busy: Mapping[str, float] = field(default_factory=dict)

    def watts(self, job: TraceJob) -> float:
        return 5.5 * self.busy[job.job_class]

    def device_watts(
        self, jobs: Sequence[TraceJob], device: str = "", setting: Setting = (), at_s: float = 0.0
    ) -> float:
        return 5.5 * min(1.0, sum(self.busy[job.job_class] for job in jobs))

    def solo(self, job: TraceJob, device: str, at_s: float) -> Solo:
        return replace(super().solo(job, device, at_s), busy=self.busy[job.job_class])


EXAMPLES = {"mlp": 0.7, "cnn": 0.87, "vae": 0.85, "gan": 0.85, "gnn": 0.76, "transformer": 0.77}
"""Part of two processors that each job of `examples/jobs.yaml` keeps busy, as profiles say."""

ON_PROCESSORS = Costs(start_s=0.3, rest_s=0.0, window_s=1.0, trial_s=3.0, ask_s=0.5)


def on_processors(jobs: list[TraceJob], truth: World, known: ClassesKnown | None) -> tuple[float, ClassesKnown, Log]:
    """Joules, what a run has measured of neighbours, and the log. Classes are new if nothing is known."""
    log: Log = []
    config = Config("energy", 6, 4, profile=known is None)
    guess = partial(foresee, guess=PROCESSORS_GUESS)
    cluster = Cluster(1, 1, PROCESSORS, threads=2)
    simulator = Simulator(made(jobs), cluster, config, truth, ON_PROCESSORS, None, guess, known=known)
    joules = simulator.run(lambda *each: log.append(each)).energy_j
    seen = [each.colocations for _, commands in log for each in commands if isinstance(each, AskInterference)]
    return joules, ClassesKnown(0.0, colocations=seen[-1]), log


@pytest.mark.nightly
@pytest.mark.parametrize("announced", [True, False], ids=["lengths known", "lengths unknown"])
def test_a_first_run_of_the_examples_takes_hardly_more_joules_than_one_after_the_other(announced: bool) -> None:
    """It took 1.22 times as many: three pairs of jobs that want all processors were tried and measured."""
    works_s = {"mlp": 4.0, "cnn": 4.5, "vae": 5.0, "gan": 3.5, "gnn": 4.0, "transformer": 5.0}
    late_s = {"gan": 2.0, "transformer": 4.0}
    jobs = [job(one, one, works_s[one], late_s.get(one, 0.0), gib=0.5) for one in EXAMPLES]
    pairs = Pairs("made", {((one, 1), (other, 1)): 0.25 for one in EXAMPLES for other in EXAMPLES})
    truth = ProcessorWorld(PROCESSORS, pairs=pairs, busy=EXAMPLES)
    in_turn_j = sum(each.service_s * (1.5 + truth.watts(each)) for each in jobs)
    first_j, learned, _ = on_processors([replace(each, announced=announced) for each in jobs], truth, None)
    later_j, _, _ = on_processors(jobs, truth, learned)
    assert later_j < 1.03 * in_turn_j and first_j < 1.1 * in_turn_j


def test_with_more_work_left_a_pair_is_tried_and_what_it_saves_is_more_than_its_trial() -> None:
    """If it failed, the rule that spares trials would spare savings, too."""
    busy = {"a": 0.6, "b": 0.6}
    truth = ProcessorWorld(
        PROCESSORS, pairs=Pairs("made", {(("a", 1), ("b", 1)): 0.83, (("b", 1), ("a", 1)): 0.83}), busy=busy
    )
    for work_s, is_tried in ((2.0, False), (120.0, True)):
        jobs = [job("a", "a", work_s), job("b", "b", work_s)]
        in_turn_j = sum(each.service_s * (1.5 + truth.watts(each)) for each in jobs)
        joules, _, log = on_processors(jobs, truth, None)
        assert any(isinstance(event, SettingMeasured) for event, _ in log) is is_tried
        assert joules < (0.95 if is_tried else 1.1) * in_turn_j


def test_a_limit_keeps_a_job_from_those_that_would_break_it() -> None:
    limited = replace(job("a0", "a", 100.0), slowdown_limit=1.2)
    speeds = {"ab": 0.7}
    free, _ = simulated([job("a0", "a", 100.0), job("b0", "b", 100.0)], world(**speeds), learned(), costs=Costs())
    kept, _ = simulated([limited, job("b0", "b", 100.0)], world(**speeds), learned(), costs=Costs())
    assert free.makespan_s < kept.makespan_s
    (mine,) = [each for each in kept.finished if each.name == "a0"]
    assert mine.placed_s / mine.service_s <= 1.2


def learned() -> Config:
    return Config("energy", 2, 4, profile=True)


def test_a_class_is_measured_once_and_what_it_was_granted_is_free_then() -> None:
    jobs = [job(f"a{number}", "a", 60.0, gib=3.0) for number in range(6)]
    _, log = simulated(jobs, world(aa=0.9), Config("energy", 3, 4, profile=True), costs=Costs())
    commands = [command for _, each in log for command in each]
    assert sum(isinstance(each, ProfileJob) for each in commands) == 1
    starts = [each for each in commands if isinstance(each, StartJob)]
    assert starts[0].cap_bytes == GPU.memory_bytes
    assert all(each.cap_bytes < GPU.memory_bytes // 4 for each in starts[1:])


def test_a_job_that_outgrew_the_free_memory_is_tried_again_with_more() -> None:
    jobs = [job("a0", "a", 200.0, gib=20.0), job("b0", "b", 60.0, arrival_s=60.0, gib=14.0)]
    result, log = simulated(jobs, world(ab=0.9), Config("energy", 2, 4, profile=True), costs=Costs())
    outcomes = [event.outcome for event, _ in log if isinstance(event, JobExited) and event.job == "b0"]
    assert outcomes == [Outcome.OUT_OF_MEMORY, Outcome.COMPLETED]
    assert len(result.finished) == 2
