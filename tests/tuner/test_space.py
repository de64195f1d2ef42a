"""Spaces of settings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner import Knob, Role, Space, bucketised

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


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=40, unique=True), st.integers(2, 12))
def test_a_bucketised_knob_keeps_its_ends(values: list[float], most: int) -> None:
    knob = bucketised(Knob("knob", tuple(values), special={"auto": values[0]}), most)
    assert {min(values), max(values)} <= set(knob.values) <= set(values)
    assert len(set(knob.values)) == len(knob.values) == min(most, len(values))
    assert "auto" in knob.special


def test_bucketised_values_lie_at_even_distances() -> None:
    knob = Knob("clock", tuple(float(value) for value in range(1, 102)))
    assert bucketised(knob, 5).values == (1.0, 26.0, 51.0, 76.0, 101.0)
    assert bucketised(knob, 200) is knob
    with pytest.raises(ValueError, match="1 values are too few for both ends of clock"):
        bucketised(knob, 1)
