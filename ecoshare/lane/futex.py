"""Sleeps on a word of shared memory until another process changes it (futex(2), Linux)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

_NUMBERS = {"x86_64": 202, "aarch64": 98}
"""Number of the system call for each machine type; glibc has no wrapper for the call."""

_WAIT, _WAKE = 0, 1

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def supported() -> bool:
    """Whether this machine has the system call."""
    return platform.system() == "Linux" and platform.machine() in _NUMBERS


def wait(address: int, expected: int, timeout_s: float) -> None:
    """Sleep while the 32-bit word at `address` is `expected`: until `wake`, a signal, or `timeout_s`.

    Return at once if the word has already changed. The caller must check its own condition again: a return means
    nothing by itself.

    Raises:
        OSError: If the address is not mapped.
    """
    seconds = int(timeout_s)
    limit = _Timespec(seconds, int((timeout_s - seconds) * 1e9))
    failed = _syscall(
        ctypes.c_long(_NUMBERS[platform.machine()]),
        ctypes.c_void_p(address),
        ctypes.c_int(_WAIT),
        ctypes.c_uint32(expected),
        ctypes.byref(limit),
        None,
        ctypes.c_uint32(0),
    )
    if failed:
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
            raise OSError(code, os.strerror(code))


def wake(address: int) -> None:
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
