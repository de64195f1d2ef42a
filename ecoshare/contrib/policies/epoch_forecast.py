"""Forecast of the remaining time of a job that changes its batch size, from the epochs seen so far."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate


class EpochForecast:
    """Epochs of a job, and a forecast of the epochs to come.

    The kinds of epochs are known from the profile: the duration at each batch size. The moments at which the job
    changes between them are unknown.

    Source: Zheng et al., "Shockwave", NSDI 2023, section 5. The prior over the kinds is a Dirichlet distribution, equal
    for all kinds. Each epoch seen adds one count to its kind.
    """

    def __init__(self, phases: Sequence[tuple[float, float]]) -> None:
        """Forecast of a job.

        Args:
            phases: Number of epochs and time (s) of each epoch, phase by phase.
        """
        self._epochs_s = [each_s for epochs, each_s in phases for _ in range(math.ceil(epochs - 1e-9))]
        self._ends_s = list(accumulate(self._epochs_s))

    @property
    def epochs(self) -> int:
        """Number of epochs of the whole job."""
        return len(self._epochs_s)

    def done(self, attained_s: float) -> int:
        """Number of whole epochs that are done after a turn time of `attained_s`."""
        return min(bisect_right(self._ends_s, attained_s + 1e-6), self.epochs)

    def done_s(self, done: int) -> float:
        """Turn time (s) of the first `done` epochs."""
        return self._ends_s[done - 1] if done else 0.0

    def epoch_s(self, done: int) -> float:
        """Mean time (s) of an epoch over the epochs seen, which include the present one."""
        seen = self._epochs_s[: done + 1]
        return sum(seen) / len(seen)

    def left_s(self, done: int) -> float:
        """Expected turn time (s) of the epochs left: the mean of the posterior."""
        left = self.epochs - done
        if not left:
            return 0.0
        kinds = sorted(set(self._epochs_s))
        seen = Counter(self._epochs_s[: done + 1])
        believed = {kind: self.epochs / len(kinds) + seen[kind] for kind in kinds}
        whole = sum(believed.values())
        expected = {kind: self.epochs * share / whole for kind, share in believed.items()}
        # The epochs seen are subtracted from the expected number of their kind, down to zero.
        ahead = {kind: count - min(seen[kind], math.floor(count)) for kind, count in expected.items()}
        count = max(int(sum(ahead.values()) + 1), left)
        return sum(kind * epochs for kind, epochs in ahead.items()) * left / count
