"""Queue: waiting jobs start in the order of the policy, and no running job gives up its place."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.steps import Start
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.records import Job


class QueuePlacement(PlacementStrategy):
    """Strategy of a policy that only orders jobs, and of a run in which jobs share lanes by turns."""

    def __init__(self, parts: PlacementParts) -> None:
        super().__init__(parts)
        self._admission = Admission(self.policy, self.waiting, self.lane_index, self.fit)

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Start]:
        return self._admission.walk()
