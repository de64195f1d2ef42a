"""Knobs of processors: frequency caps (cpufreq) and package power limits (RAPL), through the kernel's files.

Formats: Documentation/admin-guide/pm/cpufreq.rst and Documentation/power/powercap/powercap.rst. Both knobs hold for the
whole machine: every policy and every package gets the same value.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ecoshare.devices.knob import Access, Cause, Clocks, ClocksMhz, DeviceKnob, KnobFault, KnobSpec, Reading


def kernel_files() -> Path:
    """`/sys`, or the folder that `ECOSHARE_SYSFS` names: a container may show the machine's own at another place."""
    return Path(os.environ.get("ECOSHARE_SYSFS") or "/sys")


CPU_FREQUENCY, CPU_POWER_LIMIT = "cpu_frequency", "cpu_power_limit"
NAMES = (CPU_FREQUENCY, CPU_POWER_LIMIT)

_STEPS = 16
_LOWEST_SHARE = 0.4
"""Lowest power limit on offer / limit that was found. Below it processors hardly run."""

_REMEDY = "run as root; in a container these files cannot be written"


@dataclass(frozen=True, slots=True)
class _Files:
    """Files that each hold one whole number. `scale` is that number for one unit of the knob."""

    paths: tuple[Path, ...]
    scale: float

    def read(self) -> Reading:
        return tuple(_number(path) / self.scale for path in self.paths)

    def write(self, values: Reading) -> None:
        for path, value in zip(self.paths, values, strict=True):
            try:
                path.write_text(f"{value * self.scale:.0f}\n")
            except OSError as error:
                raise _fault(path, error) from error


class _FileKnob:
    """A knob that is kept in files of the kernel."""

    def __init__(self, spec: KnobSpec, files: _Files) -> None:
        self.spec, self._files = spec, files

    def read(self) -> Reading | None:
        return self._files.read()

    def write(self, values: Reading | None) -> None:
        assert values is not None, "these files always hold a value"
        self._files.write(values)


class CpuKnobs:
    """All knobs of this machine's processors."""

    def __init__(self, sysfs: Path | None = None, names: Collection[str] = NAMES) -> None:
        """Find the knobs.

        Args:
            sysfs: Folder of the kernel's files; None for that of this machine.
            names: Names of the knobs to find. The access is that to these.
        """
        sysfs = kernel_files() if sysfs is None else sysfs
        self.missing: dict[str, str] = {}
        self.knobs: tuple[DeviceKnob, ...] = ()
        self.clocks_mhz: ClocksMhz = {}
        paths: list[Path] = []
        finders: dict[str, Callable[[Path], _FileKnob]] = {CPU_FREQUENCY: _frequency, CPU_POWER_LIMIT: _power}
        for name, find in finders.items():
            if name not in names:
                continue
            try:
                knob = find(sysfs)
            except KnobFault as fault:
                self.missing[name] = str(fault)
                continue
            self.knobs = (*self.knobs, knob)
            paths += knob._files.paths
        if not paths:
            self.access = Access(False, "there is nothing to set")
            return
        closed = [path for path in paths if not os.access(path, os.W_OK)]
        self.access = (
            Access(False, f"{closed[0]} belongs to root", _REMEDY)
            if closed
            else Access(True, "these files are writable")
        )

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def clocks(self) -> Clocks | None:
        """None: present clocks differ from core to core, and say little about a cap."""
        return None

    def looks_unlocked(self, knob: str) -> bool:
        """True: caps can be read, so nothing must be guessed."""
        return True


def _frequency(sysfs: Path) -> _FileKnob:
    policies = sorted((sysfs / "devices/system/cpu/cpufreq").glob("policy[0-9]*"))
    if not policies:
        raise KnobFault(Cause.NOT_SUPPORTED, "the kernel offers no frequencies here (a virtual machine?)")
    files = _Files(tuple(policy / "scaling_max_freq" for policy in policies), 1000.0)  # kHz
    highest = min(files.read())
    lowest = max(_number(policy / "cpuinfo_min_freq") for policy in policies) / 1000.0
    try:
        words = (policies[0] / "scaling_available_frequencies").read_text().split()
        values = {float(word) / 1000.0 for word in words}
    except (OSError, ValueError):  # a driver that takes any frequency lists none
        values = {lowest + place * (highest - lowest) / (_STEPS - 1) // 100.0 * 100.0 for place in range(_STEPS)}
    kept = sorted({each for each in values if lowest <= each < highest} | {highest})
    return _FileKnob(_spec(CPU_FREQUENCY, "MHz", kept), files)


def _power(sysfs: Path) -> _FileKnob:
    packages = sorted(
        folder
        for folder in (sysfs / "class/powercap").glob("intel-rapl:[0-9]*")
        if folder.name.count(":") == 1 and _text(folder / "name").startswith("package")
    )
    paths = tuple(folder / "constraint_0_power_limit_uw" for folder in packages)
    if not paths or not all(path.exists() for path in paths):
        raise KnobFault(Cause.NOT_SUPPORTED, "there are no package power limits (AMD, or a virtual machine)")
    files = _Files(paths, 1e6)
    found_w = min(files.read())
    shares = [_LOWEST_SHARE + (1.0 - _LOWEST_SHARE) * place / (_STEPS - 1) for place in range(_STEPS - 1)]
    kept = sorted({float(round(share * found_w)) for share in shares if round(share * found_w) < found_w} | {found_w})
    return _FileKnob(_spec(CPU_POWER_LIMIT, "W", kept), files)


def _spec(name: str, unit: str, values: list[float]) -> KnobSpec:
    return KnobSpec(name, unit, tuple(values), between=True)


def _number(path: Path) -> float:
    try:
        return float(path.read_text())
    except OSError as error:
        raise _fault(path, error) from error
    except ValueError:
        raise KnobFault(Cause.FAILED, f"{path} holds no number") from None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _fault(path: Path, error: OSError) -> KnobFault:
    causes = {errno.EACCES: Cause.NO_PERMISSION, errno.EPERM: Cause.NO_PERMISSION, errno.EROFS: Cause.NO_PERMISSION}
    causes |= {errno.EINVAL: Cause.REFUSED, errno.ENOENT: Cause.NOT_SUPPORTED, errno.ENODATA: Cause.NOT_SUPPORTED}
    cause = causes.get(error.errno or 0, Cause.FAILED)
    remedy = _REMEDY if cause is Cause.NO_PERMISSION else ""
    return KnobFault(cause, f"{path}: {error.strerror or error}", remedy)
