"""Space of a search on a device: no more settings than a search can look at, and only those that are allowed."""

from __future__ import annotations

import pytest

from ecoshare.knowledge.advisers.setting_search import MOST_SETTINGS, MOST_VALUES, knob_of, space_of
from tuner import Knob, Role

CLOCKS = knob_of("gpu_clock", [900.0 + 15.0 * step for step in range(70)], {"unlocked": 1980.0})
LIMITS = knob_of("power_limit", [200.0 + 30.0 * step for step in range(16)], {})
MEMORY = knob_of("memory_clock", [5001.0], {"unlocked": 7001.0})
PROFILES = knob_of("power_profile", (), dict.fromkeys(("none", "max_p", "max_q", "compute", "memory_bound"), 1.0))
FREQUENCIES = knob_of("cpu_frequency", [800.0 + 150.0 * step for step in range(16)], {}, beside=True)


def test_clocks_and_a_limit_keep_all_the_values_that_can_be_told_apart() -> None:
    space = space_of([CLOCKS, MEMORY, LIMITS], lambda _setting: True)
    assert len(space) == (MOST_VALUES + 1) * 2 * 16 <= MOST_SETTINGS


@pytest.mark.parametrize("knobs", [(CLOCKS, LIMITS, FREQUENCIES), (CLOCKS, MEMORY, LIMITS, PROFILES, FREQUENCIES)])
def test_more_knobs_get_fewer_values_each_and_keep_their_ends(knobs: tuple[Knob, ...]) -> None:
    """A search looks at all settings: tens of thousands would take it minutes and gigabytes."""
    space = space_of(knobs, lambda _setting: True)
    assert MOST_SETTINGS / 4 < len(space) <= MOST_SETTINGS
    for whole, kept in zip((CLOCKS, LIMITS, FREQUENCIES), (k for k in space.knobs if len(k.values) > 1), strict=True):
        assert {whole.values[0], whole.values[-1]} <= set(kept.values) <= set(whole.values)
    default: dict[str, float | str] = {"gpu_clock": "unlocked", "memory_clock": "unlocked", "power_limit": 650.0}
    default |= {"power_profile": "none", "cpu_frequency": 3050.0}
    names = {knob.name for knob in space.knobs}
    space.index({name: value for name, value in default.items() if name in names})


def test_settings_that_do_not_go_together_are_left_out() -> None:
    space = space_of(
        [CLOCKS, MEMORY], lambda each: each["memory_clock"] == "unlocked" or each["gpu_clock"] != "unlocked"
    )
    assert len(space) == 2 * (MOST_VALUES + 1) - 1


def test_the_frequency_beside_a_gpu_is_not_its_clock() -> None:
    """The physical prior would take it for the clock of the device."""
    assert FREQUENCIES.role is Role.OTHER and PROFILES.role is Role.OTHER
    assert knob_of("cpu_frequency", FREQUENCIES.values, {}).role is Role.CORE_CLOCK
