"""Expected responses: the mean response at every setting, given a few evaluations, without a search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.evaluations import Evaluation
from tuner.physics import grey_box
from tuner.response_process import ResponseProcess, hypotheses
from tuner.space import Setting, Space
from tuner.tuner import one_thread


class ExpectedResponses:
    """Expectation of the power and of each job's time at every setting of a space.

    The process of the tuner (`tuner.response_process`) is conditioned on evaluations. Without any it gives the mean of
    the physical model's prior.
    """

    def __init__(self, space: Space, default: Setting, times: Sequence[str], seed: int = 0) -> None:
        """Expectation before any evaluation.

        Args:
            space: Space of the settings.
            default: Default setting.
            times: Names of the jobs' times.
            seed: Seed of the samples.
        """
        with one_thread():
            self._process = ResponseProcess(space, grey_box(space, times, default, seed), hypotheses(), seed)

    def given(self, evaluations: Sequence[Evaluation]) -> dict[str, NDArray[np.float64]]:
        """Geometric mean of each observable at every setting, (n_settings,): of `POWER` in W, and of each time in s.

        Args:
            evaluations: Evaluations so far, each with positive observables.
        """
        with one_thread():
            means = torch.exp(self._process.condition(evaluations).mean(dim=0))
        return {name: means[row].numpy() for row, name in enumerate(self._process.observables)}
