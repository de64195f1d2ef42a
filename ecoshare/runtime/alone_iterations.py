"""Times of iterations for which a job had its devices to itself, from the turns of a run.

::

    job      ─ warm-up ─┤■■■■■■■■│  waits  │·····│■■■■■■■■■│       ■  iterations that count
    beside              ┆        ╞══ turn ═╡     ┆         ┆
    setting             ┆                  ╞═════╡         ┆       another than the default

An iteration counts if the device was at its default setting, and if no other job had a turn there, started or ended.
The traces of the jobs tell this to the iteration, while the reports of progress come once a second. The memory of a job
is watched in its profiling window, so that iterations of a window do not count here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ecoshare.lane.trace import Kind
from ecoshare.record.alone_time import WARM_UP
from ecoshare.record.job_history import AttemptHistory
from ecoshare.record.run_history import RunHistory
from ecoshare.record.turn_account import (
    AttemptTimes,
    TurnAccount,
    as_spans,
    covered_within_s,
    end_s_of,
    history_spans,
    union,
    works_beyond_turns,
)

if TYPE_CHECKING:
    import numpy as np

_SAME_S = 1e-9
"""Tolerance (s) for the turn time of an iteration that was not interrupted: rounding of floats."""


class AloneIterations:
    """Iterations of the attempts of a run that count.

    Attributes:
        history: History of the run.
    """

    def __init__(self, account: TurnAccount, history: RunHistory) -> None:
        """Look at all attempts."""
        self._account, self.history = account, history
        self._on_device: dict[str, list[tuple[AttemptHistory, np.ndarray]]] = defaultdict(list)
        for times in account.times.values():
            for device in history.devices_of(times.attempt.lanes):
                self._on_device[device].append((times.attempt, self._uses(times)))

    def durations_s(self, attempt: AttemptHistory) -> list[float]:
        """Times (s) of the training iterations of an attempt that count, in their order: warm ones, in one turn."""
        import numpy as np

        times = self._account.times.get((attempt.job, attempt.number))
        if times is None or len(times.ends_s) < 2:
            return []
        from_s, to_s = times.ends_s[:-1], times.ends_s[1:]
        lasts_s = to_s - from_s
        is_warm = np.arange(1, len(to_s) + 1) >= WARM_UP
        is_whole = (lasts_s > 0.0) & (lasts_s <= covered_within_s(times.turns, from_s, to_s) + _SAME_S)
        is_alone = covered_within_s(self._excluded(attempt), from_s, to_s) <= 0.0
        found: list[float] = lasts_s[is_warm & is_whole & is_alone & (times.kinds[1:] == Kind.TRAIN)].tolist()
        return found

    def _excluded(self, attempt: AttemptHistory) -> np.ndarray:
        """Times of other jobs, of settings and of windows."""
        history, sets = self.history, []
        for device in history.devices_of(attempt.lanes):
            sets += [uses for other, uses in self._on_device[device] if self._meet(other, attempt)]
            sets.append(history_spans(history, (each for each in history.settings if each.device == device)))
        sets.append(history_spans(history, (each for each in history.windows if each.job == attempt.job)))
        return union(sets)

    def _uses(self, times: AttemptTimes) -> np.ndarray:
        """Times in which an attempt uses its devices: its turns, its start before them and its end after them."""
        attempt, turns = times.attempt, times.turns
        end_s = end_s_of(attempt, self.history)
        if not len(turns) or works_beyond_turns(attempt, self.history):
            return as_spans([(attempt.asked_s, end_s)])
        return union([as_spans([(attempt.asked_s, turns[0, 0])]), turns, as_spans([(turns[-1, 1], end_s)])])

    def _meet(self, one: AttemptHistory, other: AttemptHistory) -> bool:
        """Whether two attempts were there at the same time. A long sweep has many that were not."""
        first, last = (end_s_of(each, self.history) for each in (one, other))
        return one is not other and one.asked_s < last and other.asked_s < first
