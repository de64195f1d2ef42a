"""Scheduling policies: one file each, a class of a few lines.

A policy orders the jobs that wait for a place (`order`), chooses between the lanes that could take the first of them
(`lane`), and ranks the jobs of a lane for its turn (`rank`). See `base.Policy` for the contract, and docs/policies.md
for how to write one of your own: a package names it under the entry point `ecoshare.policies`.

What they share::

    Usual                        the emptiest lane, the turn by the queue
      ├─ Fair, Fifo, Pack, Priority, Smallest, Srsf, Srtf
      ├─ Packs                  runs groups of jobs beside each other, for an objective
      │    └─ Edp, Energy, Jct, Makespan
      └─ WithOptions             takes the options of a run
           ├─ Queues             jobs sink as they are served
           │    ├─ Tiresias ─── Gittins
           │    └─ LeastEnergy
           ├─ Gandiva            tries jobs beside each other
           ├─ Fluid              several devices for a job, or several jobs on one
           │    └─ Equal
           └─ InRounds           who runs is chosen round by round
                ├─ Shares        from shares of time
                │    └─ Allox, FinishTime, MaxMin
                ├─ Pal
                └─ Critical, Shockwave
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any

from ecoshare.core.events import Config
from ecoshare.core.policies.allox import Allox
from ecoshare.core.policies.base import Policy
from ecoshare.core.policies.critical import Critical
from ecoshare.core.policies.equal import Equal
from ecoshare.core.policies.fair import Fair
from ecoshare.core.policies.fifo import Fifo
from ecoshare.core.policies.finish_time import FinishTime
from ecoshare.core.policies.fluid import Fluid
from ecoshare.core.policies.gandiva import Gandiva
from ecoshare.core.policies.gittins import Gittins
from ecoshare.core.policies.least_energy import LeastEnergy
from ecoshare.core.policies.max_min import MaxMin
from ecoshare.core.policies.objectives import EdpPolicy, EnergyPolicy, JctPolicy, MakespanPolicy
from ecoshare.core.policies.pack import Pack
from ecoshare.core.policies.pal import Pal
from ecoshare.core.policies.priority import Priority
from ecoshare.core.policies.shockwave import Shockwave
from ecoshare.core.policies.smallest import Smallest
from ecoshare.core.policies.srsf import Srsf
from ecoshare.core.policies.srtf import Srtf
from ecoshare.core.policies.tiresias import Tiresias

GROUP = "ecoshare.policies"
"""Entry points of policies of other packages."""

POLICIES: dict[str, Any] = {
    each.name: each
    for each in (
        Allox,
        Critical,
        EdpPolicy,
        EnergyPolicy,
        Equal,
        Fair,
        Fifo,
        FinishTime,
        Fluid,
        Gandiva,
        Gittins,
        JctPolicy,
        LeastEnergy,
        MakespanPolicy,
        MaxMin,
        Pack,
        Pal,
        Priority,
        Shockwave,
        Smallest,
        Srsf,
        Srtf,
        Tiresias,
    )
}
"""Classes of policies by the name that the command line takes."""


class UnknownPolicy(Exception):
    """There is no policy, or no option of one, by this name; the message says what there is."""


def named(name: str) -> Any:
    """The class of a policy: one of ours, else one that an installed package offers under this name.

    Raises:
        UnknownPolicy: There is none, or it cannot be loaded.
    """
    if name in POLICIES:
        return POLICIES[name]
    others = entry_points(group=GROUP)
    for entry in others:
        if entry.name == name:
            try:
                return entry.load()
            except Exception as error:  # whatever a package of somebody else's does when it is imported
                raise UnknownPolicy(f"{entry.value} cannot be loaded: {error}") from error
    raise UnknownPolicy(f"expected one of {', '.join(known_names())}")


def known_names() -> list[str]:
    """Names of all policies, sorted: ours, and those that installed packages offer."""
    return sorted({*POLICIES, *(entry.name for entry in entry_points(group=GROUP))})


def check_options(names: Iterable[str], options: Iterable[str]) -> None:
    """Whether each option is one of at least one of these policies.

    Raises:
        UnknownPolicy: It is not.
    """
    known = sorted({option for name in names for option in named(name).options})
    for option in options:
        if option not in known:
            raise UnknownPolicy(f"expected one of {', '.join(known)}" if known else "these policies have no options")


def make(config: Config) -> Policy:
    """The policy that a run was opened with."""
    found = named(config.policy)
    from_config = getattr(found, "from_config", None)
    policy: Policy = from_config(config) if from_config is not None else found()
    return policy
