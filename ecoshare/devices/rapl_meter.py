"""The energy counters of Intel and AMD processors: RAPL, through the kernel's powercap files.

zeus reads these files too, but starts a process for each to see the counter wrap around; a reading every few seconds
sees it by itself (the counters hold minutes). Where the files belong to root, as they do since Linux 5.10
(CVE-2020-8694), zeus serves: its daemon reads them for us, when `ZEUSD_SOCK_PATH` names its socket.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ecoshare.devices.meter import MEASURED, MeterFault, MeterInfo, Reading

POWERCAP = Path("/sys/class/powercap")
REMEDY = "an administrator can `chmod o+r` the energy_uj files, or run zeusd and set ZEUSD_SOCK_PATH"
_PERIOD_S = 0.01
"""RAPL's counters are updated about every millisecond (Intel SDM, vol. 3B, 15.10.3); the kernel may be slower."""


@dataclass(slots=True)
class _Counter:
    """One package: its file, where it wraps, and what it has counted since it was opened."""

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
    """Counts the joules of all processor packages, and of their memory where that is counted apart."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        """The counters below a folder. Call `open` before reading them."""
        self._powercap = powercap
        self._counters: list[_Counter] = []
        self._daemon: Callable[[], float] | None = None

    @property
    def info(self) -> MeterInfo:
        """What it measures."""
        through = "zeusd" if self._daemon is not None else ", ".join(_name(each.path) for each in self._counters)
        return MeterInfo("rapl", MEASURED, "cpu", f"RAPL ({through}): processor packages and memory", _PERIOD_S)

    def open(self) -> None:
        """Find the counters.

        Raises:
            MeterFault: There are none, or this user may not read them.
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
        """The joules since it was opened, in which counters that wrapped are allowed for.

        Raises:
            MeterFault: A file cannot be read.
        """
        at_s = time.monotonic()
        try:
            total_j = self._daemon() if self._daemon is not None else sum(each.advance() for each in self._counters)
        except (OSError, ValueError) as error:
            raise MeterFault(f"RAPL cannot be read: {error}") from error
        return Reading(at_s, total_j)


def packages(powercap: Path = POWERCAP) -> list[Path]:
    """The zones to add up: every package, and its memory, but not what a package contains (cores, graphics)."""
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
