"""Checks the names of policies, options and objectives that a user gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ecoshare.base.measurement import OBJECTIVES
from ecoshare.core.policies import UnknownPolicy, check_options, known_names, named
from ecoshare.core.policies.base import PackingPolicy
from ecoshare.errors import UsageError, did_you_mean

LANES_TO_PACK = 6
"""Default number of lanes of a device under a policy that packs.

So many jobs keep a device busy even if most of them wait for data (scripts/bench_share.py: a third faster than with
three). The policy decides for each job whether it is worth a lane.
"""


def check_objective(name: str) -> None:
    """Check the name of an objective.

    Raises:
        UsageError: No objective has this name.
    """
    if name not in OBJECTIVES:
        raise UsageError(f"--objective {name}: expected one of {', '.join(OBJECTIVES)}", did_you_mean(name, OBJECTIVES))


def packs(policy: str) -> bool:
    """Whether a policy packs: it chooses which jobs are co-located."""
    return issubclass(named(policy), PackingPolicy)


def places_of(policy: str, places: int) -> int:
    """Most jobs in one lane: the number of the policy, if it has one, or `places`, which the run sets."""
    return named(policy).places or places


def displaces(policy: str) -> bool:
    """Whether running jobs give up their places under a policy, if they can be parked or stopped.

    A policy that packs or sets the number of devices of each job has rules of its own.
    """
    return not packs(policy) and not widens(policy)


def needs_places(policy: str) -> bool:
    """Whether a policy gives little if urgent jobs cannot take the places of others."""
    return getattr(named(policy), "needs_places", False)


def widens(policy: str) -> bool:
    """Whether a policy sets the number of devices of each job."""
    return hasattr(named(policy), "pour")  # the protocol has an attribute that only an object has


def check_policy(name: str) -> None:
    """Check the name of a policy.

    Raises:
        UsageError: No policy has this name, or it cannot be loaded.
    """
    try:
        named(name)
    except UnknownPolicy as error:
        raise UsageError(f"--policy {name}: {error}", did_you_mean(name, known_names())) from error


def parse_options(given: Sequence[str]) -> dict[str, float]:
    """Parse options such as `limit_1=3600` into numbers by name.

    Raises:
        UsageError: An option is not a name and a number.
    """
    found = {}
    for each in given:
        name, _, value = each.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--option {each}: expected a name and a number, such as limit_1=3600") from None
    return found


def policy_options(given: Mapping[str, float], policies: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Check options of policies, and return them as (name, value) pairs, sorted by name.

    Args:
        given: Options by name.
        policies: Names of the policies. Each option must belong to at least one of them.

    Raises:
        UsageError: An option is not a finite number, or no policy has it.
    """
    for name, value in given.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"--option {name}={value}: not a finite number")
        try:
            check_options(policies, [name])
        except UnknownPolicy as error:
            raise UsageError(f"--option {name}: {error}") from error
    return tuple(sorted((name, float(value)) for name, value in given.items()))
