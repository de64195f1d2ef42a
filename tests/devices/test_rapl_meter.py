"""RAPL counters in real files with the layout of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.devices.meter import MeterFault
from ecoshare.devices.rapl_meter import RaplMeter, packages


def zone(powercap: Path, number: str, name: str, joules: float, most_j: float = 1000.0) -> Path:
    folder = powercap / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(name + "\n")
    (folder / "max_energy_range_uj").write_text(f"{most_j * 1e6:.0f}\n")
    set_joules(folder, joules)
    return folder


def set_joules(folder: Path, joules: float) -> None:
    (folder / "energy_uj").write_text(f"{joules * 1e6:.0f}\n")


def test_packages_and_memory_are_added_up_and_cores_are_not_counted_twice(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 10.0)
    core = zone(tmp_path, "0:0", "core", 5.0)
    memory = zone(tmp_path, "0:1", "dram", 1.0)
    zone(tmp_path, "1", "psys", 99.0)
    assert packages(tmp_path) == [package, memory]
    meter = RaplMeter(tmp_path)
    meter.open()
    for folder, joules in ((package, 30.0), (core, 15.0), (memory, 4.0)):
        set_joules(folder, joules)
    assert meter.read().energy_j == pytest.approx(23.0)


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 990.0)
    meter = RaplMeter(tmp_path)
    meter.open()
    set_joules(package, 15.0)
    assert meter.read().energy_j == pytest.approx(25.0)
    set_joules(package, 20.0)
    assert meter.read().energy_j == pytest.approx(30.0)


def test_a_machine_without_counters_is_a_fault_and_not_zero(tmp_path: Path) -> None:
    with pytest.raises(MeterFault, match="no RAPL"):
        RaplMeter(tmp_path).open()


def test_a_counter_that_cannot_be_read_any_more_is_a_fault(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 1.0)
    meter = RaplMeter(tmp_path)
    meter.open()
    (package / "energy_uj").write_text("")
    with pytest.raises(MeterFault, match="cannot be read"):
        meter.read()
