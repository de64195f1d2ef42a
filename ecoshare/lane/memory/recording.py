"""What a recorder of one device's memory hands over, and how it stays out of the way of the script's own tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class DeviceMemory(Protocol):
    """The memory of this process on one device, and its changes during an iteration."""

    @property
    def index(self) -> int | None:
        """Which of several accelerators; `None` on the CPU."""
        ...

    def ready(self) -> bool:
        """Whether the device can be asked."""
        ...

    def standing(self) -> Standing:
        """What the process keeps at this boundary, before anything is recorded."""
        ...

    def begin(self) -> None:
        """An iteration begins: record it."""
        ...

    def end(self) -> Recording:
        """The iteration that has begun is over: what happened in it."""
        ...

    def close(self) -> None:
        """Leave nothing switched on."""
        ...


@dataclass(frozen=True)
class Standing:
    """What a process keeps between two iterations, beyond its tensors.

    Attributes:
        process_bytes: Of the whole process; `None` where it cannot be read here.
        reserved_bytes: Of the allocator, with its unused cache given back; `None` on the CPU, which has none.
    """

    process_bytes: int | None = None
    reserved_bytes: int | None = None


@dataclass
class Recording:
    """What happened in one iteration.

    Attributes:
        took_s: Its time, which recording makes longer.
        changes: (seconds since it began, bytes allocated or freed), in order; `None` where nothing was recorded.
        ephemeral_bytes: By the allocator: its peak beyond what was allocated at the beginning; `None` on the CPU,
            whose allocator keeps no such figure.
        peak_reserved_bytes: The most that the allocator had reserved; `None` on the CPU.
        held_bytes: By the allocator: what was allocated at the end; `None` on the CPU.
        note: Why there are no changes.
    """

    took_s: float
    changes: list[tuple[float, int]] | None
    ephemeral_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    held_bytes: int | None = None
    note: str = ""


@dataclass
class AttributeSwap:
    """Attributes of modules that are replaced for a while."""

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
        """Put everything back that nobody else has replaced since."""
        for module, name, former, ours in self._former:
            if getattr(module, name) is ours:
                setattr(module, name, former)
        self._former.clear()
