"""Lock of a lane's table, among processes and threads. The kernel drops it when its owner dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable

from ecoshare.lane import processes
from ecoshare.lane.own_file import OwnFile

_FLOCK = struct.Struct("hhqqi4x")
"""Layout of `struct flock` on 64-bit Linux: type, whence, start, length and process."""

_HUNG_S = 1.0
"""Time (s) of waiting after which the owner is checked. The lock is held for microseconds: a process that is stopped
with it for so long stops the whole lane."""

_TRY_AGAIN_S = 0.0005


class TableLock:
    """POSIX record lock on a table, and a lock among the threads of this process. A context manager.

    The record lock belongs to the process: a child forked meanwhile does not keep it, and the kernel drops it when the
    process dies.

    Attributes:
        on_hung: Called with the process id of an owner that is stopped while this process waits; None for a plain wait.
    """

    def __init__(self, file: OwnFile) -> None:
        """Lock of the table in `file`."""
        self._file = file
        self._threads = threading.RLock()
        self.on_hung: Callable[[int], None] | None = None

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            if self.on_hung is None:
                fcntl.lockf(self._file.number(), fcntl.LOCK_EX)
            else:
                self._enter_in_time(self.on_hung)
        except BaseException:  # from a signal handler of the script, for example
            self._threads.release()
            raise

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # closed meanwhile, which has dropped the lock
            fcntl.lockf(self._file.number(), fcntl.LOCK_UN)
        self._threads.release()

    def _enter_in_time(self, on_hung: Callable[[int], None]) -> None:
        tell_s = time.monotonic() + _HUNG_S
        while True:
            try:
                fcntl.lockf(self._file.number(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(_TRY_AGAIN_S)
            if time.monotonic() > tell_s:
                tell_s = time.monotonic() + _HUNG_S
                if owner := self.stopped_owner():
                    on_hung(owner)

    def stopped_owner(self) -> int | None:
        """Process id of the lock's owner, if it was stopped (SIGSTOP, a debugger); else None."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(self._file.number(), fcntl.F_GETLK, asked))
        return pid if kind != fcntl.F_UNLCK and pid > 0 and processes.is_stopped(pid) else None
