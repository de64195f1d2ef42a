"""Relative speeds of devices: differences that are real count, and noise does not order devices."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ecoshare.knowledge.device_speeds import ANY, FLOOR, PRIOR_SD, Times, device_speeds

SECONDS = st.floats(1e-3, 1e2)
TIMES = st.lists(st.tuples(SECONDS, st.floats(0.0, 0.1)), min_size=1, max_size=9)
DEVICES = st.dictionaries(
    st.sampled_from(["d0", "d1", "d2", "d3"]), st.dictionaries(st.sampled_from("abc"), TIMES, min_size=1), min_size=1
)


@given(DEVICES)
def test_speeds_are_positive_and_the_class_for_all_others_is_their_mean(times: dict[str, dict[str, Times]]) -> None:
    found = device_speeds(times)
    shared = {name for name in "abc" if sum(name in classes for classes in times.values()) > 1}
    for device, classes in times.items():
        assert found.get(device, {}).keys() - {ANY} == classes.keys() & shared
    for speeds in found.values():
        own = [each.speed for name, each in speeds.items() if name != ANY]
        assert min(own) > 0.0 and all(math.isfinite(each) for each in own)
        mean = math.prod(own) ** (1.0 / len(own))
        assert speeds[ANY].speed == pytest.approx(mean, rel=1e-3, abs=1e-3)


@given(DEVICES, st.floats(1e-3, 1e3))
def test_the_unit_of_the_times_does_not_matter(times: dict[str, dict[str, Times]], factor: float) -> None:
    other = {
        device: {name: [(seconds * factor, error) for seconds, error in each] for name, each in classes.items()}
        for device, classes in times.items()
    }
    first, second = device_speeds(times), device_speeds(other)
    assert first.keys() == second.keys()
    for device, speeds in first.items():
        for name, each in speeds.items():
            # A difference of exactly two errors may fall on either side.
            assert second[device][name].standard_error == pytest.approx(each.standard_error, rel=1e-6)
            assert second[device][name].speed == pytest.approx(each.speed, abs=2e-4) or 1.0 in (
                each.speed,
                second[device][name].speed,
            )


@given(st.lists(SECONDS, min_size=2, max_size=6))
@example([51.0, 0.001953125, 0.001953125])  # a speed that was rounded to nothing
def test_a_slower_device_is_never_told_to_be_faster(seconds: list[float]) -> None:
    found = device_speeds({f"d{place}": {"a": [(each, 0.0)]} for place, each in enumerate(sorted(seconds))})
    speeds = [found[f"d{place}"]["a"].speed for place in range(len(seconds))]
    assert all(slow <= fast for fast, slow in pairwise(speeds))


def test_a_large_difference_is_shrunk_a_little_and_a_small_one_counts_as_none() -> None:
    found = device_speeds({"fast": {"a": [(1.0, 0.0)]}, "slow": {"a": [(1.1, 0.0)]}})
    error = FLOOR / math.sqrt(2.0)
    kept = PRIOR_SD**2 / (PRIOR_SD**2 + error**2)
    assert found["fast"]["a"].speed == pytest.approx((1.05 / 1.0) ** kept, abs=1e-4)
    assert found["slow"]["a"].speed == pytest.approx((1.05 / 1.1) ** kept, abs=1e-4)
    assert found["slow"]["a"].standard_error == pytest.approx(error)
    close = device_speeds({"fast": {"a": [(1.0, 0.0)]}, "slow": {"a": [(1.02, 0.0)]}})
    assert {each["a"].speed for each in close.values()} == {1.0}


def two(classes: dict[str, Times], slower: float) -> dict[str, dict[str, Times]]:
    """Two devices with the same classes and one more, `b`, which takes longer on the second by a factor."""
    return {"d0": {**classes, "b": [(1.0, 0.0)]}, "d1": {**classes, "b": [(slower, 0.0)]}}


def test_more_measurements_show_a_smaller_difference_and_noisy_ones_hide_a_larger_one() -> None:
    many = device_speeds({"fast": {"a": [(1.0, 0.0)] * 9}, "slow": {"a": [(1.02, 0.0)] * 9}})
    assert many["slow"]["a"].speed < 1.0 < many["fast"]["a"].speed
    within = device_speeds({"fast": {"a": [(1.0, 0.1)]}, "slow": {"a": [(1.1, 0.1)]}})
    assert {each["a"].speed for each in within.values()} == {1.0}
    between: dict[str, Times] = {"a": [(0.9, 0.0), (1.0, 0.0), (1.1, 0.0)]}
    spread = device_speeds(two(between, 1.08))
    assert {each["b"].speed for each in spread.values()} == {1.0}, "the spread of other classes counts"
    steady: dict[str, Times] = {"c": [(1.0, 0.0)] * 3, "d": [(1.0, 0.0)] * 3}
    mostly = device_speeds(two({**steady, **between}, 1.08))
    assert mostly["d1"]["b"].speed < 1.0, "one class that varies is not the usual"


@pytest.mark.parametrize("runs", [1, 3, 9])
def test_noise_alone_orders_few_devices(runs: int) -> None:
    """Without the two errors, it would order all."""
    draw = random.Random(0)
    ordered = 0
    for _ in range(200):
        times = {
            f"d{device}": {"a": [(draw.lognormvariate(0.0, 0.01), 0.01) for _ in range(runs)]} for device in range(8)
        }
        ordered += sum(each["a"].speed != 1.0 for each in device_speeds(times).values())
    assert ordered / 1600 < 0.08


def test_devices_that_differ_are_found_in_noise() -> None:
    draw = random.Random(1)
    true = {f"d{place}": speed for place, speed in enumerate((0.92, 1.0, 1.0, 1.0, 1.06))}
    times = {
        device: {"a": [(draw.lognormvariate(0.0, 0.01) / speed, 0.01) for _ in range(5)]}
        for device, speed in true.items()
    }
    found = {device: each["a"].speed for device, each in device_speeds(times).items()}
    assert found == pytest.approx(true, abs=0.02)
    assert found["d0"] < 0.95 and found["d4"] > 1.03
