"""Where folders are made: those of runs, and those whose files are memory, so that they cause no writes to a disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

RUNS: Final = Path("ecoshare-runs")
"""Run folders are made there unless another place is named: in the working folder, under a name of no other tool."""

SHARED_MEMORY = Path("/dev/shm")
"""Linux's file system in memory, which every user may write to. Some containers lack it, or mount it read-only."""


def memory_folder() -> Path:
    """`SHARED_MEMORY` if this process may write there, else the folder for temporary files."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
