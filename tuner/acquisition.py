"""Score of a setting that has not been measured: objectives and limits for botorch, and the acquisition function.

    log score = qLogNEI + caution log P(every limit is kept)

`qLogNEI` is the logarithm of the expected improvement that keeps the limits, over the noisy best so far (Ament et al.,
"Unexpected Improvements to Expected Improvement for Bayesian Optimization", NeurIPS 2023). It includes the probability
of feasibility once. The second term is a further penalty, because a violation also slows down the jobs that run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.objective import MCAcquisitionObjective
from botorch.acquisition.utils import compute_best_feasible_objective
from botorch.utils.objective import compute_smoothed_feasibility_indicator
from torch import Tensor

from tuner.objective import Limit, Objective
from tuner.response_model import ResponseModel, joint_samples

Constraint = Callable[[Tensor], Tensor]
"""Constraint of botorch: samples (..., m) to numbers (...), below 0 if it is kept."""


class RelativeObjective(MCAcquisitionObjective):
    """Objective of botorch, which it maximises: minus the logarithm of an `Objective`."""

    def __init__(self, objective: Objective, observables: Sequence[str]) -> None:
        super().__init__()
        self._objective, self._observables = objective, tuple(observables)

    def forward(self, samples: Tensor, X: Tensor | None = None) -> Tensor:
        """Value of each sample, (...), from samples of all outputs of a `ResponseModel`, (..., 2 O)."""
        count = len(self._observables)
        here = {name: samples[..., place].exp() for place, name in enumerate(self._observables)}
        there = {name: samples[..., count + place].exp() for place, name in enumerate(self._observables)}
        return -self._objective(here, there).log()


def constraint(limit: Limit, observables: Sequence[str]) -> Constraint:
    """Constraint of botorch: the logarithm of observable / limit, above 0 if the limit is broken."""
    place = list(observables).index(limit.observable)
    if limit.is_absolute:
        return partial(_absolute_excess, place, math.log(limit.most))
    return partial(_excess, place, len(observables) + place, math.log(limit.most))


def _absolute_excess(here: int, most: float, samples: Tensor) -> Tensor:
    return samples[..., here] - most


def _excess(here: int, there: int, most: float, samples: Tensor) -> Tensor:
    return samples[..., here] - samples[..., there] - most


class CautiousImprovement(qLogExpectedImprovement):
    """The tuner's acquisition function, for one point at a time (q = 1).

    It is qLogNEI plus `caution` times the logarithm of the probability that every limit is kept. The best so far is
    that of each sample, as in botorch's `qLogNoisyExpectedImprovement`. The class of that name would ask for the
    whole baseline again beside every point, but samples of this model go together anyway (docs/decisions/0010).

    Attributes:
        limits: Constraints, one or more.
        caution: Exponent of the probability. See docs/decisions/0010.
    """

    def __init__(
        self,
        model: ResponseModel,
        baseline: Tensor,
        objective: MCAcquisitionObjective,
        constraints: Sequence[Constraint],
        caution: float,
    ) -> None:
        """Make the function.

        Args:
            model: Model of the responses.
            baseline: Points that were measured, (N, d), N > 0.
            objective: Objective.
            constraints: Constraints, one or more.
            caution: Exponent of the probability of feasibility.
        """
        limits = list(constraints)
        measured = joint_samples(model, baseline)
        values = objective(measured)
        # If no measured setting keeps the limits, every setting that does is an improvement.
        best = compute_best_feasible_objective(measured, values, limits, infeasible_obj=values.min() - 1.0)
        super().__init__(model, best[:, None], objective=objective, constraints=limits)
        self.limits, self.caution = limits, caution

    def forward(self, X: Tensor) -> Tensor:
        """Score of each point, (*batch_shape,), from points (*batch_shape, 1, d)."""
        return self.outlook(X).score

    def outlook(self, points: Tensor) -> Outlook:
        """Expectations at points, (*batch_shape, 1, d)."""
        samples, objective = self._get_samples_and_objectives(points)
        kept = compute_smoothed_feasibility_indicator(self.limits, samples, self._eta, log=True, fat=self._fat)
        log_gain = self._sample_reduction((self._sample_forward(objective) + kept).squeeze(-1))
        log_feasible = self._sample_reduction(kept.squeeze(-1))
        score = log_gain + self.caution * log_feasible
        return Outlook(score, log_gain, log_feasible, -objective.squeeze(-1).mean(dim=0))


@dataclass(frozen=True)
class Outlook:
    """Expectations at points, each (*batch_shape,).

    Attributes:
        score: Log gain, reduced by the probability of a violation.
        log_gain: Logarithm of the expected feasible improvement of the log objective.
        log_feasible: Logarithm of the probability that every limit is kept.
        mean: Mean of the log objective.
    """

    score: Tensor
    log_gain: Tensor
    log_feasible: Tensor
    mean: Tensor
