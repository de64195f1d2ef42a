"""Batches and latencies of a service under load, without a device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.lane.serving.batch_worker import batch_size
from tuner import (
    P99,
    TURN,
    ConstrainedTuner,
    Knob,
    Limit,
    Role,
    ServiceLoad,
    Space,
    dispersion,
    energy,
    service_energy,
)
from tuner.acquisition import constraint
from tuner.service_load import served
from tuner.service_prior import _by_largest

SIZES = np.array([1.0, 2.0, 4.0, 8.0])

times = st.floats(0.001, 1.0)
shares = st.floats(0.01, 0.99)


def batch_times(start_s: float, request_s: float) -> np.ndarray:
    return start_s + request_s * SIZES


@pytest.mark.nightly
@given(times, times, shares, st.floats(0.0, 2.0))
def test_a_harder_load_is_never_predicted_to_be_faster(
    start_s: float, request_s: float, load: float, iteration_s: float
) -> None:
    batch_s, watts = batch_times(start_s, request_s), np.full(4, 100.0)
    rate = load * SIZES[-1] / batch_s[-1]
    base = served(SIZES, batch_s, watts, iteration_s, ServiceLoad(rate))
    assert 1.0 <= base.batch <= SIZES[-1]
    assert base.turn_s <= batch_s[0] * (1.0 + 1e-9), "batches make no request dearer than alone"
    assert base.latency_s >= iteration_s + batch_s[0]
    for harder in (
        served(SIZES, batch_s, watts, iteration_s, ServiceLoad(1.1 * rate)),
        served(SIZES, batch_s, watts, iteration_s + 0.1, ServiceLoad(rate)),
        served(SIZES, 1.1 * batch_s, watts, iteration_s, ServiceLoad(rate)),
        served(SIZES, batch_s, watts, iteration_s, ServiceLoad(rate, dispersion=4.0)),
    ):
        assert harder.latency_s >= base.latency_s * (1.0 - 1e-9)


def p99_of_a_queue(sizes: list[int], batch_s: dict[int, float], rate: float) -> float:
    """Live rule for batches, Poisson arrivals, constant times, no neighbour."""
    come = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, 8_000))
    ends, first, free_s = np.empty(len(come)), 0, 0.0
    while first < len(come):
        begin_s = max(free_s, float(come[first]))
        waiting = int(np.searchsorted(come, begin_s, side="right")) - first
        size = batch_size(sizes, waiting, float("inf"), batch_s.__getitem__)
        free_s = begin_s + batch_s[size]
        ends[first : first + size] = free_s
        first += size
    return float(np.quantile(ends - come, 0.99))


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("count", [1, 4])
def test_the_formula_is_near_a_simulated_queue_and_hardly_below_it(load: float, count: int) -> None:
    sizes, batch_s = SIZES[:count], batch_times(0.003, 0.001)[:count]
    rate = load * sizes[-1] / batch_s[-1]
    by_size = {int(size): float(each) for size, each in zip(sizes, batch_s, strict=True)}
    true_s = p99_of_a_queue(sorted(by_size), by_size, rate)
    predicted_s = float(served(sizes, batch_s, np.full(count, 100.0), 0.0, ServiceLoad(rate)).latency_s)
    assert 0.7 < predicted_s / true_s < 2.5


def test_each_setting_knows_the_batches_up_to_its_own_at_the_same_clock() -> None:
    clock = Knob("clock", (1.0, 2.0), Role.CORE_CLOCK)
    batch = Knob("batch", (1.0, 2.0, 4.0), Role.WORK_SIZE)
    whole = [{"clock": c, "batch": b} for c, b in itertools.product(clock.values, batch.values)]
    space = Space([clock, batch], whole[:2] + whole[3:])  # a hole: clock 1 without batch 4
    found = {int(row[-1]): (row.tolist(), sizes) for _, rows, sizes in _by_largest(space) for row in rows}
    assert all((own == rows[:, -1]).all() for own, rows, _ in _by_largest(space))
    assert sorted(found) == list(range(len(space)))
    for place, (row, sizes) in found.items():
        setting = space.settings[place]
        assert [space.settings[each] for each in row] == [{**setting, "batch": size} for size in sizes]


def test_an_absolute_limit_does_not_depend_on_the_default() -> None:
    samples = torch.tensor([[0.04, 0.001], [0.06, 100.0]]).log()  # p99 at the setting, and at the default
    excess = constraint(Limit(P99, 0.05, is_absolute=True), [P99])(samples)
    assert (excess > 0.0).tolist() == [False, True]
    relative = constraint(Limit(P99, 1.1), [P99])(samples)
    assert (relative > 0.0).tolist() == [True, False]


def test_a_search_under_an_absolute_limit_keeps_it() -> None:
    space = Space.product(Knob("clock", (900.0, 1100.0, 1300.0, 1500.0), Role.CORE_CLOCK))
    tuner = ConstrainedTuner(
        space, energy({"time_s": 100.0}), [Limit("time_s", 0.0131, is_absolute=True)], {"clock": 1500.0}
    )
    for clock in (1500.0, 1300.0, 1100.0, 900.0):
        tuner.tell({"clock": clock}, {"power_w": clock**2 / 2e4, "time_s": 0.01 * 1500.0 / clock})
    best = tuner.best()
    assert best is not None and best.setting == {"clock": 1300.0}
    assert tuner.upper("time_s", 0.5).tolist() == pytest.approx([0.0167, 0.0136, 0.0115, 0.01], rel=0.03)


def test_joules_of_a_service_are_shared_by_the_work() -> None:
    def value(power_w: float, turn_s: float, **times_s: float) -> float:
        now = {"power_w": power_w, TURN: turn_s, **times_s}
        tensors = {name: torch.tensor(each) for name, each in now.items()}
        return float(service_energy(10.0, 2.0, training)(tensors, tensors))

    training: dict[str, tuple[float, float]] = {}
    assert value(20.0, 0.01) == pytest.approx(1.0), "10 requests a second of 2 J"
    training = {"job": (30.0, 1.0)}
    # The service works a tenth of the time; in the rest the job makes 9 iterations a second of 30 J each.
    assert value(29.0, 0.01, job=0.1) == pytest.approx(29.0 / (20.0 + 270.0))
    assert value(29.0, 0.2, job=0.1) == pytest.approx(29.0 / 20.0), "no time is left to train"


@pytest.mark.parametrize(("rate", "idle"), [(0.0, 1.0), (float("nan"), 1.0), (1.0, -1.0)])
def test_a_load_without_sense_is_refused(rate: float, idle: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        ServiceLoad(rate, idle)


def counted(bursts: float, seed: int, seconds: int = 12) -> list[int]:
    """Requests of each second, 100 a second. `bursts` is the squared coefficient of variation of their gaps."""
    draw = np.random.default_rng(seed)
    come = np.cumsum(draw.gamma(1.0 / bursts, bursts / 100.0, 200 * seconds))
    return [int(each) for each in np.histogram(come, seconds, (0.0, float(seconds)))[0]]


def test_bursts_are_told_from_requests_that_come_by_chance() -> None:
    poisson, bursty = ([dispersion(counted(bursts, seed)) for seed in range(200)] for bursts in (1.0, 8.0))
    assert np.mean([each == 1.0 for each in poisson]) > 0.9
    assert np.mean([each == 1.0 for each in bursty]) < 0.1 and 5.0 < np.median(bursty) < 11.0
    assert dispersion([]) == dispersion([7]) == dispersion([0, 0]) == 1.0


@pytest.mark.parametrize("wrong", [{"rate_per_s": 0.0}, {"idle_w": -1.0}, {"dispersion": 0.0}])
def test_a_load_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        ServiceLoad(**{"rate_per_s": 10.0, **wrong})
