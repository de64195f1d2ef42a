"""How long a job will take that changes its batch size: a forecast from what was seen of it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate


class EpochForecast:
    """Epochs of a job, and what those to come will be like.

    The kinds of epochs that it may have are known (of its profile: how long one takes at each batch size), when it
    changes between them is not. Zheng et al., "Shockwave", NSDI 2023, section 5: a Dirichlet prior over the kinds,
    equal for all, and each epoch that was seen counts for its own.
    """

    def __init__(self, phases: Sequence[tuple[float, float]]) -> None:
        """`phases`: epochs and the seconds that each takes, in order."""
        self._epochs_s = [each_s for epochs, each_s in phases for _ in range(math.ceil(epochs - 1e-9))]
        self._ends_s = list(accumulate(self._epochs_s))

    @property
    def epochs(self) -> int:
        """In all."""
        return len(self._epochs_s)

    def done(self, attained_s: float) -> int:
        """Whole epochs that are done after so much turn time."""
        return min(bisect_right(self._ends_s, attained_s + 1e-6), self.epochs)

    def done_s(self, done: int) -> float:
        """What these took."""
        return self._ends_s[done - 1] if done else 0.0

    def epoch_s(self, done: int) -> float:
        """Of those that were seen, the present one included, on average."""
        seen = self._epochs_s[: done + 1]
        return sum(seen) / len(seen)

    def left_s(self, done: int) -> float:
        """Expected turn time of those that are left: the mean of the posterior."""
        left = self.epochs - done
        if not left:
            return 0.0
        kinds = sorted(set(self._epochs_s))
        seen = Counter(self._epochs_s[: done + 1])
        believed = {kind: self.epochs / len(kinds) + seen[kind] for kind in kinds}
        whole = sum(believed.values())
        expected = {kind: self.epochs * share / whole for kind, share in believed.items()}
        # Those that were seen are over, as far as that many were expected.
        ahead = {kind: count - min(seen[kind], math.floor(count)) for kind, count in expected.items()}
        count = max(int(sum(ahead.values()) + 1), left)
        return sum(kind * epochs for kind, epochs in ahead.items()) * left / count
