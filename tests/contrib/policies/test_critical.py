"""Rules of our own planner in rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.traces.job_trace import Phase, TraceJob
from ecoshare.simulation.world import World
from tests.simulation.simulating import made, simulate

pytestmark = pytest.mark.nightly

GPU = GPUS["v100"]


ROUND_S = 10.0


def ends_s(*jobs: TraceJob, gpus: int = 2) -> dict[str, float]:
    """End of each job that came while all devices were busy for a round, counted from the end of that round."""
    busy = replace(job("busy", ROUND_S, gpus), arrival_s=0.0)
    config = Config("critical", 1, 1, preempt=True, options=(("round", ROUND_S),))
    found = simulate(made((busy, *jobs)), Cluster(1, gpus, GPU), config, World(GPU)).result
    return {each.name: each.finish_s - ROUND_S for each in found.finished if each.name != "busy"}


def job(name: str, service_s: float, gpus: int = 1) -> TraceJob:
    return TraceJob(name, "c", 1.0, (Phase(100, service_s / 100),), gpus=gpus)


def test_a_job_that_would_outlast_the_backlog_runs_at_once() -> None:
    found = ends_s(*(job(f"short{place}", 30.0) for place in range(4)), job("long", 150.0))
    assert found.pop("long") == pytest.approx(150.0), "it was the longest, and waited for no other"
    assert sorted(found.values()) == pytest.approx([30.0, 60.0, 90.0, 120.0])


def test_the_short_go_first_while_the_devices_have_enough_to_do() -> None:
    found = ends_s(*(job(f"short{place}", 30.0) for place in range(6)), job("long", 100.0))
    # The long one waits until the work left of all is no more than its own, and then runs at once.
    assert sorted(found.values())[:2] == pytest.approx([30.0, 30.0])
    assert 140.0 <= found["long"] == max(found.values()) <= 140.0 + ROUND_S, "the bound, and one round"


def test_a_gang_counts_on_all_its_devices() -> None:
    found = ends_s(job("gang", 60.0, gpus=2), job("one", 30.0), job("other", 30.0))
    assert found == pytest.approx({"one": 30.0, "other": 30.0, "gang": 90.0}), "backlog: 90 s"


def test_a_device_that_is_free_in_a_round_gets_the_next_job_at_once() -> None:
    """If it failed, each job that ends would leave its device idle for half a round, on average."""
    found = ends_s(*(job(name, 14.0) for name in "abc"))
    # The third one is the longest at the next round, and one with 4 s left waits until the first one has ended.
    assert sorted(found.values()) == pytest.approx([14.0, 18.0, 24.0])


def test_of_jobs_with_room_to_wait_the_longest_is_not_the_first() -> None:
    """Both have more left than the backlog over the devices, and the shorter one could wait for long."""
    found = ends_s(job("short", 60.0), job("longer", 80.0), job("longest", 200.0), gpus=2)
    assert found["longest"] == pytest.approx(200.0) and found["short"] == pytest.approx(60.0)
    assert found["longer"] == pytest.approx(140.0), "before, it went before the short one, whose end was at 140 s"
