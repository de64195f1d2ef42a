"""When a profiling window may open: its device must bear the pause."""

from __future__ import annotations

from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job
from ecoshare.core.run_state import RunState
from ecoshare.core.states import JobState


class WindowChoice:
    """Decides whether a job is measured in a window now."""

    def __init__(self, profiling: Profiling, placement: PlacementStrategy, state: RunState) -> None:
        """No window is open.

        Args:
            profiling: Profiling windows.
            placement: Placement strategy of the run.
            state: State of the run.
        """
        self._profiling, self._placement, self._state = profiling, placement, state

    def may_open(self, job: Job, at_s: float) -> bool:
        """Whether a window for this job may open now: it is wanted, and the other jobs of the device can wait."""
        if self._state.stopping or not self._profiling.wants(job, at_s) or not self._placement.may_profile(job):
            return False
        by_device = self._placement.lane_index.devices
        beside = [each for name in set(job.device_names) for lane in by_device[name] for each in lane.jobs.values()]
        if any(each.state in (JobState.PARKING, JobState.RESUMING) or each.spec.service is not None for each in beside):
            return False
        return not any(self._profiling.comes_up(each, at_s) for each in beside if each.lanes != job.lanes)
