"""Search for the setting of a service, on an invented device with a queue formula of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from ecoshare.base.measurement import MeasurementStatus
from ecoshare.knowledge.advisers.service_search import (
    BUDGET,
    ServiceMeasurement,
    ServiceSearch,
    ServiceSearchEnding,
    TrainingBeside,
)
from tuner import Knob, Role, ServiceLoad, Setting, Space

SPACE = Space.product(
    Knob("clock", (700.0, 900.0, 1100.0, 1300.0, 1500.0), Role.CORE_CLOCK),
    Knob("batch", (1.0, 4.0, 16.0), Role.WORK_SIZE),
)
DEFAULT = {"clock": 1500.0, "batch": 16.0}
LOAD = ServiceLoad(100.0, 40.0)
TRAINING = TrainingBeside("training", 150.0, 0.008)


def measured(setting: Setting, training: bool = False) -> ServiceMeasurement:
    """Batches take 4 ms and 1 ms a request at the largest clock, and the latency is thrice a batch."""
    clock, largest = float(setting["clock"]) / 1500.0, float(setting["batch"])
    batch = min(largest, 1.5)
    batch_s = (0.004 + 0.001 * batch) / clock
    busy = min(1.0, LOAD.rate_per_s * batch_s / batch)
    working_w, rest_w = 50.0 + 150.0 * clock**2.5, 50.0 + 100.0 * clock**2.5 if training else LOAD.idle_w
    return ServiceMeasurement(
        power_w=busy * working_w + (1.0 - busy) * rest_w,
        p99_s=3.0 * batch_s + (0.008 / clock if training else 0.0),
        batch=batch,
        batch_s=batch_s,
        times_s={"training": 0.008 / clock} if training else {},
    )


def search(target_s: float, training: bool = False, **options: Any) -> ServiceSearch:
    mates = [TRAINING] if training else []
    return ServiceSearch(SPACE, DEFAULT, target_s, LOAD, measured(DEFAULT, training), mates, **options)


def steps(searching: ServiceSearch, training: bool = False) -> Iterator[Setting]:
    while (setting := searching.next()) is not None:
        assert searching.next() == setting, "asking twice is one question"
        yield setting
        searching.told(measured(setting, training))


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_only_sure_settings_are_tried_and_the_best_keeps_the_target(training: bool) -> None:
    target_s = 1.35 * measured(DEFAULT, training).p99_s
    searching = search(target_s, training)
    for setting in steps(searching, training):
        assert searching.bound_s(setting) <= target_s
        assert searching.bound_s(setting, 0.99) >= searching.bound_s(setting)
    assert searching.ending is not None and 1 < len(searching.measurements) <= BUDGET
    kept = [each for each in SPACE.settings if measured(each, training).p99_s <= target_s]
    best = searching.best
    assert best in kept and len(kept) < len(SPACE)
    joules = {each["clock"]: searching.energy(measured(each, training)) for each in kept}
    assert best is not None and joules[best["clock"]] < joules[1500.0]


@pytest.mark.nightly
def test_a_batch_may_be_the_only_knob_beside_training() -> None:
    space = Space.product(Knob("batch", (1.0, 4.0, 16.0), Role.WORK_SIZE))
    first = measured(DEFAULT, training=True)
    searching = ServiceSearch(space, {"batch": 16.0}, 2.0 * first.p99_s, LOAD, first, [TRAINING])
    assert searching.best == {"batch": 16.0}
    bounds_s = [searching.bound_s(each) for each in space.settings]
    assert all(math.isfinite(each) and each > 0.0 for each in bounds_s)
    assert bounds_s[0] >= bounds_s[2], "batches of one cannot be sure to keep up"


@pytest.mark.slow
def test_a_target_that_no_setting_keeps_is_told() -> None:
    searching = search(0.2 * measured(DEFAULT).p99_s)
    assert list(steps(searching)) == []
    assert searching.ending is ServiceSearchEnding.NONE_KEEPS
    assert searching.best is None


@pytest.mark.slow
def test_a_setting_that_cannot_be_applied_is_not_tried_again() -> None:
    searching = search(2.0 * measured(DEFAULT).p99_s, budget=4)
    failed = searching.next()
    searching.told(ServiceMeasurement(math.nan, math.nan, 1.0, 1.0, status=MeasurementStatus.FAILED))
    assert failed is not None and failed not in list(steps(searching))
    assert searching.best != failed
    with pytest.raises(RuntimeError, match="next"):
        searching.told(measured(DEFAULT))


@pytest.mark.nightly
def test_joules_a_request_are_the_measured_power_over_the_rate() -> None:
    searching = search(1.0, budget=1)
    first = measured(DEFAULT)
    assert searching.request_j(first) == pytest.approx(first.power_w / LOAD.rate_per_s)
    assert searching.next() is None and searching.ending is ServiceSearchEnding.BUDGET
    assert searching.best == DEFAULT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_s": 0.0}, "a target of 0 s: expected a positive time"),
        ({"target_s": 1.0, "confidence": 1.0}, "a confidence of 1: expected at least 0.5 and below 1"),
        ({"target_s": 1.0, "budget": 0}, "a budget of 0 measurements: expected at least 1"),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as refused:
        search(**options)
    assert str(refused.value) == words


def test_a_first_measurement_of_an_idle_service_is_refused() -> None:
    idle = ServiceMeasurement(40.0, math.nan, 0.0, 0.0)
    with pytest.raises(ValueError, match="positive numbers"):
        ServiceSearch(SPACE, DEFAULT, 1.0, LOAD, idle)


@pytest.mark.slow
def test_the_time_of_a_neighbour_must_be_known() -> None:
    with pytest.raises(ValueError, match="lacks the iteration time of training"):
        ServiceSearch(SPACE, DEFAULT, 1.0, LOAD, measured(DEFAULT), [TRAINING])
