"""Evaluations: settings that were tried, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tuner.space import Setting


class EvaluationStatus(Enum):
    """Validity of an evaluation's observables."""

    MEASURED = "measured"
    CENSORED = "censored"
    """The evaluation was stopped early: each observed time is a lower bound. Power counts as measured."""
    CONTAMINATED = "contaminated"
    """Something other than the setting (throttling, a neighbour) disturbed the evaluation. The tuner ignores it and may
    propose the setting again."""
    FAILED = "failed"
    """The setting cannot be applied or does not work. The tuner never proposes it again."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a setting.

    Attributes:
        observed: Positive numbers by the name of the observable; empty if the evaluation failed.
    """

    setting: Setting
    observed: Mapping[str, float] = field(default_factory=dict)
    status: EvaluationStatus = EvaluationStatus.MEASURED

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"setting": dict(self.setting), "observed": dict(self.observed), "status": self.status.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """Evaluation from the data that `as_dict` returned."""
        return cls(dict(data["setting"]), dict(data["observed"]), EvaluationStatus(data["status"]))
