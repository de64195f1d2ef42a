"""Verdict on a measurement: a setting that was not in force must not pass for a measured one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from ecoshare.core.commands import MeasureSetting
from ecoshare.devices.knob import Clocks
from ecoshare.runtime.measuring.setting_measurement import LanePosition, SettingMeasurement, _achieved


def spoilt(
    wanted: str,
    enforced: tuple[str, ...] | None,
    readings: tuple[Mapping[str, float | str], ...] = (),
    throttles: tuple[tuple[str, ...], ...] = ((),),
) -> list[str]:
    """Reasons against a measurement of this power profile, without jobs, by the throttle reasons of each look."""
    command = MeasureSetting(1, "cuda:0", (), (("power_profile", wanted),))
    unused = cast(Any, None)
    measurement = SettingMeasurement(command, {}, unused, unused, unused, unused, unused, {})
    seen = [Clocks(1500.0, None, each, None, enforced) for each in throttles]
    return measurement._spoilt(seen, list(readings), {}, {}, {})


@pytest.mark.parametrize(
    ("wanted", "enforced", "disturbed"),
    [
        ("compute", ("compute",), False),
        ("compute", ("compute", "max_p"), False),
        ("compute", ("memory_bound",), True),
        ("compute", (), True),
        ("compute", None, False),
        ("none", (), False),
        ("none", ("max_p",), False),
    ],
)
def test_a_requested_profile_must_be_enforced(wanted: str, enforced: tuple[str, ...] | None, disturbed: bool) -> None:
    assert any("did not enforce it" in each for each in spoilt(wanted, enforced)) is disturbed


@pytest.mark.parametrize(
    ("words", "looks", "disturbs"),
    [
        ("temperature", 20, False),
        ("power limit", 20, False),
        ("hardware slowdown", 2, False),
        ("hardware slowdown", 3, True),
        ("temperature (hardware)", 20, True),
    ],
)
def test_a_board_in_trouble_disturbs_and_a_warm_one_does_not(words: str, looks: int, disturbs: bool) -> None:
    """Before, one look at which the driver held the clocks for the temperature voided a measurement of 20."""
    throttles = (*(((words,),) * looks), *(((),) * (20 - looks)))
    assert spoilt("none", (), throttles=throttles) == ([words] if disturbs else [])


def test_a_profile_or_a_limit_that_changes_meanwhile_is_told() -> None:
    readings: tuple[Mapping[str, float | str], ...] = (
        {"power_profile": "compute", "power_limit": 400.0},
        {"power_profile": "compute", "power_limit": 401.0},
    )
    assert spoilt("compute", ("compute",), readings) == []
    last: Mapping[str, float | str] = {"power_profile": "compute and max_p", "power_limit": 450.0}
    changed = (*readings, last)
    assert sorted(spoilt("compute", ("compute",), changed)) == [
        "power_limit was changed by another program",
        "power_profile was changed by another program",
    ]


def test_the_enforced_profiles_are_what_was_achieved() -> None:
    seen = [Clocks(1500.0, None, (), None, ("max_p",)), Clocks(1300.0, None, (), None, ("compute", "max_p"))]
    assert _achieved(seen) == {"power_profile": "compute+max_p", "gpu_clock": 1400.0}
    assert _achieved([Clocks(None, None, ())]) == {} and _achieved([Clocks(None, None, (), None, ())]) == {
        "power_profile": "none"
    }


def test_a_service_that_was_started_again_is_measured_by_its_new_record() -> None:
    first, second = (LanePosition(cast(Any, None), 0, Path("s"), attempt) for attempt in (1, 2))
    assert (first.requests, second.requests) == (Path("s/requests.jsonl"), Path("s/requests.attempt-2.jsonl"))
