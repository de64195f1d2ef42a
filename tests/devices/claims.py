"""Devices claimed for tests, on the fake driver and on files laid out as the kernel does."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.cpu_knobs import CpuKnobs
from tests.driver import FakeDriver
from tests.warm import Started

FOUND_W = 600.0
"""Power limit (W) before the test: neither the default of the board nor its maximum."""


def state_in(folder: Path) -> StateFolder:
    """State folder with journals and locks in one place."""
    return StateFolder(folder / "state", folder / "state")


def limited(driver: FakeDriver, watts: float, index: int = 0) -> None:
    """Set a power limit of a driver that this process has entered, as an administrator would."""
    import pynvml

    assert pynvml.nvmlLib._name == str(driver.library), "never a real driver"
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetPowerManagementLimit(
        pynvml.nvmlDeviceGetHandleByUUID(driver.gpu(index).uuid), round(watts * 1000)
    )
    pynvml.nvmlShutdown()


def claim(driver: FakeDriver, state: StateFolder, assume_unlocked: bool = True, index: int = 0) -> DeviceControl:
    """GPU of a driver that this process has entered."""
    gpu = driver.gpu(index)
    return DeviceControl(gpu.uuid, "nvidia", f"GPU {index}", state, assume_unlocked)


def die_after_setting(driver: FakeDriver, state: StateFolder, setting: Mapping[str, float | str]) -> None:
    """Let a process apply a setting of the first GPU, and be killed."""
    (script := state.journals.parent / "dies.py").write_text(
        f"""
import os, signal
from pathlib import Path
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.state_folder import StateFolder
folder = Path({str(state.journals)!r})
control = DeviceControl({driver.gpu(0).uuid!r}, "nvidia", "GPU 0", StateFolder(folder, folder), True)
assert not control.apply({dict(setting)!r}).refused
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    process = Started(script=script, environment={**os.environ, **driver.environment})
    assert process.wait() == -signal.SIGKILL, process.stderr


def processors(folder: Path, policies: int = 2, packages: int = 1) -> Path:
    """Folder of the kernel with writable frequency policies and power limits."""
    for number in range(policies):
        policy = folder / f"devices/system/cpu/cpufreq/policy{number}"
        policy.mkdir(parents=True)
        for name, value in (("scaling_max_freq", 3_000_000), ("cpuinfo_min_freq", 800_000)):
            (policy / name).write_text(f"{value}\n")
    for number in range(packages):
        zone = folder / f"class/powercap/intel-rapl:{number}"
        zone.mkdir(parents=True)
        (zone / "name").write_text(f"package-{number}\n")
        (zone / "constraint_0_power_limit_uw").write_text("200000000\n")
    return folder


def claim_processors(sysfs: Path, state: StateFolder) -> DeviceControl:
    """Processors from a folder that `processors` has made."""
    return DeviceControl("processors-test", "cpu", "a processor", state, find=partial(CpuKnobs, sysfs))
