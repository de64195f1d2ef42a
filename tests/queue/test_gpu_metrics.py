"""Metrics of a queue on the fake GPU: clocks, watts, settings in force, and searches."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.api.queue_client import Queue
from tests.driver.training import COMPUTES
from tests.queue.queues import answers
from tests.queue.scraping import Scrape, scrape
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.warm import Started, wait_for

pytestmark = MARKS


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    yield machine
    assert machine.driver.gpu(0).settings() == BEFORE


@pytest.mark.nightly
def test_settings_in_force_and_searches_are_told_in_base_units(machine: Machine) -> None:
    process = machine.start("up", "--name", "test", "--objective", "energy", "--lanes", "1")
    try:
        _look_at(machine, process)
    finally:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _look_at(machine: Machine, process: Started) -> None:
    home = machine.folder / "state" / "queues" / "test"
    wait_for(lambda: answers() or process.poll() is not None, otherwise=lambda: process.stderr)
    found = scrape(home)
    assert found.value("ecoshare_device_setting_watts", device="cuda:0", knob="power_limit") == 600.0
    assert found.value("ecoshare_device_setting_info", knob="gpu_clock", value="unlocked") == 1.0
    assert found.value("ecoshare_setting_searches_begun_total") == 0.0
    assert not found.values("ecoshare_device_setting_hertz")
    Queue("test").submit(str(machine.jobs(COMPUTES)))

    seen: list[Scrape] = []

    def is_set() -> bool:
        (device,) = Queue("test").status(0).devices
        seen.append(scrape(home))
        clock_mhz = device.setting.get("gpu_clock")
        told = seen[-1].values("ecoshare_device_setting_hertz", knob="gpu_clock")
        return isinstance(clock_mhz, float) and told == [clock_mhz * 1e6]

    wait_for(is_set, 200, otherwise=lambda: process.stderr)
    found = seen[-1]
    assert not found.values("ecoshare_device_setting_info", knob="gpu_clock"), "the clock is locked now"
    assert found.value("ecoshare_setting_searches_begun_total") == 1.0
    assert found.value("ecoshare_setting_changes_total", result="applied") >= 1.0
    assert found.value("ecoshare_setting_measurements_total", status="measured") >= 1.0
    assert found.value("ecoshare_profiling_windows_total", result="profiled") == 1.0
    assert 100e6 < found.value("ecoshare_device_clock_hertz", domain="gpu") < 3e9
    assert 0.0 < found.value("ecoshare_device_busy_ratio") <= 1.0
    assert found.value("ecoshare_device_memory_used_bytes") < found.value("ecoshare_device_memory_limit_bytes")
    assert 20.0 < found.value("ecoshare_device_temperature_celsius") < 100.0
    assert found.value("ecoshare_device_energy_joules_total", source="measured") > 100.0
