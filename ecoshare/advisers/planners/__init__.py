"""Planners: advisers that say which share of the time each job should run. Slow, and asked once a round at most."""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.advisers.planners.allox_matching import match
from ecoshare.advisers.planners.shockwave_program import rounds
from ecoshare.core.commands import AskPlanner

PLANNERS: dict[str, Callable[[AskPlanner], dict[str, float]]] = {"allox": match, "shockwave": rounds}
"""By the name that a policy asks for."""


def shares(plan: AskPlanner) -> dict[str, float]:
    """What the planner says. Equal questions give equal answers: no solver is limited by time."""
    return PLANNERS[plan.planner](plan)
