"""One memory for all processes on a pretended device. Standard library only.

The memory of a process that has died is free again at the next request, as the driver of a real device frees it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROCESSES = 128


class Owner(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_int64), ("started_ticks", ctypes.c_int64), ("bytes", ctypes.c_int64))


class Ledger(ctypes.Structure):
    _fields_ = (
        ("total_bytes", ctypes.c_int64),
        ("most_bytes", ctypes.c_int64),
        ("refused", ctypes.c_int64),
        ("owners", Owner * PROCESSES),
    )


STRUCTURES = {"owner": Owner, "ledger": Ledger}
"""Structures by their names in `cuda.h`."""


class DeviceMemory:
    """Memory of one device, shared through a file."""

    def __init__(self, path: str | os.PathLike[str], total_bytes: int = 0) -> None:
        """Map the file at `path`, which is made with this total if it does not exist."""
        self._path = Path(path)
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_size:
                file.write(bytes(Ledger(total_bytes=total_bytes)))
                file.flush()
        with self._path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(Ledger))
        self._layout = Ledger.from_buffer(self._map)

    @property
    def most_bytes(self) -> int:
        """Most memory that was taken at once."""
        return int(self._layout.most_bytes)

    @property
    def refused(self) -> int:
        """Number of requests for which the device had not enough memory."""
        return int(self._layout.refused)

    def taken_bytes(self) -> dict[int, int]:
        """Memory of each living process, by its number."""
        with self._locked():
            return {owner.pid: owner.bytes for owner in self._living()}

    def info(self) -> tuple[int, int]:
        """Free and total memory (bytes), as `torch.cuda.mem_get_info` gives them."""
        total_bytes = int(self._layout.total_bytes)
        return total_bytes - sum(self.taken_bytes().values()), total_bytes

    def resize(self, size_bytes: int) -> bool:
        """Let this process have so much memory in all. Returns False, and changes nothing, if there is not enough."""
        pid = os.getpid()
        with self._locked():
            others = sum(owner.bytes for owner in self._living() if owner.pid != pid)
            if others + size_bytes > self._layout.total_bytes:
                self._layout.refused += 1
                return False
            own = next((owner for owner in self._layout.owners if owner.pid == pid), None)
            own = own or next(owner for owner in self._layout.owners if not owner.pid)
            own.pid, own.started_ticks, own.bytes = pid, started_ticks(pid), size_bytes
            self._layout.most_bytes = max(self._layout.most_bytes, others + size_bytes)
            return True

    def _living(self) -> list[Owner]:
        """Processes that live; the entries of the others are cleared. The caller holds the lock."""
        for owner in self._layout.owners:
            if owner.pid and started_ticks(owner.pid) != owner.started_ticks:
                owner.pid = owner.started_ticks = owner.bytes = 0
        return [owner for owner in self._layout.owners if owner.pid]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)


def started_ticks(pid: int) -> int:
    """Start of a process in clock ticks since the start of the machine; 0 if it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    state, *rest = text.rpartition(")")[2].split()
    return 0 if state in "ZX" else int(rest[18])
