"""What a scheduler decides with, for those who explain its decisions: to be read, never to be changed."""

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
    """The parts of a scheduler of which a run was opened.

    Attributes:
        packer: Of a policy that packs; None for others.
        opening: Whether some lane is not there yet.
    """

    config: Config
    policy: Policy
    room: LaneIndex
    fit: MemoryFit
    profiling: Profiling
    seating: Admission
    tuning: SettingSelector
    packer: Packer | None
    opening: bool
