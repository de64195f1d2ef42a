"""What is believed of the observables before anything is measured: Gaussians over their logarithms on all settings.

A belief comes as sample responses: of a physical model with random coefficients (`physics.py`), or of other workloads
that were measured on the same device. Their mean and covariance are the prior of a Gaussian process. Conditioning it on
trials is then what refitting the physical model would be, if that model were linear in its coefficients; and what it
cannot express is left to the process's residual.

Where responses bend, as at a power limit that binds for some workloads and not for others, one Gaussian would be sure
of what holds for neither. So samples are split into parts that are alike, each with a mean and covariance of its own,
and which of them a workload belongs to is found by evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_RANK = 48
_SMALL = 200
_KEPT = 1e-6
"""Directions with less than this part of the variance are left to the residual."""
_LEAST = 50
"""Samples for each part, below which they are not split."""
_POWER_STEPS = 20


@dataclass(frozen=True)
class PriorComponent:
    """One Gaussian of a prior.

    Attributes:
        weight: Believed before any trial; those of a prior add up to 1.
        mean: (n_observables, n_settings).
        root: (rank, n_observables, n_settings); the covariance is the sum of the outer products of its rows.
    """

    weight: float
    mean: Tensor
    root: Tensor


@dataclass(frozen=True)
class Prior:
    """A mixture of Gaussians over log observables.

    Attributes:
        observables: Names of the observables.
        scale_sd: Shape (n_observables,). Deviation of an unknown constant added to each; large if
            samples hold ratios only.
    """

    observables: tuple[str, ...]
    parts: tuple[PriorComponent, ...]
    scale_sd: Tensor

    @property
    def mean(self) -> Tensor:  # (n_observables, n_settings)
        """Over all parts."""
        return torch.stack([part.weight * part.mean for part in self.parts]).sum(dim=0)

    @classmethod
    def of_samples(
        cls, observables: Sequence[str], samples: Tensor, scale_sd: Sequence[float], parts: int = 1
    ) -> Prior:
        """The moments of sample responses.

        Args:
            samples: Logarithms, (n_samples, n_observables, n_settings); at least two samples.
            parts: Number of parts that the samples are split into, if there are enough.
        """
        found = []
        for rows in _split(samples.flatten(start_dim=1), parts):
            mine = samples[rows]
            mean = mine.mean(dim=0)
            root = _compress((mine - mean) / (len(mine) - 1) ** 0.5)
            found.append(PriorComponent(len(mine) / len(samples), mean, root))
        return cls(tuple(observables), tuple(found), torch.tensor(scale_sd, dtype=torch.double))

    @classmethod
    def mixture(cls, shares: Sequence[tuple[float, Prior]]) -> Prior:
        """All parts of several priors: trials tell which of them holds.

        Args:
            shares: Weights, which are made to add up to 1, and priors over the same observables and settings.

        Raises:
            ValueError: They are not over the same.
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
        scale = torch.stack([each.scale_sd for _, each in shares]).amax(dim=0)
        return cls(first.observables, tuple(parts), scale)


def _split(flat: Tensor, parts: int) -> list[Tensor]:
    """Places of the rows of each part: the part that is spread most is cut across its longest direction, again and
    again."""
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
    """The cut between the two groups of numbers that are closest to their means."""
    cut = float(score.mean())
    for _ in range(_POWER_STEPS):
        cut = float(score[score <= cut].mean() + score[score > cut].mean()) / 2.0
    return cut


def _range(flat: Tensor) -> Tensor | None:
    """Orthonormal directions in which nearly all of a large matrix lies; None for a small one.

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
