"""Checks the names of policies, options and objectives that a user gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ecoshare.advisers.advice import OBJECTIVES
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


def check_policy(name: str) -> None:
    """Check the name of a policy.

    Raises:
        UsageError: No policy has this name, or it cannot be loaded.
    """
    try:
        named(name)
    except UnknownPolicy as error:
        raise UsageError(f"--policy {name}: {error}", did_you_mean(name, known_names())) from error


def policy_options(given: Sequence[str], policies: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Parse options such as `limit_1=3600` into (name, value) pairs, sorted by name.

    Args:
        given: Options as the user gave them.
        policies: Names of the policies. Each option must belong to at least one of them.

    Raises:
        UsageError: An option is not a name and a finite number, or no policy has it.
    """
    found = {}
    for each in given:
        name, _, value = each.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--option {each}: expected a name and a number, such as limit_1=3600") from None
        if not math.isfinite(found[name.strip()]):
            raise UsageError(f"--option {each}: not a finite number")
        try:
            check_options(policies, [name.strip()])
        except UnknownPolicy as error:
            raise UsageError(f"--option {name.strip()}: {error}") from error
    return tuple(sorted(found.items()))
