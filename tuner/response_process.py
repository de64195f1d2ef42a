"""Gaussian process of the responses: joint samples of the log observables at every setting, given the evaluations.

The process runs over pairs (observable, setting), with covariance

    K = structure + rho^2 Matern(setting, setting') [same observable] + scale^2 [same observable]

and noise sigma. An observable with a spread of its own (`Prior.spread`) has rho and sigma times that. The structure is
the covariance of one component of the prior (`tuner.prior`), or zero. With zero structure the process is an ordinary
one, and its residual explains everything. The structure, rho and sigma are averaged over, weighted by evidence, instead
of fitted. Few evaluations then do not settle what only many could, and a misleading prior loses its weight.

Notation: S samples, O observables, n settings, N observed numbers, R rank of a component, Q rank of the residual.
Matheron's rule conditions the samples (Wilson et al., "Efficiently Sampling Functions from Gaussian Process
Posteriors", ICML 2020): it corrects a prior sample by its error at the observed numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from tuner.evaluations import Evaluation, EvaluationStatus
from tuner.prior import MOST_RANK, TRUST, Prior
from tuner.space import Space

SAMPLES = 512
NOISE = 0.02
"""Usual standard deviation of the logarithm of a measured number, for an observable with a spread of 1."""
_LENGTHSCALE = 0.5
"""Length scale of the residual, in units of a knob's whole range."""

_EXACT = 600
"""Largest number of settings for which the residual is sampled exactly."""
_DIRECTIONS = 96  # rank of the residual of a larger space: enough, because the residual is smooth


@dataclass(frozen=True)
class Hypothesis:
    """One form of the process.

    Attributes:
        structured: Whether the covariance includes the prior's structure.
        residual_sd: Standard deviation rho of the residual.
        noise_sd: Standard deviation sigma of the noise.
        weight: Probability before any evaluation.
        part: Index of the prior's component that the structure comes from.
    """

    structured: bool
    residual_sd: float
    noise_sd: float
    weight: float
    part: int = 0


def hypotheses(trust: float = TRUST) -> list[Hypothesis]:
    """Forms of the process. Those with the prior's structure have the probability `trust`, the others the rest."""
    forms = [(True, rho, trust) for rho in (0.01, 0.03, 0.1)]
    forms += [(False, rho, 1.0 - trust) for rho in (0.1, 0.25, 0.6)]
    return [Hypothesis(*form[:2], noise, form[2] / 9) for form in forms for noise in (0.01, 0.02, 0.05) if form[2]]


class ResponseProcess:
    """Conditions a prior on evaluations.

    Attributes:
        observables: Names of the observables.
        samples: Number of joint samples, S.
    """

    def __init__(
        self, space: Space, prior: Prior, forms: Sequence[Hypothesis], seed: int, samples: int = SAMPLES
    ) -> None:
        self.observables = prior.observables
        self._space, self._prior = space, prior
        self._forms = [
            replace(form, part=place, weight=form.weight * part.weight) if form.structured else form
            for form in forms
            for place, part in enumerate(prior.parts)
            if form.structured or place == 0
        ]
        self._level = prior.mean.mean(dim=1, keepdim=True).expand_as(prior.mean)
        self._settings = len(space)
        draw = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.double)

        count = len(prior.observables)
        self._residual = _residual_root(space)  # (n, Q)
        self._weights = normal(samples, MOST_RANK)
        residuals = torch.einsum("soq,nq->son", normal(samples, count, self._residual.shape[1]), self._residual)
        self._residuals = residuals * prior.spread[:, None]
        self._scales = normal(samples, count, 1) * prior.scale_sd[:, None]
        self._noise = normal(samples, 4096)
        self.samples = samples

    def condition(self, trials: Sequence[Evaluation]) -> Tensor:
        """Posterior samples of the log observables, (S', O, n), all of equal weight.

        A censored time is a lower bound: the samples below it are left out, so S' may be below S. If that would leave
        out all samples, they all stay.
        """
        known = [(o, i, value) for trial in trials for o, i, value in self._numbers(trial)]
        observable = torch.tensor([o for o, _, _ in known], dtype=torch.long)
        setting = torch.tensor([i for _, i, _ in known], dtype=torch.long)
        values = torch.tensor([value for _, _, value in known], dtype=torch.double)
        logs = self._posterior(observable, setting, values)
        return logs[self._allowed(logs, trials)]

    def _numbers(self, trial: Evaluation) -> list[tuple[int, int, float]]:
        """Tuples (observable, setting, log value) of the numbers that an evaluation measured."""
        if trial.status not in (EvaluationStatus.MEASURED, EvaluationStatus.CENSORED):
            return []
        place = self._space.index(trial.setting)
        return [
            (o, place, math.log(trial.observed[name]))
            for o, name in enumerate(self.observables)
            if name in trial.observed and not (trial.status is EvaluationStatus.CENSORED and o > 0)
        ]

    def _posterior(self, observable: Tensor, setting: Tensor, values: Tensor) -> Tensor:
        fits = self._fits(observable, setting, values)
        counts = _apportion(self._shares(fits), self.samples)
        pieces, begin = [], 0
        for form, fit, count in zip(self._forms, fits, counts, strict=True):
            if count:
                rows = slice(begin, begin + count)
                pieces.append(self._corrected(form, fit, rows, observable, setting, values))
                begin += count
        return torch.cat(pieces)

    def _shares(self, fits: Sequence[_Fit]) -> Tensor:
        """Posterior probability of each form: its weight times its evidence, normalised."""
        logs = [fit.log_evidence + math.log(form.weight) for fit, form in zip(fits, self._forms, strict=True)]
        return torch.softmax(torch.tensor(logs, dtype=torch.double), dim=0)

    def _fits(self, observable: Tensor, setting: Tensor, values: Tensor) -> list[_Fit]:
        """Evidence and Cholesky factor of each form, from the observed numbers only.

        Most forms turn out unlikely and need nothing more.
        """
        residual = self._residual[setting] @ self._residual[setting].T
        roots = [part.root[:, observable, setting] for part in self._prior.parts]
        structures = [root.T @ root for root in roots]
        same, scale = observable[:, None] == observable, self._prior.scale_sd[observable].square()
        spread = self._prior.spread[observable].square()
        fits = []
        for form in self._forms:
            covariance = (residual * spread * form.residual_sd**2 + scale) * same
            if form.structured:
                covariance += structures[form.part]
            factor = torch.linalg.cholesky(covariance + torch.diag(form.noise_sd**2 * spread))
            lacking = values - self._mean(form)[observable, setting]
            whitened = torch.linalg.solve_triangular(factor, lacking[:, None], upper=False)
            log_evidence = -0.5 * whitened.square().sum() - factor.diagonal().log().sum()
            fits.append(_Fit(float(log_evidence), factor))
        return fits

    def _corrected(
        self, form: Hypothesis, fit: _Fit, rows: slice, observable: Tensor, setting: Tensor, values: Tensor
    ) -> Tensor:
        """Posterior samples (len(rows), O, n) of one form, by Matheron's rule.

        The weights of the structure are corrected, not its values at all settings: they are far fewer.
        """
        mean, rho = self._mean(form), form.residual_sd
        residual, scale = self._residuals[rows], self._scales[rows]
        drawn = (mean + rho * residual) + scale
        root = self._prior.parts[form.part].root if form.structured else mean.new_zeros(0, *mean.shape)  # (R, O, n)
        weights, root_there = self._weights[rows, : len(root)], root[:, observable, setting]
        lacking = values - drawn[:, observable, setting] - weights @ root_there
        lacking -= form.noise_sd * self._prior.spread[observable] * self._noise[rows, : len(values)]
        solved = torch.cholesky_solve(lacking.T, fit.factor).T  # (S, N)
        drawn.flatten(start_dim=1).addmm_(weights + solved @ root_there.T, root.flatten(start_dim=1))
        for place in range(len(self.observables)):
            own = observable == place
            residual_sd = rho * self._prior.spread[place]
            covariance = residual_sd**2 * self._residual[setting[own]] @ self._residual.T
            drawn[:, place].addmm_(solved[:, own], covariance + self._prior.scale_sd[place] ** 2)
        return drawn

    def _mean(self, form: Hypothesis) -> Tensor:  # (O, n)
        # Without structure only the level is known: the prior's mean over all settings.
        return self._prior.parts[form.part].mean if form.structured else self._level

    def _allowed(self, logs: Tensor, trials: Sequence[Evaluation]) -> Tensor:  # (S,)
        """Whether each sample keeps the lower bounds of the censored evaluations."""
        allowed = torch.ones(len(logs), dtype=torch.bool)
        for trial in trials:
            if trial.status is EvaluationStatus.CENSORED:
                place = self._space.index(trial.setting)
                for o, name in enumerate(self.observables):
                    if o > 0 and name in trial.observed:
                        allowed &= logs[:, o, place] >= math.log(trial.observed[name])
        return allowed if bool(allowed.any()) else torch.ones_like(allowed)


@dataclass(frozen=True)
class _Fit:
    """One hypothesis, conditioned on the observed numbers.

    Attributes:
        factor: Cholesky factor of the covariance of the observed numbers, (N, N).
    """

    log_evidence: float
    factor: Tensor


def _residual_root(space: Space) -> Tensor:  # (n, Q)
    """Matrix root of the residual's correlation between settings."""
    kernel = MaternKernel(nu=2.5)
    kernel.lengthscale = _LENGTHSCALE
    kernel = kernel.double()
    features = torch.from_numpy(space.features)
    with torch.no_grad():
        if len(space) <= _EXACT:
            matrix = kernel(features).to_dense()
            jitter = 1e-8 * torch.eye(len(space), dtype=torch.double)
            root: Tensor = torch.linalg.cholesky(matrix + jitter)
        else:
            root = kernel(features).pivoted_cholesky(rank=_DIRECTIONS)
    return root


def _apportion(shares: Tensor, seats: int) -> list[int]:
    """Whole numbers in proportion to `shares`, by largest remainder."""
    exact = (shares * seats).tolist()
    counts = [int(each) for each in exact]
    order = sorted(range(len(exact)), key=lambda place: (counts[place] - exact[place], place))
    for place in itertools.islice(order, seats - sum(counts)):
        counts[place] += 1
    return counts
