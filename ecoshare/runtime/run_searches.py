"""The searches for settings on all devices of a run. They belong to the run, and their devices to its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ecoshare.core.commands import AskSetting, MeasureSetting
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.setting_searches import Searching
from ecoshare.values.device import DeviceInfo

if TYPE_CHECKING:
    from ecoshare.advisers.advice import Advice
    from ecoshare.advisers.setting_adviser import TunerAdviser


def load() -> None:
    """Import what advisers need, which takes seconds the first time."""
    import ecoshare.advisers.setting_adviser  # noqa: F401


class RunSearches:
    """Searches for settings on the devices of a run; none without arguments."""

    def __init__(
        self,
        searching: Mapping[str, Searching] | None = None,
        make: Callable[[DeviceInfo], Searching] | None = None,
    ) -> None:
        """Searches that have not begun.

        Args:
            searching: Searches on each device, by its name.
            make: Makes those of a device that joins the run; None if nothing is searched there.
        """
        self._searching, self._make = dict(searching or {}), make
        self._advisers: dict[str, TunerAdviser] = {}

    def begin(self, profiler: Profiler, jobs: Mapping[str, PlannedJob]) -> None:
        """Make the advisers; see `Searching.adviser`."""
        self._profiler, self._jobs = profiler, jobs
        self._advisers = {name: each.adviser(profiler, jobs) for name, each in self._searching.items()}

    def join(self, device: DeviceInfo) -> None:
        """Search on a device that joins the run, too, if anything is searched."""
        if self._make is not None:
            self._searching[device.name] = own = self._make(device)
            self._advisers[device.name] = own.adviser(self._profiler, self._jobs)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, each once."""
        return tuple(dict.fromkeys(note for each in self._searching.values() for note in each.notes))

    def answer(self, ask: AskSetting) -> Advice:
        """Next setting of a search, or the best one if the search is over. This takes a while."""
        return self._advisers[ask.device].answer(ask)

    def most_s(self, command: MeasureSetting) -> dict[str, float] | None:
        """Most time (s) that an iteration of each job of a measurement may take by its limit.

        The result is empty at the default setting, and None if nothing is searched on the device.
        """
        adviser = self._advisers.get(command.device)
        if adviser is None:
            return None
        return adviser.most_s(command.jobs) if command.setting else {}
