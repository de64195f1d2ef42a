"""Records the work of torch's caching allocator on a CUDA device during an iteration.

The figures are the allocator's own statistics, which cost nothing and are exact. The history of allocations costs a
little and serves the timeline only. The history has requested sizes, which are rounded up to blocks here. The timeline
may still be lower than the statistics if the allocator left a larger block whole.

::

    boundary                          boundary
       │ synchronise, empty the cache    │ read the peaks, take the history
       │ read what stays reserved        │ synchronise, empty the cache, ...
       │ reset the peaks, record         │
       ╰──────── an iteration ───────────╯
"""

from __future__ import annotations

import time
from typing import Any

from ecoshare.lane.memory.recording import AttributeSwap, Recording, Standing

_BLOCK_BYTES = 512
_MOST_ENTRIES = 200_000
"""Entries in the allocator's history, a ring buffer: a full one has lost its beginning."""


class CudaMemory:
    """Memory of this process on one CUDA device: the one that is current at the first request."""

    def __init__(self) -> None:
        self._recording = False
        self._note = ""
        self._began_s = self._began_us = 0.0
        self._start_bytes = 0
        self._device: int | None = None
        self._swap = AttributeSwap()

    @property
    def index(self) -> int:
        """Index of the device in this process."""
        import torch

        if self._device is None:
            self._device = torch.cuda.current_device()
        return self._device

    def ready(self) -> bool:
        """Whether the script has used CUDA yet. Any earlier request would initialise CUDA."""
        import torch

        return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]

    def standing(self) -> Standing:
        """Memory that the allocator cannot give back to the device, fragments included."""
        import torch

        # A block that a side stream still uses is not given back before the stream's work is done.
        torch.cuda.synchronize(self.index)
        torch.cuda.empty_cache()
        return Standing(reserved_bytes=int(self._statistics()["reserved_bytes.all.current"]))

    def begin(self) -> None:
        """Begin to record an iteration.

        This resets the script's own `max_memory_allocated` and `max_memory_reserved`: the process has one peak of each,
        and torch cannot restore an earlier value.
        """
        import torch

        torch.cuda.reset_peak_memory_stats(self.index)
        self._start_bytes = int(self._statistics()["allocated_bytes.all.current"])
        self._note = self._record()
        self._began_us, self._began_s = time.time() * 1e6, time.perf_counter()

    def end(self) -> Recording:
        """Wait for the device, stop recording, and return the record of the iteration."""
        import torch

        torch.cuda.synchronize(self.index)
        took_s = time.perf_counter() - self._began_s
        statistics = self._statistics()
        changes = self._changes() if self._recording else None
        self.close()
        return Recording(
            took_s,
            changes,
            # If the script has reset the peak, the figure covers only the time after the reset.
            ephemeral_bytes=max(0, int(statistics["allocated_bytes.all.peak"]) - self._start_bytes),
            peak_reserved_bytes=int(statistics["reserved_bytes.all.peak"]),
            held_bytes=int(statistics["allocated_bytes.all.current"]),
            note=self._note,
        )

    def close(self) -> None:
        """Stop recording and drop the history."""
        self._swap.restore()
        if self._recording:
            self._recording = False
            self._remember(None)

    def _statistics(self) -> dict[str, Any]:
        import torch

        return torch.cuda.memory_stats(self.index)

    def _record(self) -> str:
        """Begin to record. Return the reason if recording did not begin; else an empty string."""
        import torch

        enabled: Any = torch._C
        try:
            if enabled._cuda_isHistoryEnabled():
                return "the script records the history of the allocator itself"
            self._remember("all")
        except (AttributeError, RuntimeError, TypeError) as error:  # a plugged-in allocator has no history
            return f"the allocator records no history: {error}"
        self._recording = True
        self._swap.put(torch.cuda.memory, "_record_memory_history", self._stand_aside)
        return ""

    @staticmethod
    def _remember(what: str | None) -> None:
        """Record the history without stack traces, or stop (None)."""
        import torch

        record: Any = torch.cuda.memory._record_memory_history
        record(what, context=None, stacks="python", max_entries=_MOST_ENTRIES)

    def _stand_aside(self) -> None:
        """Stop, because the script begins to record with its own settings, and for longer than this iteration."""
        if self._recording:
            self._note = "the script records the history of the allocator itself"
            self.close()

    def _changes(self) -> list[tuple[float, int]] | None:
        """Changes as (seconds since the iteration began, bytes), in order; None if the beginning is lost."""
        import torch

        take: Any = torch.cuda.memory._snapshot
        entries = take()["device_traces"][self.index]
        if len(entries) >= _MOST_ENTRIES:
            self._note = "too many allocations in an iteration for a timeline"
            return None
        found = []
        for entry in entries:
            # A free counts when it is asked for, as in the statistics, though a side stream may delay it.
            sign = {"alloc": 1, "free_requested": -1}.get(entry["action"], 0)
            if sign:
                size_bytes = -(-int(entry["size"]) // _BLOCK_BYTES) * _BLOCK_BYTES
                at_s = max(0.0, (entry["time_us"] - self._began_us) / 1e6)
                found.append((at_s, sign * size_bytes))
        return found
