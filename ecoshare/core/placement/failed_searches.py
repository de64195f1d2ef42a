"""Searches for room on one node that found none: what must change before they are worth repeating."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.records import Job, Key, Lane

Yields = Callable[[Lane, Key, float], bool]
"""Whether a lane is free, will be, or is held by a job that would give way to one at this place in the order now."""


@dataclass(slots=True)
class _Failure:
    """Of the jobs that need so many devices of one node.

    Attributes:
        place: The first in the order for whom there was no room.
        unknown: Nodes on which that may have changed.
    """

    place: Key
    unknown: set[str] = field(default_factory=set)


class FailedSearches:
    """Whom there is no room for, in the order, by devices.

    For those behind there is none either, and on a node where nobody came, went or moved in the order there is none
    still, as long as no job falls back in the order just by running. So only a few nodes are looked at again.
    """

    def __init__(self, room: LaneIndex, yields: Yields) -> None:
        self._room, self._yields = room, yields
        self._failures: dict[int, _Failure] = {}

    def note(self, job: Job, claimed: Set[str]) -> None:
        """There is no room for a job, leaving nodes aside that others have a claim on."""
        self._failures[job.spec.gpus] = _Failure(job.place, set(claimed))

    def touch(self, nodes: Iterable[str]) -> None:
        """Something has changed on these nodes."""
        for failure in self._failures.values():
            failure.unknown.update(nodes)

    def stands(self, job: Job, at_s: float) -> bool:
        """Whether it is known that there is no room for a job."""
        failure = self._failures.get(job.spec.gpus)
        if failure is None or job.place < failure.place:
            return False
        failure.place = job.place
        while failure.unknown:
            node = next(iter(failure.unknown))
            if self._has_room(node, job, at_s):
                return False
            failure.unknown.remove(node)
        return True

    def _has_room(self, node: str, job: Job, at_s: float) -> bool:
        lanes = self._room.nodes[node]
        spare = len(lanes) - job.spec.gpus
        for lane in lanes:
            if not self._yields(lane, job.place, at_s):
                spare -= 1
                if spare < 0:
                    return False
        return True
