"""Places that the policy for partial backpropagation chooses."""

from __future__ import annotations

import pytest

from ecoshare.core.commands import StartJob
from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.traces.job_trace import Phase, TraceJob
from ecoshare.simulation.world import World
from ecoshare.testing.policy_contract import PolicyContract
from tests.simulation.simulating import made, simulate

GPU = GPUS["v100"]


@pytest.mark.nightly
class TestJigsaw(PolicyContract):
    policy = "jigsaw"
    options = (("backward", 0.5),)


def places(policy: str, *jobs: TraceJob) -> dict[str, list[int]]:
    """Devices of each job on four devices of two lanes each."""
    found = simulate(made(jobs), Cluster(1, 4, GPU), Config(policy, 2, 1), World(GPU))
    starts = [each for each in found.commands() if isinstance(each, StartJob)]
    return {each.job: sorted(lane // 2 for lane in each.lanes) for each in starts}


def job(name: str, arrival_s: float, gpus: int, job_class: str) -> TraceJob:
    return TraceJob(name, job_class, arrival_s, (Phase(1000, 0.1),), gpus=gpus)


BUSY = (job("p", 0.0, 1, "plain"), job("q", 0.0, 1, "plain"))


def test_a_gang_goes_beside_the_gang_with_idle_ends_and_not_beside_busy_jobs() -> None:
    jobs = (*BUSY, job("first", 1.0, 2, "spb-a"), job("second", 2.0, 2, "spb-b"))
    assert places("jigsaw", *jobs)["second"] == [2, 3]
    assert places("fair", *jobs)["second"] == [0, 1], "the order of the lanes alone would not tell them apart"


def test_a_gang_without_partial_backpropagation_leaves_no_idle_ends() -> None:
    jobs = (*BUSY, job("first", 1.0, 2, "full"), job("second", 2.0, 2, "spb-b"))
    assert places("jigsaw", *jobs)["second"] == [0, 1]


def test_a_single_rank_leaves_no_idle_ends() -> None:
    jobs = (job("two", 0.0, 2, "spb-a"), job("one", 0.0, 1, "spb-a"), job("p", 0.0, 1, "plain"))
    found = places("jigsaw", *jobs, job("late", 1.0, 1, "plain"))
    assert found["late"] == found["two"][:1]
