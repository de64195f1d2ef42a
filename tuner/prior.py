"""Prior of the observables: a mixture of Gaussians over the log observables at all settings.

The prior is made from sample responses. The samples come from a physical model with random coefficients
(`tuner.physics`), or from other workloads that were measured on the same device. Their mean and covariance are the
prior of a Gaussian process. Conditioning the process on evaluations would equal a refit of the physical model if that
model were linear in its coefficients. The residual of the process covers what the physical model cannot express.

One Gaussian fits badly where responses bend, for example at a power limit that binds for some workloads only: it would
be sure of a response that no workload has. So the samples are split into clusters of similar samples. Each cluster has
its own mean and covariance, and evidence tells which cluster a workload belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_RANK = 48
_SMALL = 200
_KEPT = 1e-6
"""Bound that sets the number of directions kept: those with more than this share of the variance."""
_LEAST = 50
"""Least number of samples for each component; with fewer, the samples are not split."""
_POWER_STEPS = 20
TRUST = 0.9
"""Probability that a workload follows the structure of its prior, unless the prior says otherwise."""


@dataclass(frozen=True)
class PriorComponent:
    """One Gaussian of a prior.

    Attributes:
        weight: Probability before any evaluation; the weights of a prior add up to 1.
        mean: Mean of the log observables, (n_observables, n_settings).
        root: Root of the covariance, (rank, n_observables, n_settings). The covariance is the sum of the outer products
            of the rows.
    """

    weight: float
    mean: Tensor
    root: Tensor


@dataclass(frozen=True)
class Prior:
    """A mixture of Gaussians over log observables.

    Attributes:
        observables: Names of the observables.
        parts: Gaussians of the mixture.
        scale_sd: Standard deviation of an unknown constant that is added to each log observable, (n_observables,);
            large if the samples hold ratios only.
        spread: Factor of the noise and of the residual of each observable, (n_observables,): 1 for numbers that are
            measured as exactly as a time, more for a percentile.
        trust: Probability that a workload follows the structure of the prior.
    """

    observables: tuple[str, ...]
    parts: tuple[PriorComponent, ...]
    scale_sd: Tensor
    spread: Tensor
    trust: float = TRUST

    @property
    def mean(self) -> Tensor:  # (n_observables, n_settings)
        """Mean of the mixture."""
        return torch.stack([part.weight * part.mean for part in self.parts]).sum(dim=0)

    @classmethod
    def of_samples(
        cls,
        observables: Sequence[str],
        samples: Tensor,
        scale_sd: Sequence[float],
        parts: int = 1,
        spread: Sequence[float] | None = None,
        trust: float = TRUST,
    ) -> Prior:
        """Prior with the moments of sample responses.

        Args:
            samples: Logarithms, (n_samples, n_observables, n_settings); at least two samples.
            parts: Largest number of components. The samples are split only if each component can have 50 of them.
            spread: Factor of the noise and of the residual of each observable; None for 1.
            trust: Probability that a workload follows the structure of the prior.
        """
        found = []
        for rows in _split(samples.flatten(start_dim=1), parts):
            mine = samples[rows]
            mean = mine.mean(dim=0)
            root = _compress((mine - mean) / (len(mine) - 1) ** 0.5)
            found.append(PriorComponent(len(mine) / len(samples), mean, root))
        factors = [1.0] * len(scale_sd) if spread is None else spread
        scale, widths = (torch.tensor(each, dtype=torch.double) for each in (scale_sd, factors))
        return cls(tuple(observables), tuple(found), scale, widths, trust)

    @classmethod
    def mixture(cls, shares: Sequence[tuple[float, Prior]]) -> Prior:
        """Mixture of several priors, with all their components. Evaluations then tell which component holds.

        Args:
            shares: Pairs (weight, prior). The weights are normalised to add up to 1. All priors have the same
                observables and settings.

        Raises:
            ValueError: The priors differ in their observables or in the shape of their means.
        """
        first = shares[0][1]
        if any(each.observables != first.observables or each.mean.shape != first.mean.shape for _, each in shares):
            raise ValueError("priors of different observables or spaces cannot be mixed")
        whole = sum(weight for weight, _ in shares)
        parts = [
            PriorComponent(weight / whole * part.weight, part.mean, part.root)
            for weight, each in shares
            for part in each.parts
        ]
        scale, spread = (
            torch.stack([getattr(each, name) for _, each in shares]).amax(dim=0) for name in ("scale_sd", "spread")
        )
        return cls(first.observables, tuple(parts), scale, spread, first.trust)


def _split(flat: Tensor, parts: int) -> list[Tensor]:
    """Row indices of each cluster.

    The cluster with the largest spread is cut across its longest direction until there are `parts` clusters.
    """
    found = [torch.arange(len(flat))]
    while len(found) < parts and len(flat) >= parts * _LEAST:
        centred = [flat[rows] - flat[rows].mean(dim=0) for rows in found]
        widest = max(range(len(found)), key=lambda each: float(centred[each].square().sum()))
        rows, spread = found.pop(widest), centred[widest]
        direction = torch.ones(spread.shape[1], dtype=flat.dtype)
        for _ in range(_POWER_STEPS):
            direction = spread.T @ (spread @ direction)
            direction /= direction.norm()
        score = spread @ direction
        upper = score > _two_means(score)
        found += [rows[~upper], rows[upper]]
    return [rows for rows in found if len(rows) >= 2]


def _two_means(score: Tensor) -> float:
    """Threshold between the two clusters of a one-dimensional 2-means."""
    cut = float(score.mean())
    for _ in range(_POWER_STEPS):
        cut = float(score[score <= cut].mean() + score[score > cut].mean()) / 2.0
    return cut


def _range(flat: Tensor) -> Tensor | None:
    """Orthonormal basis that spans nearly all of a large matrix; None for a small one.

    Halko, Martinsson and Tropp, "Finding Structure with Randomness", SIAM Review 2011, algorithm 4.4 with one step.
    """
    if min(flat.shape) <= _SMALL:
        return None
    draw = torch.Generator().manual_seed(0)
    probe = flat.T @ torch.randn(len(flat), MOST_RANK + 16, generator=draw, dtype=flat.dtype)
    probe = torch.linalg.qr(probe).Q
    basis: Tensor = torch.linalg.qr(flat.T @ (flat @ probe)).Q
    return basis


def _compress(rows: Tensor) -> Tensor:  # (rank, n_observables, n_settings)
    """Fewer rows with (nearly) the same sum of outer products."""
    flat = rows.reshape(len(rows), -1)
    basis = _range(flat)
    _, values, directions = torch.linalg.svd(flat if basis is None else flat @ basis, full_matrices=False)
    if basis is not None:
        directions = directions @ basis.T
    kept = (values.square() > _KEPT * values.square().sum()).nonzero().numel()
    kept = min(max(kept, 1), MOST_RANK)
    shorter: Tensor = (values[:kept, None] * directions[:kept]).reshape(kept, *rows.shape[1:])
    return shorter
