"""Caching: whether waiting jobs of a device keep what their allocators have reserved.

torch's allocator keeps freed memory in a cache. If the memory of a device suffices for all caches, a hand-over costs
nothing. Otherwise each job empties its cache before the next one may allocate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ecoshare.core.commands import SetCaching
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.records import Lane


class Caching:
    """Caches of the jobs of all devices. They are kept at first."""

    def __init__(self, fit: MemoryFit, next_id: Callable[[], int]) -> None:
        """Caching by the memory that `fit` has granted.

        Args:
            fit: Memory fit of jobs and lanes.
            next_id: Function that returns the id of the next command.
        """
        self._fit, self._next_id = fit, next_id
        self._emptied: set[str] = set()
        self._changed: dict[str, None] = {}

    @property
    def emptied(self) -> tuple[str, ...]:
        """Names of the devices where waiting jobs empty their caches, sorted."""
        return tuple(sorted(self._emptied))

    def go_on(self, emptied: Iterable[str]) -> None:
        """Take over the devices where waiting jobs empty their caches."""
        self._emptied.update(emptied)

    def look(self, lanes: Iterable[Lane]) -> None:
        """Note that jobs have come to these lanes or have left them."""
        self._changed.update({lane.device.name: None for lane in lanes})

    def changed(self) -> list[SetCaching]:
        """Commands for the devices where caches no longer fit, or fit again. They go before the commands of starts."""
        commands: list[SetCaching] = []
        if not self._changed and not self._fit.regranted:
            return commands
        self._changed.update(self._fit.regranted)
        self._fit.regranted.clear()
        for device in self._changed:
            is_kept = self._fit.keeps_caches(device)
            if is_kept == (device in self._emptied):
                self._emptied ^= {device}
                commands.append(SetCaching(self._next_id(), device, is_kept))
        self._changed.clear()
        return commands
