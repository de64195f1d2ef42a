"""Files that each attempt of a job has of its own, in its job's folder."""

from __future__ import annotations

import os
from pathlib import Path


def of_attempt(folder: Path, name: str, attempt: int) -> Path:
    """The file of an attempt: the first one's by its plain name, later ones' with their number before the suffix."""
    if attempt == 1:
        return folder / name
    stem, _, suffix = name.rpartition(".")
    return folder / f"{stem}.attempt-{attempt}.{suffix}"


def make_folder(folder: Path) -> None:
    """Make a folder that is its owner's alone, and those that it is in, where they are not there.

    Raises:
        OSError: No room, no permission, or something else has its name.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_to_append(path: Path, read: bool = False) -> int:
    """A file descriptor to append to, and to read from if asked; the file is made where there is none.

    Raises:
        OSError: No room, no permission, or a symbolic link has its name: what that leads to is not ours.
    """
    access = os.O_RDWR if read else os.O_WRONLY
    return os.open(path, access | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def open_outputs(folder: Path, attempt: int) -> tuple[int, int]:
    """File descriptors that a job prints to, its output and its errors; those of an earlier attempt get its number.

    Raises:
        OSError: No room, or no permission.
    """
    make_folder(folder)
    handles = []
    for name in ("stdout", "stderr"):
        path = folder / f"{name}.log"
        if attempt > 1 and path.exists():
            path.replace(folder / f"{name}.attempt-{attempt - 1}.log")
        handles.append(open_to_append(path))
    return handles[0], handles[1]
