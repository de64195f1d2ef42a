"""Records the allocations and frees of torch on the CPU during an iteration.

The recorder uses torch's older profiler (`torch.autograd.profiler_legacy`) instead of `torch.profiler`. The latter
prints a line to stderr when it starts, loads a tracing library with threads, and cannot be left in a forked child. Both
see the same events, which the allocator itself reports.

The profiler reports the free of a block only if it recorded the allocation, in this iteration or an earlier one. So the
first recorded iteration only makes known the blocks that every iteration replaces. The free of an older block is lost,
and the sum of the changes is too high from then on.

Blocks of other allocators (oneDNN's scratch memory, numpy) and of threads that the script has started are not seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ecoshare.lane.memory.recording import AttributeSwap, Recording, Standing
from ecoshare.lane.processes import own_proportional_bytes

_ERROR_LEVEL = 2
"""Level of errors in torch's C++ log. A lower level has a warning for each thousandth block that was allocated before
the recording."""

_STARTERS = (
    ("torch.autograd.profiler", "_prepare_profiler"),
    ("torch.autograd.profiler", "_enable_profiler"),
    ("torch.autograd.profiler_legacy", "_enable_profiler_legacy"),
)
"""Functions that start the script's own profilers. They fail while another profiler is on."""


class CpuMemory:
    """Memory of this process on the CPU, recorded in the thread that calls `begin`."""

    index: int | None = None

    def __init__(self) -> None:
        self._recording = False
        self._note = ""
        self._began_s = 0.0
        self._log_level: int | None = None
        self._swap = AttributeSwap()
        self._thread = 0

    def ready(self) -> bool:
        """True always: the CPU needs no initialisation."""
        return True

    def standing(self) -> Standing:
        """Proportional set size of the process without files: a page shared with the warm server counts in part."""
        try:
            return Standing(process_bytes=own_proportional_bytes())
        except OSError:
            return Standing()

    def begin(self) -> None:
        """Begin to record an iteration."""
        self._note = self._refusal() or self._start()
        self._began_s = time.perf_counter()

    def end(self) -> Recording:
        """Stop recording and return the record of the iteration."""
        if self._recording:
            return _recording(self._stop(), self._note)
        return Recording(time.perf_counter() - self._began_s, None, note=self._note)

    def close(self) -> None:
        """Stop recording, if it is on."""
        if self._recording:
            self._stop()

    def _refusal(self) -> str:
        import torch

        autograd: Any = torch._C._autograd
        if not hasattr(autograd, "_enable_profiler_legacy"):
            return "this torch does not have the profiler that records allocations"
        return "the script uses a profiler itself" if autograd._profiler_enabled() else ""

    def _start(self) -> str:
        """Begin to record. Return the reason if recording did not begin; else an empty string."""
        import torch
        from torch.autograd import ProfilerConfig, ProfilerState  # type: ignore[attr-defined]

        if (log_level := _log_level()) is None:
            return "torch's log cannot be silenced, and it would warn of every recording"
        config: Any = ProfilerConfig(
            ProfilerState.CPU, False, True, False, False, False, torch._C._profiler._ExperimentalConfig()
        )
        self._log_level, log_level.value = log_level.value, max(log_level.value, _ERROR_LEVEL)
        for module, name in _STARTERS:
            if module in sys.modules:
                self._swap.put(sys.modules[module], name, self._stand_aside)
        self._recording = True
        _recorders.append(self)
        autograd: Any = torch._C._autograd
        self._thread = threading.get_ident()
        autograd._enable_profiler_legacy(config)
        return ""

    def _stop(self) -> list[Any]:
        """Stop recording and return the events of each thread."""
        import torch

        self._recording = False
        self._swap.restore()
        if self in _recorders:
            _recorders.remove(self)
        autograd: Any = torch._C._autograd
        events: list[Any] = []
        # The profiler's state belongs to a thread: another thread cannot end it.
        if threading.get_ident() == self._thread and autograd._profiler_type().name == "LEGACY":
            events = autograd._disable_profiler_legacy()
        if self._log_level is not None and (log_level := _log_level()) is not None:
            log_level.value, self._log_level = self._log_level, None
        return events

    def _stand_aside(self) -> None:
        if self._recording and threading.get_ident() == self._thread:
            self._stop()
            self._note = "the script uses a profiler itself"


_recorders: list[CpuMemory] = []
"""Recorders that are on now: at most one."""


def _leave_child() -> None:
    """Stop recording in a forked child (a `DataLoader` worker), which would otherwise record until it ends."""
    for recorder in tuple(_recorders):
        with contextlib.suppress(Exception):
            recorder.close()


os.register_at_fork(after_in_child=_leave_child)


def _recording(threads: list[Any], note: str) -> Recording:
    """Record of an iteration, from the events of all threads. The profiler's clock gives all its times."""
    marks = {event.name(): event for events in threads for event in events if event.kind() == "mark"}
    began, ended = marks.get("__start_profile"), marks.get("__stop_profile")
    if began is None or ended is None:
        raise RuntimeError("the profiler did not say when it began and ended")
    found = [
        (began.cpu_elapsed_us(event) / 1e6, event.cpu_memory_usage())
        for events in threads
        for event in events
        if event.kind() == "memory_alloc" and event.cpu_memory_usage()
    ]
    found.sort(key=lambda change: change[0])  # stable: each thread's own order stays
    return Recording(began.cpu_elapsed_us(ended) / 1e6, found, note=note)


def _log_level() -> ctypes.c_int | None:
    """Threshold of torch's C++ log, which can be read and written; None if it is out of reach."""
    import torch

    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        return ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return None
