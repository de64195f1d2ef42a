"""One step of plain BoTorch, as its tutorials have it: the way that benchmarks of the tuner compare with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import LinearMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms.outcome import Standardize
from botorch.optim.optimize import optimize_acqf_discrete
from gpytorch.mlls import ExactMarginalLogLikelihood


def most_improving(
    points: torch.Tensor,
    tried: Sequence[int],
    told: torch.Tensor,
    weights: Sequence[float],
    excess: Callable[[torch.Tensor], torch.Tensor],
) -> int:
    """Index of the untried setting with the largest qLogNEI.

    Args:
        points: All settings, (n_settings, n_knobs).
        tried: Indices of the settings that were measured.
        told: Two outputs of each of these, (n_tried, 2).
        weights: Weights of the outputs in the objective, which is maximized.
        excess: Constraint on samples of the outputs, (..., 2): at most 0 where it is kept.
    """
    known = points[list(tried)]
    models = [SingleTaskGP(known, told[:, [output]], outcome_transform=Standardize(1)) for output in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that ends early is a fit all the same
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = qLogNoisyExpectedImprovement(
            ModelListGP(*models),
            known,
            objective=LinearMCObjective(torch.tensor(weights, dtype=torch.double)),
            constraints=[excess],
        )
        left = [place for place in range(len(points)) if place not in tried]
        best, _ = optimize_acqf_discrete(acquisition, q=1, choices=points[left])
    return left[int((points[left] == best).all(dim=1).nonzero()[0])]
