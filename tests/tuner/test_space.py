"""Spaces of settings."""

from __future__ import annotations

import numpy as np
import pytest

from tuner import Knob, Role, Space

CORE = Knob("core", (600.0, 900.0, 1200.0), Role.CORE_CLOCK, special={"unlocked": 1200.0})
MEMORY = Knob("memory", (800.0, 3500.0), Role.MEMORY_CLOCK)


def test_a_product_has_every_combination_and_special_values() -> None:
    space = Space.product(CORE, MEMORY)
    assert len(space) == 8
    assert {space.index(setting) for setting in space.settings} == set(range(8))
    place = space.index({"memory": 3500.0, "core": "unlocked"})
    assert list(space.numbers[place]) == [1200.0, 3500.0]


def test_special_values_are_like_their_number_and_not_the_same() -> None:
    space = Space.product(CORE)
    features = space.features
    like, special, other = (space.index({"core": value}) for value in (1200.0, "unlocked", 600.0))
    assert 0.0 < np.linalg.norm(features[special] - features[like]) < np.linalg.norm(features[other] - features[like])


def test_clock_lists_may_depend_on_the_memory_clock() -> None:
    space = Space([CORE, MEMORY], [{"core": 600.0, "memory": 800.0}, {"core": 1200.0, "memory": 3500.0}])
    with pytest.raises(KeyError):
        space.index({"core": 1200.0, "memory": 800.0})
    column = space.column(Role.MEMORY_CLOCK)
    assert column is not None and list(column) == [800.0, 3500.0]
    assert space.column(Role.POWER_LIMIT) is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ([{"core": 600.0}], "one value for each of core, memory"),
        ([{"core": 601.0, "memory": 800.0}], "core cannot be 601.0; the nearest is 600.0"),
        ([{"core": "free", "memory": 800.0}], "core takes unlocked, not 'free'"),
        ([{"core": 600.0, "memory": 800.0}] * 2, "two settings are equal"),
        ([], "at least one"),
    ],
)
def test_what_is_no_space_is_refused(settings: list[dict[str, float]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Space([CORE, MEMORY], settings)
