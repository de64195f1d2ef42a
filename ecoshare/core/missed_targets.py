"""Missed targets: whether a service has missed its target for a minute.

::

    seconds     ▁▁▁▁▁▂▁▁▁▁▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇    requests of each second that miss the target
    span                  ├───────── 60 s ─────────┤    more than 1 % of these requests miss it: missed
                                                   ├─── the next span begins

A live run and the simulator tell it to the core as `TargetMissed`.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

SPAN_S = 60.0
"""Time (s) for which a target must be missed. A shorter time would let one slow second part a group."""

MISSED_SHARE = 0.01
"""Largest part of the requests that may miss the target: it is the 99th percentile."""


class Missed(NamedTuple):
    """Requests of the time in which a target was missed.

    Attributes:
        requests: Number of requests that were answered, failed or were refused.
        missed: Number of these that missed the target (`serving.request_intervals.against_target`).
    """

    requests: int
    missed: int


class TargetWatch:
    """Watch over the target of one service."""

    def __init__(self, began_s: float, span_s: float = SPAN_S) -> None:
        """Watch that has seen nothing.

        Args:
            began_s: Time (s) from which the service is watched.
            span_s: Time (s) for which a target must be missed.
        """
        self._began_s, self._span_s = began_s, span_s
        self._seen: deque[tuple[float, int, int]] = deque()
        self._requests = self._missed = 0

    @property
    def missed_share(self) -> float:
        """Part of the requests of the last span that missed the target, as of the last call of `saw`."""
        return self._missed / self._requests if self._requests else 0.0

    def saw(self, at_s: float, requests: int, missed: int) -> Missed | None:
        """Note the requests since the last call.

        Args:
            at_s: Present time (s), which never decreases.
            requests: Number of requests that were answered, failed or were refused.
            missed: Number of these that missed the target.

        Returns:
            The requests of the last span, if the target was missed in it; the next span begins now. Otherwise None.
        """
        self._seen.append((at_s, requests, missed))
        self._requests += requests
        self._missed += missed
        while self._seen and self._seen[0][0] <= at_s - self._span_s:
            _, before, missed_before = self._seen.popleft()
            self._requests -= before
            self._missed -= missed_before
        if at_s - self._began_s < self._span_s or self._missed <= MISSED_SHARE * self._requests:
            return None
        found = Missed(self._requests, self._missed)
        self._began_s, self._requests, self._missed = at_s, 0, 0
        self._seen.clear()
        return found
