"""Energy counters of Intel and AMD processors: RAPL, through the kernel's powercap files.

zeus reads these files too, but starts a process for each counter to detect wrap-around. Here a reading every few
seconds detects it, since a counter wraps only after minutes. Since Linux 5.10 the files belong to root
(CVE-2020-8694). The daemon of zeus then reads them for ecoshare, if `ZEUSD_SOCK_PATH` names its socket.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ecoshare.base.joules import MEASURED
from ecoshare.devices.cpu_knobs import kernel_files
from ecoshare.devices.meter import MeterFault, MeterInfo, Reading

REMEDY = "an administrator can `chmod o+r` the energy_uj files, or run zeusd and set ZEUSD_SOCK_PATH"
_PERIOD_S = 0.01
"""RAPL updates its counters about every millisecond (Intel SDM, vol. 3B, 15.10.3); the kernel may be slower."""


@dataclass(slots=True)
class _Counter:
    """Counter of one zone: its folder, the value (J) at which it wraps, the last value, and the joules since `open`."""

    path: Path
    range_j: float
    last_j: float
    total_j: float = 0.0

    def advance(self) -> float:
        now_j = _joules(self.path / "energy_uj")
        self.total_j += now_j - self.last_j if now_j >= self.last_j else now_j + self.range_j - self.last_j
        self.last_j = now_j
        return self.total_j


class RaplMeter:
    """Counts the joules of all processor packages, and of memory that has a counter of its own."""

    def __init__(self, powercap: Path | None = None) -> None:
        """Prepare a meter for the counters below `powercap`, by default this machine's. Call `open` before `read`."""
        self._powercap = kernel_files() / "class/powercap" if powercap is None else powercap
        self._counters: list[_Counter] = []
        self._daemon: Callable[[], float] | None = None

    @property
    def info(self) -> MeterInfo:
        """Description of this meter."""
        through = "zeusd" if self._daemon is not None else ", ".join(_name(each.path) for each in self._counters)
        return MeterInfo("rapl", MEASURED, "cpu", f"RAPL ({through}): processor packages and memory", _PERIOD_S)

    def open(self) -> None:
        """Find the counters.

        Raises:
            MeterFault: There are no counters, or this user may not read them.
        """
        zones = packages(self._powercap)
        if not zones:
            raise MeterFault("no RAPL counters (virtual machine?)")
        try:
            self._counters = [
                _Counter(zone, _joules(zone / "max_energy_range_uj"), _joules(zone / "energy_uj")) for zone in zones
            ]
        except PermissionError as error:
            if "ZEUSD_SOCK_PATH" not in os.environ:
                raise MeterFault(f"{error.filename} cannot be read by this user", REMEDY) from error
            self._daemon = _through_zeusd()
        except (OSError, ValueError) as error:
            raise MeterFault(f"RAPL cannot be read: {error}") from error

    def read(self) -> Reading:
        """Joules so far, corrected for counters that wrapped.

        Raises:
            MeterFault: A counter cannot be read.
        """
        at_s = time.monotonic()
        try:
            total_j = self._daemon() if self._daemon is not None else sum(each.advance() for each in self._counters)
        except (OSError, ValueError) as error:
            raise MeterFault(f"RAPL cannot be read: {error}") from error
        return Reading(at_s, total_j)


def packages(powercap: Path) -> list[Path]:
    """Zones to add up: each package and its memory, without the parts of a package (cores, graphics)."""
    found = []
    for zone in sorted(powercap.glob("intel-rapl:*")):
        name = _name(zone)
        if name.startswith("package") or name == "dram":
            found.append(zone)
    return found


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


def _joules(path: Path) -> float:
    return int(path.read_text()) / 1e6


def _through_zeusd() -> Callable[[], float]:
    from zeus.device.cpu.rapl import RAPLCPUs
    from zeus.device.exception import ZeusBaseCPUError
    from zeus.exception import ZeusBaseError

    try:
        cpus = RAPLCPUs().cpus
    except (ZeusBaseCPUError, ZeusBaseError) as error:
        raise MeterFault(f"zeusd does not answer: {error}", REMEDY) from error

    def joules() -> float:
        try:
            measured = [cpu.get_total_energy_consumption() for cpu in cpus]
        except (ZeusBaseCPUError, ZeusBaseError) as error:
            raise MeterFault(f"zeusd does not answer: {error}", REMEDY) from error
        return float(sum(each.cpu_mj + (each.dram_mj or 0.0) for each in measured)) / 1000

    return joules
