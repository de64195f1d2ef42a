"""Open-ended services in a simulation: they end with the other jobs."""

from __future__ import annotations

import pytest

from ecoshare.core.commands import KillJob
from ecoshare.core.events import WorkOver
from ecoshare.core.open_services import WORK_OVER
from ecoshare.core.policies import own_names
from ecoshare.values.service import ServiceSpec
from tests.simulation.test_simulator import job, run

SERVICE = ServiceSpec(0.05)


@pytest.mark.parametrize("policy", own_names())
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
