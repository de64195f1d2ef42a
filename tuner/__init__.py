"""Constrained Bayesian optimization of a device's clocks and power limit over a discrete grid.

The package stands alone: it does not depend on ecoshare or on how the caller applies and measures a setting.

::

    space ──► ConstrainedTuner ──ask()──► a setting ──► (the caller applies and measures it)
                    ▲                                              │
                    └───────────────tell(setting, observed)────────┘
                    └──best()──► the cheapest setting that keeps the limits

The model predicts the measured observables (power, time of each job), never the objective. Objective and limits are
functions of the observables, so a change of either loses no evaluation.
"""

from tuner.evaluations import Evaluation, EvaluationStatus
from tuner.expectation import ExpectedResponses
from tuner.objective import P99, POWER, TURN, Limit, edp, energy, service_energy, time
from tuner.prior import Prior
from tuner.response_model import ResponseModel
from tuner.service_load import ServiceLoad, dispersion
from tuner.service_prior import BATCH, TrainingLoad, service_prior
from tuner.space import Knob, Role, Setting, Space, bucketised
from tuner.transfer import transferred
from tuner.tuner import ConstrainedTuner

__all__ = [
    "BATCH",
    "P99",
    "POWER",
    "TURN",
    "ConstrainedTuner",
    "Evaluation",
    "EvaluationStatus",
    "ExpectedResponses",
    "Knob",
    "Limit",
    "Prior",
    "ResponseModel",
    "Role",
    "ServiceLoad",
    "Setting",
    "Space",
    "TrainingLoad",
    "bucketised",
    "dispersion",
    "edp",
    "energy",
    "service_energy",
    "service_prior",
    "time",
    "transferred",
]
