"""One rank's side of the turn of its gang: it hands over with the other ranks, and takes its turn after them.

See `gang_table.py` for how the ranks agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from ecoshare.lane.tables.gang_table import GangTable, RankState
from ecoshare.lane.tables.lane_table import LaneTable

UNEVEN = "its ranks do not end their iterations together"
"""Reason for which a gang keeps its lanes."""

_LOOK_AGAIN_S = 1.0
_TOGETHER_WITHIN_S = 5.0
"""Longest time (s) that ranks wait for the last one to reach the hand-over, beside some of its iterations."""

_ITERATIONS = 4


class RankTurn(Protocol):
    """The turn of the rank in its lane, as this module uses it: see `LaneTurn`."""

    @property
    def is_due(self) -> bool:
        """Whether the turn should be offered at this boundary."""
        ...

    @property
    def longest_iteration_s(self) -> float:
        """Longest iteration (s) of late."""
        ...

    def leave_out(self, pause_s: float) -> None:
        """Leave a pause (s) out of the time of the next iteration."""
        ...

    def regain(self) -> None:
        """Take the turn if the job wants it and does not have it."""
        ...

    def yield_turn(self) -> None:
        """Give up the turn, and wait for it again."""
        ...

    def stop_if_asked(self, drain: Callable[[], None]) -> None:
        """End the job if it was asked to end."""
        ...


class GangTurn:
    """A rank among the ranks of its gang."""

    def __init__(self, table: GangTable, rank: int, lanes: list[tuple[str, int]], note: Callable[[str], None]) -> None:
        """Rank that has had no turn yet.

        Args:
            table: Table of the gang.
            rank: Number of the rank.
            lanes: Path of the lane's table and slot there of each rank.
            note: Writes down why the gang keeps its lanes.
        """
        self._table, self._rank, self._note = table, rank, note
        self._own, self._header, self._lanes = table.ranks[rank], table.header, lanes
        self._tables: dict[int, LaneTable] = {}  # tables of the lanes of later ranks
        self._has_begun = False

    @property
    def is_barred(self) -> bool:
        """Whether the rank may not have its turn yet, since a rank before it has not."""
        return self._table.is_barred(self._rank)

    def boundary(self, turn: RankTurn, drain: Callable[[], None]) -> None:
        """Count an iteration that has ended, and hand over if it is time for the whole gang.

        Args:
            turn: Turn of the rank in its lane.
            drain: Waits until the device has finished the rank's work.
        """
        turn.regain()
        count = self._own.count + 1
        self._own.count = count  # before the look at the target: see the table
        target = self._header.target
        if not target:
            if not turn.is_due or self._header.keeps:
                return
            target = self._table.propose()
        if target and count >= target:
            self._hand_over(turn, drain)

    def got_turn(self, is_stopped: Callable[[], bool]) -> None:
        """Let the next rank have its turn. After a hand-over, return when all ranks have theirs.

        Args:
            is_stopped: Whether the job was asked to end: the other ranks then end without their turns.
        """
        self._table.got_turn(self._rank)
        self._admit_next()
        if self._has_begun:  # before the first hand-over, a rank may wait for what this one does with its turn
            self._wait_until(lambda: self._table.all_have_turn or is_stopped())
        self._has_begun = True

    def keep(self, why: str) -> None:
        """Let the gang keep its lanes from now on.

        Args:
            why: Reason in words.
        """
        if not self._header.keeps:
            self._table.keep()
            self._note(why)

    def leave(self) -> None:
        """Leave the gang: the script of the rank is over."""
        self._table.leave(self._rank)
        self._admit_next()

    def _admit_next(self) -> None:
        """Let the next rank that has not left have its turn, unless a rank before it has none."""
        for rank in range(self._rank + 1, len(self._lanes)):
            if self._table.ranks[rank].state != RankState.LEFT:
                if not self._table.is_barred(rank):
                    path, slot = self._lanes[rank]
                    table = self._tables[rank] = self._tables.get(rank) or LaneTable(path)
                    table.unbar(slot)
                return

    def _hand_over(self, turn: RankTurn, drain: Callable[[], None]) -> None:
        drain()
        before = self._table.park(self._rank)
        if before is None:
            return
        within_s, began_s = _TOGETHER_WITHIN_S + _ITERATIONS * turn.longest_iteration_s, time.monotonic()
        if not self._wait_until(lambda: self._own.state != RankState.PARKED, within_s) and self._table.retreat(before):
            self._note(UNEVEN)
        turn.leave_out(time.monotonic() - began_s)
        if not self._table.has_released(before):
            return  # not all ranks have come
        turn.stop_if_asked(drain)
        turn.yield_turn()

    def _wait_until(self, reached: Callable[[], bool], within_s: float = float("inf")) -> bool:
        """Wait until the table shows something. Return False if it does not in time."""
        until_s = time.monotonic() + within_s
        while True:
            seen = self._header.epoch
            if reached():
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0.0:
                return False
            self._table.wait(seen, min(left_s, _LOOK_AGAIN_S))
