"""Scheduling policies: one file each, a class of a few lines.

A policy orders the jobs that wait for a place (`order`), chooses between the lanes that could take the first of them
(`lane`), and ranks the jobs of a lane for its turn (`rank`). See `base.Policy` for the contract.
"""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.events import Config
from ecoshare.core.policies.base import Policy
from ecoshare.core.policies.fair import Fair
from ecoshare.core.policies.fifo import Fifo
from ecoshare.core.policies.gittins import Gittins
from ecoshare.core.policies.least_energy import LeastEnergy
from ecoshare.core.policies.pack import Pack
from ecoshare.core.policies.priority import Priority
from ecoshare.core.policies.smallest import Smallest
from ecoshare.core.policies.srsf import Srsf
from ecoshare.core.policies.srtf import Srtf
from ecoshare.core.policies.tiresias import Tiresias

POLICIES: dict[str, Callable[[Config], Policy]] = {
    Fair.name: lambda _: Fair(),
    Fifo.name: lambda _: Fifo(),
    Gittins.name: lambda config: Gittins(dict(config.options), config.past_gpu_s),
    LeastEnergy.name: lambda config: LeastEnergy(dict(config.options)),
    Pack.name: lambda _: Pack(),
    Priority.name: lambda _: Priority(),
    Smallest.name: lambda _: Smallest(),
    Srsf.name: lambda _: Srsf(),
    Srtf.name: lambda _: Srtf(),
    Tiresias.name: lambda config: Tiresias(dict(config.options)),
}
"""Makes of policies, by the name that the command line takes."""


def make(config: Config) -> Policy:
    """The policy that a run was opened with."""
    return POLICIES[config.policy](config)
