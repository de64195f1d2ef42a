"""Moves the device memory of a process to the host and back, by the checkpoint calls of NVIDIA's driver (570 or later).

::

                lock            checkpoint
    RUNNING ──────────► LOCKED ────────────► CHECKPOINTED     park: the device memory is free
    RUNNING ◄────────── LOCKED ◄──────────── CHECKPOINTED     resume
               unlock            restore

CUDA calls of the process block from `lock` to `unlock`. The copy is ordinary memory of the process itself.

Each call may hang, and may crash the process that makes it. So a run makes them in a process of its own, which
`memory_transfer.py` starts: `python -m ecoshare.devices.nvidia.cuda_checkpoint park PID` prints one line of JSON. This
module needs the standard library only, so that such a process starts in some 20 ms.

Source: NVIDIA, "CUDA Driver API", chapter "CUDA Checkpointing".
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

LIBRARY = "libcuda.so.1"
"""Library of the driver, as the loader finds it."""

KERNEL_MODULE = Path("/proc/driver/nvidia/version")
"""File in which the driver's kernel module says which one it is."""

LOCK_TIMEOUT_S = 10.0
"""Time (s) in which the CUDA calls that a process is in must end."""

_CALLS = tuple(f"cuCheckpointProcess{name}" for name in ("Lock", "Checkpoint", "Restore", "Unlock", "GetState"))
_NOT_INITIALIZED, _OPERATING_SYSTEM, _NOT_READY = 3, 304, 600
_NCCL_THREADS = {"pt_nccl_watchdg", "pt_nccl_heartbt"}
"""Threads of torch's process groups of NCCL, as the kernel cuts their names."""


class CheckpointState(IntEnum):
    """State of a process, by the driver's numbers (`CUprocessState`)."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    CHECKPOINTING = 4
    RESTORING = 5


class TransferFault(Exception):
    """The memory of a process was not moved. The message is one line.

    Attributes:
        runs_on: Whether the process runs as if nothing had been asked. If not, it is lost: it has ended, or it will
            never run again and must be killed.
    """

    def __init__(self, message: str, runs_on: bool) -> None:
        super().__init__(message)
        self.runs_on = runs_on


class _LockArgs(ctypes.Structure):
    """`CUcheckpointLockArgs`. A time-out of 0 ms is none."""

    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


class _CallFailed(Exception):
    """A call of the driver failed.

    Attributes:
        code: `CUresult` of the call.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Driver:
    """The driver's calls for one process."""

    def __init__(self, pid: int) -> None:
        """Open the driver.

        Raises:
            _CallFailed: The driver cannot be opened.
            OSError: There is no driver.
        """
        self._pid, self._library = pid, ctypes.CDLL(LIBRARY)
        self._check("cuInit", self._library.cuInit(ctypes.c_uint(0)))

    def state(self) -> CheckpointState:
        """Present state. The call blocks while the process is moved on behalf of another one."""
        state = ctypes.c_int()
        self._call("GetState", ctypes.byref(state))
        return CheckpointState(state.value)

    def lock(self, timeout_s: float) -> None:
        """Let further CUDA calls of the process block. After the time-out the process runs on."""
        timeout_ms = max(1, round(timeout_s * 1000))
        try:
            self._call("Lock", ctypes.byref(_LockArgs(timeout_ms=timeout_ms)))
        except _CallFailed as failed:
            if failed.code == _NOT_READY:
                raise _CallFailed(f"a CUDA call of the process did not end in {timeout_s:g} s", _NOT_READY) from None
            raise

    def checkpoint(self) -> None:
        """Copy the device memory of the locked process to the host, and free it."""
        self._call("Checkpoint", None)

    def restore(self) -> None:
        """Copy the memory back. The process is locked afterwards."""
        self._call("Restore", None)

    def unlock(self) -> None:
        """Let the CUDA calls of the locked process go on."""
        self._call("Unlock", None)

    def _call(self, name: str, argument: object) -> None:
        function = getattr(self._library, f"cuCheckpointProcess{name}")
        function.argtypes = (ctypes.c_int, ctypes.c_void_p)
        self._check(function.__name__, function(self._pid, argument))

    def _check(self, function: str, code: int) -> None:
        if not code:
            return
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(name))
        message = f"{function} failed: {name.value.decode() if name.value else f'CUresult {code}'}"
        if code == _OPERATING_SYSTEM and os.geteuid():
            message += " (the driver may want root)"
        raise _CallFailed(message, code)


def park(pid: int, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Move the device memory of a process to the host. A process that is parked already stays so.

    Args:
        lock_timeout_s: Time (s) in which the CUDA calls that the process is in must end.

    Raises:
        TransferFault: The process was not parked.
    """
    if reason := why_not() or why_not_process(pid):
        raise TransferFault(reason, runs_on=_lives(pid))
    try:
        driver = _Driver(pid)
        before = driver.state()
    except _CallFailed as failed:
        raise TransferFault(_words(failed), runs_on=_lives(pid)) from failed
    if before is CheckpointState.CHECKPOINTED:
        return
    try:
        if before is not CheckpointState.LOCKED:
            driver.lock(lock_timeout_s)
        driver.checkpoint()
    except _CallFailed as failed:
        raise TransferFault(str(failed), runs_on=_is_put_back(driver)) from failed


def resume(pid: int) -> None:
    """Move the memory of a process back to the device, and let it run. A process that runs, or uses no CUDA, runs on.

    The device must have room: a process that did not find enough can never be restored.

    Raises:
        TransferFault: The process was not resumed, and is lost.
    """
    if reason := why_not() or _why_not_now(pid):
        raise TransferFault(reason, runs_on=False)
    try:
        driver = _Driver(pid)
        before = driver.state()
        if before is CheckpointState.RUNNING:
            return
        if before is not CheckpointState.LOCKED:
            driver.restore()
        driver.unlock()
    except _CallFailed as failed:
        if failed.code == _NOT_INITIALIZED and _lives(pid):
            return
        raise TransferFault(str(failed), runs_on=False) from failed


def why_not() -> str:
    """Reason why this machine cannot park processes, in words; empty if it can."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return f"NVIDIA's driver is not there ({LIBRARY} cannot be loaded)"
    if all(hasattr(library, name) for name in _CALLS):
        return ""
    version = ctypes.c_int()
    known = library.cuDriverGetVersion(ctypes.byref(version)) == 0
    found = f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}" if known else "of an unknown version"
    return f"the NVIDIA driver is {found}, and only drivers from 570 on (CUDA 12.8) can park jobs"


def why_not_process(pid: int) -> str:
    """Reason why a process must not be parked now, in words; empty if it may."""
    if reason := _why_not_now(pid):
        return reason
    try:
        if has_managed_memory(Path(f"/proc/{pid}/maps").read_text()):
            return f"process {pid} uses managed memory, which the driver cannot park"
        names = [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]
    except PermissionError:
        return f"process {pid} belongs to another user"
    except OSError:
        return _why_not_now(pid) or f"process {pid} cannot be examined"
    return f"process {pid} uses NCCL, which may abort when it is parked" if has_nccl_threads(names) else ""


def has_managed_memory(maps: str) -> bool:
    """Whether the text of /proc/PID/maps is that of a process with managed memory.

    Any process with CUDA maps `/dev/nvidia-uvm` once. One with managed memory maps it more often.
    """
    return sum(line.endswith(" /dev/nvidia-uvm") for line in maps.splitlines()) > 1


def has_nccl_threads(names: Iterable[str]) -> bool:
    """Whether one of these names of threads is that of a thread of torch's NCCL process groups."""
    return not _NCCL_THREADS.isdisjoint(names)


def kernel_module_risk() -> str:
    """Risk of the kernel module that is loaded, in words; empty if none is known."""
    try:
        text = KERNEL_MODULE.read_text()
    except OSError:
        return ""
    # Seen with several drivers: the kernel does not get through the clean-up of the killed process.
    return "with the open kernel module, a machine may hang when a resumed job is killed" if is_open(text) else ""


def is_open(version: str) -> bool:
    """Whether the text of /proc/driver/nvidia/version is that of the open kernel module."""
    return "Open Kernel Module" in version


def _is_put_back(driver: _Driver) -> bool:
    """Unlock the process if it is only locked. Return whether it runs."""
    try:
        if driver.state() is CheckpointState.LOCKED:
            driver.unlock()
        return driver.state() is CheckpointState.RUNNING
    except _CallFailed:
        return False


def _words(failed: _CallFailed) -> str:
    return "the process has not used CUDA yet" if failed.code == _NOT_INITIALIZED else str(failed)


def _why_not_now(pid: int) -> str:
    """Reason why no call may be made for a process now: every call for a stopped one hangs."""
    status = _status(pid)
    if not status:
        return f"process {pid} has ended"
    return f"process {pid} is stopped (SIGSTOP)" if status == "T" else ""


def _lives(pid: int) -> bool:
    return bool(_status(pid))


def _status(pid: int) -> str:
    """Letter of the kernel for the status of a process; empty if it has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if status in "ZX" else status


def main(words: list[str]) -> int:
    """Park or resume a process and print the result: `{"fault": "", "runs_on": true}`.

    Args:
        words: `park` or `resume`, a process number, and perhaps the time (s) for the lock.
    """
    action, pid, *timeout = words
    fault, runs_on = "", True
    try:
        if action == "park":
            park(int(pid), *map(float, timeout))
        elif action == "resume":
            resume(int(pid))
        else:
            raise SystemExit(f"{action}: expected park or resume")
    except TransferFault as error:
        fault, runs_on = str(error), error.runs_on
    print(json.dumps({"fault": fault, "runs_on": runs_on}))
    return int(bool(fault))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
