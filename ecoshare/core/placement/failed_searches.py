"""Failed searches for room on one node, and the nodes that must change before a search is worth repeating."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.records import Job, Key, Lane

Yields = Callable[[Lane, Key, float], bool]
"""Whether a lane is free, will be free, or is held by a job that would give way now to a job with this key."""


@dataclass(slots=True)
class _Failure:
    """Failed search for one number of devices on one node.

    Attributes:
        place: Key from which on no job has room on the known nodes.
        unknown: Nodes on which that may have changed.
    """

    place: Key
    unknown: set[str] = field(default_factory=set)


class FailedSearches:
    """Failed searches for room on one node, by the number of devices.

    If a job has no room, no job behind it in the order has any. A node stays without room until a job comes, goes or
    moves in the order there, as long as no job falls back in the order by running. So few nodes are searched again.
    """

    def __init__(self, lane_index: LaneIndex, yields: Yields) -> None:
        self._lane_index, self._yields = lane_index, yields
        self._failures: dict[int, _Failure] = {}

    def note(self, job: Job, claimed: Set[str]) -> None:
        """Note that there is no room for a job. Nodes that other jobs have claimed were not searched."""
        self._failures[job.spec.gpus] = _Failure(job.place, set(claimed))

    def touch(self, nodes: Iterable[str]) -> None:
        """Note that something has changed on these nodes."""
        for failure in self._failures.values():
            failure.unknown.update(nodes)

    def stands(self, job: Job, at_s: float) -> bool:
        """Whether a failed search still holds for a job: it has no room on any node. Changed nodes are searched."""
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
        lanes = self._lane_index.nodes[node]
        spare = len(lanes) - job.spec.gpus
        for lane in lanes:
            if not self._yields(lane, job.place, at_s):
                spare -= 1
                if spare < 0:
                    return False
        return True
