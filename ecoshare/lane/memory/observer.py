"""What a training script keeps of memory between its iterations, and what it needs beyond that inside one.

Observed in the script's own process, over four iterations, or a few more:

::

    boundary   1 ─────────── 2 ─────────── 3 ─────────── 4 ─────────── 5 ── ...
    recorded        no            yes           yes           yes
    counts     its time      primes the    counts        counts
                             recorder
    at it      walk, process walk, process walk          walk          walk, done where both add up

An iteration adds up where its allocations and frees lead from the bytes alive at its beginning to those at its end. Of
those that do, the one with the highest peak is told; of all where none does.

Three kinds of memory are told apart: the model (tensors that are alive at a boundary, split by what holds them), the
framework (what the process or the allocator holds beyond them), and the ephemeral (the peak inside an iteration beyond
what was alive when it began).

The script does not notice, except by the time. No failure in here is the job's: it ends the observation with a note.
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
"""The numbers of the iterations that do not count: one as it is, and one that is recorded for its blocks only."""

_ENOUGH, _MOST_COUNTED = 2, 8
"""Iterations that add up, and iterations that count, after which the observation is over. A script that replaces
something every few iterations (a replay buffer, a window of losses) frees blocks that were never recorded."""

_UNCLOSED_SHARE, _UNCLOSED_BYTES = 0.01, 65536
"""An iteration adds up to this share of what is alive, or these bytes: whichever is more."""

_LONGEST_S = 20.0
"""An iteration that takes longer is not recorded: each operator in it costs some hundred bytes until its end."""

_MOST_POINTS = 400

_MOST_IDLE = 64
"""Boundaries in other threads, or before the script uses the device, after which the observation is given up."""


class MemoryObserver:
    """Observes one job's memory over a few consecutive iterations; use once.

    `boundary` belongs last in what is done between two iterations: what follows it counts as the next iteration.
    """

    def __init__(self, device: str, alone: bool = True) -> None:
        """An observation of `device`, "cpu" or "cuda", that begins with the first boundary.

        Args:
            alone: Whether the job has its process to itself. Else it is not observed: nobody can tell what is whose.
        """
        self._device = device
        self._memory: DeviceMemory = CudaMemory() if device == "cuda" else CpuMemory()
        self._iteration = 0  # under way; 0 before the first boundary
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
        """An iteration has ended and the next has not begun. True when the observation is over."""
        if not self._done:
            try:
                self._advance()
            except Exception as error:
                self._give_up(f"{type(error).__name__}: {error}")
        return self._done

    def result(self) -> dict[str, Any]:
        """What was observed, as plain JSON; figures that are not known are null, and the note says why.

        `live_bytes`, `parts`, `foreign_bytes`, `process_bytes` and `reserved_bytes` are of boundaries (the largest,
        the parts and what is foreign of the boundary with the most alive); the others of the iteration that counts.
        `unclosed_bytes` is what was alive at its end by the walk minus what the allocations and frees leave (CUDA: by
        the allocator, whose libraries' workspaces are no tensors).
        """
        if not self._done:
            self._give_up("the script ended while it was observed")
        # A note may come from several boundaries.
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
        """Write the result to `path` as a whole; a job does not fail because of an error here."""
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
            # On the CPU before anything is recorded: what the recorder holds is not the job's.
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
            # Its allocator knows the peak of any iteration, recorded or not, and its history is bounded.
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
    """What was observed of an attempt, in its job's folder."""
    return of_attempt(folder, "memory.json", attempt)


@dataclass
class _Figures:
    """One recorded iteration; `None` for what is not known of it."""

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
        """The figures of an iteration that began with `start_bytes` alive and ended with `end_bytes`, by the walks."""
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
