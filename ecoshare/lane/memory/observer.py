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
import gc
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.base.disk import atomic_write
from ecoshare.lane.files import of_attempt
from ecoshare.lane.memory.cpu import CpuMemory
from ecoshare.lane.memory.cuda import CudaMemory
from ecoshare.lane.memory.recording import DeviceMemory, Point, Recording, levels, reduce

PARTS = ("parameters", "buffers", "gradients", "optimizer", "graph", "other")
"""Holders of storages, in the order in which they claim one. The graph comes before the script's own variables: a
tensor that only the graph holds may still have a Python object from the forward pass, and then both look the same."""

_MOST_NODES = 100_000
"""Most autograd nodes that one walk visits: an endless graph (a leak) must not stop the job for seconds."""

_DEEPEST = 6
"""Most levels of dictionaries and lists that are searched for tensors in an optimizer's state."""

_ALIGNMENT_BYTES = 64
"""Alignment of every block from torch's own CPU allocator. Large numpy arrays begin 16 bytes after a page does."""

_BLOCK_BYTES = 512
"""Block size of the CUDA caching allocator, which hands out and counts whole blocks."""


@dataclass(frozen=True)
class TensorWalk:
    """Result of a walk.

    The allocator knows how much is allocated, but not for what. The interpreter knows every tensor that Python can
    reach. So the walk asks the garbage collector for all tensors, modules and optimizers. It follows the live autograd
    graphs to the tensors that they have saved. It counts each storage once, for the first of `PARTS` that claims it.

    The walk calls no operator on a plain tensor and draws no random number. It unpacks nothing that a graph has saved:
    hooks of the script (checkpointing, offloading) would run. Frozen objects (`gc.freeze`) are not seen.

    Attributes:
        parts: Bytes for each of `PARTS`.
        foreign_bytes: Bytes of the script's tensors that torch did not allocate: numpy's arrays, shared memory (the
            batches of `DataLoader` workers), mapped files. They are not in `parts`.
        note: Reason why the walk is not complete; empty if nothing was left out.
    """

    parts: dict[str, int]
    foreign_bytes: int
    note: str

    @property
    def live_bytes(self) -> int:
        """Bytes that torch has allocated for live tensors."""
        return sum(self.parts.values())


def walk(device: str, index: int | None = None) -> TensorWalk:
    """Walk the live tensors on `device`.

    Args:
        device: "cpu" or "cuda".
        index: Index of one accelerator; None for all.
    """
    import torch

    # Functions that tensors override, and modes that the script has entered, would run for each attribute read.
    with torch._C.DisableTorchFunction():
        return _Walker(device, index).walk()


class _Walker:
    """One walk. The object refers to all objects of the process, so it must not outlive the call."""

    def __init__(self, device: str, index: int | None) -> None:
        self._device, self._index = device, index
        self._claimed: dict[int, tuple[str, int]] = {}
        self._foreign_bytes = 0
        self._note = ""

    def walk(self) -> TensorWalk:
        tensors, modules, optimizers = _listed()
        for part, attribute in (("parameters", "_parameters"), ("buffers", "_buffers")):
            for module in modules:
                for tensor in _of_module(module, attribute):
                    self._claim(part, tensor)
            if part == "parameters":
                for optimizer in optimizers:
                    for tensor in _tensors_in(vars(optimizer).get("param_groups")):
                        self._claim(part, tensor)
                for tensor in tensors:
                    if _is_parameter(tensor):
                        self._claim(part, tensor)
        for tensor in tensors:
            if (gradient := _gradient(tensor)) is not None:
                self._claim("gradients", gradient)
        for optimizer in optimizers:
            for tensor in _tensors_in(vars(optimizer).get("state")):
                self._claim("optimizer", tensor)
        for tensor in self._saved(tensors):
            self._claim("graph", tensor)
        for tensor in tensors:
            self._claim("other", tensor)
        parts = dict.fromkeys(PARTS, 0)
        for part, size_bytes in self._claimed.values():
            parts[part] += size_bytes
        return TensorWalk(parts, self._foreign_bytes, self._note)

    def _claim(self, part: str, tensor: Any) -> None:
        """Count a tensor's storage for `part`, unless it is already counted."""
        for dense in _dense(tensor):
            try:
                storage = dense.untyped_storage()
                place = storage.device
                if place.type != self._device or (self._index is not None and place.index != self._index):
                    continue  # another device, or none: fake and wrapping tensors have a storage on "meta"
                key, size_bytes = storage._cdata, storage.nbytes()
            except (RuntimeError, NotImplementedError, AttributeError, TypeError):
                continue  # no memory of its own: opaque, lazy, or wrapped by a function transform
            if key in self._claimed or not size_bytes:
                continue
            if part in ("graph", "other") and self._device == "cpu" and _is_foreign(storage):
                self._foreign_bytes += size_bytes
                size_bytes = 0
            elif self._device == "cuda":
                size_bytes = -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
            self._claimed[key] = part, size_bytes

    def _saved(self, tensors: list[Any]) -> Iterator[Any]:
        """Tensors that the graphs behind `tensors` have saved for backward passes and not freed yet."""
        import torch

        waiting = [node for tensor in tensors if (node := _grad_fn(tensor)) is not None]
        if not waiting:
            return
        if not hasattr(torch._C._autograd.SavedTensor, "data"):
            self._note = "this torch does not show what graphs have saved without unpacking it"
            return
        seen: dict[int, Any] = {}  # keeps the nodes alive, or their ids would be used again
        fields: dict[int, list[str]] = {}
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen[id(node)] = node
            if len(seen) > _MOST_NODES:
                self._note = f"graphs of more than {_MOST_NODES} nodes: the rest was not looked at"
                return
            waiting.extend(parent for parent, _ in node.next_functions if parent is not None)
            kind = type(node)
            if id(kind) not in fields:
                fields[id(kind)] = [name for name in dir(kind) if name.startswith("_raw_saved_")]
            for name in fields[id(kind)]:
                yield from _packed(node, name)


def _listed() -> tuple[list[Any], list[Any], list[Any]]:
    """Tensors, modules and optimizers that the garbage collector tracks."""
    import torch

    bases = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
    lists: tuple[list[Any], ...] = ([], [], [])
    kinds: dict[int, int | None] = {}
    for thing in gc.get_objects():
        # Look at the real type: `isinstance` asks foreign proxies for `__class__`, and they may do anything. Use the id
        # of the type: a type need not be hashable. (Chained iterators in place of this loop take half as long again.)
        kind = type(thing)
        found = kinds.get(id(kind), -1)
        if found == -1:
            found = kinds[id(kind)] = next((i for i, base in enumerate(bases) if issubclass(kind, base)), None)
        if found is not None:
            lists[found].append(thing)
    return lists[0], lists[1], lists[2]


def _of_module(module: Any, field: str) -> list[Any]:
    held = object.__getattribute__(module, "__dict__").get(field)
    return [tensor for tensor in held.values() if tensor is not None] if isinstance(held, dict) else []


def _is_parameter(tensor: Any) -> bool:
    import torch

    return issubclass(type(tensor), torch.nn.Parameter)


def _tensors_in(thing: Any, depth: int = 0) -> Iterator[Any]:
    """Tensors in nested dictionaries and sequences."""
    import torch

    if issubclass(type(thing), torch.Tensor):
        yield thing
    elif depth < _DEEPEST:
        if isinstance(thing, dict):
            thing = list(thing.values())
        if isinstance(thing, (list, tuple)):
            for inner in thing:
                yield from _tensors_in(inner, depth + 1)


def _dense(tensor: Any) -> Iterator[Any]:
    """Tensors with a storage that make up one tensor: itself, the parts of a sparse one, or those a subclass wraps."""
    import torch

    try:
        if hasattr(type(tensor), "__tensor_flatten__"):
            for name in tensor.__tensor_flatten__()[0]:
                yield from _dense(getattr(tensor, name))
        elif tensor.layout is torch.sparse_coo:
            yield from (tensor._indices(), tensor._values())
        elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
        else:
            yield tensor
    except Exception:  # code of a subclass may raise anything
        return


def _gradient(tensor: Any) -> Any:
    try:
        # Reading `grad` of any other tensor warns.
        return tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    except (RuntimeError, AttributeError):
        return None


def _grad_fn(tensor: Any) -> Any:
    try:
        return tensor.grad_fn
    except (RuntimeError, AttributeError):  # a view: its base has changed in a way that forbids gradients
        return None


def _packed(node: Any, name: str) -> Iterator[Any]:
    """Tensors in one field of a node, as they were saved; none if a hook has turned them into something else."""
    import torch

    try:
        saved = getattr(node, name)
        for one in saved if isinstance(saved, (tuple, list)) else (saved,):
            if issubclass(type(packed := one.data), torch.Tensor):
                yield packed
    except (RuntimeError, AttributeError):  # freed by the backward pass
        return


def _is_foreign(storage: Any) -> bool:
    """Whether something other than torch's allocator has allocated the memory of a CPU tensor.

    Torch does not tell. Memory from its allocator can be resized, except tensors that `torch.load` has read: those are
    recognised by their alignment.
    """
    if storage.is_shared():
        return True
    return not storage.resizable() and bool(storage.data_ptr() % _ALIGNMENT_BYTES)


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
