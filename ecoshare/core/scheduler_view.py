"""View of the parts of a scheduler, for code that explains its decisions. The view is read, never changed."""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.power_budget import PowerBudget
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.setting_selection import SettingSelector


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """Parts of a scheduler after its run was opened.

    Attributes:
        placement: Placement strategy, with the queue.
        lane_index: Index of the lanes.
        fit: Memory fit of jobs and lanes.
        profiling: Profiling windows.
        settings: Selection of settings; in a run with a power budget, the budget.
        opening: Whether a lane is still being opened.
    """

    placement: PlacementStrategy
    lane_index: LaneIndex
    fit: MemoryFit
    profiling: Profiling
    settings: SettingSelector | PowerBudget
    opening: bool
