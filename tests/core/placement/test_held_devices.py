"""Rounds while jobs that cannot move hold every device."""

from __future__ import annotations

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.events import Config
from ecoshare.core.policies import own_names
from ecoshare.core.records import JobState
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

GPU = Device("cuda:0", "here", 16 << 30)


@pytest.mark.parametrize("policy", own_names())
def test_a_round_without_a_free_device_starts_nothing_and_ends_nothing(policy: str) -> None:
    """Shares of no device were divided by, and the run ended with a traceback."""
    stays = JobSpec("stays", "c", iterations=10_000, service_s=1000.0)
    waits = JobSpec("waits", "c", iterations=1000, service_s=100.0, movable=True)
    jobs = {
        "stays": (stays, ScriptedJob(0.0, ((1000.0, Outcome.COMPLETED),))),
        "waits": (waits, ScriptedJob(1.0, ((100.0, Outcome.COMPLETED),))),
    }
    driver = VirtualDriver(Config(policy, places_per_lane=1, preempt=True), (GPU,), jobs).run()
    assert set(driver.states().values()) == {JobState.COMPLETED}
