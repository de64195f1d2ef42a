"""What a scheduler decides with, for those who explain its decisions: to be read, never to be changed."""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.core.events import Config
from ecoshare.core.fit import Fit
from ecoshare.core.packer import Packer
from ecoshare.core.policies.base import Policy
from ecoshare.core.profiling import Profiling
from ecoshare.core.room import Room
from ecoshare.core.seating import Seating
from ecoshare.core.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Inside:
    """The parts of a scheduler of which a run was opened.

    Attributes:
        packer: Of a policy that packs; None for others.
        opening: Whether some lane is not there yet.
    """

    config: Config
    policy: Policy
    room: Room
    fit: Fit
    profiling: Profiling
    seating: Seating
    tuning: Tuning
    packer: Packer | None
    opening: bool
