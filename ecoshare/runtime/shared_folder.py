"""The folder of a run whose files are memory: lane tables, and sockets of a private MPS daemon.

::

    /dev/shm/ecoshare-run-<token>/    mode 0700, there while the run goes on
        lock                          locked by the controller: a folder whose lock is free is of a run that is dead
        lane0, lane1, ...
        mps/

The run removes it at its end, and its guard where the controller has died. Where both were killed, the next run on this
machine does, and ends what they have left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ecoshare.common.folders import SHARED_MEMORY, memory_folder
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime import reaping

_PREFIX = "ecoshare-run-"
_LOCK = "lock"
_LOCKED = b"locked\n"
"""What the lock holds as soon as it is locked. Before that it is free, and yet the run is not dead."""

_LOCKED_WITHIN_S = 60.0
"""Of the making of the folder."""


def path_of(token: str) -> Path:
    """Where the folder of the run with this token is."""
    return memory_folder() / f"{_PREFIX}{token}"


@contextlib.contextmanager
def made(token: str) -> Iterator[Path]:
    """The folder of the run with this token; made here, and removed in the end.

    Raises:
        UnfitEnvironment: No room, or no permission.
    """
    path = path_of(token)
    try:
        path.mkdir(mode=0o700)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise UnfitEnvironment(f"cannot make {path}: {error.strerror or error}", "make room there") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, _LOCKED)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def clear_dead() -> None:
    """Remove the folders of this user's runs that are dead, and end the processes that these have left."""
    for base in {SHARED_MEMORY, Path(tempfile.gettempdir())}:
        for path in base.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):  # gone by now, or somebody else's
                if _is_own(path) and _is_dead(path):
                    reaping.end_all(path.name.removeprefix(_PREFIX))
                    shutil.rmtree(path, ignore_errors=True)


def _is_own(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _is_dead(path: Path) -> bool:
    is_old = time.time() - path.stat().st_mtime > _LOCKED_WITHIN_S
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return is_old
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return is_old or os.pread(lock, len(_LOCKED), 0) == _LOCKED
    finally:
        os.close(lock)
