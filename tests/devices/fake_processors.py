"""Processors in files laid out as the kernel does, with joules that follow the frequency cap."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import TracebackType

from tests.devices.claims import processors

HIGHEST_MHZ, LOWEST_MHZ = 3000.0, 800.0
_EVERY_S = 0.02


class FakeProcessors:
    """One package with two frequency policies; its energy counter advances while this is entered.

    Attributes:
        sysfs: Folder for `ECOSHARE_SYSFS`.
    """

    def __init__(self, folder: Path) -> None:
        """Make the files below `folder`, without power limits that could be set."""
        self.sysfs = processors(folder / "sys", policies=2, packages=1)
        self._zone = self.sysfs / "class/powercap/intel-rapl:0"
        (self._zone / "constraint_0_power_limit_uw").unlink()
        (self._zone / "max_energy_range_uj").write_text("262143328850\n")
        self._energy_uj = 5e6
        self._write()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    @property
    def caps_mhz(self) -> list[float]:
        """Present cap of each policy; an empty list while a file is written."""
        with contextlib.suppress(ValueError):
            return [float(path.read_text()) / 1000 for path in sorted(self.sysfs.rglob("scaling_max_freq"))]
        return []

    @staticmethod
    def power_w(cap_mhz: float) -> float:
        """Power (W) at a cap: 40 W, and 160 W more at the highest frequency, by its square."""
        return 40.0 + 160.0 * (cap_mhz / HIGHEST_MHZ) ** 2

    def __enter__(self) -> FakeProcessors:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _count(self) -> None:
        last_s, power_w = time.monotonic(), self.power_w(HIGHEST_MHZ)
        while not self._ended.wait(_EVERY_S):
            if caps := self.caps_mhz:
                power_w = self.power_w(min(caps))
            now_s = time.monotonic()
            self._energy_uj += 1e6 * power_w * (now_s - last_s)
            last_s = now_s
            self._write()

    def _write(self) -> None:
        # Beside it and renamed: a reader never sees half a number, as with the kernel.
        beside = self._zone / "energy_uj.new"
        beside.write_text(f"{self._energy_uj:.0f}\n")
        beside.replace(self._zone / "energy_uj")
