"""What was tried, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tuner.space import Setting


class EvaluationStatus(Enum):
    """How far a trial can be believed."""

    MEASURED = "measured"
    CENSORED = "censored"
    """Stopped early: every time observed is at least what it says. Power is as measured."""
    CONTAMINATED = "contaminated"
    """Spoilt by something other than the setting (throttling, a neighbour): ignored, and the setting may be
    tried again."""
    FAILED = "failed"
    """The setting cannot be applied, or does not work: never again."""


@dataclass(frozen=True)
class Evaluation:
    """One trial.

    Attributes:
        observed: Positive numbers by name; empty if the trial failed.
    """

    setting: Setting
    observed: Mapping[str, float] = field(default_factory=dict)
    status: EvaluationStatus = EvaluationStatus.MEASURED

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"setting": dict(self.setting), "observed": dict(self.observed), "status": self.status.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """The trial of `as_dict`."""
        return cls(dict(data["setting"]), dict(data["observed"]), EvaluationStatus(data["status"]))
