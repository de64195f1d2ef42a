"""A job that has the turns of others cut at random moments, inside their iterations."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_SLOT, SLOTS, CutState, SlotState
from ecoshare.lane.turn import LaneTurn
from tests.lane.served_lane import ServedLane


class EagerTable(LaneTable):
    """Table for a job that never waits for a boundary, if the holder can be cut."""

    def cut_at_s(self, index: int, now_s: float) -> float:
        holder = self.header.holder
        can_be = holder not in (NO_SLOT, index) and self.slots[holder].cut != CutState.NEVER and not self.header.empties
        return -math.inf if can_be else math.inf


@dataclass
class Cuts:
    """Cuts so far.

    Attributes:
        count: Number of cuts.
    """

    count: int = 0


@contextmanager
def competitor(lane: ServedLane) -> Iterator[LaneTurn]:
    """Claim of a job that has the turn of the holder cut as soon as it wants it."""
    table = EagerTable(lane.table.path)
    place = next(each for each in range(SLOTS) if table.slots[each].seat == SlotState.EMPTY)
    table.seat(place)
    try:
        yield LaneTurn(table, place, on_processors=True)
    finally:
        table.free(place)


@contextmanager
def cutting(lane: ServedLane, seed: int = 0, longest_s: float = 0.01) -> Iterator[Cuts]:
    """Context in which the turns of a job are cut, after pauses of up to `longest_s`, for turns of no length."""
    slots, found, is_over, draw = lane.table.slots, Cuts(), threading.Event(), random.Random(seed)

    def cut() -> None:
        last = sum(each.cuts for each in slots)
        while not is_over.is_set():
            time.sleep(draw.uniform(0.0, longest_s))
            turn.take()
            now = sum(each.cuts for each in slots)
            found.count += max(0, now - last)
            last = now
            turn.leave()

    with competitor(lane) as turn:
        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield found
        finally:
            is_over.set()
            thread.join()
