"""Constrained Bayesian optimization of a device's clocks and power limit over a discrete grid.

It stands alone: it knows nothing of ecoshare, of GPUs, or of how a setting is applied and measured.

::

    space ──► ConstrainedTuner ──ask()──► a setting ──► (somebody applies and measures it)
                    ▲                                              │
                    └───────────────tell(setting, observed)────────┘
                    └──best()──► the cheapest setting that keeps the limits

What is modelled is what is measured (power, time of each job), never the objective: objective and limits are functions
of them, so that changing one loses no trial.
"""

from tuner.embedding import EmbeddedSpace, bucketised, embedded
from tuner.evaluations import Evaluation, EvaluationStatus
from tuner.objective import Limit, edp, energy, time
from tuner.prior import Prior
from tuner.space import Knob, Role, Setting, Space
from tuner.transfer import transferred
from tuner.tuner import ConstrainedTuner

__all__ = [
    "ConstrainedTuner",
    "EmbeddedSpace",
    "Evaluation",
    "EvaluationStatus",
    "Knob",
    "Limit",
    "Prior",
    "Role",
    "Setting",
    "Space",
    "bucketised",
    "edp",
    "embedded",
    "energy",
    "time",
    "transferred",
]
