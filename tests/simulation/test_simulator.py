"""The virtual driver against the simplest simulator, in every way of sharing, and its refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.commands import KillJob, StartJob
from ecoshare.core.events import Config
from ecoshare.core.placement.strategies.preemptive_placement import FailedSearches
from ecoshare.core.turns import URGENT_WAIT_S
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.traces.job_trace import Phase, TraceJob
from ecoshare.simulation.world import World
from tests.simulation.reference import jcts
from tests.simulation.simulating import OURS, Log, Simulated, made, simulate

GPU = GPUS["v100"]
GIB = 1 << 30

KEYS = {
    "fifo": (lambda each: (), False, False),
    "smallest": (lambda each: (each.job.gpus,), True, True),
    "srsf": (lambda each: (each.left_s * each.job.gpus,), True, True),
    "srtf": (lambda each: (each.left_s,), True, True),
}
"""Order of each policy, whether it preempts, and whether others pass a job that does not fit."""


def job(name: str, service_s: float, arrival_s: float = 0.0, **more: Any) -> TraceJob:
    iterations = more.pop("iterations", 10)
    return TraceJob(name, more.pop("job_class", "c"), arrival_s, (Phase(iterations, service_s / iterations),), **more)


def run(
    jobs: Sequence[TraceJob],
    policy: str,
    nodes: int = 1,
    gpus: int = 1,
    places: int = 1,
    costs: Costs = NO_COSTS,
    **more: Any,
) -> Simulated:
    config = Config(policy, more.pop("lanes", 1), places, preempt=places == 1, **more)
    return simulate(made(jobs), Cluster(nodes, gpus, GPU), config, World(GPU), costs)


JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.sampled_from([1, 1, 1, 2, 3, 4])), min_size=1, max_size=14
).map(
    lambda rows: [
        # Skew 0: they may span nodes. Odd lengths: no two events at one moment, as their order would be a convention.
        job(f"j{place}", service + 0.137 * place + 0.0173 * place**2, arrival + 0.0311 * place, gpus=gpus, skew=0.0)
        for place, (arrival, service, gpus) in enumerate(rows)
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(KEYS))
@given(jobs=JOBS)
def test_all_are_seated_as_if_anew_at_every_moment(policy: str, jobs: list[TraceJob]) -> None:
    found = {each.name: each.jct_s for each in run(jobs, policy, nodes=2, gpus=2).result.finished}
    expected = jcts(made(jobs).jobs, 4, *KEYS[policy])
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "policy", ["tiresias", *(pytest.param(each, marks=pytest.mark.slow) for each in ("smallest", "srsf", "srtf"))]
)
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
    jobs = [replace(each, name=f"j{place}") for place, each in enumerate(jobs)]
    options = (("limit_1", 20.0),) if policy == "tiresias" else ()

    def log() -> Log:
        return run(jobs, policy, nodes=3, gpus=4, costs=costs, options=options).log

    with_memory = log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FailedSearches, "stands", lambda *_: False)
        assert log() == with_memory


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
).map(lambda jobs: [replace(each, name=f"j{place}") for place, each in enumerate(jobs)])


@given(
    jobs=SHARED,
    policy=st.sampled_from(OURS),
    size=st.sampled_from([(1, 3), (2, 2), (2, 3)]),
    lanes=st.integers(1, 2),
    places=st.integers(1, 4),
    costs=st.sampled_from([NO_COSTS, Costs(), Costs(3.0, 1.0, 2.0, 0.01)]),
)
def test_jobs_of_any_kind_share_in_every_way(
    jobs: list[TraceJob], policy: str, size: tuple[int, int], lanes: int, places: int, costs: Costs
) -> None:
    """The conditions of every run are checked in `simulate`."""
    preempt = lanes == places == 1
    config = Config(policy, lanes, places, preempt=preempt, past_gpu_s=(5.0, 10.0, 50.0))
    result = simulate(made(jobs), Cluster(*size, GPU), config, World(GPU), costs).result
    work_s = sum(each.gpus * each.service_s for each in jobs)
    busy_s = result.utilisation * result.makespan_s * size[0] * size[1]
    fastest = 1.0 if lanes == 1 else 2 * World(GPU).beside
    assert busy_s >= work_s / fastest * (1 - 1e-6) - 1e-3
    if lanes == 1 and not costs.handover_s:
        assert busy_s == pytest.approx(work_s, rel=1e-6, abs=1e-3)


def test_a_job_that_is_preempted_loses_no_work_but_pays_for_it() -> None:
    jobs = [job("long", 100.0), job("short", 10.0, 20.0)]
    found = {each.name: each for each in run(jobs, "srtf", costs=Costs(1.0, 2.0, 3.0, 0.0)).result.finished}
    assert found["short"].jct_s == pytest.approx(2.0 + 1.0 + 10.0), "it waits until the other has stopped"
    assert found["long"].finish_s == pytest.approx(1.0 + 100.0 + 2.0 + 1.0 + 10.0 + 1.0 + 3.0)
    assert (found["long"].attempts, found["short"].attempts) == (2, 1)


def test_jobs_of_a_lane_take_turns() -> None:
    jobs = [job(name, 10.0, iterations=100) for name in "abc"]
    fair = run(jobs, "fair", places=4).result
    assert [each.jct_s for each in fair.finished] == pytest.approx([30.0, 30.0, 30.0], abs=1.0)
    pack = run(jobs, "pack", places=4).result
    assert [each.jct_s for each in pack.finished] == pytest.approx([10.0, 20.0, 30.0])


@pytest.mark.parametrize(
    ("iterations", "wait_s"),
    [(2500, 0.02), (100, URGENT_WAIT_S)],
    ids=["at the next boundary", "inside an iteration of a second"],
)
def test_one_that_comes_with_less_to_do_gets_the_turn(iterations: int, wait_s: float) -> None:
    jobs = [job("long", 100.0, iterations=iterations), job("short", 5.0, 20.5)]
    found = {each.name: each.jct_s for each in run(jobs, "srtf", places=2).result.finished}
    assert found == pytest.approx({"short": wait_s + 5.0, "long": 105.0})


@pytest.mark.parametrize("memory_share", [0.2, 0.3], ids=["memory for two iterations", "memory for one"])
def test_an_iteration_of_ten_seconds_is_cut_if_there_is_memory(memory_share: float) -> None:
    part_bytes = int(memory_share * GPU.memory_bytes)
    memory = MemoryDemand(part_bytes, part_bytes)
    jobs = [job("long", 20.0, iterations=2), job("short", 1.0, iterations=200)]
    done = run([replace(each, memory=memory) for each in jobs], "fair", places=2)
    finish_s = {each.name: each.finish_s for each in done.result.finished}
    assert finish_s["short"] == pytest.approx(2.0 if memory_share == 0.2 else 11.0, abs=0.5)
    assert finish_s["long"] == pytest.approx(21.0)


def test_a_neighbour_in_another_lane_slows_both() -> None:
    jobs = [job("a", 10.0), job("b", 10.0)]
    beside = World(GPU).beside
    found = run(jobs, "pack", lanes=2, places=2).result.finished
    assert [each.jct_s for each in found] == pytest.approx([10.0 / beside] * 2)


def test_a_gang_with_skewed_tensors_stays_together() -> None:
    small = [job(f"s{place}", 50.0, 0.0) for place in range(3)]
    for skew, together in ((0.9, True), (0.0, False)):
        found = run([*small, job("gang", 10.0, 1.0, gpus=3, skew=skew)], "fifo", nodes=2, gpus=4)
        (start,) = [each for each in found.commands() if isinstance(each, StartJob) and each.job == "gang"]
        assert len({lane // 4 for lane in start.lanes}) == 1 or not together


def test_what_asks_for_more_than_there_is_is_named() -> None:
    jobs = [job("huge", 1.0, gpus=9, line=7)]
    with pytest.raises(UsageError, match=r"made\.csv:7: job huge asks for 9 GPUs, and there are 4"):
        run(jobs, "fifo", nodes=2, gpus=2)


def test_what_needs_more_memory_than_a_device_has_is_named() -> None:
    jobs = [job("fat", 1.0, memory=MemoryDemand(64 * GIB), line=3)]
    with pytest.raises(UsageError, match=r"made\.csv:3: job fat"):
        run(jobs, "fifo")


def test_the_last_moment_of_a_preempted_gang() -> None:
    """Two jobs that give way to a gang leave one after the other; no other job may start in between."""
    jobs = [job("a", 100.0), job("b", 90.0), job("gang", 10.0, 5.0, gpus=2, skew=0.0), job("late", 200.0, 5.5)]
    run_of_all = run(jobs, "srtf", gpus=2, costs=Costs(0, 1.0, 0, 0))
    assert sorted(each.job for each in run_of_all.commands() if isinstance(each, KillJob)) == ["a", "b"]
    found = {each.name: each for each in run_of_all.result.finished}
    assert found["gang"].start_s == pytest.approx(6.0)
    assert found["late"].start_s > found["a"].finish_s - 200.0


@pytest.mark.parametrize("arrival_s", [5.0, 9e7])
def test_a_phase_that_is_too_short_for_the_clock_ends(arrival_s: float) -> None:
    """Before, virtual time stood still just before the end."""
    phases = (Phase(60, 1e-308), Phase(18, 0.025), Phase(7, 1e-12))
    each = TraceJob("a", "c", arrival_s, phases)
    done = run([each, replace(each, name="b")], "srtf")
    assert done.result.makespan_s == pytest.approx(2 * 18 * 0.025, abs=1e-4)


def test_parts_of_a_gpu_share_it_and_never_add_up_to_more_than_one() -> None:
    """A gang of two halves, four quarters, and a whole GPU: on two GPUs, the last one waits, and nothing is slowed."""
    jobs = [job("gang", 100.0, gpus=2, share=0.5), *(job(f"quarter{each}", 40.0, 1.0, share=0.25) for each in range(4))]
    done = run([*jobs, job("whole", 10.0, 2.0, share=1.0), job("late", 10.0, 3.0, share=0.75)], "fifo", gpus=2, lanes=4)
    starts = {each.name: each.start_s for each in done.result.finished}
    assert starts == {**dict.fromkeys(starts, 1.0), "gang": 0.0, "whole": 100.0, "late": 100.0}
    assert all(each.finish_s == each.start_s + each.service_s for each in done.result.finished), "a part was slowed"
    active_j = GPU.active_w * (2 * 0.5 * 100.0 + 4 * 0.25 * 40.0 + 10.0 + 0.75 * 10.0)
    assert done.result.energy_j == pytest.approx(2 * GPU.idle_w * 110.0 + active_j)
    gang = next(each for each in done.result.finished if each.name == "gang")
    assert gang.contention == pytest.approx((100.0 + 40.0 + 98.0 + 0.75 * 97.0) / 100.0 / 2), "devices wanted, in parts"
