"""Protocol and records of a recorder of one device's memory, and a swap that yields to the script's own tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class DeviceMemory(Protocol):
    """Memory of this process on one device, and its changes during an iteration."""

    @property
    def index(self) -> int | None:
        """Index of the accelerator; None on the CPU."""
        ...

    def ready(self) -> bool:
        """Whether the device's memory can be read yet."""
        ...

    def standing(self) -> Standing:
        """Memory that the process keeps at this boundary. Nothing may be under recording."""
        ...

    def begin(self) -> None:
        """Begin to record an iteration."""
        ...

    def end(self) -> Recording:
        """Stop recording and return the record of the iteration."""
        ...

    def close(self) -> None:
        """Stop recording, if it is on."""
        ...


@dataclass(frozen=True)
class Standing:
    """Memory that a process keeps between two iterations, its tensors included.

    Attributes:
        process_bytes: Memory of the whole process; None if it cannot be read here.
        reserved_bytes: Memory that the allocator still reserves after it has given back its unused cache; None on the
            CPU, where the allocator reserves none.
    """

    process_bytes: int | None = None
    reserved_bytes: int | None = None


@dataclass
class Recording:
    """Record of one iteration.

    Attributes:
        took_s: Duration (s) of the iteration, which recording makes longer.
        changes: (seconds since it began, bytes allocated or freed), in order; None if nothing was recorded.
        ephemeral_bytes: Peak of the allocated bytes beyond those at the beginning, by the allocator; None on the CPU,
            where the allocator keeps no such figure.
        peak_reserved_bytes: Peak of the bytes that the allocator reserved; None on the CPU.
        held_bytes: Bytes allocated at the end, by the allocator; None on the CPU.
        note: Reason why there are no changes; else empty.
    """

    took_s: float
    changes: list[tuple[float, int]] | None
    ephemeral_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    held_bytes: int | None = None
    note: str = ""


@dataclass
class AttributeSwap:
    """Temporary replacements of attributes of modules."""

    _former: list[tuple[Any, str, Any, Any]] = field(default_factory=list)

    def put(self, module: Any, name: str, before: Callable[[], None]) -> None:
        """Call `before` whenever the function `name` of `module` is called, before the function itself."""
        former = getattr(module, name)

        def call_before(*args: Any, **arguments: Any) -> Any:
            before()
            return former(*args, **arguments)

        setattr(module, name, call_before)
        self._former.append((module, name, former, call_before))

    def restore(self) -> None:
        """Restore each attribute, unless other code has replaced it since."""
        for module, name, former, ours in self._former:
            if getattr(module, name) is ours:
                setattr(module, name, former)
        self._former.clear()
