"""Trial packing: two jobs are co-located on trial, and the newcomer gives way if the packing does not pay."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.steps import GiveWay, Park, Step
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.placement.trial_packing import TrialPacking, trial_class
from ecoshare.core.policies.base import TrialPackingPolicy
from ecoshare.core.records import Job
from ecoshare.core.states import JobState


class TrialPlacement(PlacementStrategy):
    """Strategy of a policy that packs on trial.

    Attributes:
        trial_packing: Open trial packings, and the search for a place beside another job.
    """

    watches_neighbours = True

    def __init__(self, parts: PlacementParts, policy: TrialPackingPolicy, crowds: bool) -> None:
        """Strategy without jobs.

        Args:
            parts: Parts of the run.
            policy: Policy that judges the packings.
            crowds: Whether a device may have more than two jobs: lanes of several places, or more than two lanes.
        """
        super().__init__(parts, trial_class)
        self.trial_packing = TrialPacking(policy, self.lane_index, crowds, self._gives_way)
        self._admission = Admission(self.policy, self.waiting, self.lane_index, self.fit, self.trial_packing)

    def takes(self, job: Job, fused: bool) -> None:
        """Note that a job of the queue has got its places."""
        super().takes(job, fused)
        self.trial_packing.takes(job)

    def started(self, job: Job, at_s: float) -> Iterator[Step]:
        """Steps after a job has begun to run. A trial packing may begin."""
        self.trial_packing.started(job)
        return super().started(job, at_s)

    def progressed(self, job: Job, settled: bool, at_s: float) -> Iterator[Step]:
        """Steps after a job has told its progress. A decided trial packing opens its lanes to more jobs."""
        if self._state.stopping or job.state is not JobState.RUNNING:
            return
        settled = settled and not any(self._profiling.occupies(lane) for lane in job.lanes)
        is_over, loser = self.trial_packing.told(job, settled)
        if loser is not None:
            reason = "the two were slower beside each other than in turn"
            yield Park(loser, None, reason) if self.host.may_park(loser) else GiveWay([loser], None, reason)
        elif is_over:
            yield from self.fill(at_s)

    def _gives_way(self, job: Job) -> bool:
        return job.state is JobState.RUNNING and (job.spec.movable or self.host.may_park(job))

    def left(self, job: Job) -> None:
        """Note that a job is about to leave its places."""
        self.trial_packing.left(job)

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        return self._admission.walk(at_s)
