"""Planners: advisers that give each job its share of the time. They are slow, and asked at most once a round.

A package with a policy that asks a planner offers it under the entry point `ecoshare.planners`: a function of
`AskPlanner`, which gives the share of the time of each job by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points

from ecoshare.core.commands import AskPlanner

GROUP = "ecoshare.planners"
"""Entry point group under which packages offer planners."""


def shares(plan: AskPlanner) -> dict[str, float]:
    """Share of the time of each job by its planner. Equal questions give equal answers: no solver has a time limit.

    Raises:
        LookupError: No installed package offers the planner.
    """
    return _named(plan.planner)(plan)


@cache  # a look at what is installed takes longer than a small plan
def _named(name: str) -> Callable[[AskPlanner], dict[str, float]]:
    for entry in entry_points(group=GROUP, name=name):
        planner: Callable[[AskPlanner], dict[str, float]] = entry.load()
        return planner
    raise LookupError(f"no installed package offers the planner {name!r}")
