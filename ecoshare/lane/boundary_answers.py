"""Answers of a job to what the controller asks of it at a boundary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ecoshare.lane.table_layout import BoundaryRequest, Slot

_LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class BoundaryAnswers:
    """Answers in the slot of one job.

    Attributes:
        slot: Returns the present slot of the job, which may move to another lane.
    """

    slot: Callable[[], Slot]

    def limit(self, change: Callable[[int], bool]) -> None:
        """Answer the request `LIMIT`: change the memory limit with `change`, which returns False if that cannot be."""
        slot = self.slot()
        most_bytes = slot.cap_bytes
        is_kept = change(most_bytes)
        if is_kept:
            slot.limited_bytes = most_bytes
        if slot.ask == BoundaryRequest.LIMIT:  # else another request has come meanwhile, and this one comes again
            slot.ask = BoundaryRequest.NOTHING if is_kept else BoundaryRequest.UNFIT

    def give(self, answer: BoundaryRequest) -> None:
        """Answer the request of the controller."""
        self.slot().ask = answer

    def stay(self, longest_s: float) -> None:
        """Wait until the controller has taken note of the answer, for at most `longest_s`."""
        end_s = time.monotonic() + longest_s
        while self.slot().ask == BoundaryRequest.OBSERVED:
            if time.monotonic() > end_s:
                self.slot().ask = BoundaryRequest.NOTHING
                break
            time.sleep(_LOOK_S)
