"""NVML's energy counter through the real bindings and zeus, on the driver of tests/driver."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.devices import registry
from ecoshare.devices.meter import CounterMeter, MeterFault, MeterInfo, Reading, energy_between
from ecoshare.devices.nvidia import nvml
from ecoshare.record.samples import Sample, SampleFile, Session, read
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.meter_sampler import MeterSampler
from tests.driver import COMPILER, FakeDriver, Fault, presets

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path, [presets.H200, presets.P100], period_ms=50) as running:
        yield running


def opened(driver: FakeDriver, index: int = 0) -> CounterMeter:
    return nvml.NvmlDevice(driver.gpu(index).uuid).open_meter()


def test_the_counters_period_is_found_and_not_assumed(driver: FakeDriver) -> None:
    assert 0.035 < opened(driver).info.period_s < 0.08, "that of most boards is 0.1 s"


@pytest.mark.slow
def test_joules_are_those_of_the_gpu(driver: FakeDriver) -> None:
    meter = opened(driver)
    driver.gpu(0).load(1, compute=0.6, memory=0.3)
    first = meter.read()
    time.sleep(0.5)
    last = meter.read()
    watts = nvml.NvmlDevice(driver.gpu(0).uuid).state().power_w
    assert watts is not None
    spent = energy_between(first, last, meter.info)
    # The counter alone, the board's average aside: it must be far above idle, and within the limit.
    assert 150.0 < spent.value_j / (last.at_s - first.at_s) <= 700.0
    assert spent.standard_error_j > 0.0


def test_an_interval_shorter_than_the_period_has_no_joules(driver: FakeDriver) -> None:
    meter = opened(driver)
    first = meter.read()
    with pytest.raises(MeterFault, match="shorter"):
        energy_between(first, meter.read(), meter.info)


@pytest.mark.nightly
def test_a_counter_that_goes_back_is_a_fault_once(driver: FakeDriver) -> None:
    meter = opened(driver)
    driver.gpu(0).load(1, compute=1.0)
    time.sleep(0.3)
    meter.read()
    driver.gpu(0).fault(Fault.COUNTER_RESET, times=1)
    with pytest.raises(MeterFault, match="went back"):
        meter.read()
    meter.read()


@pytest.mark.slow
def test_a_counter_that_stands_still_is_no_meter(driver: FakeDriver) -> None:
    driver.gpu(0).fault(Fault.COUNTER_STALE)
    with pytest.raises(MeterFault, match="stood still"):
        opened(driver)


def test_a_gpu_without_a_counter_says_so(driver: FakeDriver) -> None:
    with pytest.raises(MeterFault, match="Volta"):
        opened(driver, index=1)


def test_a_gpu_that_is_lost_is_a_fault_and_not_a_number(driver: FakeDriver) -> None:
    meter = opened(driver)
    driver.gpu(0).fault(Fault.GPU_LOST)
    with pytest.raises(MeterFault, match="driver failed"):
        meter.read()


def test_what_a_board_does_not_tell_is_none(driver: FakeDriver) -> None:
    driver.gpu(0).fault(Fault.NO_UTILISATION)
    state = nvml.NvmlDevice(driver.gpu(0).uuid).state()
    assert state.busy is None and state.memory_busy is None
    assert None not in (state.power_w, state.gpu_clock_mhz, state.memory_clock_mhz, state.memory_bytes)


def test_a_sampler_writes_what_the_gpu_tells(driver: FakeDriver, tmp_path: Path) -> None:
    gpu = driver.gpu(0)
    gpu.load(1, compute=0.5, memory=0.5, used_bytes=1 << 30)
    device = dataclasses.replace(registry.processors(), name="cuda:0", kind="cuda", vendor="nvidia", uuid=gpu.uuid)
    file = SampleFile(tmp_path / "samples.jsonl")
    sampler = MeterSampler(file, ClaimedDevice(device, None), lambda _on_device: {})
    assert asyncio.run(sampler.begin(lambda: 0.0))
    file.close()
    session, sample = read(tmp_path / "samples.jsonl")
    assert isinstance(session, Session) and (session.meter, session.source) == ("nvml", "measured")
    assert isinstance(sample, Sample) and sample.memory_bytes is not None and sample.memory_bytes >= 1 << 30
    assert None not in (sample.energy_j, sample.power_w, sample.gpu_clock_mhz, sample.temperature_c, sample.busy)


def test_standard_errors_cover_the_truth_as_often_as_they_claim(tmp_path: Path) -> None:
    """Windows of a few periods under constant power: two thirds of them should be off by less than one error."""
    preset = dataclasses.replace(presets.H200)
    with FakeDriver(tmp_path, [preset], virtual=True, period_ms=100) as driver:
        gpu = nvml.NvmlDevice(driver.gpu(0).uuid)
        driver.gpu(0).load(1, compute=0.7, memory=0.2)
        driver.advance(10.0)
        before_j = gpu.energy_j()
        driver.advance(1000.0)
        watts = (gpu.energy_j() - before_j) / 1000.0
        within, tries, now_s = 0, 400, 0.0
        info = MeterInfo("nvml", "measured", "gpu", "", 0.1)
        for index in range(tries):
            start = Reading(now_s, gpu.energy_j())
            wall_s = 0.35 + 0.0173 * (index % 29)  # has no common measure with the period
            driver.advance(wall_s)
            now_s += wall_s
            energy = energy_between(start, Reading(now_s, gpu.energy_j()), info)
            within += abs(energy.value_j - watts * wall_s) <= energy.standard_error_j
            driver.advance(0.0131 * (index % 7))
            now_s += 0.0131 * (index % 7)
        # The sum of two even distributions is within one standard deviation 65 % of the time.
        assert math.isclose(within / tries, 0.65, abs_tol=0.1)


@pytest.mark.nightly
def test_what_a_counter_does_not_see_is_in_the_error(tmp_path: Path) -> None:
    """The board looks a quarter of the time at iterations of 50 to 200 ms. Two errors cover 95 % of windows.

    A second board with the same load, of which the counter always looks, tells the truth.
    """
    draw = random.Random(5)
    always = dataclasses.replace(presets.A100, sampled_ms=0)
    with FakeDriver(tmp_path, [presets.A100, always], virtual=True, period_ms=100) as driver:
        gpus = [nvml.NvmlDevice(driver.gpu(index).uuid) for index in range(2)]
        with_looks = MeterInfo("nvml", "measured", "gpu", "", 0.1, 0.25)
        covered, tries = 0, 250
        for _ in range(tries):
            iteration_s, busy, rest = draw.uniform(0.05, 0.2), draw.uniform(0.3, 0.95), draw.uniform(0.0, 0.8)
            before = [gpu.energy_j() for gpu in gpus]
            count = math.ceil(draw.uniform(3.0, 4.0) / iteration_s)
            for _ in range(count):
                for compute, part in ((1.0, busy), (rest, 1.0 - busy)):
                    for index in range(2):
                        driver.gpu(index).load(1, compute=compute, memory=0.2)
                    driver.advance(part * iteration_s)
            counted, true = (gpu.energy_j() - was for gpu, was in zip(gpus, before, strict=True))
            found = energy_between(Reading(0.0, 0.0), Reading(count * iteration_s, counted), with_looks)
            covered += abs(counted - true) <= 2.0 * found.standard_error_j
    assert covered >= 0.95 * tries


@pytest.mark.nightly
@pytest.mark.parametrize("is_drawn", [False, True])
def test_iterations_in_step_with_a_counter_stay_in_step_whenever_a_window_begins(
    tmp_path: Path, is_drawn: bool
) -> None:
    """If it failed, `docs/limits.md` would name a limit that a window with a begin drawn by lot does not have."""
    draw, period_s, looks, count = random.Random(1), 0.1, 0.25, 30
    always = dataclasses.replace(presets.A100, sampled_ms=0)
    with FakeDriver(tmp_path, [presets.A100, always], virtual=True, period_ms=100) as driver:
        gpus = [nvml.NvmlDevice(driver.gpu(index).uuid) for index in range(2)]

        def spend(wall_s: float, compute: float) -> None:
            for index in range(2):
                driver.gpu(index).load(1, compute=compute, memory=0.2)
            driver.advance(wall_s)

        errors, covered = [], 0
        for _ in range(100):
            spend(draw.uniform(0.2, 0.3), 0.0)  # the iterations begin at any moment of a period
            busy, rest = draw.uniform(0.3, 0.95), draw.uniform(0.0, 0.8)
            late_s = draw.uniform(0.0, busy * period_s) if is_drawn else 0.0
            spend(late_s, 1.0)
            before = [gpu.energy_j() for gpu in gpus]
            spend(busy * period_s - late_s, 1.0)
            for _ in range(count - 1):
                spend((1.0 - busy) * period_s, rest)
                spend(busy * period_s, 1.0)
            spend((1.0 - busy) * period_s, rest)
            spend(late_s, 1.0)
            counted, true = (gpu.energy_j() - was for gpu, was in zip(gpus, before, strict=True))
            counter = MeterInfo("nvml", "measured", "gpu", "", period_s, looks)
            found = energy_between(Reading(0.0, 0.0), Reading(count * period_s, counted), counter)
            errors.append(counted / true - 1.0)
            covered += abs(counted - true) <= 2.0 * found.standard_error_j
    assert 0.1 < math.sqrt(statistics.fmean(each**2 for each in errors)) < 0.3, "a fifth, in the mean"
    assert covered < 50, "of 100 windows"


@pytest.mark.slow
def test_a_board_that_looks_part_of_the_time_says_so(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, [presets.A100, presets.A4000]) as driver:
        looks = [nvml.NvmlDevice(driver.gpu(index).uuid).open_meter().info for index in range(2)]
    assert [each.looks for each in looks] == [0.25, 1.0]
    assert "which looks 25% of the time" in looks[0].about and "looks" not in looks[1].about
