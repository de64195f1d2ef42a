"""What is believed of the observables before anything is measured: a Gaussian over their logarithms on all settings.

A belief comes as sample responses: of a physical model with random coefficients (`physics.py`), or of other workloads
that were measured on the same device. Their mean and covariance are the prior of a Gaussian process, whatever the
shapes of the responses are. Conditioning it on trials is then what refitting the physical model would be, if that model
were linear in its coefficients; and what it cannot express is left to the process's residual.
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


@dataclass(frozen=True)
class Prior:
    """A Gaussian over log observables.

    Attributes:
        observables: Their names.
        mean: (n_observables, n_settings).
        root: (rank, n_observables, n_settings); the covariance is the sum of the outer products of its rows.
        scale_sd: (n_observables,) of an unknown constant that is added to each: large where samples tell ratios alone.
    """

    observables: tuple[str, ...]
    mean: Tensor
    root: Tensor
    scale_sd: Tensor

    @classmethod
    def of_samples(cls, observables: Sequence[str], samples: Tensor, scale_sd: Sequence[float]) -> Prior:
        """The moments of sample responses.

        Args:
            samples: Logarithms, (n_samples, n_observables, n_settings); at least two samples.
        """
        mean = samples.mean(dim=0)
        deviations = (samples - mean) / (len(samples) - 1) ** 0.5
        return cls(tuple(observables), mean, _compress(deviations), torch.tensor(scale_sd, dtype=torch.double))

    @classmethod
    def mixture(cls, parts: Sequence[tuple[float, Prior]]) -> Prior:
        """The moments of a mixture: what one part is sure of and another contradicts is uncertain.

        Args:
            parts: Weights, which are made to add up to 1, and priors over the same observables and settings.

        Raises:
            ValueError: They are not over the same.
        """
        first = parts[0][1]
        if any(each.observables != first.observables or each.mean.shape != first.mean.shape for _, each in parts):
            raise ValueError("priors of different observables or spaces cannot be mixed")
        whole = sum(weight for weight, _ in parts)
        shares = [weight / whole for weight, _ in parts]
        mean = torch.stack([share * each.mean for share, (_, each) in zip(shares, parts, strict=True)]).sum(dim=0)
        rows = []
        for share, (_, each) in zip(shares, parts, strict=True):
            rows += [share**0.5 * each.root, share**0.5 * (each.mean - mean).unsqueeze(0)]
        scale = torch.stack([each.scale_sd for _, each in parts]).amax(dim=0)
        return cls(first.observables, mean, _compress(torch.cat(rows)), scale)


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
