"""Goal of a search for settings."""

from __future__ import annotations

from dataclasses import dataclass


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
