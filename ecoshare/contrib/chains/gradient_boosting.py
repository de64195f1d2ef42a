"""Quantile of the wait, by gradient boosting of regression trees from scikit-learn.

The model predicts the logarithm of the wait beyond that in the plan by past use of limits (`wait_predictor.py`):

    log(1 + wait) - log(1 + planned wait)

Trees cannot predict more than they have seen, but the plan grows with the queue. A quantile of the logarithm is the
logarithm of the quantile, so the model's quantile is that of the wait. scikit-learn is an extra:
`pip install 'ecoshare[slurm]'`.

Sources: Friedman, "Greedy function approximation: A gradient boosting machine", Annals of Statistics 2001; the loss:
Koenker and Bassett, "Regression Quantiles", Econometrica 1978.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, log1p
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from ecoshare.base.plural import counted
from ecoshare.contrib.chains.queue_sight import QueueSight
from ecoshare.contrib.chains.wait_predictor import EXPECTED, LONGEST_S, WaitSample, features
from ecoshare.errors import UnfitEnvironment, UsageError

QUANTILE = 0.9
"""Quantile of the wait that a successor is given. It is the cost of a second of interruption / that of a second of
interruption and one of overlap together (the newsvendor's ratio): a chain without its GPUs is worth nine that idle."""

LEAST_SAMPLES = 50
"""Least number of waits to learn from: of fewer, a quantile of 0.9 is that of five jobs."""


class GradientBoosting:
    """Predictor that was fitted to waits of the past."""

    def __init__(self, samples: Sequence[WaitSample], quantile: float = QUANTILE, seed: int = 0) -> None:
        """Fit the model; it takes about a second for 10,000 samples.

        Args:
            samples: Waits of the past.
            quantile: Share of waits that shall be at most the predicted one, above 0 and below 1.
            seed: Seed of the model.

        Raises:
            UnfitEnvironment: scikit-learn is not installed.
            UsageError: There are fewer than `LEAST_SAMPLES` samples, or the quantile is out of its range.
        """
        if not 0.0 < quantile < 1.0:
            raise UsageError(f"the quantile of a wait is above 0 and below 1, got {quantile:g}")
        if len(samples) < LEAST_SAMPLES:
            raise UsageError(
                f"a prediction of waits needs {counted(LEAST_SAMPLES, 'job')} that have started, got {len(samples)}",
                "read a longer time of the log: sacct --starttime",
            )
        self.quantile = quantile
        rows = np.array([sample.features for sample in samples])
        beyond = [log1p(sample.wait_s) - log1p(sample.features[EXPECTED]) for sample in samples]
        model = _regressor(quantile, seed)
        self._threads = ThreadpoolController()  # made once scikit-learn is loaded
        with self._threads.limit(limits=1, user_api="openmp"):  # on a login node, threads wait for each other
            self._model = model.fit(rows, np.array(beyond))

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Quantile (s) of the wait; 0 if the job would start at once."""
        return self.wait_of(features(sight, gpus, limit_s))

    def wait_of(self, row: tuple[float, ...]) -> float:
        """Quantile (s) of the wait for features as in `queue_features.NAMES`."""
        with self._threads.limit(limits=1, user_api="openmp"):
            (beyond,) = self._model.predict(np.array([row]))
        return min(max(0.0, expm1(float(beyond) + log1p(row[EXPECTED]))), LONGEST_S)


def _regressor(quantile: float, seed: int) -> Any:
    """Model that is not fitted yet.

    Raises:
        UnfitEnvironment: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ModuleNotFoundError as error:
        raise UnfitEnvironment("a prediction of waits needs scikit-learn", "pip install 'ecoshare[slurm]'") from error
    # Large leaves: the samples of a burst are alike, and a leaf must not be one burst. A look costs about 2 ms.
    return HistGradientBoostingRegressor(
        loss="quantile",
        quantile=quantile,
        max_iter=80,
        learning_rate=0.1,
        max_leaf_nodes=15,
        min_samples_leaf=40,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
