"""Files of one attempt, in the folder of its job."""

from __future__ import annotations

import os
from pathlib import Path

_NONE = ".none"


def of_attempt(folder: Path, name: str, attempt: int) -> Path:
    """Path of an attempt's file. The first attempt has the plain name, later ones a number before the suffix."""
    if attempt == 1:
        return folder / name
    stem, _, suffix = name.rpartition(".")
    return folder / f"{stem}.attempt-{attempt}.{suffix}"


def make_folder(folder: Path) -> None:
    """Make a folder, and its missing parents, that only their owner can access.

    Raises:
        OSError: If there is no room, no permission, or another file has the name.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_to_append(path: Path, read: bool = False) -> int:
    """Open a file to append to, and to read from if `read`. Make the file if it is missing. Return its descriptor.

    Raises:
        OSError: If there is no room, no permission, or the path is a symbolic link: the link's target is not ours.
    """
    access = os.O_RDWR if read else os.O_WRONLY
    return os.open(path, access | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def outputs(folder: Path) -> tuple[Path, Path]:
    """Paths of a job's output and of its errors, in the job's folder. They are those of the last attempt."""
    return folder / "stdout.log", folder / "stderr.log"


def are_outputs_of(folder: Path, attempt: int) -> bool:
    """Whether the output in a job's folder is that of an attempt, so that the attempt has begun: see `keep_outputs`."""
    kept = _kept(outputs(folder)[0], attempt - 1)
    return attempt == 1 or kept.exists() or kept.with_suffix(_NONE).exists()


def open_outputs(folder: Path, attempt: int) -> tuple[int, int]:
    """Open the logs of a job and return their descriptors: output, errors. Logs of an earlier attempt get its number.

    Raises:
        OSError: If there is no room or no permission.
    """
    make_folder(folder)
    keep_outputs(folder, attempt)
    output, errors = (open_to_append(path) for path in outputs(folder))
    return output, errors


def keep_outputs(folder: Path, attempt: int) -> None:
    """Give the logs of the attempt before `attempt` its number. A mark stands for the output if there is none here.

    Raises:
        OSError: If there is no room or no permission.
    """
    for path in outputs(folder) if attempt > 1 else ():
        if path.exists():
            path.replace(_kept(path, attempt - 1))
        elif path.name.startswith("stdout") and not _kept(path, attempt - 1).exists():
            make_folder(folder)  # nothing may have come back from a node that was lost early
            _kept(path, attempt - 1).with_suffix(_NONE).touch(0o600)


def _kept(path: Path, attempt: int) -> Path:
    return path.with_name(f"{path.stem}.attempt-{attempt}.log")
