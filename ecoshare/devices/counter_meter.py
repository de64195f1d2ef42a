"""Meter of a GPU with an energy counter in its driver, for all vendors.

zeus knows which boards have a counter, and gives the driver's errors types. ecoshare does not use the windows of zeus:
differences of one growing number have no gaps between them. ecoshare does not use the GPU list of zeus either: zeus
takes `CUDA_VISIBLE_DEVICES` for a list of numbers, and ecoshare finds GPUs by UUID.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median

from ecoshare.devices.meter import MeterFault, MeterInfo, Reading
from ecoshare.errors import UnfitEnvironment
from ecoshare.values.joules import MEASURED

_LOOK_EVERY_S = 0.004
_UPDATES = 5
_LONGEST_S = 1.5
"""How a counter is watched: time (s) between looks, number of updates, and time (s) until it counts as stopped."""


class CounterMeter:
    """Counts the joules of one GPU and of everything on its board."""

    def __init__(self, name: str, energy_j: Callable[[], float], looks: float = 1.0) -> None:
        """Prepare a meter. Call `open` before `read`.

        Args:
            name: Short name of the meter, such as `nvml`.
            energy_j: Returns the counter (J). It raises `UnfitEnvironment` if there is no counter or no answer.
            looks: Part of each of its periods in which the counter looks at the power.
        """
        self._name, self._energy_j, self._looks = name, energy_j, looks
        self._last_j = 0.0
        self._period_s = 0.0

    @property
    def info(self) -> MeterInfo:
        """Description of this meter."""
        about = f"the GPU's energy counter, updated every {1000 * self._period_s:.0f} ms"
        if self._looks < 1.0:
            about += f", which looks {self._looks:.0%} of the time"
        return MeterInfo(self._name, MEASURED, "gpu", about, self._period_s, self._looks)

    def open(self) -> CounterMeter:
        """Find the counter and measure its update period: the median over a few updates.

        Raises:
            MeterFault: This GPU has no counter, or the counter stands still for 1.5 s.
            UnfitEnvironment: The driver fails.
        """
        self._period_s = self._watch()
        self._last_j = 0.0
        return self

    def read(self) -> Reading:
        """Joules since the driver was loaded.

        Raises:
            MeterFault: The GPU does not answer, or its counter went back.
        """
        before_s = time.monotonic()
        energy_j = self._joules()
        at_s = (before_s + time.monotonic()) / 2
        if energy_j < self._last_j:
            back_j, self._last_j = self._last_j - energy_j, energy_j
            raise MeterFault(f"the GPU's energy counter went back by {back_j:.1f} J: the driver was reloaded, say")
        self._last_j = energy_j
        return Reading(at_s, energy_j)

    def _joules(self) -> float:
        try:
            return self._energy_j()
        except UnfitEnvironment as error:
            raise MeterFault(str(error), error.hint) from error

    def _watch(self) -> float:
        """Median time (s) between updates of the counter, found by reading it much more often."""
        began_s = time.monotonic()
        value_j = self._joules()
        moved_s: list[float] = []
        while len(moved_s) < _UPDATES:
            time.sleep(_LOOK_EVERY_S)
            now_s, now_j = time.monotonic(), self._joules()
            if now_j != value_j:
                value_j = now_j
                moved_s.append(now_s)
            elif now_s - began_s > _LONGEST_S and len(moved_s) < 2:
                raise MeterFault(f"the GPU's energy counter stood still for {_LONGEST_S} s")
        return median(later - earlier for earlier, later in itertools.pairwise(moved_s))
