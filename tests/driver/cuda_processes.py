"""Processes that use CUDA on a fake driver, with the state that its checkpoint calls give them.

`cuda.h` has the layout of the file, and `cuda.c` the calls.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ecoshare.devices.nvidia import cuda_checkpoint
from tests.driver.device_memory import PROCESSES, started_ticks
from tests.driver.state import GPUS, Load

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
STATES = ("RUNNING", "LOCKED", "CHECKPOINTED", "FAILED")
_LOOK_S = 0.002

_i32, _i64, _u64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64


class Process(ctypes.Structure):
    _fields_ = (
        ("pid", _i32),
        ("state", _i32),
        ("started_ticks", _u64),
        ("calls", _i32),
        ("works", _i32),
        ("locker", _i32),
        ("mapped", _i32),
        ("parked_bytes", _i64 * GPUS),
        ("loads", Load * GPUS),
    )


class CudaLayout(ctypes.Structure):
    _fields_ = (("processes", Process * PROCESSES),)


STRUCTURES = {"process": Process, "cuda": CudaLayout}
"""Structures by their names in `cuda.h`."""


class CudaProcesses:
    """File with all processes of a driver."""

    def __init__(self, state_path: str | os.PathLike[str]) -> None:
        """Map the file beside NVML's state; it is made if it does not exist."""
        self._path = Path(f"{state_path}.cuda")
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_size:
                file.write(bytes(CudaLayout()))
                file.flush()
        with self._path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(CudaLayout))
        self._layout = CudaLayout.from_buffer(self._map)

    @contextmanager
    def locked(self) -> Iterator[ctypes.Array[Process]]:
        """All places for processes, locked against changes by other processes and threads."""
        with self._path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield self._layout.processes
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    def of(self, pid: int) -> Process | None:
        """Copy of the entry of a process; None if it lives no more, or has not used CUDA."""
        with self.locked() as places:
            found = next(
                (each for each in places if each.pid == pid and started_ticks(pid) == each.started_ticks), None
            )
            return None if found is None else Process.from_buffer_copy(found)


_with_mappings: list[OwnCudaProcess] = []
"""Entries at which a thread of the driver looks until its process ends."""


class OwnCudaProcess:
    """This process, as a user of CUDA."""

    def __init__(self, state_path: str | os.PathLike[str]) -> None:
        """Enter this process into the file, running."""
        self._processes, pid = CudaProcesses(state_path), os.getpid()
        with self._processes.locked() as places:
            free = (each for each in places if each.pid in (0, pid) or not started_ticks(each.pid))
            self._own = next(free)
            ctypes.memset(ctypes.byref(self._own), 0, ctypes.sizeof(Process))
            self._own.pid, self._own.started_ticks = pid, started_ticks(pid)
            self._map_device(Path(f"{state_path}.dev"))

    def _map_device(self, folder: Path) -> None:
        """Map memory of the device into this process, if the driver is one of NVIDIA that can park it."""
        try:
            library = ctypes.CDLL(cuda_checkpoint.LIBRARY)
        except OSError:
            return
        if not hasattr(library, "fakeMapDevice"):
            return
        (folder / "dev").mkdir(parents=True, exist_ok=True)
        path = os.fsencode(folder / "dev" / "nvidia0")
        offset = Process.mapped.offset
        assert library.fakeMapDevice(path, ctypes.byref(self._own, offset)) == 0
        _with_mappings.append(self)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Context manager: a CUDA call. It blocks at its begin until this process is unlocked."""
        while not self._entered():
            time.sleep(_LOOK_S)
        try:
            yield
        finally:
            with self._processes.locked():
                self._own.calls -= 1

    @contextmanager
    def synchronize(self) -> Iterator[None]:
        """Context manager: a call that waits for the whole device. It kills this process if that is checkpointed."""
        if self._own.state == CHECKPOINTED:
            os.kill(os.getpid(), signal.SIGSEGV)
        with self.call():
            yield

    def works(self, does: bool) -> None:
        """Say whether work of this process runs on the device; a checkpoint waits for its end."""
        self._own.works = does

    def _entered(self) -> bool:
        with self._processes.locked():
            is_locked = self._own.locker and started_ticks(self._own.locker)
            if self._own.state != RUNNING or is_locked:
                return False
            self._own.calls += 1
            return True
