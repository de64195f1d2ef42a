"""Times of iterations for which a job had its devices to itself, from the traces of a run.

::

    job      ─ warm-up ─┤■■■■■■■■│  waits  │·····│■■■■■■■■■│       ■  iterations that count
    beside              ┆        ╞══ turn ═╡     ┆         ┆
    setting             ┆                  ╞═════╡         ┆       another than the default

An iteration counts if the device was at its default setting, and if no other job had a turn there, started or ended.
The traces of the jobs tell this to the iteration, while the reports of progress come once a second. The memory of a job
is watched in its profiling window, so that iterations of a window do not count here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ecoshare.lane.trace import MARK_BYTES, Kind, held, trace_path, whole_bytes
from ecoshare.record.job_history import AttemptHistory
from ecoshare.record.reading import with_traces
from ecoshare.record.run_data import RunData
from ecoshare.record.run_folder import RunFolder

WARM_UP = 10
"""First iterations of an attempt that do not count: they allocate memory, choose kernels and fill caches."""

_SAME_S = 1e-9
"""Tolerance (s) for the turn time of an iteration that was not interrupted: rounding of floats."""

Span = tuple[float, float]


MOST_MARKS = 500_000
"""Most marks of all traces that are read at the end of a run, which takes about two seconds."""


def with_short_traces(data: RunData, folder: RunFolder) -> RunData | None:
    """The data with all traces of the run; None if they are very long."""
    paths = (trace_path(folder.job(each.job), each.number) for each in data.history.attempts)
    return None if sum(map(whole_bytes, paths)) > MOST_MARKS * MARK_BYTES else with_traces(data, folder)


class AloneIterations:
    """Iterations of the attempts of a run that count."""

    def __init__(self, data: RunData) -> None:
        """Look at all attempts.

        Args:
            data: Data of the run, with traces.
        """
        self._data = data
        self._on_device: dict[str, list[AttemptHistory]] = defaultdict(list)
        self._busy: dict[tuple[str, int], list[Span]] = {}
        for attempt in data.history.attempts:
            self._busy[attempt.job, attempt.number] = list(self._uses(attempt))
            for device in data.history.devices_of(attempt.lanes):
                self._on_device[device].append(attempt)

    def durations_s(self, attempt: AttemptHistory) -> list[float]:
        """Times (s) of the training iterations of an attempt that count, in their order."""
        history, excluded = self._data.history, list[Span]()
        for device in history.devices_of(attempt.lanes):
            others = [each for each in self._on_device[device] if _meet(each, attempt)]
            excluded += [span for each in others for span in self._busy[each.job, each.number]]
            excluded += [(each.from_s, _end(each.to_s)) for each in history.settings if each.device == device]
        excluded += [(each.from_s, _end(each.to_s)) for each in history.windows if each.job == attempt.job]
        return self._warm(attempt, _merged(excluded))

    def _warm(self, attempt: AttemptHistory, excluded: Sequence[Span]) -> list[float]:
        """Times (s) of the warm training iterations of an attempt in one turn, outside the excluded spans."""
        marks = self._data.traces.get((attempt.job, attempt.number), [])
        found = []
        for number, (each, held_s) in enumerate(held(marks), start=1):
            lasts_s = each.to_s - each.from_s
            whole = each.kind is Kind.TRAIN and number >= WARM_UP and 0.0 < lasts_s <= held_s + _SAME_S
            if whole and not _touches(excluded, each.from_s, each.to_s):
                found.append(lasts_s)
        return found

    def _uses(self, attempt: AttemptHistory) -> Iterator[Span]:
        """Times in which an attempt uses its devices: its turns, its start before them and its end after them.

        The trace of a job of several devices, or of one with child processes on the device, does not tell all of its
        work.
        """
        end_s = _end(attempt.ended_s)
        turns = self._data.turns(attempt)
        if not turns or len(attempt.lanes) > 1 or self._data.history.jobs[attempt.job].usage.keeps_lane:
            yield attempt.asked_s, end_s
            return
        yield attempt.asked_s, turns[0].from_s
        for turn in turns:
            yield turn.from_s, turn.to_s
        yield turns[-1].to_s, end_s


def _meet(one: AttemptHistory, other: AttemptHistory) -> bool:
    """Whether two attempts were there at the same time. A long sweep has many that were not."""
    return one is not other and one.asked_s < _end(other.ended_s) and other.asked_s < _end(one.ended_s)


def _end(at_s: float | None) -> float:
    return float("inf") if at_s is None else at_s


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The same spans in order, without overlaps."""
    merged: list[Span] = []
    for from_s, to_s in sorted(spans):
        if merged and from_s <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], to_s)
        else:
            merged.append((from_s, to_s))
    return merged


def _touches(spans: Sequence[Span], from_s: float, to_s: float) -> bool:
    """Whether any of some spans, which are in order and apart, overlaps a time."""
    place = bisect_left(spans, (to_s,))
    return place > 0 and spans[place - 1][1] > from_s
