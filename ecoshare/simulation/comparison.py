"""Policies that were simulated on many traces, and their ratios trace by trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """Simulation of one policy on the trace of one seed.

    Attributes:
        policy: Name of the policy.
        seed: Seed of the trace.
        figures: Figures of the result, as in `SimulationResult.as_dict`; None for what is not known.
        wall_s: Wall time (s) that the simulation took.
    """

    policy: str
    seed: int
    figures: dict[str, Any]
    wall_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies on the traces of some seeds.

    Attributes:
        policies: Names of the policies.
        seeds: Seeds of the traces.
        runs: Each policy on each trace: first all seeds of the first policy.
        power: Description of the power that joules are modelled with.
    """

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[ComparedRun, ...]
    power: str

    def values(self, policy: str, figure: str) -> list[float] | None:
        """A figure of a policy, seed by seed; None if it is not known of each.

        Args:
            policy: Name of the policy.
            figure: Key of the figure, such as `mean_jct_s`.
        """
        found = [run.figures[figure] for run in self.runs if run.policy == policy]
        return None if any(value is None for value in found) else [float(value) for value in found]

    def ratios(self, policy: str, figure: str) -> list[float] | None:
        """A figure of a policy over that of the first policy on the same trace, seed by seed; None if not known."""
        own, first = self.values(policy, figure), self.values(self.policies[0], figure)
        if own is None or first is None or not all(first):
            return None
        return [value / other for value, other in zip(own, first, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `ecoshare simulate --compare --json` prints it."""
        return {
            "schema_version": 1,
            "energy_source": "modelled",
            "power": self.power,
            "policies": list(self.policies),
            "seeds": list(self.seeds),
            "runs": [asdict(run) for run in self.runs],
        }


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Median of values, and their 10th and 90th percentile."""
    low, high = np.quantile(values, (0.1, 0.9))
    return median(values), float(low), float(high)
