"""Scheduling policies: one file each, a class of a few lines.

A policy orders the jobs that wait for a place (`order`). It chooses between the lanes that could take the first of them
(`lane`), and ranks the jobs of a lane for its turn (`rank`). See `base.Policy` for the contract. docs/policies.md
describes how to write a policy: another package offers it under the entry point `ecoshare.policies`.

Base classes::

    Usual                        the emptiest lane, the turn in the order of the queue
      ├─ Fair, Fifo, Pack, Priority, Smallest, Srsf, Srtf
      ├─ ObjectivePolicy         co-locates groups of jobs, for an objective
      │    └─ EdpPolicy, EnergyPolicy, JctPolicy, MakespanPolicy
      └─ WithOptions             takes the options of a run
           ├─ Queues             jobs sink through queues as they are served
           │    ├─ Tiresias ─── Gittins
           │    └─ LeastEnergy
           ├─ Gandiva            co-locates jobs on trial
           ├─ Fluid              several devices for one job, or several jobs on one device
           │    └─ Equal
           └─ InRounds           chooses the running jobs in each round
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
"""Entry point group under which other packages offer policies."""

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
"""Policy classes by the name on the command line."""


class UnknownPolicy(Exception):
    """No policy, or no option of the policies, has this name. The message lists the known names."""


def named(name: str) -> Any:
    """Class of a policy: one of `POLICIES`, else one that an installed package offers.

    Raises:
        UnknownPolicy: No policy has this name, or it cannot be loaded.
    """
    if name in POLICIES:
        return POLICIES[name]
    others = entry_points(group=GROUP)
    for entry in others:
        if entry.name == name:
            try:
                return entry.load()
            except Exception as error:  # the import of a foreign package may raise anything
                raise UnknownPolicy(f"{entry.value} cannot be loaded: {error}") from error
    raise UnknownPolicy(f"expected one of {', '.join(known_names())}")


def known_names() -> list[str]:
    """Sorted names of all policies, including those that installed packages offer."""
    return sorted({*POLICIES, *(entry.name for entry in entry_points(group=GROUP))})


def check_options(names: Iterable[str], options: Iterable[str]) -> None:
    """Check that each option belongs to at least one of these policies.

    Raises:
        UnknownPolicy: An option belongs to none of them.
    """
    known = sorted({option for name in names for option in named(name).options})
    for option in options:
        if option not in known:
            raise UnknownPolicy(f"expected one of {', '.join(known)}" if known else "these policies have no options")


def make(config: Config) -> Policy:
    """Policy of a run, made from the configuration of the run."""
    found = named(config.policy)
    from_config = getattr(found, "from_config", None)
    policy: Policy = from_config(config) if from_config is not None else found()
    return policy
