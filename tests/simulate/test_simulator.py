"""The virtual driver: against the simplest simulator, what must always hold, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.commands import Command, KillJob, MoveJob, StartJob
from ecoshare.core.events import Config, Event, JobArrived, JobExited, Outcome
from ecoshare.core.failures import Failures
from ecoshare.core.memory import MemoryDemand
from ecoshare.core.policies import POLICIES
from ecoshare.core.policies.packs import Packs
from ecoshare.errors import UsageError
from ecoshare.simulate.cluster import Cluster
from ecoshare.simulate.costs import NO_COSTS, Costs
from ecoshare.simulate.gpus import GPUS
from ecoshare.simulate.result import Result
from ecoshare.simulate.simulator import Simulator
from ecoshare.simulate.traces.trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulate.world import World
from tests.simulate.reference import jcts

GPU = GPUS["v100"]
GIB = 1 << 30

KEYS = {
    "fifo": (lambda each: (), False, False),
    "smallest": (lambda each: (each.job.gpus,), True, True),
    "srsf": (lambda each: (each.left_s * each.job.gpus,), True, True),
    "srtf": (lambda each: (each.left_s,), True, True),
}
"""Of each policy: its order, whether it preempts, whether others pass who does not fit."""


def trace(*jobs: TraceJob) -> Trace:
    return Trace("made.csv", "made", in_order(jobs), "")


def job(name: str, service_s: float, arrival_s: float = 0.0, **more: Any) -> TraceJob:
    iterations = more.pop("iterations", 10)
    return TraceJob(name, more.pop("job_class", "c"), arrival_s, (Phase(iterations, service_s / iterations),), **more)


def simulate(
    jobs: Trace, policy: str, nodes: int = 1, gpus: int = 1, places: int = 1, costs: Costs = NO_COSTS, **more: Any
) -> Result:
    config = Config(policy, more.pop("lanes", 1), places, preempt=places == 1, **more)
    return Simulator(jobs, Cluster(nodes, gpus, GPU), config, World(GPU), costs).run()


JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.sampled_from([1, 1, 1, 2, 3, 4])), min_size=1, max_size=14
).map(
    lambda rows: trace(
        # Skew 0: they may span nodes. Odd lengths: no two events at one moment, whose order would be a convention.
        *(
            job(f"j{place}", service + 0.137 * place + 0.0173 * place**2, arrival + 0.0311 * place, gpus=gpus, skew=0.0)
            for place, (arrival, service, gpus) in enumerate(rows)
        )
    )
)


@pytest.mark.parametrize("policy", sorted(KEYS))
@given(jobs=JOBS)
def test_all_are_seated_as_if_anew_at_every_moment(policy: str, jobs: Trace) -> None:
    found = {each.name: each.jct_s for each in simulate(jobs, policy, nodes=2, gpus=2).finished}
    expected = jcts(jobs.jobs, 4, *KEYS[policy])
    assert found == pytest.approx(expected, abs=1e-6)


def decisions(jobs: Trace, policy: str, costs: Costs) -> list[tuple[Event, list[Command]]]:
    seen: list[tuple[Event, list[Command]]] = []
    config = Config(policy, 1, 1, preempt=True, options=(("limit_1", 20.0),) if policy == "tiresias" else ())
    Simulator(jobs, Cluster(3, 4, GPU), config, World(GPU), costs).run(lambda *each: seen.append(each))
    return seen


@pytest.mark.parametrize("policy", ["smallest", "srsf", "srtf", "tiresias"])
@given(
    jobs=st.lists(
        st.builds(
            lambda arrival, service, gpus, skew: TraceJob(
                "?", "c", arrival, (Phase(10, service / 10),), gpus, skew=skew
            ),
            st.floats(0, 60),
            st.floats(1, 40),
            st.sampled_from([1, 1, 2, 3, 4, 4, 8]),
            st.sampled_from([None, None, 0.0]),
        ),
        min_size=10,
        max_size=40,
    ),
    costs=st.sampled_from([NO_COSTS, Costs(1.0, 1.0, 2.0, 0.01)]),
)
def test_to_remember_what_failed_changes_no_decision(policy: str, jobs: list[TraceJob], costs: Costs) -> None:
    made = trace(*(replace(each, name=f"j{place}") for place, each in enumerate(jobs)))
    with_memory = decisions(made, policy, costs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Failures, "stands", lambda *_: False)
        assert decisions(made, policy, costs) == with_memory


SHARED = st.lists(
    st.builds(
        lambda arrival, service, iterations, gpus, memory, priority, skew: TraceJob(
            "?",
            f"c{iterations}",
            arrival,
            (Phase(iterations, service / iterations),),
            gpus,
            priority,
            memory,
            skew=skew,
        ),
        st.floats(0, 60),
        st.floats(0.01, 40),
        st.integers(1, 50),
        st.sampled_from([1, 1, 1, 2, 3]),
        st.none() | st.builds(MemoryDemand, st.integers(0, 10 * GIB), st.integers(0, 6 * GIB)),
        st.integers(0, 2),
        st.sampled_from([None, 0.0, 0.9]),
    ),
    max_size=12,
).map(lambda jobs: trace(*(replace(each, name=f"j{place}") for place, each in enumerate(jobs))))


@given(
    jobs=SHARED,
    policy=st.sampled_from(sorted(POLICIES)),
    size=st.sampled_from([(1, 3), (2, 2), (2, 3)]),
    lanes=st.integers(1, 2),
    places=st.integers(1, 4),
    costs=st.sampled_from([NO_COSTS, Costs(), Costs(3.0, 1.0, 2.0, 0.01)]),
)
def test_what_must_always_hold(
    jobs: Trace, policy: str, size: tuple[int, int], lanes: int, places: int, costs: Costs
) -> None:
    cluster = Cluster(*size, GPU)
    preempt = lanes == places == 1
    config = Config(policy, lanes, places, preempt=preempt, past_gpu_s=(5.0, 10.0, 50.0))
    log: list[tuple[Event, tuple[Command, ...]]] = []
    simulator = Simulator(jobs, cluster, config, World(GPU), costs)
    result = simulator.run(lambda event, commands: log.append((event, tuple(commands))))
    by_name = {each.name: each for each in jobs.jobs}
    assert {each.name for each in result.finished} == set(by_name), "every job ends"
    work_s = sum(each.gpus * each.service_s for each in jobs.jobs)
    for each in result.finished:
        assert each.jct_s >= by_name[each.name].service_s - 1e-6, "JCT >= service time"
        assert each.placed_s <= each.jct_s + 1e-6
    busy_s = result.utilisation * result.makespan_s * cluster.size
    fastest = 1.0 if lanes == 1 else 2 * World(GPU).beside
    assert busy_s >= work_s / fastest * (1 - 1e-6) - 1e-3, "work done = work asked"
    if lanes == 1 and not costs.handover_s:
        assert busy_s == pytest.approx(work_s, rel=1e-6, abs=1e-3)
    holding: dict[int, dict[str, MemoryDemand]] = {}
    places_of: dict[str, tuple[int, ...]] = {}
    for event, commands in log:
        if isinstance(event, JobExited):
            for lane in places_of.pop(event.job):
                del holding[lane][event.job]
        for command in commands:
            if isinstance(command, MoveJob):
                (before,) = places_of[command.job]
                holding.setdefault(command.lane, {})[command.job] = holding[before].pop(command.job)
                places_of[command.job] = (command.lane,)
            if isinstance(command, StartJob):
                one = by_name[command.job]
                assert len(set(command.lanes)) == one.gpus, "all its devices or none"
                assert command.job not in places_of
                places_of[command.job] = command.lanes
                for lane in command.lanes:
                    inside = holding.setdefault(lane, {})
                    assert one.gpus == 1 or not inside, "a gang has its lanes to itself"
                    inside[command.job] = one.memory or MemoryDemand(GPU.memory_bytes // lanes // places)
                    assert len(inside) <= places, "no lane is overfull"
                    demands = list(inside.values())
                    if len(demands) > 1 and not issubclass(POLICIES[policy], Packs):  # tests/simulate/test_packs.py
                        taken = sum(demand.persistent_bytes for demand in demands)
                        taken += max(demand.ephemeral_bytes for demand in demands)
                        assert taken <= GPU.memory_bytes // lanes, "no memory is over-committed"
    idle_j = GPU.idle_w * cluster.size * result.makespan_s
    if lanes == 1:
        assert result.energy_j == pytest.approx(idle_j + busy_s * GPU.active_w, rel=1e-6, abs=1.0), "integral of power"
    else:
        most_w = GPU.limit_w - GPU.idle_w
        assert idle_j + busy_s * GPU.active_w - 1.0 <= result.energy_j <= idle_j + busy_s * most_w + 1.0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_equal_inputs_give_equal_decisions(policy: str) -> None:
    jobs = trace(*(job(f"j{n}", 5.0 + n % 7, 1.3 * n, gpus=1 + n % 3, skew=0.0) for n in range(60)))
    config = Config(policy, 1, 1, preempt=True, past_gpu_s=(5.0, 10.0, 50.0))

    def decisions() -> list[object]:
        log: list[object] = []
        simulator = Simulator(jobs, Cluster(2, 2, GPU), config, World(GPU), Costs())
        simulator.run(lambda event, commands: log.append((event, tuple(commands))))
        return log

    first = decisions()
    assert all(decisions() == first for _ in range(9))


def test_a_job_that_is_preempted_loses_no_work_but_pays_for_it() -> None:
    jobs = trace(job("long", 100.0), job("short", 10.0, 20.0))
    found = {each.name: each for each in simulate(jobs, "srtf", costs=Costs(1.0, 2.0, 3.0, 0.0)).finished}
    assert found["short"].jct_s == pytest.approx(2.0 + 1.0 + 10.0), "it waits until the other has stopped"
    assert found["long"].finish_s == pytest.approx(1.0 + 100.0 + 2.0 + 1.0 + 10.0 + 1.0 + 3.0)
    assert (found["long"].attempts, found["short"].attempts) == (2, 1)


def test_jobs_of_a_lane_take_turns() -> None:
    jobs = trace(*(job(name, 10.0, iterations=100) for name in "abc"))
    fair = simulate(jobs, "fair", places=4, costs=Costs(0.0, 0.0, 0.0, 0.0))
    assert [each.jct_s for each in fair.finished] == pytest.approx([30.0, 30.0, 30.0], abs=1.0)
    pack = simulate(jobs, "pack", places=4, costs=NO_COSTS)
    assert [each.jct_s for each in pack.finished] == pytest.approx([10.0, 20.0, 30.0])


def test_who_comes_with_less_to_do_gets_the_turn_at_the_next_boundary() -> None:
    jobs = trace(job("long", 100.0, iterations=100), job("short", 5.0, 20.5))
    found = {each.name: each.jct_s for each in simulate(jobs, "srtf", places=2).finished}
    assert found == pytest.approx({"short": 0.5 + 5.0, "long": 105.0})


def test_a_neighbour_in_another_lane_slows_both() -> None:
    jobs = trace(job("a", 10.0), job("b", 10.0))
    beside = World(GPU).beside
    found = simulate(jobs, "pack", lanes=2, places=2).finished
    assert [each.jct_s for each in found] == pytest.approx([10.0 / beside] * 2)


def test_a_gang_with_skewed_tensors_stays_together() -> None:
    small = [job(f"s{place}", 50.0, 0.0) for place in range(3)]
    starts: dict[str, tuple[int, ...]] = {}

    def watch(_event: Event, commands: list[Command]) -> None:
        starts.update({each.job: each.lanes for each in commands if isinstance(each, StartJob)})

    for skew, together in ((0.9, True), (0.0, False)):
        jobs = trace(*small, job("gang", 10.0, 1.0, gpus=3, skew=skew))
        simulator = Simulator(jobs, Cluster(2, 4, GPU), Config("fifo", 1, 1), World(GPU), NO_COSTS)
        simulator.run(watch)
        assert len({lane // 4 for lane in starts["gang"]}) == 1 or not together


def test_what_asks_for_more_than_there_is_is_named() -> None:
    jobs = trace(job("huge", 1.0, gpus=9, line=7))
    with pytest.raises(UsageError, match=r"made\.csv:7: job huge asks for 9 GPUs, and there are 4"):
        simulate(jobs, "fifo", nodes=2, gpus=2)


def test_what_needs_more_memory_than_a_device_has_is_named() -> None:
    jobs = trace(job("fat", 1.0, memory=MemoryDemand(64 * GIB), line=3))
    with pytest.raises(UsageError, match=r"made\.csv:3: job fat"):
        simulate(jobs, "fifo")


def test_the_last_moment_of_a_preempted_gang() -> None:
    """Two that give way to a gang leave one after the other; nobody else may slip in between."""
    jobs = trace(job("a", 100.0), job("b", 90.0), job("gang", 10.0, 5.0, gpus=2, skew=0.0), job("late", 200.0, 5.5))
    log: list[Command] = []
    simulator = Simulator(jobs, Cluster(1, 2, GPU), Config("srtf", 1, 1, preempt=True), World(GPU), Costs(0, 1.0, 0, 0))
    result = simulator.run(lambda _event, commands: log.extend(commands))
    assert [each.job for each in log if isinstance(each, KillJob)] == ["b", "a"] or [
        each.job for each in log if isinstance(each, KillJob)
    ] == ["a", "b"]
    found = {each.name: each for each in result.finished}
    assert found["gang"].start_s == pytest.approx(6.0)
    assert found["late"].start_s > found["a"].finish_s - 200.0


def test_a_job_that_arrives_twice_is_told_of_once() -> None:
    events: list[Event] = []
    jobs = trace(job("a", 1.0), job("b", 1.0, 0.5))
    Simulator(jobs, Cluster(1, 1, GPU), Config("fifo", 1, 1), World(GPU), NO_COSTS).run(
        lambda event, _commands: events.append(event)
    )
    assert sum(isinstance(event, JobArrived) for event in events) == 2
    ends = [event for event in events if isinstance(event, JobExited)]
    assert [event.outcome for event in ends] == [Outcome.COMPLETED] * 2
    assert [event.usage.iterations for event in ends] == [10, 10]
