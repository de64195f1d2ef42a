"""Joules of one iteration of a job class alone, from its profile."""

from __future__ import annotations

from ecoshare.profiling.profile import Profile
from ecoshare.record.energy_account import EnergyRate
from ecoshare.values.joules import MEASURED


def energy_rate(profile: Profile) -> EnergyRate | None:
    """Energy rate of a class alone; None if its energy is only modelled: a model would split its own joules."""
    energy = profile.energy
    if energy is None or energy.source != MEASURED:
        return None
    train_j, eval_j = energy.active_per_iteration_j, energy.active_per_eval_iteration_j
    known = [value for value in (train_j, eval_j) if value is not None]
    if not known:
        return None
    # A kind of iteration that was not seen gets the rate of the other: that is closer than none.
    return EnergyRate(
        train_j if train_j is not None else known[0],
        eval_j if eval_j is not None else known[0],
        energy.relative_error or 0.0,
    )
