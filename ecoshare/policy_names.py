"""Policies and their options, as users name them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ecoshare.advisers.advice import OBJECTIVES
from ecoshare.core.policies import UnknownPolicy, check_options, known_names, named
from ecoshare.core.policies.base import PackingPolicy
from ecoshare.errors import UsageError, did_you_mean

LANES_TO_PACK = 6
"""Most jobs beside each other under these, where the user does not say: how many it takes until a device has enough to
do where most of them wait for data (scripts/bench_share.py: a third faster than with three). Who is worth a lane is
decided for each."""


def check_objective(name: str) -> None:
    """Whether there is such an objective.

    Raises:
        UsageError: There is none.
    """
    if name not in OBJECTIVES:
        raise UsageError(f"--objective {name}: expected one of {', '.join(OBJECTIVES)}", did_you_mean(name, OBJECTIVES))


def packs(policy: str) -> bool:
    """Whether a policy chooses who runs beside whom."""
    return issubclass(named(policy), PackingPolicy)


def check_policy(name: str) -> None:
    """Whether there is such a policy.

    Raises:
        UsageError: There is none.
    """
    try:
        named(name)
    except UnknownPolicy as error:
        raise UsageError(f"--policy {name}: {error}", did_you_mean(name, known_names())) from error


def policy_options(given: Sequence[str], policies: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Options such as `limit_1=3600`, each of at least one of these policies, sorted by name.

    Raises:
        UsageError: One is none, or of none of them.
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
