"""The table of a gang, in memory that its ranks and their supervisor share: at which iteration they hand over together.

All ranks must hand over after the same iteration. Otherwise one waits for its turn while another waits for it in a
collective, for ever. Ranks run ahead of each other, so none of them alone knows where the others are:

::

    rank 0   publishes 11, 12            proposes: largest published count + 2 = 15        13  14  15 ▏parks
    rank 1   publishes 11, 12, 13                                                              14  15 ▏parks, the last:
                                                                              all ranks give up the turn of their lanes

No message is sent: a rank publishes its count with one store, and then looks for a target. A proposal reads all counts
before it sets the target. A rank that has not seen the target yet is at most one iteration beyond what was read, since
its store comes before its look; the second iteration is a margin.

Afterwards the ranks take the turn of their lanes in the order of their numbers. A rank contends for the turn of its
lane only when the rank before it has the turn. So no two gangs hold what the other one waits for.

Ranks that do not get to the target together (uneven numbers of iterations, a checkpoint of one rank) are found by a
time limit. They go on then, and try again. After some failures in a row the gang keeps its lanes.
"""

from __future__ import annotations

import ctypes
import errno
import os
from enum import IntEnum
from pathlib import Path

from ecoshare.lane.tables import shared_memory
from ecoshare.lane.tables.shared_memory import OwnFile, TableLock, create_file, mapped

_MAGIC = 0x45434731
_MOST_RANKS = 64
_AHEAD = 2
"""Iterations between the largest published count and the hand-over."""

_MOST_FAILURES = 3
"""Targets in a row that not all ranks reach before the gang keeps its lanes. One may meet a checkpoint of one rank."""


class RankState(IntEnum):
    """State of a rank with respect to a hand-over."""

    RUNNING = 0
    PARKED = 1
    """The rank has reached the target, and its device has finished its work."""
    LEFT = 2
    """The script of the rank is over."""


class _Header(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("keeps", ctypes.c_uint32),
        ("releases", ctypes.c_uint32),
        ("failures", ctypes.c_uint32),
        ("target", ctypes.c_uint64),
    )


class _Rank(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint64), ("state", ctypes.c_uint32), ("has_turn", ctypes.c_uint32))


class _Layout(ctypes.Structure):
    _fields_ = (("header", _Header), ("ranks", _Rank * _MOST_RANKS))


class GangTable:
    """Memory-mapped table of one gang.

    Attributes:
        header: State of the gang as a whole: `target` (iteration; 0: none), `keeps` (1: the ranks hand over no more),
            `releases` (hand-overs so far), `failures` (targets in a row that not all ranks reached), `epoch` (changes
            with every other word but the counts).
        ranks: Published `count` of iterations and `state` of each rank, and whether it `has_turn` since the last
            hand-over.
    """

    def __init__(self, path: str | Path) -> None:
        """Map the table at `path`.

        Raises:
            OSError: If the file cannot be opened.
            ValueError: If the file is not a table of this version.
        """
        self._file = OwnFile(os.fspath(path), os.O_RDWR)
        layout = _Layout.from_buffer(mapped(self._file.number(), ctypes.sizeof(_Layout)))
        self.header = layout.header
        if self.header.magic != _MAGIC:
            raise ValueError(f"{path} is not a gang table of this version of ecoshare")
        self.ranks = list(layout.ranks)[: self.header.ranks]
        self._epoch = ctypes.addressof(self.header) + _Header.epoch.offset
        self._lock = TableLock(self._file)

    @classmethod
    def create(cls, path: Path, ranks: int) -> GangTable:
        """Make the table of a gang at `path`, which must not exist.

        Raises:
            OSError: If the file exists, there is no room, or there are too many ranks.
        """
        if ranks > _MOST_RANKS:
            raise OSError(errno.E2BIG, f"a gang has {_MOST_RANKS} ranks at most", str(path))
        layout = _Layout()
        layout.header.magic, layout.header.ranks = _MAGIC, ranks
        create_file(path, layout)
        return cls(path)

    def close(self) -> None:
        """Close the file; the mapping stays until this object goes."""
        self._file.close()

    def stopped_owner(self) -> int | None:
        """Process id of the lock's owner, if it was stopped (SIGSTOP, a debugger); else None."""
        return self._lock.stopped_owner()

    @property
    def keeps(self) -> bool:
        """Whether the ranks hand over no more."""
        return bool(self.header.keeps)

    def propose(self) -> int:
        """Iteration after which all ranks hand over; 0 if they hand over no more."""
        with self._lock:
            if not self.header.target and not self.header.keeps:
                counts = [each.count for each in self.ranks if each.state != RankState.LEFT]
                self.header.target = max(counts, default=0) + _AHEAD
            return int(self.header.target)

    def park(self, rank: int) -> int | None:
        """Note that a rank has reached the target; the last one lets all give up their turns.

        Returns:
            Number of hand-overs before this one; None if the target was given up meanwhile.
        """
        with self._lock:
            if not self.header.target:
                return None
            before = int(self.header.releases)
            self.ranks[rank].state = RankState.PARKED
            self._release_if_all_parked()
        self._wake()
        return before

    def leave(self, rank: int) -> None:
        """Note that the script of a rank is over: the others hand over without it."""
        with self._lock:
            self.ranks[rank].state = RankState.LEFT
            self._release_if_all_parked()
        self._wake()

    def has_released(self, before: int) -> bool:
        """Whether there was a hand-over since a rank parked. Ask this when the rank is parked no more.

        Args:
            before: Number of hand-overs when it parked.
        """
        with self._lock:  # a release changes several words
            return bool(self.header.releases != before)

    def retreat(self, before: int) -> bool:
        """Let parked ranks go on without a hand-over. Return whether the gang keeps its lanes from now on.

        Args:
            before: Number of hand-overs when the caller parked: if there was another one since, nothing changes.
        """
        with self._lock:
            if self.header.releases != before or self.header.keeps or not self.header.target:
                return False
            self._go_on()
            self.header.failures += 1
            self.header.keeps = self.header.failures >= _MOST_FAILURES
            keeps = bool(self.header.keeps)
        self._wake()
        return keeps

    def keep(self) -> None:
        """Let the ranks hand over no more."""
        with self._lock:
            self._go_on()
            self.header.keeps = 1
        self._wake()

    def _go_on(self) -> None:
        self.header.target = 0
        for each in self.ranks:
            if each.state == RankState.PARKED:
                each.state = RankState.RUNNING

    def is_barred(self, rank: int) -> bool:
        """Whether a rank may not have its turn yet, since a rank before it has not."""
        return any(each.state != RankState.LEFT and not each.has_turn for each in self.ranks[:rank])

    @property
    def all_have_turn(self) -> bool:
        """Whether every rank that has not left has its turn."""
        return not self.is_barred(len(self.ranks))

    def got_turn(self, rank: int) -> None:
        """Note that a rank has its turn, so that the next one may have its own."""
        with self._lock:
            self.ranks[rank].has_turn = 1
        self._wake()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Sleep until the table has changed since its `epoch` was `seen`, for at most `timeout_s`."""
        shared_memory.futex_wait(self._epoch, seen, timeout_s)

    def _release_if_all_parked(self) -> None:
        states = [each.state for each in self.ranks]
        if RankState.RUNNING in states or RankState.PARKED not in states:
            return
        for each in self.ranks:
            if each.state == RankState.PARKED:
                each.state, each.has_turn = RankState.RUNNING, 0
        self.header.target = self.header.failures = 0
        self.header.releases += 1

    def _wake(self) -> None:
        self.header.epoch += 1
        for _ in self.ranks:
            shared_memory.futex_wake(self._epoch)
