"""Folder of a run in shared memory, for lane tables and the sockets of a private MPS daemon.

::

    /dev/shm/ecoshare-run-<token>/    mode 0700, exists during the run
        lock                          locked by the controller: if this lock is free, the run is dead
        lane0, lane1, ...
        mps/

The run removes the folder at its end. If the controller has died, the guard removes it. If both were killed, the next
run on this machine removes it, and ends the processes that they have left.
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
"""Content of the lock file once it is locked. Before that, the lock is free, although the run is not dead."""

_LOCKED_WITHIN_S = 60.0
"""Longest time (s) from the creation of the folder until its lock is taken."""


def path_of(token: str) -> Path:
    """Path of the folder of the run with this token."""
    return memory_folder() / f"{_PREFIX}{token}"


@contextlib.contextmanager
def made(token: str) -> Iterator[Path]:
    """Context manager: make the folder of the run with this token, and remove it at the end.

    Raises:
        UnfitEnvironment: There is no room, or no permission.
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
    """Remove the folders of this user's dead runs, and end the processes that those runs have left."""
    for base in {SHARED_MEMORY, Path(tempfile.gettempdir())}:
        for path in base.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):  # gone by now, or of another user
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
