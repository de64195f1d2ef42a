"""Memory of the live tensors of this process, split by what holds them.

The allocator knows how much is allocated, but not for what. The interpreter knows every tensor that Python can reach.
So the walk asks the garbage collector for all tensors, modules and optimizers. It follows the live autograd graphs to
the tensors that they have saved. It counts each storage once, for the first of `PARTS` that claims it.

The walk calls no operator on a plain tensor and draws no random number. It unpacks nothing that a graph has saved:
hooks of the script (checkpointing, offloading) would run. Frozen objects (`gc.freeze`) are not seen.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
        for part, field in (("parameters", "_parameters"), ("buffers", "_buffers")):
            for module in modules:
                for tensor in _of_module(module, field):
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
