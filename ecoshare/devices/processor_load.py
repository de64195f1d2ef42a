"""How busy other programs keep the processors that this process may use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

QUIET = "ECOSHARE_ASSUME_QUIET"
"""Environment variable that, when set to 1, has nothing looked for: `/proc/stat` may be that of a larger host."""

_BUSY, _IDLE_LEFT = 0.15, 0.25
"""Parts of the processors: programs that keep more than the first busy disturb, where less than the second is idle."""

_SHORTEST_S = 0.1
"""Time below which ticks of 10 ms tell too little."""

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Totals since the machine was started, over the processors that this process may use.

    Attributes:
        busy_s: Time in programs, in the kernel, or stolen by other guests of the host.
        idle_s: Time without work, waits for disks included.
        processors: Number of processors.
    """

    busy_s: float
    idle_s: float
    processors: int

    @classmethod
    def now(cls) -> ProcessorTimes | None:
        """Totals as of now; None where they cannot be read, or the user has said that the machine is quiet."""
        if os.environ.get(QUIET) == "1":
            return None
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        try:
            lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
            rows = [[int(field) for field in words[1:9]] for words in lines if words and words[0] in mine]
        except (OSError, ValueError):
            return None
        if not rows or min(map(len, rows)) < 8:
            return None
        # user, nice, system, idle, iowait, irq, softirq, steal: proc(5); time of guests is part of user and nice
        idle = sum(row[3] + row[4] for row in rows)
        return cls((sum(map(sum, rows)) - idle) / _TICKS_A_SECOND, idle / _TICKS_A_SECOND, len(rows))

    def others_since(self, before: ProcessorTimes, own_s: float) -> OtherLoad | None:
        """What other programs took between two moments; None where too little time has passed to tell.

        Args:
            own_s: Processor time that is not theirs.
        """
        busy_s, idle_s = self.busy_s - before.busy_s, self.idle_s - before.idle_s
        wall_s = (busy_s + idle_s) / self.processors
        if wall_s < _SHORTEST_S:
            return None
        return OtherLoad(max(0.0, busy_s - own_s) / wall_s, idle_s / wall_s, self.processors)


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """Work of other programs in some time.

    Attributes:
        busy: Processors that they kept busy, on average.
        idle: Processors that were idle, on average.
        processors: Number of processors.
    """

    busy: float
    idle: float
    processors: int

    @property
    def disturbs(self) -> bool:
        """Whether it changes what is measured: it is more than a little, and little is left."""
        return self.busy > _BUSY * self.processors and self.idle < _IDLE_LEFT * self.processors

    def __str__(self) -> str:
        return f"{self.busy:.1f} of {self.processors} processors"


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """Watches what other programs do, from a moment on.

    Attributes:
        times: Totals at that moment; None where they cannot be read.
        own_s: Processor time that is not theirs, by then.
        own: Tells that time.
    """

    times: ProcessorTimes | None
    own_s: float
    own: Callable[[], float]

    @classmethod
    def begin(cls, own: Callable[[], float] = time.process_time) -> LoadWatch:
        """A watch that begins now.

        Args:
            own: Tells the processor time that is not of other programs; by default that of this process.
        """
        return cls(ProcessorTimes.now(), own(), own)

    def disturbance(self) -> OtherLoad | None:
        """What other programs keep busy since then; None where they leave room, or it cannot be told."""
        now = ProcessorTimes.now()
        if self.times is None or now is None:
            return None
        load = now.others_since(self.times, self.own() - self.own_s)
        return load if load is not None and load.disturbs else None

    def words(self) -> str:
        """The same in words, with the machine's load; empty for None."""
        load = self.disturbance()
        return f"other programs keep {load} busy (load {os.getloadavg()[0]:.1f})" if load is not None else ""
