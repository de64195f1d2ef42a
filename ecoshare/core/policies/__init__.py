"""Scheduling policies: one file each, a class of a few lines.

A policy orders the jobs that wait for a place (`order`), chooses between the lanes that could take the first of them
(`lane`), and ranks the jobs of a lane for its turn (`rank`). See `base.Policy` for the contract.
"""

from __future__ import annotations

from ecoshare.core.policies.base import Policy
from ecoshare.core.policies.fair import Fair
from ecoshare.core.policies.fifo import Fifo
from ecoshare.core.policies.pack import Pack
from ecoshare.core.policies.priority import Priority
from ecoshare.core.policies.srtf import Srtf

POLICIES: dict[str, type[Policy]] = {each.name: each for each in (Fair, Fifo, Pack, Priority, Srtf)}
"""Policies by the name that the command line takes."""
