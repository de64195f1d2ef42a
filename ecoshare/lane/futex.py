"""Sleeps on a word of shared memory until another process changes it (futex(2), Linux)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from functools import partial
from typing import Any

_NUMBERS = {"x86_64": 202, "aarch64": 98}
"""Number of the system call for each machine type; glibc has no wrapper for the call."""

_WAIT, _WAKE = 0, 1

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall_alone = ctypes.PyDLL(None, use_errno=True).syscall  # the calling thread keeps the interpreter
_syscall.restype = _syscall_alone.restype = ctypes.c_long


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
    failed = _syscall(*_arguments(address, expected, timeout_s))
    if failed:
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
            raise OSError(code, os.strerror(code))


def waiting_alone(address: int, expected: int, timeout_s: float) -> Callable[[], object]:
    """Call that sleeps as `wait` does, for which its thread keeps the interpreter: no other thread runs Python.

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
