"""Latency targets of services: whether a service missed its target for a minute, or is about to."""

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
        missed: Number of these that missed the target (`lane.serving.request_intervals.against_target`).
    """

    requests: int
    missed: int


class TargetWatch:
    """Watch over the target of one service.

    ::

        seconds     ▁▁▁▁▁▂▁▁▁▁▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇    requests of each second that miss the target
        span                  ├───────── 60 s ─────────┤    more than 1 % of these requests miss it: missed
                                                       ├─── the next span begins

    A live run and the simulator tell it to the core as `TargetMissed`.
    """

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


FEWEST_HEADS = 4
"""Least number of different late heads. Each is a batch of one request or more."""

LEAST_S = 0.2
"""Least time (s) with a late head."""

MUCH_LATE = 0.05
"""Least part with a late head, of the time or of the requests, at which the target is surely missed: 0.01 keeps it."""


class OverloadWatch:
    """Watch over one service from the time at which a setting was applied.

    ::

        due first      ─a──a──b──b──c──c──d──d──e──e─      the request at the head of the queue, at each look
        now            ──────────────x──x──x──x──x──x      x: it is late before its answer

    A record has whole seconds alone. At a setting that overloads its service the queue grows meanwhile, and each
    request in it will be late. The head of the queue shows it at once.

    Requests that arrived before that time do not count.
    """

    def __init__(self, applied_s: float, target_s: float) -> None:
        """Watch that has seen nothing.

        Args:
            applied_s: Time (s) at which the setting was applied, on the clock of the looks.
            target_s: Target (s) of the service.
        """
        self._applied_s, self._target_s = applied_s, target_s
        self._seen_s, self._late_s, self._heads, self._last_due_s = applied_s, 0.0, 0, 0.0

    @property
    def is_overloaded(self) -> bool:
        """Whether so many requests are late that the setting cannot keep the target."""
        enough = self._heads >= FEWEST_HEADS and self._late_s >= LEAST_S
        return enough and self._late_s >= MUCH_LATE * (self._seen_s - self._applied_s)

    def saw(self, at_s: float, due_s: float | None) -> None:
        """Note the request that waits, or is worked on, and is due first.

        Args:
            at_s: Present time (s), which never decreases.
            due_s: Time (s) at which the answer to the request is due; None if there is no request.
        """
        since_s, self._seen_s = at_s - self._seen_s, at_s
        # A request with a deadline of its own may have come later than this tells. It counts a little later then.
        if due_s is None or due_s >= at_s or due_s - self._target_s < self._applied_s:
            return
        self._late_s += since_s
        self._heads += due_s != self._last_due_s
        self._last_due_s = due_s
