"""Scheduling policies: a class of a few lines each.

A policy orders the jobs that wait for a place (`order`). It chooses between the lanes that could take the first of them
(`lane`), and ranks the jobs of a lane for its turn (`rank`). See `base.Policy` for the contract.

A new file is all that a new policy needs. It is named after the policy, with `_` for `-`; only near relatives stand
together. A module is imported when a policy of it is first used. Another package offers its policies under the entry
point `ecoshare.policies`. docs/simulating.md describes how to write one.

`ecoshare.contrib.policies` has those of papers.

Base classes::

    Usual                        the emptiest lane, the turn in the order of the queue
      ├─ Fair, Fifo, Pack, Priority, Smallest, Srsf, Srtf
      ├─ ObjectivePolicy         co-locates groups of jobs, for an objective
      │    └─ EdpPolicy, EnergyPolicy, JctPolicy, MakespanPolicy
      └─ WithOptions             takes the options of a run
           ├─ Queues             jobs sink through queues as they are served
           │    └─ Tiresias
           ├─ Fluid ─── Equal    several devices for one job, or several jobs on one device
           └─ InRounds           chooses the running jobs in each round
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ecoshare.core.events import Config
from ecoshare.core.policies.base import Policy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "ecoshare.policies"
"""Entry point group under which other packages offer policies."""

_TOGETHER = {
    "fluid": ("equal", "fluid"),
    "objectives": ("edp", "energy", "jct", "makespan"),
    "orders": ("fair", "fifo", "pack", "priority", "smallest", "srsf", "srtf"),
}
"""Policies of each module of this folder that defines several."""

_NOT_POLICIES = ("base", "common", *_TOGETHER)
"""Modules of this folder that are not named after one policy."""

_registered: dict[str, Any] = {}


class UnknownPolicy(Exception):
    """No policy, or no option of the policies, has this name. The message lists the known names."""


@cache
def own_names() -> tuple[str, ...]:
    """Sorted names of the policies in this folder. No policy is imported."""
    modules = (each.name for each in iter_modules(__path__) if not each.ispkg)
    alone = (name.replace("_", "-") for name in modules if name not in _NOT_POLICIES)
    return tuple(sorted([*chain(*_TOGETHER.values()), *alone]))


def known_names() -> list[str]:
    """Sorted names of all policies, including those that installed packages offer. No policy is imported."""
    return sorted({*own_names(), *_registered, *(entry.name for entry in _offered())})


def named(name: str) -> Any:
    """Class of a policy: registered, in this folder, or offered by an installed package.

    Raises:
        UnknownPolicy: No policy has this name, or it cannot be loaded.
    """
    if name in _registered:
        return _registered[name]
    if name in own_names():
        return _own(name)
    for entry in _offered():
        if entry.name == name:
            try:
                return entry.load()
            except Exception as error:  # the import of a foreign package may raise anything
                raise UnknownPolicy(f"{entry.value} cannot be loaded: {error}") from error
    raise UnknownPolicy(f"expected one of {', '.join(known_names())}")


def _offered() -> EntryPoints:
    """Policies of installed packages."""
    from importlib.metadata import entry_points  # 20 ms that a policy of this folder does not need

    return entry_points(group=GROUP)


@cache
def _own(name: str) -> Any:
    """Class that the module of a policy defines.

    Raises:
        UnknownPolicy: The module defines no class of this name.
    """
    of = next((module for module, names in _TOGETHER.items() if name in names), name.replace("-", "_"))
    module = import_module(f"{__name__}.{of}")
    for found in vars(module).values():
        if isinstance(found, type) and getattr(found, "name", None) == name:
            return found
    raise UnknownPolicy(f"{module.__name__} defines no class with name = {name!r}")


def register(name: str, policy: Any) -> None:
    """Make a policy known in this process, for tests and benchmarks; see `unregister`.

    Args:
        name: Name that no registered policy and none of this folder has.
        policy: Class of the policy, or an object with its `from_config`.
    """
    if name in own_names() or name in _registered:
        raise ValueError(f"{name!r} is the name of another policy")
    _registered[name] = policy


def unregister(name: str) -> None:
    """Undo `register`."""
    del _registered[name]


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
