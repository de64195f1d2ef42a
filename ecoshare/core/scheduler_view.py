"""View of the parts of a scheduler, for code that explains its decisions. The view is read, never changed."""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.core.events import Config
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.packer import Packer
from ecoshare.core.policies.base import Policy
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.setting_selection import SettingSelector


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """Parts of a scheduler after its run was opened.

    Attributes:
        config: Decisions about the run.
        policy: Policy of the run.
        lane_index: Index of the lanes.
        fit: Memory fit of jobs and lanes.
        profiling: Profiling windows.
        admission: Admission: the queue, and the search for places.
        settings: Selection of settings.
        packer: Packer of a policy that packs; None for other policies.
        opening: Whether a lane is still being opened.
    """

    config: Config
    policy: Policy
    lane_index: LaneIndex
    fit: MemoryFit
    profiling: Profiling
    admission: Admission
    settings: SettingSelector
    packer: Packer | None
    opening: bool
