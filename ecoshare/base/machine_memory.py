"""Main memory of this machine, within the limit of the control group."""

from __future__ import annotations

from pathlib import Path


def available_bytes() -> int:
    """Memory (bytes) that is available without swapping."""
    available = _meminfo_bytes("MemAvailable")
    try:
        return min(available, _limit_bytes() - int((_group() / "memory.current").read_text()))
    except (OSError, ValueError):
        return available


def total_bytes() -> int:
    """All memory (bytes) that processes may use."""
    total = _meminfo_bytes("MemTotal")
    try:
        return min(total, _limit_bytes())
    except (OSError, ValueError):
        return total


def free_swap_bytes() -> int:
    """Free swap (bytes)."""
    return _meminfo_bytes("SwapFree")


def _meminfo_bytes(name: str) -> int:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields[name].split()[0]) * 1024


def _limit_bytes() -> int:
    """Limit of the control group of this process.

    Raises:
        OSError: There is no control group.
        ValueError: It has no limit.
    """
    return int((_group() / "memory.max").read_text())


def _group() -> Path:
    group = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2]
    return Path("/sys/fs/cgroup") / group.lstrip("/")
