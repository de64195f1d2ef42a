"""The lock of a lane's table, among processes and threads; the kernel drops it when the process dies that has it."""

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
"""struct flock of Linux with 64 bits: type, whence, start, length and process."""

_HUNG_S = 1.0
"""The lock is held for microseconds: a process that was stopped with it for so long stops the whole lane."""

_TRY_AGAIN_S = 0.0005


class TableLock:
    """A POSIX record lock on a table, and one among the threads of this process.

    The former belongs to the process, so a child forked while it is held does not keep it, and the kernel drops it when
    the process dies.
    """

    def __init__(self, file: OwnFile) -> None:
        """The lock of the table in this file."""
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
        except BaseException:  # a signal handler of the script's, say
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
        """The process that has the lock, where it was stopped (SIGSTOP, a debugger); None else."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(self._file.number(), fcntl.F_GETLK, asked))
        return pid if kind != fcntl.F_UNLCK and pid > 0 and processes.is_stopped(pid) else None
