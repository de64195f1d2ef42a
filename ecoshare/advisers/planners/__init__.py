"""Planners: advisers that give each job its share of the time. They are slow, and asked at most once a round."""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.advisers.planners.allox_matching import match
from ecoshare.advisers.planners.shockwave_program import rounds
from ecoshare.core.commands import AskPlanner

PLANNERS: dict[str, Callable[[AskPlanner], dict[str, float]]] = {"allox": match, "shockwave": rounds}
"""Planners by the name that a policy asks for."""


def shares(plan: AskPlanner) -> dict[str, float]:
    """Share of the time of each job by its planner. Equal questions give equal answers: no solver has a time limit."""
    return PLANNERS[plan.planner](plan)
