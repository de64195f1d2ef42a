"""The fake driver in processes that were forked from a process without it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pynvml

from ecoshare.devices.nvidia import cuda_checkpoint
from tests.driver import build


def find_library() -> None:
    """Use the libraries that `LD_LIBRARY_PATH` names now; the system's loader read it at the start only."""
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    if nvml := _first(build.NVML, folders):
        pynvml.nvmlLib = ctypes.CDLL(str(nvml))
    if cuda := _first(build.CUDA, folders):
        cuda_checkpoint.LIBRARY = str(cuda)


def _first(name: str, folders: list[Path]) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).exists()), None)
