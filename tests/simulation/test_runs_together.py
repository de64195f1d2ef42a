"""Several runs on the same simulated devices, as on one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.api import simulate_trace
from ecoshare.api.compare_policies import compare
from ecoshare.api.simulate_trace import SimulateRequest
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.commands import StartJob
from ecoshare.core.events import Config, JobExited, MemoryLeft, SliceChanged
from ecoshare.core.slices import SLICE_S
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.runs_together import RunsTogether
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, TraceJob
from ecoshare.simulation.traces.own import write
from ecoshare.simulation.world import World
from tests.simulation.simulating import Log, check_replay, made

GIB = 1 << 30
GPU = GPUS["v100"]  # 32 GiB


def job(name: str, work_s: float, at_s: float = 0.0, gib: float = 0.0, iteration_s: float = 0.05) -> TraceJob:
    memory = MemoryDemand(int(0.8 * gib * GIB), int(0.2 * gib * GIB)) if gib else None
    return TraceJob(name, name, at_s, (Phase(round(work_s / iteration_s), iteration_s),), memory=memory)


def together(
    runs: Sequence[Sequence[TraceJob]],
    users: Sequence[int] | None = None,
    policy: str = "fair",
    devices: int = 1,
    jobs_per_lane: int = 4,
) -> tuple[list[SimulationResult], list[Log]]:
    """Simulate runs, and check that each replays, that its jobs end, and that no two have a slice at once."""
    cluster, config = Cluster(1, devices, GPU), Config(policy, 1, jobs_per_lane, shares_memory=True)
    logs: list[Log] = [[] for _ in runs]
    simulators = [Simulator(made(jobs), cluster, config, World(GPU), NO_COSTS) for jobs in runs]
    results = RunsTogether(simulators, cluster, users).run([lambda *each, log=log: log.append(each) for log in logs])
    for log in logs:
        check_replay(log)
    assert [len(each.finished) for each in results] == [len(jobs) for jobs in runs]
    return results, logs


def test_two_equal_runs_have_half_of_the_device_each() -> None:
    results, logs = together([[job("a", 60.0)], [job("b", 60.0)]])
    ends = sorted(each.makespan_s for each in results)
    assert ends[1] == pytest.approx(120.0, abs=0.1) and ends[0] == pytest.approx(120.0 - SLICE_S, abs=0.2)
    slices = [event for event, _ in logs[0] if isinstance(event, SliceChanged)]
    assert len(slices) == pytest.approx(60.0, abs=4) and max(each.others for each in slices) == 1
    busy_s = sum(each.utilisation * each.makespan_s for each in results)
    assert busy_s == pytest.approx(120.0, abs=0.1), "no time is lost, and none is counted twice"


def test_users_have_equal_shares_and_their_runs_share_that() -> None:
    (alone, one, two), _ = together([[job("a", 40.0)], [job("b", 400.0)], [job("c", 400.0)]], users=[1, 2, 2])
    assert alone.makespan_s == pytest.approx(80.0, abs=2 * SLICE_S), "half of the device, not a third"
    assert abs(one.makespan_s - two.makespan_s) <= 2 * SLICE_S


def test_a_short_run_beside_a_long_one_waits_for_a_slice_at_most() -> None:
    results, _ = together([[job("long", 100.0)], [job("short", 1.0, at_s=31.0)]])
    assert results[1].makespan_s <= 1.0 + SLICE_S + 0.2
    assert results[0].makespan_s == pytest.approx(101.0, abs=0.2)


def test_the_joules_of_the_runs_are_those_of_the_devices() -> None:
    results, _ = together([[job("a", 30.0)], [job("b", 30.0, at_s=10.0)]])
    (whole,), _ = together([[job("a", 30.0), job("b", 30.0, at_s=10.0)]])
    assert sum(each.energy_j for each in results) == pytest.approx(whole.energy_j, rel=1e-3)


def test_runs_divide_the_memory_of_a_device() -> None:
    """The first run has three jobs there when the second comes. The job of that fits beside two of them only."""
    many = [job(f"a{number}", 10.0, gib=12.0) for number in range(6)]
    results, logs = together([many, [job("b", 10.0, at_s=1.0, gib=12.0)]])
    assert any(isinstance(event, MemoryLeft) and event.others for event, _ in logs[0])
    moves = list[tuple[float, int, str]]()
    for log in logs:
        moves += [(event.at_s, -1, event.job) for event, _ in log if isinstance(event, JobExited)]
        moves += [
            (event.at_s, 1, each.job) for event, commands in log for each in commands if isinstance(each, StartJob)
        ]
    there, most = Counter[str](), 0.0
    for _, change, name in sorted(moves):
        there[name[0]] += change
        most = max(most, sum(9.6 * count + 2.4 * (count > 0) for count in there.values()))
    assert 24.0 < most <= 32.0, "of each run, what its jobs keep, and the largest of what one needs in its turn"
    assert results[1].finished[0].jct_s < results[0].makespan_s, "and it does not wait for the end of the other run"


@given(
    works=st.lists(
        st.lists(st.tuples(st.floats(0.5, 30.0), st.floats(0.0, 20.0), st.floats(1.0, 30.0)), min_size=1, max_size=5),
        min_size=2,
        max_size=4,
    ),
    policy=st.sampled_from(["fifo", "srtf", "fair", "pack", "energy"]),
    devices=st.integers(1, 2),
    iteration_s=st.sampled_from([0.01, 0.2, 5.0]),
)
def test_all_jobs_of_random_runs_end(
    works: list[list[tuple[float, float, float]]], policy: str, devices: int, iteration_s: float
) -> None:
    runs = [
        [
            job(f"{run}-{number}", max(work_s, iteration_s), at_s, gib, iteration_s)
            for number, (work_s, at_s, gib) in enumerate(of)
        ]
        for run, of in enumerate(works)
    ]
    results, _ = together(runs, policy=policy, devices=devices)
    ends_s = max(each.finish_s for result in results for each in result.finished)
    work_s = sum(each.phases[0].iterations * iteration_s for jobs in runs for each in jobs)
    assert ends_s >= work_s / devices - 1e-6 or iteration_s > SLICE_S, "no two runs are at work at once"


def test_a_trace_beside_another_has_a_row_of_its_own(tmp_path: Path) -> None:
    mine, hers = tmp_path / "mine.csv", tmp_path / "hers.csv"
    write(made([job("a", 30.0)]), mine)
    write(made([job("b", 10.0, at_s=5.0)]), hers)
    found = simulate_trace.simulate(mine, beside=[hers], policies=["fifo", "fair"], costs=NO_COSTS)
    assert [each.policy for each in found.results] == ["fifo", f"fifo {hers}", "fair", f"fair {hers}"]
    assert found["fair"].makespan_s == pytest.approx(40.0, abs=0.2)
    assert found[f"fair {hers}"].makespan_s == pytest.approx(20.0, abs=2 * SLICE_S)
    with pytest.raises(UsageError, match="one machine"):
        simulate_trace.simulate(mine, beside=[hers], nodes="2x1")
    with pytest.raises(UsageError, match="--compare"):
        compare(SimulateRequest(trace=mine, beside=[hers]), 1)
