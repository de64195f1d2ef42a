"""Places for folders: the folders of runs, and folders in memory, which cause no writes to a disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

RUNS: Final = Path("ecoshare-runs")
"""Default parent of run folders, in the working folder. No other tool uses this name."""

SHARED_MEMORY = Path("/dev/shm")
"""File system of Linux in memory. Every user may write to it; some containers lack it, or mount it read-only."""


def memory_folder() -> Path:
    """`SHARED_MEMORY` if this process may write there, else the folder for temporary files."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
