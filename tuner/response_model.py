"""What is believed of every setting after the trials: joint samples of the log observables.

The model is a Gaussian process over (observable, setting), with covariance

    K = structure + rho^2 Matern(setting, setting') [same observable] + scale^2 [same observable]

and noise sigma. The structure is that of one part of the prior (`prior.py`), or nothing: then the process is an
ordinary one, whose residual has to carry it all. Which of them holds, how large rho is and how large the noise are not
fitted but averaged over, each by its evidence, so that few trials do not decide what only many could, and a prior that
misleads loses its say by itself.

Notation: S samples, O observables, n settings, N numbers observed, R rank of a part, Q that of the residual.
Samples are conditioned by Matheron's rule (Wilson et al., "Efficiently Sampling Functions from Gaussian Process
Posteriors", ICML 2020): a sample of the prior is corrected by what it lacks at the observed numbers.
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
from tuner.prior import MOST_RANK, Prior
from tuner.space import Space

SAMPLES = 512
_LENGTHSCALE = 0.5
"""Of the residual, over a knob's whole range."""

_EXACT = 600
"""Settings up to which the residual is sampled exactly; beyond, in so many directions: it is smooth."""
_DIRECTIONS = 96


@dataclass(frozen=True)
class Hypothesis:
    """One form of the model.

    Attributes:
        structured: Whether the prior holds.
        residual_sd: rho.
        noise_sd: sigma.
        weight: Believed before any trial.
        part: Of the prior, which holds.
    """

    structured: bool
    residual_sd: float
    noise_sd: float
    weight: float
    part: int = 0


def hypotheses(plain: bool = False) -> list[Hypothesis]:
    """All forms; with `plain` those without the prior's structure alone."""
    structured = 0.0 if plain else 0.9
    forms = [(True, rho, structured) for rho in (0.01, 0.03, 0.1)]
    forms += [(False, rho, 1.0 - structured) for rho in (0.1, 0.25, 0.6)]
    return [Hypothesis(*form[:2], noise, form[2] / 9) for form in forms for noise in (0.01, 0.02, 0.05) if form[2]]


class ResponseModel:
    """Conditions the prior on trials."""

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
        self._structure = normal(samples, MOST_RANK)
        residual = torch.einsum("soq,nq->son", normal(samples, count, self._residual.shape[1]), self._residual)
        scale = normal(samples, count, 1) * prior.scale_sd[:, None]
        self._parts = residual, scale
        self._noise = normal(samples, 4096)
        self.samples = samples

    def condition(self, trials: Sequence[Evaluation]) -> tuple[Tensor, Tensor]:
        """Samples given the trials: logarithms (S, O, n), and their weights (S,), which add up to 1.

        Censored times weigh: a sample that puts one below what it took already is left out. Where all are, none is.
        """
        known = [(o, i, value) for trial in trials for o, i, value in self._numbers(trial)]
        observable = torch.tensor([o for o, _, _ in known], dtype=torch.long)
        setting = torch.tensor([i for _, i, _ in known], dtype=torch.long)
        values = torch.tensor([value for _, _, value in known], dtype=torch.double)
        logs = self._posterior(observable, setting, values)
        return logs, self._weights(logs, trials)

    def _numbers(self, trial: Evaluation) -> list[tuple[int, int, float]]:
        """(observable, setting, log value) of what a trial has measured."""
        if trial.status not in (EvaluationStatus.MEASURED, EvaluationStatus.CENSORED):
            return []
        place = self._space.index(trial.setting)
        return [
            (o, place, math.log(trial.observed[name]))
            for o, name in enumerate(self.observables)
            if name in trial.observed and not (trial.status is EvaluationStatus.CENSORED and o > 0)
        ]

    def _posterior(self, observable: Tensor, setting: Tensor, values: Tensor) -> Tensor:
        fits = [self._fit(form, observable, setting, values) for form in self._forms]
        counts = _apportion(self._shares(fits), self.samples)
        pieces, begin = [], 0
        for form, fit, count in zip(self._forms, fits, counts, strict=True):
            if count:
                rows = slice(begin, begin + count)
                pieces.append(self._corrected(form, fit, rows, observable, setting, values))
                begin += count
        return torch.cat(pieces)

    def _shares(self, fits: Sequence[_Fit]) -> Tensor:
        """Of each form, by what was believed and by its evidence."""
        logs = [fit.log_evidence + math.log(form.weight) for fit, form in zip(fits, self._forms, strict=True)]
        return torch.softmax(torch.tensor(logs, dtype=torch.double), dim=0)

    def _fit(self, form: Hypothesis, observable: Tensor, setting: Tensor, values: Tensor) -> _Fit:
        """Only among the numbers observed: most forms are found unlikely, and need no more."""
        covariance = self._residual[setting] @ self._residual[setting].T * form.residual_sd**2
        covariance += self._prior.scale_sd[observable].square()
        covariance *= observable[:, None] == observable
        if form.structured:
            root = self._prior.parts[form.part].root[:, observable, setting]
            covariance += root.T @ root
        factor = torch.linalg.cholesky(covariance + form.noise_sd**2 * torch.eye(len(values), dtype=torch.double))
        lacking = values - self._mean(form)[observable, setting]
        whitened = torch.linalg.solve_triangular(factor, lacking[:, None], upper=False)
        log_evidence = -0.5 * whitened.square().sum() - factor.diagonal().log().sum()
        return _Fit(float(log_evidence), factor)

    def _corrected(
        self, form: Hypothesis, fit: _Fit, rows: slice, observable: Tensor, setting: Tensor, values: Tensor
    ) -> Tensor:
        """Matheron's rule for some of the samples."""
        prior = self._joint(form, rows)
        noise = form.noise_sd * self._noise[rows, : len(values)]
        lacking = values - prior[:, observable, setting] - noise  # (S, N)
        solved = torch.cholesky_solve(lacking.T, fit.factor).T
        cross = self._cross(form, observable, setting)
        return prior + (solved @ cross.flatten(start_dim=1)).reshape(prior.shape)

    def _mean(self, form: Hypothesis) -> Tensor:  # (O, n)
        # Without structure nothing but the level is known: that of the prior, where the prior knows it.
        return self._prior.parts[form.part].mean if form.structured else self._level

    def _joint(self, form: Hypothesis, rows: slice) -> Tensor:  # (S, O, n)
        residual, scale = self._parts
        whole = self._mean(form) + form.residual_sd * residual[rows] + scale[rows]
        if not form.structured:
            return whole
        root = self._prior.parts[form.part].root
        return whole + torch.einsum("sr,ron->son", self._structure[rows, : len(root)], root)

    def _cross(self, form: Hypothesis, observable: Tensor, setting: Tensor) -> Tensor:
        """Covariance of the observed numbers with everything, (N, O, n)."""
        count, n = len(self.observables), self._settings
        cross = torch.zeros(len(observable), count, n, dtype=torch.double)
        if form.structured:
            root = self._prior.parts[form.part].root
            cross += torch.einsum("rk,ron->kon", root[:, observable, setting], root)
        rows = torch.arange(len(observable))
        own = (
            form.residual_sd**2 * self._residual[setting] @ self._residual.T
            + self._prior.scale_sd[observable, None] ** 2
        )
        cross[rows, observable] += own
        return cross

    def _weights(self, logs: Tensor, trials: Sequence[Evaluation]) -> Tensor:
        allowed = torch.ones(len(logs), dtype=torch.double)
        for trial in trials:
            if trial.status is EvaluationStatus.CENSORED:
                place = self._space.index(trial.setting)
                for o, name in enumerate(self.observables):
                    if o > 0 and name in trial.observed:
                        allowed *= (logs[:, o, place] >= math.log(trial.observed[name])).double()
        if not allowed.any():
            allowed.fill_(1.0)
        return allowed / allowed.sum()


@dataclass(frozen=True)
class _Fit:
    """One hypothesis conditioned.

    Attributes:
        factor: Cholesky factor of the covariance of what was observed, (N, N).
    """

    log_evidence: float
    factor: Tensor


def _residual_root(space: Space) -> Tensor:  # (n, Q)
    """A root of the residual's correlation between settings."""
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
