"""Measures how busy other programs keep the processors that this process may use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

QUIET = "ECOSHARE_ASSUME_QUIET"
"""Environment variable: 1 switches the check off, since `/proc/stat` may be that of a larger host."""

_BUSY, _IDLE_LEFT = 0.15, 0.25
"""Shares of the processors. Programs disturb if they keep more than the first busy and less than the second is idle."""

_SHORTEST_S = 0.1
"""Shortest interval (s) that is judged: `/proc/stat` counts ticks of 10 ms."""

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Totals since the machine started, over the processors that this process may use.

    Attributes:
        busy_s: Processor time (s) in programs, in the kernel, or stolen by other guests of the host.
        idle_s: Processor time (s) without work, waits for disks included.
        processors: Number of processors.
    """

    busy_s: float
    idle_s: float
    processors: int

    @classmethod
    def now(cls, processors: Iterable[int] = ()) -> ProcessorTimes | None:
        """Present totals; None if they cannot be read, or if `ECOSHARE_ASSUME_QUIET` is 1.

        Args:
            processors: Numbers of the processors that count; none for all that this process may use.
        """
        if os.environ.get(QUIET) == "1":
            return None
        mine = {f"cpu{number}" for number in processors or os.sched_getaffinity(0)}
        try:
            lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
            rows = [[int(field) for field in words[1:9]] for words in lines if words and words[0] in mine]
        except (OSError, ValueError):
            return None
        if not rows or min(map(len, rows)) < 8:
            return None
        # user, nice, system, idle, iowait, irq, softirq, steal (proc(5)); user and nice include the time of guests
        idle = sum(row[3] + row[4] for row in rows)
        return cls((sum(map(sum, rows)) - idle) / _TICKS_A_SECOND, idle / _TICKS_A_SECOND, len(rows))

    def others_since(self, before: ProcessorTimes, own_s: float) -> OtherLoad | None:
        """Load of other programs since `before`; None if the interval is too short to judge.

        Args:
            before: Totals at the start of the interval.
            own_s: Processor time (s) in the interval that is not of other programs.
        """
        busy_s, idle_s = self.busy_s - before.busy_s, self.idle_s - before.idle_s
        wall_s = (busy_s + idle_s) / self.processors
        if wall_s < _SHORTEST_S:
            return None
        return OtherLoad(max(0.0, busy_s - own_s) / wall_s, idle_s / wall_s, self.processors)


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """Mean load of other programs over an interval.

    Attributes:
        busy: Mean number of processors that other programs kept busy.
        idle: Mean number of idle processors.
        processors: Number of processors that this process may use.
    """

    busy: float
    idle: float
    processors: int

    @property
    def disturbs(self) -> bool:
        """Whether the load changes measurements: other programs keep more than a little busy, and little is idle."""
        return self.busy > _BUSY * self.processors and self.idle < _IDLE_LEFT * self.processors

    def __str__(self) -> str:
        return f"{self.busy:.1f} of {self.processors} processors"


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """Watches the load of other programs from a moment on.

    Attributes:
        times: Totals at that moment; None if unknown.
        own_s: Processor time (s) until that moment that is not of other programs.
        own: Returns that processor time (s) as of now.
        processors: Numbers of the processors that are watched; none for all that this process may use.
    """

    times: ProcessorTimes | None
    own_s: float
    own: Callable[[], float]
    processors: Sequence[int] = ()

    @classmethod
    def begin(cls, own: Callable[[], float] = time.process_time, processors: Sequence[int] = ()) -> LoadWatch:
        """Begin to watch now.

        Args:
            own: Returns the processor time (s) that is not of other programs; by default that of this process.
            processors: Numbers of the processors to watch; none for all that this process may use.
        """
        return cls(ProcessorTimes.now(processors), own(), own, processors)

    def others_s(self) -> float | None:
        """Processor time (s) of other programs since the start; None if it is unknown."""
        now = ProcessorTimes.now(self.processors)
        if self.times is None or now is None:
            return None
        return max(0.0, now.busy_s - self.times.busy_s - (self.own() - self.own_s))

    def disturbance(self) -> OtherLoad | None:
        """Load of other programs since the start, if it disturbs; None if it does not, or if it is unknown."""
        now = ProcessorTimes.now(self.processors)
        if self.times is None or now is None:
            return None
        load = now.others_since(self.times, self.own() - self.own_s)
        return load if load is not None and load.disturbs else None

    def words(self) -> str:
        """Result of `disturbance` in words, with the machine's load average; empty for None."""
        load = self.disturbance()
        return f"other programs keep {load} busy (load {os.getloadavg()[0]:.1f})" if load is not None else ""
