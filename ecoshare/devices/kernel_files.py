"""Folder of the kernel's files about the processors: cpufreq and RAPL."""

from __future__ import annotations

import os
from pathlib import Path


def kernel_files() -> Path:
    """`/sys`, or the folder that `ECOSHARE_SYSFS` names: a container may show the machine's own at another place."""
    return Path(os.environ.get("ECOSHARE_SYSFS") or "/sys")
