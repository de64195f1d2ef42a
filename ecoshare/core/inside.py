"""What a scheduler decides with, for those who explain its decisions: to be read, never to be changed."""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.core.events import Config
from ecoshare.core.fit import MemoryFit
from ecoshare.core.packer import Packer
from ecoshare.core.policies.base import Policy
from ecoshare.core.profiling import Profiling
from ecoshare.core.room import LaneIndex
from ecoshare.core.seating import Admission
from ecoshare.core.tuning import SettingSelector


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
