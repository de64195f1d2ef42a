"""Clean-up after a run: its processes, even those of another parent, and its folder in shared memory.

The supervisor starts with the token of the run in its environment. The kernel shows this environment for its forks,
too, and executed programs inherit it. So the token marks jobs, `DataLoader` workers and daemons alike, even those that
have left their session or lost their parent. Only a program that empties its environment on purpose escapes.

`psutil` is not used: it takes twice as long. It also cuts off an environment at the first empty entry, and
`lane.processes.mark` leaves such entries.

The folder holds lane tables and the sockets of a private MPS daemon::

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
import math
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ecoshare.base.disk import SHARED_MEMORY, memory_folder
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import processes

TOKEN = "ECOSHARE_RUN"
"""Name of the environment variable that marks the processes of a run."""


SPARED = "ECOSHARE_SPARED"
"""Name of the variable that also marks the processes that outlive a supervisor: the MPS daemon of the run."""


def members(token: str, spare: bool = False) -> list[int]:
    """IDs of the processes of a run, ascending, without this process.

    Args:
        token: Token that marks the processes of the run.
        spare: Whether to leave out the processes that outlive a supervisor.
    """
    mark = f"{TOKEN}={token}".encode()
    spared = f"{SPARED}=1".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue  # gone, or of another user
        names = environment.split(b"\0")
        if mark in names and not (spare and spared in names):
            found.append(int(entry.name))
    return sorted(found)


def end_all(token: str, limit_s: float = 5.0, spare: bool = False) -> list[int]:
    """SIGKILL the processes of a run until two looks in a row find none.

    A process may fork between a look and the kill, hence the second look. Processes that remove the shared memory of
    other processes have a second to do so, and end by themselves.

    Args:
        token: Token that marks the processes of the run.
        limit_s: Longest time (s) to try.
        spare: Whether to leave the processes that outlive a supervisor alone.

    Returns:
        IDs of the processes that are left after `limit_s`, normally none.
    """
    until_s = time.monotonic() + limit_s
    clean_looks, cleaned_by_s = 0, math.inf
    while True:
        found = members(token, spare)
        clean_looks = 0 if found else clean_looks + 1
        now_s = time.monotonic()
        if clean_looks == 2 or now_s > until_s:
            return found
        to_end = [pid for pid in found if now_s > cleaned_by_s or not processes.cleans_up(pid)]
        if not to_end:
            cleaned_by_s = min(cleaned_by_s, now_s + processes.CLEANERS_WITHIN_S)
        for pid in to_end:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


_PREFIX = "ecoshare-run-"
_LOCK = "lock"
_LOCKED = b"locked\n"
"""Content of the lock file once it is locked. Before that, the lock is free, although the run is not dead."""

_LOCKED_WITHIN_S = 60.0
"""Longest time (s) from the creation of the folder until its lock is taken."""


def shared_path(token: str) -> Path:
    """Path of the folder of the run with this token."""
    return memory_folder() / f"{_PREFIX}{token}"


@contextlib.contextmanager
def shared_folder(token: str) -> Iterator[Path]:
    """Context manager: make the folder of the run with this token, and remove it at the end.

    Raises:
        UnfitEnvironment: There is no room, or no permission.
    """
    path = shared_path(token)
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
                    end_all(path.name.removeprefix(_PREFIX))
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
