"""Goal of a search for settings, with the default limit."""

from __future__ import annotations

from dataclasses import dataclass

OBJECTIVES = ("energy", "edp", "jct", "makespan")
"""Objectives of a search for a setting. The policies of the same names choose co-located jobs."""

TUNING_LIMIT = 1.1
"""Default of the tuning limit: time of an iteration at a setting / time at the default setting, at most."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Objective and limits of a search for settings.

    Attributes:
        objective: `energy`, `edp`, `jct` or `makespan`.
        tuning_limit: Largest factor (>= 1) by which an iteration may take longer than at the default setting.
        budget: Largest number of settings that are measured.
        seed: Seed of the optimizer.
    """

    objective: str
    tuning_limit: float
    budget: int
    seed: int = 0
