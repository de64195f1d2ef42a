"""Protocol and records of a recorder of one device's memory, and a swap that yields to the script's own tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


Point = tuple[float, int]
"""Seconds since the iteration began, and the bytes alive from then on."""


def levels(start_bytes: int, changes: Iterable[tuple[float, int]]) -> list[Point]:
    """Bytes alive at the beginning and after each change.

    Args:
        start_bytes: Bytes alive when the iteration began.
        changes: (seconds since then, bytes allocated (positive) or freed (negative)), in order.
    """
    points = [(0.0, start_bytes)]
    level_bytes = start_bytes
    for at_s, change_bytes in changes:
        level_bytes += change_bytes
        points.append((at_s, level_bytes))
    return points


def reduce(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` of `points`: the first, the last, and turning points, with the exact peak.

    Swings below a tolerance are left out; the tolerance grows until the rest fits. So each kept local maximum is exact.
    A maximum that is left out stands out from its surroundings by less than any that is kept.
    """
    if len(points) <= most:
        return list(points)
    heights = [level_bytes for _, level_bytes in points]
    tolerance_bytes = max(1.0, (max(heights) - min(heights)) / 1000)
    while len(kept := _turning(points, tolerance_bytes)) > most:
        tolerance_bytes *= 1.5
    return kept


def _turning(points: Sequence[Point], tolerance_bytes: float) -> list[Point]:
    """First point, last point, and the extremes between swings of at least `tolerance_bytes`."""
    kept = [points[0]]
    high = low = points[0]  # since the last extreme that was kept
    rising: bool | None = None
    for point in points[1:]:
        if point[1] > high[1]:
            high = point
        if point[1] < low[1]:
            low = point
        if rising is not False and high[1] - point[1] >= tolerance_bytes:
            kept.append(high)
            rising, low = False, point
        elif rising is not True and point[1] - low[1] >= tolerance_bytes:
            kept.append(low)
            rising, high = True, point
    # The last swing has not turned yet: its extreme may be the peak.
    tail = low if rising is False else high
    for point in (tail, points[-1]):
        if point[0] >= kept[-1][0] and point != kept[-1]:
            kept.append(point)
    return kept
