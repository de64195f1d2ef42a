"""Turns of the ranks of a gang, as their traces have them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from ecoshare.lane import trace
from ecoshare.lane.supervisor.gang import folder_of
from ecoshare.lane.trace import Kind


@dataclass(frozen=True)
class GangTurns:
    """Turns of a gang in its last attempt.

    Attributes:
        iterations: Training iterations of each rank in each turn, in order; None for a turn that a rank did not have.
    """

    iterations: tuple[tuple[int | None, ...], ...]

    @property
    def together(self) -> int:
        """Number of turns that all ranks ended after the same iteration."""
        return sum(len(set(turn)) == 1 for turn in self.iterations)


def turns(folder: Path, ranks: int = 2, attempt: int = 1) -> GangTurns:
    """Turns of the gang with this job folder.

    Raises:
        OSError: A rank has no trace of this attempt.
    """
    each = [_of_rank(folder if rank == 0 else folder_of(folder, rank), attempt) for rank in range(ranks)]
    return GangTurns(tuple(zip_longest(*each)))


def _of_rank(folder: Path, attempt: int) -> list[int]:
    found: list[int] = []
    for mark in trace.read(trace.trace_path(folder, attempt)):
        if mark.kind is Kind.TURN_BEGINS:
            found.append(0)
        elif mark.kind is Kind.TRAIN and found:
            found[-1] += 1
    return found
