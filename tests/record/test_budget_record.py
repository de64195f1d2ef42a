"""Record of a power budget: what the limits took of it, and what the user reads."""

from __future__ import annotations

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.base.device import Device
from ecoshare.core.commands import ApplySetting
from ecoshare.core.events import SCHEMA, Config, RunOpened
from ecoshare.record.setting_history import BudgetRecord


def begun() -> BudgetRecord:
    """Record of two devices, found with 300 W each, and of a budget of 350 W."""
    devices = tuple(Device(f"cuda:{each}", "here", 1, power_limits_w=(100.0, 200.0, 300.0)) for each in range(2))
    record = BudgetRecord()
    record.begin_session(RunOpened(0.0, SCHEMA, Config("fair", power_budget_w=350.0), devices))
    return record


def to(device: int, limit_w: float) -> ApplySetting:
    return ApplySetting(1, f"cuda:{device}", ((POWER_LIMIT, limit_w),))


def test_a_run_that_ends_before_its_limits_are_within_the_budget_says_so() -> None:
    record = begun()
    record.applied(to(0, 200.0))
    assert record.summary is not None
    assert record.summary.words == "power budget: 350 W; the limits were never within it"


def test_a_refused_raise_counts_as_if_it_were_in_force() -> None:
    record = begun()
    for device in range(2):
        record.applied(to(device, 100.0))
    record.refused(to(0, 200.0), "unknown error")
    assert record.summary is not None and record.summary.most_w == 300.0
    assert not record.refusal


def test_a_limit_counts_as_the_device_shows_it_where_that_is_more() -> None:
    record = begun()
    record.applied(to(0, 100.0), 105.0)
    record.applied(to(1, 200.0), 195.0)
    assert record.summary is not None and record.summary.most_w == 305.0
