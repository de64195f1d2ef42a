"""Reviews of the devices: when a window opens, and when a packing gets a setting that is known, or a search for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ecoshare.core.commands import Command, ProfileJob
from ecoshare.core.events import RunOpened, SettingAnswer
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.core.run_state import RunState
from ecoshare.core.settings.power_budget import PowerBudget
from ecoshare.core.settings.profiling_windows import Profiling
from ecoshare.core.settings.setting_selection import SettingSelector


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


class SettingReview:
    """Review of the settings of all devices.

    Attributes:
        selector: Selection of settings; in a run with a power budget, the budget.
    """

    def __init__(
        self,
        opened: RunOpened,
        placement: PlacementStrategy,
        profiling: Profiling,
        state: RunState,
        next_id: Callable[[], int],
    ) -> None:
        """Review with all devices at their default settings.

        Args:
            opened: Opening of the run.
            placement: Placement strategy of the run.
            profiling: Profiling windows.
            state: State of the run.
            next_id: Function that returns the id of the next command.
        """
        self._placement, self._profiling = placement, profiling
        search = opened.config.search
        observe = placement.learns_speeds and opened.config.profile and not search
        self._observes = observe
        self.selector: SettingSelector | PowerBudget
        if opened.config.sets_limits:
            self.selector = PowerBudget(opened, state, placement.objective, placement.present, next_id, placement.bear)
        else:
            self.selector = SettingSelector(
                opened.known_settings, search, next_id, self._known_packing, observe, placement.bear
            )

    def _known_packing(self, lanes: Iterable[Lane]) -> list[Job]:
        """Jobs that make up the packing of a device; none while other runs have jobs there: those are not known."""
        return [] if self._profiling.others else self._placement.present(lanes)

    def begin(self) -> list[Command]:
        """Commands at the beginning of a run: those that bring the limits into a power budget."""
        return self.selector.begin() if isinstance(self.selector, PowerBudget) else []

    def look(self, devices: Sequence[str] = ()) -> list[Command]:
        """Commands that set or search the settings of these devices, or of all devices if none is named."""
        if not self.selector.active:
            return []
        by_device = self._placement.lane_index.devices
        commands: list[Command] = []
        for name in devices or by_device:
            if self._profiling.occupies(by_device[name][0]):  # it is measured at its present setting
                continue
            ready = self.selector.tries and self._is_ready(name)
            if self._observes and self._placement.awaits_estimates:
                ready = False  # a measurement now would hold a group that may be another one in a moment
            commands += self.selector.look(name, by_device[name], ready)
        return commands

    def missed(self, service: Job) -> list[Command] | None:
        """Commands that give up the setting at which a service has missed its target; None if no setting is at fault.

        A power budget keeps its limits: they are no choice.
        """
        if isinstance(self.selector, PowerBudget) or not service.lanes:
            return None
        name = service.lanes[0].device.name
        return self.selector.missed(name, self._placement.lane_index.devices[name])

    def _is_ready(self, device: str) -> bool:
        """Whether the packing of a device will last, as a search needs: no job will start, move or be profiled."""
        first = self._placement.lane_index.devices[device][0]
        is_free = not self._profiling.others and not self._profiling.occupies(first)
        return is_free and self._placement.is_settled(device)

    def answered(self, event: SettingAnswer) -> tuple[str, list[Command]]:
        """Device that the answer to a command is about, and the commands that follow from the answer."""
        device = self.selector.device_of(event.command)
        lanes = self._placement.lane_index.devices[device]
        if isinstance(self.selector, PowerBudget):
            return device, self.selector.answered(event, lanes)
        return device, self.selector.answered(event, lanes, self._is_ready(device))
