"""The file that the fake driver and all its processes share, as `state.h` lays it out. Standard library only."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GPUS, LOADS, MEMORY_CLOCKS, GRAPHICS_CLOCKS = 8, 32, 4, 160
EVENTS, FAULTS, CALLS = 1024, 16, 256
PROFILES, MASK_WORDS = 8, 8
MAGIC = 0x4C4D564E454B4146
VERSION = 5

EVENT_LOAD, EVENT_END, EVENT_CEILING, EVENT_TEMPERATURE = 1, 2, 3, 4
FAULT_RETURN, FAULT_IGNORE, FAULT_STALE, FAULT_RESET, FAULT_HANG = 1, 2, 3, 4, 5

_u32, _i32, _u64, _i64 = ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_int64
_f64, _char = ctypes.c_double, ctypes.c_char


class Load(ctypes.Structure):
    _fields_ = (
        ("compute", _f64),
        ("memory", _f64),
        ("used_bytes", _u64),
        ("started_ticks", _u64),
        ("pid", _i32),
        ("unused", _i32),
    )


class Coefficients(ctypes.Structure):
    _fields_ = (
        ("floor_w", _f64),
        ("leak_w", _f64),
        ("context_w", _f64),
        ("compute_w", _f64),
        ("memory_w", _f64),
        ("memory_exponent", _f64),
        ("lowest_volts", _f64),
        ("knee", _f64),
    )


class Profile(ctypes.Structure):
    _fields_ = (
        ("number", _u32),
        ("priority", _u32),
        ("limit_mw", _u32),
        ("ceiling_mhz", _u32),
        ("conflicts", _u32 * MASK_WORDS),
    )


class Gpu(ctypes.Structure):
    _fields_ = (
        ("name", _char * 64),
        ("uuid", _char * 64),
        ("memory_bytes", _u64),
        ("reserved_bytes", _u64),
        ("architecture", _u32),
        ("capability", _u32),
        ("compute_mode", _u32),
        ("mig_mode", _u32),
        ("persistence", _u32),
        ("temperature_c", _u32),
        ("limit_mw", _u32),
        ("default_limit_mw", _u32),
        ("lowest_limit_mw", _u32),
        ("highest_limit_mw", _u32),
        ("memory_clocks", _u32),
        ("memory_clock_mhz", _u32 * MEMORY_CLOCKS),
        ("graphics_clocks", _u32 * MEMORY_CLOCKS),
        ("graphics_clock_mhz", _u32 * GRAPHICS_CLOCKS * MEMORY_CLOCKS),
        ("gpu_lock_mhz", _u32 * 2),
        ("memory_lock_mhz", _u32 * 2),
        ("application_mhz", _u32 * 2),
        ("default_application_mhz", _u32 * 2),
        ("ceiling_mhz", _u32),
        ("ceiling_reasons", _u32),
        ("loaded_memory_mhz", _u32),
        ("sampled_ms", _u32),
        ("shutdown_c", _u32),
        ("profiles", _u32),
        ("remapping", _u32),
        ("ecc_errors", _u32),
        ("has_ecc", _u32),
        ("peer_links", _u32 * GPUS),
        ("switch_links", _u32),
        ("idle_links", _u32),
        ("common_level", _u32 * GPUS),
        ("profile", Profile * PROFILES),
        ("requested_profiles", _u32 * MASK_WORDS),
        ("coefficients", Coefficients),
        ("loads", Load * LOADS),
        ("until_ns", _i64),
        ("energy_mj", _f64),
        ("published_mj", _f64),
        ("returned_mj", _f64),
        ("average_w", _f64),
    )


class Event(ctypes.Structure):
    _fields_ = (
        ("at_ns", _i64),
        ("gpu", _u32),
        ("kind", _u32),
        ("value", _u32),
        ("unused", _u32),
        ("load", Load),
    )


class Fault(ctypes.Structure):
    _fields_ = (
        ("functions", _char * 256),
        ("kind", _u32),
        ("code", _u32),
        ("gpu", _i32),
        ("first", _u32),
        ("times", _u32),
        ("calls", _u32),
        ("struck", _u32),
        ("unused", _u32),
    )


class Call(ctypes.Structure):
    _fields_ = (
        ("function", _char * 64),
        ("at_ns", _i64),
        ("pid", _i32),
        ("gpu", _u32),
        ("values", _u32 * 2),
        ("result", _u32),
        ("unused", _u32),
    )


class Page(ctypes.Structure):
    _fields_ = (
        ("gpus", _u32),
        ("is_virtual", _u32),
        ("virtual_ns", _i64),
        ("period_ns", _i64),
        ("phase_ns", _i64),
        ("driver_version", _char * 32),
        ("nvml_version", _char * 32),
        ("tells_cuda", _u64),
        ("events_begun", _u64),
        ("events_done", _u64),
        ("calls_made", _u64),
        ("gpu", Gpu * GPUS),
        ("events", Event * EVENTS),
        ("faults", Fault * FAULTS),
        ("calls", Call * CALLS),
    )

    def now_ns(self) -> int:
        """The time by the state's clock."""
        return self.virtual_ns if self.is_virtual else time.monotonic_ns()


class Header(ctypes.Structure):
    _fields_ = (
        ("magic", _u64),
        ("version", _u32),
        ("size_bytes", _u32),
        ("which", _u32),
        ("unused", _u32),
        ("library", _char * 256),
    )


class Layout(ctypes.Structure):
    _fields_ = (("header", Header), ("pages", Page * 2))


STRUCTURES = {
    "load": Load,
    "coefficients": Coefficients,
    "profile": Profile,
    "gpu": Gpu,
    "event": Event,
    "fault": Fault,
    "call": Call,
    "page": Page,
    "header": Header,
    "state": Layout,
}
"""Structures by their names in `state.h`."""


class State:
    """A mapping of the file. Threads, forked children and other processes may use it at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map the file at `path`.

        Raises:
            ValueError: It is not a state of this layout.
        """
        self.path = Path(path).resolve()
        with self.path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(Layout))
        self._layout = Layout.from_buffer(self._map)
        header = self._layout.header
        if (header.magic, header.version) != (MAGIC, VERSION):
            raise ValueError(f"{self.path} is not a state of this fake driver")

    @classmethod
    def create(cls, path: Path, page: Page, library: Path) -> State:
        """A new file that begins with `page`, for a driver that was built at `library`."""
        layout = Layout()
        layout.header = Header(MAGIC, VERSION, ctypes.sizeof(Layout), 0, 0, os.fsencode(library))
        layout.pages[0] = page
        path.write_bytes(bytes(layout))
        return cls(path)

    @contextmanager
    def change(self) -> Iterator[Page]:
        """The state, locked; what is written to it becomes valid at the end, all at once, unless an error leaves."""
        with self.path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                which = self._layout.header.which & 1
                page = self._layout.pages[which ^ 1]
                ctypes.memmove(ctypes.byref(page), ctypes.byref(self._layout.pages[which]), ctypes.sizeof(Page))
                yield page
                self._layout.header.which = which ^ 1
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    def read(self) -> Page:
        """A copy of the state as it was left by the last change."""
        with self.path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                return Page.from_buffer_copy(self._layout.pages[self._layout.header.which & 1])
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    def post(self, gpu: int, kind: int, value: int = 0, load: Load | None = None) -> None:
        """Let something happen to a GPU now. The driver takes it into account when it is next asked anything.

        Raises:
            IndexError: There is no such GPU.
            BufferError: 1,024 events have come without a call to the driver, or 32 processes are on the GPU already.
        """
        if self._pending() >= EVENTS:
            self._consume()
        with self.change() as page:
            if not 0 <= gpu < page.gpus:
                raise IndexError(f"there is no GPU {gpu}")
            if page.events_begun - page.events_done >= EVENTS:
                raise BufferError(f"{EVENTS} events wait, and this process cannot make the driver look at them")
            if kind == EVENT_LOAD and load is not None and len(_pids(page, gpu) | {load.pid}) > LOADS:
                raise BufferError(f"there are {LOADS} processes on GPU {gpu} already")
            page.events[page.events_begun % EVENTS] = Event(page.now_ns(), gpu, kind, value, 0, load or Load())
            page.events_begun += 1

    def _pending(self) -> int:
        page = self._layout.pages[self._layout.header.which & 1]
        return int(page.events_begun - page.events_done)

    def _consume(self) -> None:
        """Have the driver look at the events, where this process is one of its clients or may become one."""
        if Path(os.environ.get("FAKE_NVML_STATE", "")).resolve() != self.path:
            return
        driver = ctypes.CDLL(os.fsdecode(self._layout.header.library))
        if driver.nvmlInit_v2() == 0:
            driver.nvmlShutdown()


def _pids(page: Page, gpu: int) -> set[int]:
    """The processes on a GPU once all events that wait have happened."""
    pids = {load.pid for load in page.gpu[gpu].loads if load.pid}
    for place in range(page.events_done, page.events_begun):
        event = page.events[place % EVENTS]
        if event.gpu == gpu and event.kind == EVENT_LOAD:
            pids.add(event.load.pid)
        elif event.gpu == gpu and event.kind == EVENT_END:
            pids.discard(event.load.pid)
    return pids
