"""Missed targets: whether a service has missed its target for a minute.

::

    seconds     ▁▁▁▁▁▂▁▁▁▁▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇    late answers of each second
    span                  ├───────── 60 s ─────────┤    more than 1 % of these answers are late: missed
                                                   ├─── the next span begins

A live run and the simulator tell it to the core as `TargetMissed`.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

SPAN_S = 60.0
"""Time (s) for which a target must be missed. A shorter time would let one slow second part a group."""

LATE_SHARE = 0.01
"""Largest part of the requests that may be late: the target is the 99th percentile."""


class Missed(NamedTuple):
    """Requests of the time in which a target was missed.

    Attributes:
        requests: Number of requests that were answered or refused.
        late: Number of these that were answered late or refused.
    """

    requests: int
    late: int


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
        self._requests = self._late = 0

    def saw(self, at_s: float, requests: int, late: int) -> Missed | None:
        """Note the requests since the last call.

        Args:
            at_s: Present time (s), which never decreases.
            requests: Number of requests that were answered or refused.
            late: Number of these that were answered late or refused.

        Returns:
            The requests of the last span, if the target was missed in it; the next span begins now. Otherwise None.
        """
        self._seen.append((at_s, requests, late))
        self._requests += requests
        self._late += late
        while self._seen and self._seen[0][0] <= at_s - self._span_s:
            _, before, late_before = self._seen.popleft()
            self._requests -= before
            self._late -= late_before
        if at_s - self._began_s < self._span_s or self._late <= LATE_SHARE * self._requests:
            return None
        missed = Missed(self._requests, self._late)
        self._began_s, self._requests, self._late = at_s, 0, 0
        self._seen.clear()
        return missed
