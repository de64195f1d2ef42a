"""Review of the settings: which packings a device has, and whether they will last, decides what is set or searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ecoshare.core.commands import Command
from ecoshare.core.events import RunOpened, SettingAnswer
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.power_budget import PowerBudget
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job
from ecoshare.core.run_state import RunState
from ecoshare.core.setting_selection import SettingSelector


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
                opened.known_settings, search, next_id, placement.present, observe, placement.bear
            )

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
        return not self._profiling.occupies(first) and self._placement.is_settled(device)

    def answered(self, event: SettingAnswer) -> tuple[str, list[Command]]:
        """Device that the answer to a command is about, and the commands that follow from the answer."""
        device = self.selector.device_of(event.command)
        lanes = self._placement.lane_index.devices[device]
        if isinstance(self.selector, PowerBudget):
            return device, self.selector.answered(event, lanes)
        return device, self.selector.answered(event, lanes, self._is_ready(device))
