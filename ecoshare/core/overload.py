"""Overload of a service: whether the setting that is tried surely makes it miss its target.

::

    due first      ─a──a──b──b──c──c──d──d──e──e─      the request at the head of the queue, at each look
    now            ──────────────x──x──x──x──x──x      x: it is late before its answer

A record has whole seconds alone. At a setting that overloads its service the queue grows meanwhile, and each request in
it will be late. The head of the queue shows it at once.
"""

from __future__ import annotations

FEWEST_HEADS = 4
"""Least number of different late heads. Each is a batch of one request or more."""

LEAST_S = 0.2
"""Least time (s) with a late head."""

MUCH_LATE = 0.05
"""Least part with a late head, of the time or of the requests, at which the target is surely missed: 0.01 keeps it."""


class OverloadWatch:
    """Watch over one service from the time at which a setting was applied.

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
