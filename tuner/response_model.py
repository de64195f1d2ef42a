"""The responses of a device as a model of botorch: every setting of the space is a point, every observable an output.

::

    ResponseProcess.condition(evaluations) ──► joint samples (S, O, n) ──► ResponseModel ──► any acquisition function
                                                                            posterior(X)      of botorch

The model holds joint samples of all settings, not a mean and a covariance. So a value at one setting goes together with
the same sample's value at any other setting, whichever points are asked for together or apart. botorch's own
`EnsemblePosterior` has such samples too, but draws other members for each point.

Notation: S samples, O observables, n settings, d features of a setting, q points that are asked for together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.posterior import Posterior
from botorch.sampling.base import MCSampler
from botorch.sampling.get_sampler import GetSampler
from torch import Tensor

from tuner.response_process import SAMPLES
from tuner.space import Setting, Space

_NEAR = 1e-6
"""Largest distance between a point and the features of a setting."""


class ResponsePosterior(Posterior):
    """Joint posterior of the log observables at some settings, as samples.

    The outputs are the O observables at the setting, then the O observables at the default setting. Objectives and
    limits are relative to the default, so they need both from one sample.
    """

    def __init__(self, logs: Tensor, places: Tensor, default: int, outputs: Sequence[int]) -> None:
        """Take samples of all settings.

        Args:
            logs: Samples, (S, O, n).
            places: Indices of settings, (*batch_shape, q).
            default: Index of the default setting.
            outputs: Indices of the outputs, each below 2 O.
        """
        self._logs, self._places, self._default, self._outputs = logs, places, default, list(outputs)

    @property
    def members(self) -> int:
        """Number of joint samples."""
        return len(self._logs)

    @property
    def device(self) -> torch.device:
        """Device of the samples."""
        return self._logs.device

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the samples."""
        return self._logs.dtype

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the points without q."""
        return self._places.shape[:-1]

    @property
    def mean(self) -> Tensor:
        """Mean of each output, (*batch_shape, q, m)."""
        return self._at_points(self._logs.mean(dim=0, keepdim=True))[0]

    @property
    def variance(self) -> Tensor:
        """Variance of each output, (*batch_shape, q, m)."""
        return self._at_points(self._logs.var(dim=0, keepdim=True))[0]

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        """Random members of the samples, (*sample_shape, *batch_shape, q, m); one without a shape."""
        shape = torch.Size([1]) if sample_shape is None or not sample_shape else sample_shape
        return self.rsample_from_base_samples(shape, torch.randint(self.members, shape))

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        """Samples with the given indices, (*sample_shape, *batch_shape, q, m).

        Args:
            sample_shape: Shape of the indices.
            base_samples: Indices below `members`, of that shape.
        """
        found = self._at_points(self._logs[base_samples.flatten()])
        return found.reshape(sample_shape + found.shape[1:])

    def _at_points(self, logs: Tensor) -> Tensor:
        """Outputs at the points, (S', *batch_shape, q, m), from values at all settings, (S', O, n)."""
        count = logs.shape[1]
        # The outputs come first in memory: an objective or a limit reads few of them.
        found = logs.new_empty(len(self._outputs), len(logs), *self._places.shape)
        for each, output in zip(found, self._outputs, strict=True):
            if output < count:
                each[:] = logs[:, output, self._places]
            else:
                each[:] = logs[:, output - count, self._default].reshape(-1, *(1,) * self._places.ndim)
        return found.movedim(0, -1)

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008, as in botorch
        return sample_shape + self._places.shape + torch.Size([len(self._outputs)])


class ResponseModel(Model):
    """Model of botorch over the settings of a space, given the evaluations.

    A point is a row of `points`; any acquisition function that needs samples, or a mean and a variance, works on it.
    Functions that need a Gaussian posterior (entropy search) or fantasies (knowledge gradient) do not.

    Attributes:
        space: Space of the settings.
        points: Features of all settings, (n, d): the choices of `optimize_acqf_discrete`.
        outputs: Names of the 2 O outputs. All are logarithms.
    """

    def __init__(self, space: Space, observables: Sequence[str], default: Setting, logs: Tensor) -> None:
        """Make a model of samples.

        Args:
            space: Space of the settings.
            observables: Names of the observables.
            default: Default setting.
            logs: Joint samples of the log observables, (S, O, n), all of equal weight.
        """
        super().__init__()
        self.space, self._logs, self._default = space, logs, space.index(default)
        self.points = torch.from_numpy(space.features).to(logs)
        self.outputs = (*observables, *(f"{name} at the default" for name in observables))

    @property
    def num_outputs(self) -> int:
        """Number of outputs, 2 O."""
        return len(self.outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """Empty: the model is one model."""
        return torch.Size()

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
        **_options: Any,
    ) -> Posterior:
        """Joint posterior at points, without the noise of a measurement.

        Args:
            X: Points, (*batch_shape, q, d).
            output_indices: Outputs; None for all of them.
            observation_noise: Not used: what counts is the response, not its next measurement.
            posterior_transform: Transform of botorch that is applied to the posterior.

        Raises:
            ValueError: A point is no setting of the space.
        """
        outputs = range(self.num_outputs) if output_indices is None else output_indices
        found = ResponsePosterior(self._logs, self._places(X), self._default, outputs)
        return found if posterior_transform is None else posterior_transform(posterior=found, X=X)

    def upper(self, observable: str, confidence: float) -> Tensor:  # (n,)
        """Quantile `confidence` of an observable at every setting, in the unit of the observable."""
        bound: Tensor = torch.quantile(self._logs[:, self.outputs.index(observable)], confidence, dim=0).exp()
        return bound

    def members(self, points: Tensor) -> Tensor:
        """All joint samples at points (N, d), each alone: (S, N, 2 O)."""
        found = self.posterior(points[:, None])
        assert isinstance(found, ResponsePosterior)
        return found.rsample_from_base_samples(torch.Size([found.members]), torch.arange(found.members))[..., 0, :]

    def point(self, setting: Setting) -> Tensor:
        """Point of a setting, (1, d).

        Raises:
            KeyError: The setting is not in the space.
        """
        return self.points[[self.space.index(setting)]]

    def setting(self, point: Tensor) -> dict[str, float | str]:
        """Setting of a point, (1, d) or (d,).

        Raises:
            ValueError: The point is no setting of the space.
        """
        return dict(self.space.settings[int(self._places(point.reshape(1, -1)))])

    def _places(self, points: Tensor) -> Tensor:
        """Index of the setting of each point, (*batch_shape, q)."""
        away, places = torch.cdist(points.reshape(-1, points.shape[-1]).to(self.points), self.points).min(dim=1)
        if bool((away > _NEAR).any()):
            raise ValueError("a point is no setting of the space: take rows of `points`")
        return places.reshape(points.shape[:-1])


class EachMember(MCSampler):
    """Sampler that takes every joint sample equally often, the same ones at each point.

    botorch picks it by itself for a `ResponsePosterior`.
    """

    def forward(self, posterior: Posterior) -> Tensor:
        """Samples, (*sample_shape, *batch_shape, q, m)."""
        assert isinstance(posterior, ResponsePosterior)
        count = self.sample_shape.numel()
        members = torch.arange(count)
        members = members % posterior.members if count > posterior.members else members * posterior.members // count
        return posterior.rsample_from_base_samples(self.sample_shape, members.reshape(self.sample_shape))


def _sampler(_posterior: Posterior, sample_shape: torch.Size, *, seed: int | None = None) -> MCSampler:
    return EachMember(sample_shape, seed=0 if seed is None else seed)


GetSampler.register(ResponsePosterior)(_sampler)


def joint_samples(model: ResponseModel, points: Tensor) -> Tensor:
    """The samples that an acquisition function takes at points, (SAMPLES, *batch_shape, q, m)."""
    samples: Tensor = EachMember(torch.Size([SAMPLES]), seed=0)(model.posterior(points))
    return samples
