"""Jobs of changing width in virtual time: their widths, the cost, and the distance from the shortest schedule."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.job_spec import StoppingSpec
from ecoshare.core.commands import KillJob, StartJob
from ecoshare.core.events import Config, JobExited
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, TraceSweep, TraceTrial
from ecoshare.simulation.world import World
from tests.core.placement.test_water_filling import shortest
from tests.simulation.simulating import simulate

GPU = GPUS["v100"]
GIB = 1 << 30
LINEAR = tuple(float(wide) for wide in range(2, 9))


def job(name: str, hours: float, arrival_s: float = 0.0, iterations: int = 1000, **more: Any) -> TraceJob:
    return TraceJob(name, "c", arrival_s, (Phase(iterations, hours / iterations),), **{"speedups": LINEAR, **more})


class Run:
    """Simulation of trials that are drawn together, and of jobs that come later, with its commands."""

    def __init__(
        self, *trials: TraceJob, gpus: int = 4, lanes: int = 2, places: int = 1, restart: float = 0.0, **more: Any
    ) -> None:
        costs, nodes, later = more.pop("costs", NO_COSTS), more.pop("nodes", 1), more.pop("later", ())
        curves = more.pop("curves", {})
        made = tuple(TraceTrial(each, curves.get(each.name, ())) for each in trials)
        sweeps = (TraceSweep("s", made, len(trials), more.pop("early_stopping", None)),) if made else ()
        config = Config(more.pop("policy", "fluid"), lanes, places, options=(("restart", restart),))
        trace = Trace("made", "made", later, "", sweeps)
        found = simulate(trace, Cluster(nodes, gpus, GPU), config, World(GPU), costs)
        self.result, self.log = found.result, found.log

    def ends(self) -> dict[str, float]:
        return {each.name: each.finish_s for each in self.result.finished}

    def widths(self) -> dict[str, list[int]]:
        """Widths of each job, one attempt after the other."""
        found: dict[str, list[int]] = {}
        for command in (command for _, commands in self.log for command in commands):
            if isinstance(command, StartJob):
                found.setdefault(command.job, []).append(len(command.lanes))
        return found


def test_one_trial_has_all_gpus_that_it_can_use() -> None:
    assert Run(job("a", 8.0)).ends() == pytest.approx({"a": 2.0})
    assert Run(job("a", 8.0, speedups=(2.0,))).ends() == pytest.approx({"a": 4.0})
    assert Run(job("a", 8.0, speedups=(1.5,))).ends() == pytest.approx({"a": 8.0 / 1.5})
    assert Run(job("a", 8.0, speedups=())).widths() == {"a": [1]}


def test_all_end_together() -> None:
    run = Run(job("a", 12.0), job("b", 4.0))
    assert run.widths() == {"a": [3], "b": [1]}
    assert run.ends() == pytest.approx({"a": 4.0, "b": 4.0})


def test_remaining_jobs_get_freed_gpus() -> None:
    """One of two equal trials cannot use more than a GPU, so the other gets the rest."""
    run = Run(job("a", 6.0), job("b", 1.0, speedups=()))
    assert run.widths() == {"a": [3, 4], "b": [1]}
    assert run.ends() == pytest.approx({"b": 1.0, "a": 1.0 + 3.0 / 4.0})


def test_no_job_is_resized_for_less_than_the_cost() -> None:
    """Three hours of work at three GPUs would end only a quarter of an hour earlier at four."""
    assert Run(job("a", 6.0), job("b", 1.0, speedups=()), restart=0.25).widths() == {"a": [3], "b": [1]}
    assert Run(job("a", 6.0), job("b", 1.0, speedups=()), restart=0.24).widths() == {"a": [3, 4], "b": [1]}


def test_what_a_restart_costs_is_lost() -> None:
    run = Run(job("a", 6.0), job("b", 1.0, speedups=()), costs=Costs(0.0, 0.5, 0.25, 0.0))
    assert run.ends()["a"] == pytest.approx(1.0 + 0.5 + 0.25 + 3.0 / 4.0)


def test_more_trials_than_gpus_share_them_and_the_others_wait() -> None:
    run = Run(*(job(f"t{number}", 4.0) for number in range(10)), gpus=4, lanes=2)
    first = [command.job for _, commands in run.log[:30] for command in commands if isinstance(command, StartJob)]
    assert first == [f"t{number}" for number in range(8)] and len(run.ends()) == 10


def test_a_newcomer_takes_gpus_from_the_widest_jobs() -> None:
    """No GPU is idle, so the first job gives up one of its four, or more for a longer newcomer."""
    run = Run(job("a", 40.0), later=(job("b", 10.0, arrival_s=1.0),))
    assert run.widths() == {"a": [4, 3, 4], "b": [1]}
    kills = [command for _, commands in run.log for command in commands if isinstance(command, KillJob)]
    assert kills[0].reason == "has 3 in place of 4"


def test_no_job_starts_before_the_others_have_left() -> None:
    run = Run(job("a", 40.0), later=(job("b", 10.0, arrival_s=1.0),), costs=Costs(0.0, 0.5, 0.0, 0.0))
    starts = [event.at_s for event, commands in run.log for command in commands if isinstance(command, StartJob)]
    assert starts[:3] == [0.0, 1.5, 1.5]


def test_a_wide_job_keeps_its_width_if_a_short_one_finds_a_place() -> None:
    run = Run(job("a", 30.0), job("b", 10.0, speedups=()), later=(job("c", 1.0, arrival_s=0.1, speedups=()),))
    assert run.widths()["a"][0] == 3 and run.widths()["c"] == [1]
    assert not any(event.at_s < 1.0 for event, commands in run.log for each in commands if isinstance(each, KillJob))


def test_the_first_of_those_that_come_at_one_moment_gives_back_what_it_was_given() -> None:
    run = Run(later=(job("a", 1200.0), job("b", 400.0)), restart=10.0, costs=Costs(1.0, 0.0, 0.0, 0.0))
    assert run.widths() == {"a": [4, 3], "b": [1]}
    assert run.ends() == pytest.approx({"a": 402.0, "b": 402.0}), "one that starts cannot be stopped"


def test_a_newcomer_with_a_free_place_moves_no_job() -> None:
    run = Run(job("a", 8.0, speedups=()), later=(job("b", 8.0, arrival_s=1.0, speedups=()),), gpus=2)
    assert run.result.preemptions == 0 and run.ends() == pytest.approx({"a": 8.0, "b": 9.0})


def test_no_job_shares_a_gpu_while_one_is_idle() -> None:
    """A long trial with a GPU to itself is pruned; one of the four trials on the other two GPUs moves there."""
    short = [job(f"s{number}", 9.0, speedups=()) for number in range(4)]
    curves = {each.name: (0.5,) * 10 for each in short}
    early_stopping = StoppingSpec("asha", 1, 10, 10)  # a rung at the first step, where only the best so far goes on
    run = Run(
        job("long", 20.0, speedups=()),
        *short,
        gpus=3,
        lanes=1,
        places=2,
        curves=curves | {"long": (9.0,) * 10},
        early_stopping=early_stopping,
    )
    assert run.ends()["long"] == pytest.approx(2.0)
    assert sorted(run.widths().values()) == [[1], [1], [1], [1, 1], [1, 1]], "and another one when that has ended"
    assert run.result.makespan_s == pytest.approx(14.0, rel=0.01)


def test_memory_is_granted_before_it_is_taken() -> None:
    """Two trials that do not fit into a GPU are not on one, although the rule says so."""
    big = MemoryDemand(GPU.memory_bytes // 2 - GIB, 0)
    run = Run(*(job(f"t{number}", 4.0, memory=big, speedups=()) for number in range(6)), gpus=2, lanes=1, places=2)
    assert len(run.ends()) == 6
    run = Run(
        *(job(f"t{number}", 4.0, memory=MemoryDemand(12 * GIB, 0), speedups=()) for number in range(4)),
        gpus=2,
        lanes=1,
        places=2,
    )
    assert all(event.outcome is Outcome.COMPLETED for event, _ in run.log if isinstance(event, JobExited))


def test_a_trial_stays_in_one_node() -> None:
    run = Run(job("a", 12.0), gpus=2, nodes=2)
    assert run.widths() == {"a": [2]}


def test_equal_shares_do_not_ask_how_long() -> None:
    run = Run(job("a", 12.0), job("b", 4.0), policy="equal")
    assert run.widths() == {"a": [2, 4], "b": [2]}


def test_gangs_get_all_of_their_gpus_or_none() -> None:
    run = Run(job("a", 4.0, gpus=3, speedups=()), job("b", 4.0, gpus=2, speedups=()), job("c", 4.0), gpus=4)
    assert run.widths()["a"] == [3] and run.widths()["b"] == [2]
    assert len(run.ends()) == 3


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 2), st.integers(1, 4))
def test_it_ends_within_twice_the_shortest_time(hours: list[int], gpus: int, places: int, most: int) -> None:
    """Shortest of all schedules with fixed widths on real lanes. Jobs on one GPU take turns, so two have half each.

    Speed is linear up to `most` GPUs, nothing costs time, and all known values are true.
    """
    jobs = [job(f"t{place}", float(each), speedups=LINEAR[: most - 1]) for place, each in enumerate(hours)]
    run = Run(*jobs, gpus=gpus, lanes=1, places=places)
    best = shortest(hours, gpus, places, most)
    assert run.result.makespan_s <= 2 * best * Fraction(1001, 1000)
