"""Folders: those of runs, those in memory, which cause no writes to a disk, and those that a job can change."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

RUNS: Final = Path("ecoshare-runs")
"""Default parent of run folders, in the working folder. No other tool uses this name."""

SHARED_MEMORY = Path("/dev/shm")
"""File system of Linux in memory. Every user may write to it; some containers lack it, or mount it read-only."""


def memory_folder() -> Path:
    """`SHARED_MEMORY` if this process may write there, else the folder for temporary files."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


@contextlib.contextmanager
def folder_below(root: Path, names: Sequence[str]) -> Iterator[Path]:
    """Context manager: a folder below another one, as a path that no link can lead elsewhere.

    Missing folders are made, for this user only. A link in the place of one, which a job may have made, is removed.

    Args:
        root: A folder that only this user can change.
        names: Names of the folders from there on.

    Raises:
        OSError: No room, no permission, or another file has the name of a folder.
    """
    folder = os.open(root, _FOLDER)
    try:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=folder)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
            above, folder = folder, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(above)
        yield Path(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
