"""Services in a simulation: their requests, their ends and the targets that they miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ecoshare.base.attempt import WORK_OVER
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.commands import KillJob
from ecoshare.core.events import Config, TargetMissed, WorkOver
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.simulated_services import check_places
from tests.simulation.simulating import OURS, made
from tests.simulation.test_simulator import job, run

SERVICE = ServiceSpec(0.05)


@pytest.mark.parametrize("policy", OURS)
def test_a_service_ends_with_the_last_other_job(policy: str) -> None:
    """If it failed, a simulated service would run until its phases end, however many those are."""
    jobs = [job("s", 1e6, iterations=10**7, service=SERVICE), job("a", 5.0), job("b", 3.0, arrival_s=40.0)]
    done = run(jobs, policy, places=2, lanes=2)
    finish_s = {each.name: each.finish_s for each in done.result.finished}
    assert set(finish_s) == {"s", "a", "b"}
    assert finish_s["s"] == pytest.approx(finish_s["b"]) and finish_s["b"] < 100.0
    assert [event.at_s for event, _ in done.log if isinstance(event, WorkOver)] == [finish_s["b"]]
    kills = [each for each in done.commands() if isinstance(each, KillJob) and each.reason == WORK_OVER]
    assert [each.job for each in kills] == ["s"]


def test_a_service_without_a_place_ends_too() -> None:
    jobs = [job("a", 5.0), job("s", 1e6, arrival_s=1.0, service=SERVICE), job("t", 1e6, 1.0, service=SERVICE)]
    done = run(jobs, "fifo", places=1)
    assert {each.name: each.finish_s for each in done.result.finished} == {"a": 5.0, "s": 5.0, "t": 5.0}


def test_a_service_with_a_last_request_ends_by_itself() -> None:
    source = RequestSource(clients=1, count=50)
    served = job("s", 0.004, iterations=1, service=replace(SERVICE, requests=source))
    done = run([served, job("a", 5.0, iterations=250)], "fair", places=2)
    finished = {each.name: each for each in done.result.finished}
    summary = finished["s"].service
    assert summary is not None and summary.answered == 50 and summary.refused == summary.failed == 0
    assert finished["s"].finish_s < finished["a"].finish_s == pytest.approx(5.0 + 50 * 0.004)
    assert finished["a"].service is None
    assert done.result.as_dict()["services"][0]["answered"] == 50
    assert done.result.as_dict()["mean_jct_s"] == pytest.approx(finished["a"].jct_s), "JCTs leave services out"


def test_equal_runs_give_equal_latencies() -> None:
    source = RequestSource(rate_per_s=50.0, count=300)
    served = job("s", 0.004, iterations=1, service=replace(SERVICE, requests=source), spread=0.3)
    both = [run([served, job("a", 5.0, iterations=250, spread=0.2)], "fair", places=2) for _ in range(2)]
    assert both[0].result == both[1].result and both[0].log == both[1].log


def test_a_target_that_is_missed_for_a_minute_is_told() -> None:
    """Iterations of 1 s, which no request can wait for. A job that could use two devices is not cut."""
    source = RequestSource(rate_per_s=2.0)
    served = job("s", 0.004, iterations=1, service=replace(SERVICE, requests=source))
    done = run([served, job("a", 150.0, iterations=150, speedups=(1.0,))], "fair", places=2)
    told = [event for event, _ in done.log if isinstance(event, TargetMissed)]
    assert told and told[0].job == "s" and told[0].missed > 0.01 * told[0].requests
    assert told[0].at_s >= 60.0


def test_services_that_take_all_places_are_refused() -> None:
    jobs = made([job("s", 1.0, service=SERVICE), job("a", 1.0)])
    cluster = Cluster(1, 1, GPUS["v100"])
    with pytest.raises(UsageError, match=r"policy fifo: s would keep all places \(1\)"):
        check_places(jobs, cluster, Config("fifo", 1, 4))
    check_places(jobs, cluster, Config("fair", 1, 2))
