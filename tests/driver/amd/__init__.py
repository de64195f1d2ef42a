"""A fake AMD driver: the real `amdsmi` and `zeus` load it in place of the real library.

It has the state, the power model and the faults of the fake NVIDIA driver, and another library in front of them.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.driver import FakeDriver
from tests.driver.build import SOURCES, compile_c
from tests.driver.presets import Preset

SETTERS = "amdsmi_set_*"
ENERGY = "amdsmi_get_energy_count"
POWER = "amdsmi_get_power_info"

MI300X = Preset(
    "AMD Instinct MI300X",
    architecture=9,
    memory_bytes=196_608 * 2**20,
    limits_w=(100, 750, 750),
    clocks_mhz={1300: tuple(range(2100, 499, -100))},
    coefficients=(100.0, 15.0, 40.0, 420.0, 220.0, 1.3, 0.65, 0.45),
)


@functools.cache
def rocm() -> Path:
    """Folder that stands for a ROCm installation, with the library in it; it is removed at the end of this process."""
    folder = Path(tempfile.mkdtemp(prefix="fake-rocm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "lib").mkdir()
    own = Path(__file__).with_name("amdsmi.c")
    stubs = folder / "stubs.c"
    stubs.write_text("".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(_looked_up() - _defined(own))))
    sources = (own, stubs, SOURCES / "model.c", SOURCES / "shared.c")
    compile_c(folder / "lib/libamd_smi.so", *sources, options=("-shared", "-fPIC"))
    return folder


class FakeAmdDriver:
    """A driver with its GPUs; while it is entered, this process and its children meet it through amdsmi."""

    def __init__(self, folder: Path, gpus: Sequence[Preset] = (MI300X,), *, period_ms: int = 20) -> None:
        """A new driver, its state in a file in `folder`, its time the real one.

        Args:
            period_ms: Time between updates of the energy counters.
        """
        self.state = FakeDriver(folder, gpus, period_ms=period_ms)
        with self.state._state.change() as page:
            for index in range(len(gpus)):  # AMD's UUIDs have no word before them
                page.gpu[index].uuid = page.gpu[index].uuid.removeprefix(b"GPU-")
        self.gpu, self.fault, self.mend, self.setter_calls = (
            self.state.gpu,
            self.state.fault,
            self.state.mend,
            self.state.setter_calls,
        )
        self._before: dict[str, str | None] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make child processes meet this driver."""
        return {"FAKE_NVML_STATE": str(self.state.state_path), "ROCM_PATH": str(rocm())}

    def __enter__(self) -> FakeAmdDriver:
        self._before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        _forget()
        return self

    def __exit__(self, *_error: object) -> None:
        _forget()
        for name, value in self._before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _forget() -> None:
    """Unload amdsmi and zeus' classes for GPUs, which keep the library that they found first."""
    from ecoshare.devices.vendors import amd

    amd._amdsmi.cache_clear()
    gpu: Any = sys.modules.get("zeus.device.gpu.amd")
    if gpu is not None:
        gpu._hip_to_amdsmi_handle.cache_clear()
    for name in [each for each in sys.modules if each.partition(".")[0] == "amdsmi" or each == "zeus.device.gpu.amd"]:
        del sys.modules[name]


def _looked_up() -> set[str]:
    """Functions that amdsmi looks up in the library when it is imported."""
    found = importlib.util.find_spec("amdsmi")
    assert found is not None and found.origin is not None
    wrapper = Path(found.origin).with_name("amdsmi_wrapper.py").read_text()
    return set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper))


def _defined(source: Path) -> set[str]:
    return set(re.findall(r"^API (\w+)\(", source.read_text(), re.MULTILINE))
