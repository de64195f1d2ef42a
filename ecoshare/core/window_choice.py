"""When a profiling window opens: its job is warm, and its device can bear the pause."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ecoshare.core.commands import Command, ProfileJob
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.power_budget import PowerBudget
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job
from ecoshare.core.run_state import RunState
from ecoshare.core.setting_selection import SettingSelector
from ecoshare.core.states import JobState


class WindowChoice:
    """Decides which job is measured in a window now."""

    def __init__(
        self,
        profiling: Profiling,
        placement: PlacementStrategy,
        settings: SettingSelector | PowerBudget,
        state: RunState,
        ids: Callable[[], int],
    ) -> None:
        """No window is open.

        Args:
            profiling: Profiling windows.
            placement: Placement strategy of the run.
            settings: Settings in force.
            state: State of the run.
            ids: Returns the id of the next command.
        """
        self._profiling, self._placement, self._settings = profiling, placement, settings
        self._state, self._ids = state, ids

    def open_for(self, job: Job, at_s: float) -> list[Command]:
        """Open a window for this job if it is wanted now, and the other jobs of the device can wait."""
        if not self._may_open(job, at_s):
            return []
        command = self._ids()
        self._profiling.begin(command, job)
        return [ProfileJob(command, job.spec.name, job.attempt)]

    def open_on(self, devices: Iterable[str], at_s: float) -> list[Command]:
        """Open a window for the first job on each of these devices that may have one now."""
        by_device = self._placement.lane_index.devices
        jobs = [job for name in devices for lane in by_device[name] for job in lane.jobs.values()]
        return [command for job in jobs for command in self.open_for(job, at_s)]

    def _may_open(self, job: Job, at_s: float) -> bool:
        if self._state.stopping or not self._profiling.wants(job, at_s) or not self._placement.may_profile(job):
            return False
        if not all(self._settings.at_default(lane) for lane in job.lanes):
            return False
        by_device = self._placement.lane_index.devices
        beside = [each for name in set(job.device_names) for lane in by_device[name] for each in lane.jobs.values()]
        if any(each.state in (JobState.PARKING, JobState.RESUMING) or each.spec.service is not None for each in beside):
            return False
        return not any(self._profiling.comes_up(each, at_s) for each in beside if each.lanes != job.lanes)
