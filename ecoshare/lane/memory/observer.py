"""Observes the memory that a training script keeps between its iterations, and the extra memory inside one.

The observation takes four iterations or a few more, in the script's own process:

::

    boundary   1 ─────────── 2 ─────────── 3 ─────────── 4 ─────────── 5 ── ...
    recorded        no            yes           yes           yes
    counts     its time      primes the    counts        counts
                             recorder
    at it      walk, process walk, process walk          walk          walk, done if both add up

An iteration adds up if its allocations and frees lead from the bytes alive at its beginning to those at its end. The
result reports the iteration with the highest peak among those that add up, or among all if none does.

The result distinguishes three kinds of memory. The model is the tensors that are alive at a boundary, split by what
holds them. The framework is the memory that the process or the allocator holds beyond them. The ephemeral memory is the
peak inside an iteration beyond the bytes alive when it began.

The script notices only the time that the observation takes. An error in here does not fail the job: it ends the
observation with a note.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.common.atomic_write import atomic_write
from ecoshare.lane.files import of_attempt
from ecoshare.lane.memory.cpu import CpuMemory
from ecoshare.lane.memory.cuda import CudaMemory
from ecoshare.lane.memory.recording import DeviceMemory, Recording
from ecoshare.lane.memory.tensor_walk import PARTS, TensorWalk, walk
from ecoshare.lane.memory.timeline import Point, levels, reduce

_PLAIN, _PRIMING = 1, 2
"""Numbers of the iterations that do not count: one runs unrecorded, the next is recorded for its blocks only."""

_ENOUGH, _MOST_COUNTED = 2, 8
"""Iterations that add up, and iterations that count, after which the observation is over. A script that replaces
objects every few iterations (a replay buffer, the last few losses) frees blocks that were never recorded."""

_UNCLOSED_SHARE, _UNCLOSED_BYTES = 0.01, 65536
"""Tolerance of an iteration that adds up: a share of the bytes alive, or bytes, whichever is more."""

_LONGEST_S = 20.0
"""Longest iteration (s) that is recorded: each operator in it costs some hundred bytes until its end."""

_MOST_POINTS = 400

_MOST_IDLE = 64
"""Boundaries in other threads, or before the script uses the device, after which the observation gives up."""


class MemoryObserver:
    """Observes one job's memory over a few consecutive iterations; use once.

    Call `boundary` last between two iterations: whatever follows it counts as part of the next iteration.
    """

    def __init__(self, device: str, alone: bool = True) -> None:
        """Observe `device`, "cpu" or "cuda", from the first boundary on.

        Args:
            alone: Whether the job has its process to itself. Otherwise it is not observed: the memory of the jobs in
                one process cannot be told apart.
        """
        self._device = device
        self._memory: DeviceMemory = CudaMemory() if device == "cuda" else CpuMemory()
        self._iteration = 0  # number of the present iteration; 0 before the first boundary
        self._idle = 0
        self._thread = 0
        self._began_s = self._plain_s = 0.0
        self._process_bytes: int | None = None
        self._reserved_bytes: int | None = None
        self._walks: list[TensorWalk] = []
        self._figures: list[_Figures] = []
        self._notes: list[str] = []
        self._done = False
        if not alone:
            self._give_up("not observed: it shares its process with others")

    def boundary(self) -> bool:
        """Observe the boundary between two iterations. Return whether the observation is over."""
        if not self._done:
            try:
                self._advance()
            except Exception as error:
                self._give_up(f"{type(error).__name__}: {error}")
        return self._done

    def result(self) -> dict[str, Any]:
        """Result as plain JSON. Unknown figures are null, and `note` says why.

        `live_bytes`, `parts` and `foreign_bytes` describe the boundary with the most bytes alive. `process_bytes` and
        `reserved_bytes` are the largest of all boundaries. `plain_iteration_s` is the time (s) of the unrecorded
        iteration. The other figures describe the reported iteration.

        `unclosed_bytes` is the number of bytes alive at the iteration's end by the walk, minus the number that its
        allocations and frees leave. On CUDA the allocator's figure replaces the latter. It includes workspaces of
        libraries, which are no tensors.
        """
        if not self._done:
            self._give_up("the script ended while it was observed")
        # The same note may come from several boundaries.
        notes = dict.fromkeys([*self._notes, *(one.note for one in self._walks)])
        largest = max(self._walks, key=lambda one: one.live_bytes, default=None)
        closed = [figures for figures in self._figures if figures.is_closed]
        best = max(closed or self._figures, key=lambda one: one.peak_bytes or 0, default=_Figures())
        return {
            "device": self._device,
            "live_bytes": largest.live_bytes if largest else None,
            "parts": dict(sorted(largest.parts.items())) if largest else dict.fromkeys(sorted(PARTS)),
            "foreign_bytes": largest.foreign_bytes if largest else None,
            "peak_bytes": best.peak_bytes,
            "ephemeral_bytes": best.ephemeral_bytes,
            "reserved_bytes": self._reserved_bytes,
            "peak_reserved_bytes": best.peak_reserved_bytes,
            "process_bytes": self._process_bytes,
            "timeline": [[round(at_s, 7), level_bytes] for at_s, level_bytes in best.timeline],
            "iteration_s": best.iteration_s,
            "plain_iteration_s": self._plain_s or None,
            "events": best.events,
            "unclosed_bytes": best.unclosed_bytes,
            "note": "; ".join(note for note in notes if note),
        }

    def write(self, path: Path) -> None:
        """Write the result to `path` atomically. A failure is ignored, so that it does not fail the job."""
        with contextlib.suppress(OSError):
            atomic_write(path, json.dumps(self.result()))

    def _advance(self) -> None:
        if not self._iteration:
            self._thread = threading.get_ident()
        # A recording belongs to the thread that began it.
        if threading.get_ident() != self._thread or not self._memory.ready():
            self._idle += 1
            if self._idle >= _MOST_IDLE:
                self._give_up("no iteration of one thread that uses the device was seen to its end")
            return
        ended_s = time.perf_counter()
        recording = self._memory.end() if self._iteration > _PLAIN else None
        if self._iteration <= _PLAIN or self._device == "cuda":
            # The CPU is measured only before anything is recorded: memory of the recorder is not the job's.
            self._stand()
        self._walks.append(walk(self._device, self._memory.index))
        if self._iteration == _PLAIN:
            self._plain_s = ended_s - self._began_s
        if recording is not None and self._iteration > _PRIMING:
            start, end = self._walks[-2:]
            self._figures.append(_Figures.of(recording, start.live_bytes, end.live_bytes))
        if self._is_last(recording):
            self._finish()
            return
        self._iteration += 1
        if self._iteration > _PLAIN:
            self._memory.begin()
        self._began_s = time.perf_counter()

    def _stand(self) -> None:
        standing = self._memory.standing()
        self._process_bytes = _larger(self._process_bytes, standing.process_bytes)
        self._reserved_bytes = _larger(self._reserved_bytes, standing.reserved_bytes)

    def _is_last(self, recording: Recording | None) -> bool:
        if recording is not None and recording.note:
            self._notes.append(recording.note)
        if self._device == "cuda":
            # The allocator of CUDA knows the peak of any iteration, recorded or not, and has a bounded history.
            return len(self._figures) >= _ENOUGH
        if self._iteration == _PLAIN and self._plain_s > _LONGEST_S:
            self._notes.append(f"not recorded: an iteration takes longer than {_LONGEST_S:.0f} s")
            return True
        if recording is not None and recording.changes is None:
            return True
        closed = sum(figures.is_closed for figures in self._figures)
        return closed >= _ENOUGH or len(self._figures) >= _MOST_COUNTED

    def _give_up(self, note: str) -> None:
        self._notes.append(note)
        self._finish()

    def _finish(self) -> None:
        self._done = True
        try:
            self._memory.close()
        except Exception as error:
            self._notes.append(f"{type(error).__name__}: {error}")


def memory_path(folder: Path, attempt: int) -> Path:
    """Path of an attempt's observation, in the folder of its job."""
    return of_attempt(folder, "memory.json", attempt)


@dataclass
class _Figures:
    """Figures of one recorded iteration; None for unknown ones."""

    peak_bytes: int | None = None
    ephemeral_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    unclosed_bytes: int | None = None
    iteration_s: float | None = None
    events: int = 0
    timeline: list[Point] = field(default_factory=list)
    is_closed: bool = False

    @classmethod
    def of(cls, recording: Recording, start_bytes: int, end_bytes: int) -> _Figures:
        """Figures of an iteration that began with `start_bytes` alive and ended with `end_bytes`, by the walks."""
        figures = cls(peak_reserved_bytes=recording.peak_reserved_bytes, iteration_s=recording.took_s)
        if recording.changes is not None:
            points = levels(start_bytes, recording.changes)
            figures.events = len(recording.changes)
            figures.timeline = reduce(points, _MOST_POINTS)
            figures.peak_bytes = max(level_bytes for _, level_bytes in points)
            figures.unclosed_bytes = end_bytes - points[-1][1]
        if recording.ephemeral_bytes is not None:
            figures.peak_bytes = start_bytes + recording.ephemeral_bytes
        if recording.held_bytes is not None:
            figures.unclosed_bytes = end_bytes - recording.held_bytes
        allowed_bytes = max(_UNCLOSED_SHARE * end_bytes, _UNCLOSED_BYTES)
        figures.is_closed = figures.unclosed_bytes is not None and abs(figures.unclosed_bytes) <= allowed_bytes
        if figures.peak_bytes is not None:
            figures.ephemeral_bytes = figures.peak_bytes - start_bytes
        return figures


def _larger(one: int | None, other: int | None) -> int | None:
    return max((figure for figure in (one, other) if figure is not None), default=None)
