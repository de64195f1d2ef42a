"""Power budget by placement: a job that could never start ends with the reason, also on unlike or failed devices."""

from __future__ import annotations

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.events import Config
from ecoshare.core.records import JobState
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

GIB = 1 << 30
SMALL, LARGE = (1.0, 4.0), (1.0, 10.0)
"""Power (W) of a device at rest, and the most that it can draw."""


def drive(budget_w: float, policy: str, gpus: int, failures: tuple[tuple[float, str], ...] = ()) -> VirtualDriver:
    """Run of one job of 3 s on a small device and a large one."""
    devices = tuple(Device(f"cpu:{place}", "here", GIB, draws_w=each) for place, each in enumerate((SMALL, LARGE)))
    config = Config(policy, places_per_lane=2, power_budget_w=budget_w, budget_by_placement=True)
    spec = JobSpec("a", "a", memory=MemoryDemand(GIB // 4), profiled=True, gpus=gpus)
    jobs = {"a": (spec, ScriptedJob(attempts=((3.0, Outcome.COMPLETED),)))}
    return VirtualDriver(config, devices, jobs, failures=failures).run()


@pytest.mark.parametrize("policy", ["fifo", "energy", "tiresias", "gandiva"])
def test_a_gang_that_only_fits_where_both_devices_are_small_ends(policy: str) -> None:
    driver = drive(16.0, policy, gpus=2)
    assert driver.states() == {"a": JobState.FAILED}
    assert "would draw 20 W with it alone" in driver.core.jobs["a"].history[-1].cause
    assert drive(20.0, policy, gpus=2).states() == {"a": JobState.COMPLETED}


def test_a_job_ends_when_the_only_device_that_was_small_enough_fails() -> None:
    driver = drive(9.0, "fifo", gpus=1, failures=((1.0, "cpu:0"),))
    assert driver.states() == {"a": JobState.FAILED}
    cause = driver.core.jobs["a"].history[-1].cause
    assert "would draw 11 W with it alone" in cause and "cpu:0 failed" in cause
