"""AMD GPUs through the real amdsmi and zeus, on a library of our own (tests/driver/amd)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.base.device import ACROSS_NODES, NUMA_NODE, XGMI, DeviceInfo
from ecoshare.base.joules import MEASURED
from ecoshare.devices import registry
from ecoshare.devices.choice import find_all
from ecoshare.devices.control import journal
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.restore import KnobOutcome, mend
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.knob import Cause
from ecoshare.devices.meter import MeterFault, energy_between
from ecoshare.devices.vendor import DeviceHealth
from ecoshare.errors import UnfitEnvironment
from tests.driver import COMPILER, Fault
from tests.driver.amd import ENERGY, MI300X, POWER, SETTERS, FakeAmdDriver

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAmdDriver]:
    """Two GPUs, which the driver counts in the opposite order of HIP."""
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("zeus.device.common.has_sys_admin", lambda: True)
    with FakeAmdDriver(tmp_path, [MI300X, MI300X]) as running:
        yield running


def found(driver: FakeAmdDriver, hip: int = 0) -> DeviceInfo:
    device = registry.find(f"cuda:{hip}")
    assert device.uuid == driver.gpu(hip).uuid, "the number counts as HIP does, and not as the driver"
    return device


@pytest.mark.nightly
def test_a_gpu_is_found_by_its_hip_number(driver: FakeAmdDriver) -> None:
    driver.gpu(1).load(7, used_bytes=8 << 30)
    first, second = found(driver, 0), found(driver, 1)
    assert (first.name, first.kind, first.vendor, first.model) == ("cuda:0", "cuda", "amd", "AMD Instinct MI300X")
    assert first.power_limit_w == 750.0 and first.total_bytes == 196_608 << 20 and not first.on_processors
    assert first.free_bytes - second.free_bytes == 8 << 30, "the load is on the other one"
    vendor = registry.vendor("amd")
    assert vendor.environment([second]) == {"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": None}


@pytest.mark.slow
def test_memory_of_jobs_that_wait_cannot_be_moved(driver: FakeAmdDriver) -> None:
    with pytest.raises(UnfitEnvironment, match="AMD's driver cannot move") as refused:
        registry.vendor("amd").memory_transfer(found(driver), {})
    assert refused.value.hint == "run without `--host-memory`"


@pytest.mark.slow
@pytest.mark.parametrize(("names", "shown"), [("1", [1]), ("1,0", [1, 0]), ("", []), ("1,7,0", [1]), ("GPU-1", [])])
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_gpus_are_counted_as_hip_would(
    driver: FakeAmdDriver, monkeypatch: pytest.MonkeyPatch, variable: str, names: str, shown: list[int]
) -> None:
    monkeypatch.setenv(variable, names)
    assert [each.uuid for each in registry.visible_gpus()] == [driver.gpu(place).uuid for place in shown]


@pytest.mark.usefixtures("driver")
def test_what_changes_the_meaning_of_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    with pytest.raises(UnfitEnvironment, match="ROCR_VISIBLE_DEVICES"):
        registry.find(None)


@pytest.mark.slow
def test_joules_are_those_of_the_gpu(driver: FakeAmdDriver) -> None:
    driver.gpu(1).load(1, compute=0.6, memory=0.3)
    device = registry.open_device(found(driver, 1))
    meter = device.open_meter()
    assert (meter.info.name, meter.info.source, meter.info.scope) == ("amdsmi", MEASURED, "gpu")
    assert 0.01 < meter.info.period_s < 0.05, "the period is found, and not assumed"
    first = meter.read()
    time.sleep(0.4)
    last = meter.read()
    state = device.state()
    assert state is not None and state.power_w is not None
    spent_w = energy_between(first, last, meter.info).value_j / (last.at_s - first.at_s)
    assert spent_w == pytest.approx(state.power_w, rel=0.15), "another GPU draws far less"
    assert state.busy == pytest.approx(0.6) and state.gpu_clock_mhz == 2100.0 and state.temperature_c == 40.0
    assert device.processes() == {1: 0} and device.power_limit_w() == 750.0


@pytest.mark.slow
def test_a_counter_that_is_far_off_the_power_draw_is_not_believed(driver: FakeAmdDriver) -> None:
    device = registry.open_device(found(driver))
    driver.fault(Fault.NOT_SUPPORTED, functions=POWER)
    with pytest.raises(MeterFault, match="reports no power draw"):
        device.open_meter()
    driver.mend()
    driver.fault(Fault.NOT_SUPPORTED, functions=ENERGY)
    with pytest.raises(MeterFault, match="AMD driver"):
        device.open_meter()


@pytest.mark.slow
def test_a_gpu_that_the_driver_no_longer_finds_has_failed(driver: FakeAmdDriver) -> None:
    device = registry.open_device(found(driver))
    assert device.health() == DeviceHealth()
    driver.fault(Fault.NO_PERMISSION, functions="amdsmi_get_gpu_vram_usage")
    assert device.health() == DeviceHealth(), "no answer is no failure"
    driver.mend()
    driver.fault(Fault.NOT_FOUND, functions="amdsmi_get_gpu_vram_usage")
    assert device.health().failure.startswith("the AMD driver: ")


def claim(driver: FakeAmdDriver, folder: Path) -> DeviceControl:
    return DeviceControl(driver.gpu(1).uuid, "amd", "GPU 1", StateFolder(folder, folder))


def test_the_power_limit_is_set_read_back_and_restored(driver: FakeAmdDriver, tmp_path: Path) -> None:
    control = claim(driver, tmp_path)
    assert [spec.name for spec in control.specs] == ["power_limit"] and control.default == {"power_limit": 750.0}
    assert "locked" in control.missing["gpu_clock"], "a device that cannot be set says so"
    assert not control.apply({"power_limit": 400.0}).refused
    assert (driver.gpu(0).settings().power_limit_w, driver.gpu(1).settings().power_limit_w) == (750.0, 400.0)
    assert control.readings() == {"power_limit": 400.0}
    noted = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert noted["vendor"] == "amd" and noted["knobs"]["power_limit"]["before"] == [750.0]
    assert [each.outcome for each in control.restore()] == [KnobOutcome.RESTORED]
    assert driver.gpu(1).settings().power_limit_w == 750.0
    assert not list(tmp_path.glob("*.json")), "nothing is left to restore"


def test_a_limit_without_permission_is_refused_with_the_reason(driver: FakeAmdDriver, tmp_path: Path) -> None:
    driver.fault(Fault.NO_PERMISSION, functions=SETTERS)
    control = claim(driver, tmp_path)
    refused = control.apply({"power_limit": 400.0}).refused["power_limit"]
    assert refused.cause is Cause.NO_PERMISSION and "CAP_SYS_ADMIN" in refused.remedy
    assert control.restore() == [] and driver.gpu(1).settings().power_limit_w == 750.0


@pytest.mark.slow
def test_a_limit_that_a_dead_process_left_is_restored_by_another(driver: FakeAmdDriver, tmp_path: Path) -> None:
    script = f"""
import os
import zeus.device.common
zeus.device.common.has_sys_admin = lambda: True
from pathlib import Path
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.state_folder import StateFolder
folder = Path({str(tmp_path)!r})
DeviceControl({driver.gpu(1).uuid!r}, "amd", "GPU 1", StateFolder(folder, folder)).apply({{"power_limit": 300.0}})
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **driver.environment}, check=False)
    assert driver.gpu(1).settings().power_limit_w == 300.0
    state = StateFolder(tmp_path, tmp_path)
    assert [each.outcome for each in mend(state.journal(driver.gpu(1).uuid), state)] == [KnobOutcome.RESTORED]
    assert driver.gpu(1).settings().power_limit_w == 750.0


def test_a_journal_of_a_version_without_vendors_is_an_nvidia_gpus(tmp_path: Path) -> None:
    old = {
        "schema_version": 1,
        "device": "GPU-1",
        "kind": "gpu",
        "model": "NVIDIA H200",
        "owner": {"pid": 1, "user": "ann", "command": "ecoshare run"},
        "boot": "unknown",
        "made_utc": "2026-01-01T00:00:00Z",
        "knobs": {"power_limit": {"before": [700.0], "ours": [[400.0]]}},
    }
    path = tmp_path / "GPU-1.json"
    path.write_text(json.dumps(old))
    left = journal.read(path)
    assert left is not None and left.vendor == "nvidia" and left.knobs["power_limit"].before == (700.0,)


def test_a_machine_without_the_library_has_no_amd_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ecoshare.devices.vendors import amd

    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    amd._amdsmi.cache_clear()
    assert registry.vendor("amd").visible() == []


def test_gpus_are_linked_over_xgmi_or_pcie(driver: FakeAmdDriver) -> None:
    assert [each.links for each in find_all()] == [(), ()], "the driver tells nothing"
    driver.state.connect(0, 1, nvlinks=7)
    assert [dict(each.links) for each in find_all()] == [{"cuda:1": XGMI}, {"cuda:0": XGMI}]
    driver.state.connect(0, 1, level=50)
    assert [dict(each.links) for each in find_all()] == [{"cuda:1": ACROSS_NODES}, {"cuda:0": ACROSS_NODES}]
    driver.state.connect(0, 1, level=40)
    assert dict(find_all()[0].links) == {"cuda:1": NUMA_NODE}
