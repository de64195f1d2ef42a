"""The fake driver in processes that were forked from a process without it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pynvml


def find_library() -> None:
    """Let `pynvml` load the library that `LD_LIBRARY_PATH` names now; the system's loader read it at the start only."""
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if (library := Path(folder, "libnvidia-ml.so.1")).exists():
            pynvml.nvmlLib = ctypes.CDLL(str(library))
            return
