"""Memory that processes share: files held open and mapped, a futex to sleep on, and a lock that dies with its owner.

A file is mapped without a descriptor that is kept. `mmap.mmap` keeps one, at the lowest free number. In a user's
process, the script could write to that descriptor. The script could also close it and open a file of its own at the
same number, which `mmap` would close in turn.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.lane import processes

_FIRST = 768
"""Lowest descriptor that ecoshare uses. Scripts that close inherited descriptors often go up to 256, and a process has
a table of 1,024 descriptors anyway."""


class OwnFile:
    """An open file, in a process in which the script may close any descriptor and open another file in its place.

    So a number alone proves nothing: the file behind it is checked before each use. If it is another file, or none, the
    file is opened again.
    """

    def __init__(self, path: str | Path, flags: int) -> None:
        """Open a file.

        Args:
            flags: Flags for open(2). With `O_CREAT` a file that is gone is made again. Without it, another file at the
                path is refused.

        Raises:
            OSError: If the file cannot be opened.
        """
        self._path = Path(path).absolute()  # the script may change its working folder
        self._flags = flags | os.O_CLOEXEC | os.O_NOFOLLOW
        self._number = self._open()
        self._file = _identity(self._number)

    def number(self) -> int:
        """Descriptor of the file, checked now.

        Raises:
            OSError: If the script has closed the file and it cannot be opened again.
        """
        if not self._is_open():
            number = self._open()
            if _identity(number) != self._file and not self._flags & os.O_CREAT:
                os.close(number)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._path))
            self._number, self._file = number, _identity(number)
        return self._number

    def close(self) -> None:
        """Close the file, unless it is closed already."""
        if self._is_open():
            os.close(self._number)

    def _is_open(self) -> bool:
        try:
            return _identity(self._number) == self._file
        except OSError as error:
            if error.errno != errno.EBADF:  # a signal handler of the script has raised it, such as a TimeoutError
                raise
            return False

    def _open(self) -> int:
        number = os.open(self._path, self._flags, 0o600)
        with contextlib.suppress(OSError):  # the limit of open files may be lower
            high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FIRST)
            os.close(number)
            return high
        return number


def _identity(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def create_file(path: Path, layout: ctypes.Structure) -> None:
    """Make the file at `path`, which must not exist, with this content.

    Raises:
        OSError: If the file exists, or there is no room.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.write(handle, bytes(layout)) < ctypes.sizeof(layout):  # a look beyond the end of the file would kill
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


def mapped(descriptor: int, size: int) -> ctypes.Array[ctypes.c_char]:
    """Map the first `size` bytes of a file, shared with all processes that map it.

    The mapping lasts as long as the result or a part of it is used.

    Raises:
        OSError: If the file cannot be mapped.
    """
    address = _LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    shared = (ctypes.c_char * size).from_address(address)
    # The mapping stays at the end of the process: another thread may look at it then.
    weakref.finalize(shared, _LIBC.munmap, address, size).atexit = False
    return shared


_NUMBERS = {"x86_64": 202, "aarch64": 98}
"""Number of the system call for each machine type; glibc has no wrapper for the call."""

_WAIT, _WAKE = 0, 1

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall_alone = ctypes.PyDLL(None, use_errno=True).syscall  # the calling thread keeps the interpreter
_syscall.restype = _syscall_alone.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def has_futex() -> bool:
    """Whether this machine has the system call."""
    return platform.system() == "Linux" and platform.machine() in _NUMBERS


def futex_wait(address: int, expected: int, timeout_s: float) -> None:
    """Sleep while the 32-bit word at `address` is `expected`: until `futex_wake`, a signal, or `timeout_s`.

    Return at once if the word has already changed. The caller must check its own condition again: a return means
    nothing by itself.

    Raises:
        OSError: If the address is not mapped.
    """
    failed = _syscall(*_arguments(address, expected, timeout_s))
    if failed:
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
            raise OSError(code, os.strerror(code))


def waiting_alone(address: int, expected: int, timeout_s: float) -> Callable[[], object]:
    """Call that sleeps as `futex_wait` does, for which its thread keeps the interpreter: no other thread runs Python.

    The value that it returns means nothing.
    """
    return partial(_syscall_alone, *_arguments(address, expected, timeout_s))


def _arguments(address: int, expected: int, timeout_s: float) -> tuple[Any, ...]:
    seconds = int(timeout_s)
    return (
        ctypes.c_long(_NUMBERS[platform.machine()]),
        ctypes.c_void_p(address),
        ctypes.c_int(_WAIT),
        ctypes.c_uint32(expected),
        ctypes.byref(_Timespec(seconds, int((timeout_s - seconds) * 1e9))),
        None,
        ctypes.c_uint32(0),
    )


def futex_wake(address: int) -> None:
    """Wake one process that sleeps on the word at `address`."""
    _syscall(
        ctypes.c_long(_NUMBERS[platform.machine()]),
        ctypes.c_void_p(address),
        ctypes.c_int(_WAKE),
        ctypes.c_int(1),
        None,
        None,
        ctypes.c_uint32(0),
    )


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
        self._file = file
        self._threads = threading.RLock()
        self._may_be_locked = False
        self.on_hung: Callable[[int], None] | None = None

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            self._may_be_locked = True
            if self.on_hung is None:
                fcntl.lockf(self._file.number(), fcntl.LOCK_EX)
            else:
                self._enter_in_time(self.on_hung)
        except BaseException:  # from a signal handler of the script, for example, perhaps with the lock
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def free(self) -> None:
        """Give the lock up if this thread has it, outside of any critical section.

        A signal handler of the script may raise an exception between the end of a section and the release, or inside of
        the release: then the process has the record lock, and no thread of it has the other one.
        """
        while self._threads._is_owned():  # type: ignore[attr-defined]
            self._leave()
        if self._may_be_locked:
            self._threads.acquire()  # so no other thread is in a section
            self._leave()

    def _leave(self) -> None:
        try:
            fcntl.lockf(self._file.number(), fcntl.LOCK_UN)
            self._may_be_locked = False
        except OSError as error:  # closed meanwhile, which has dropped the lock
            if error.errno is None:  # a signal handler of the script has raised it
                raise
        finally:
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
