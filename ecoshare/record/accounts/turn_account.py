"""Account of each attempt's time, from the turns that it and its neighbours held.

::

    asked for     first turn      a neighbour's turn              a neighbour's turn in the same lane   last turn
        ├─ starts ────┤■■■ alone ■■■╪■ beside ■╪■■ alone ■■■┤ away ┤···· waits ····┤■■■ alone ■■■■■■■■■■■■┤ ends │

The traces of the jobs tell this to the iteration, while the decisions of the scheduler say what was meant to be: a job
behind a group gets turns that are left over, and a member of a group of one may meet it. So all that a run says about
sharing follows from here: the slowdown of a job, what sharing saved, and where the time of a job went.

Sets of time spans are arrays of shape (n, 2): begin and end (s), in order and without overlaps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ecoshare.base.attempt import Outcome
from ecoshare.lane.trace import MARK_BYTES, Kind, columns, trace_path, whole_bytes
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import AttemptHistory, ParkedSpan, ProfilingSpan, RunHistory
from ecoshare.record.setting_history import SettingPeriod

if TYPE_CHECKING:
    import numpy as np


MOST_MARKS = 8_000_000
"""Most marks of all traces of a run that are read: 72 MB, some tenths of a second."""

_MOMENT_S = 0.1
"""Time (s) before a moment in which a job that had a turn counts as having it then."""

Attempt = tuple[str, int]
"""Job and number of an attempt."""

_OWN_ENDS = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.OUT_OF_MEMORY})


class Spent(Enum):
    """Use that a job made of a part of its time."""

    QUEUED = "queued"
    """No attempt of it ran: it waited for a place, or the run was interrupted."""
    STARTS = "starts"
    """An attempt was asked for, and does not want its first turn yet."""
    ALONE = "alone"
    """It held its turn, and no other job held one on its devices."""
    BESIDE = "beside"
    """It held its turn while a job in another lane of its devices held one, too."""
    WAITS = "waits"
    """It wanted its turn, and another job of its lane had it, or was measured alone."""
    AWAY = "away"
    """It had given its turn up of its own accord: to load data, or because it had no requests."""
    PARKED = "parked"
    ENDS = "ends"
    """It has given up its turn for good, and its process ends."""


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """Time of one attempt.

    Attributes:
        attempt: The attempt.
        spans: Disjoint sets of spans, by what the attempt did. Together they last from its start command to its end, so
            there is none for `Spent.QUEUED`.
        turns: Turns that its trace tells. A job of several devices, or one with child processes there, works outside of
            them, too.
        kinds: Kind of each iteration, shape (n,).
        ends_s: End (s) of each iteration, shape (n,).
    """

    attempt: AttemptHistory
    spans: dict[Spent, np.ndarray]
    turns: np.ndarray
    kinds: np.ndarray
    ends_s: np.ndarray

    @property
    def held(self) -> np.ndarray:
        """Turns of the attempt."""
        return union([self.spans[Spent.ALONE], self.spans[Spent.BESIDE]])


@dataclass(slots=True)
class TurnAccount:
    """Account of all attempts of a run of which the trace is known.

    Attributes:
        times: Time of each attempt.
    """

    times: dict[Attempt, AttemptTimes] = field(default_factory=dict)
    _history: RunHistory = field(default_factory=RunHistory)
    _by_job: dict[str, list[AttemptTimes]] = field(init=False)
    _held: dict[str, tuple[np.ndarray, np.ndarray]] = field(init=False)

    def __post_init__(self) -> None:
        import numpy as np

        self._by_job, held = {}, defaultdict(list)
        for place, ((name, _), each) in enumerate(sorted(self.times.items())):
            self._by_job.setdefault(name, []).append(each)
            for device in self._history.devices_of(each.attempt.lanes):
                held[device].append((each.held, np.full(len(each.held), place)))
        # Turns on each device, of shape (n, 2), and the places of their attempts, of shape (n,).
        self._held = {
            device: (np.concatenate([turns for turns, _ in own]), np.concatenate([places for _, places in own]))
            for device, own in held.items()
        }

    @classmethod
    def of(cls, history: RunHistory, folder: RunFolder) -> TurnAccount | None:
        """Account of a run; None if it has no traces, or if they are too long to be read."""
        paths = {(each.job, each.number): trace_path(folder.job(each.job), each.number) for each in history.attempts}
        if not 0 < sum(map(whole_bytes, paths.values())) <= MOST_MARKS * MARK_BYTES:
            return None
        return cls.of_marks(history, {key: columns(path) for key, path in paths.items()})

    @classmethod
    def of_marks(cls, history: RunHistory, marks: dict[Attempt, tuple[np.ndarray, np.ndarray]]) -> TurnAccount:
        """Account of a run from the marks of its attempts, as `lane.trace.columns` gives them."""
        import numpy as np

        none = np.empty(0, np.uint8), np.empty(0)
        attempts = {(each.job, each.number): each for each in history.attempts if each.began_s is not None}
        turns = {key: _turns(*marks.get(key, none), end_s_of(each, history)) for key, each in attempts.items()}
        uses = {key: _uses(each, history, turns[key]) for key, each in attempts.items()}
        on_device: dict[str, list[np.ndarray]] = defaultdict(list)
        for key, attempt in attempts.items():
            for device in history.devices_of(attempt.lanes):
                on_device[device].append(uses[key])
        shared = {device: overlaps(each) for device, each in on_device.items()}
        times = {
            key: _times(each, history, *marks.get(key, none), turns[key], uses[key], shared)
            for key, each in attempts.items()
        }
        return cls(times, history)

    def of_job(self, name: str) -> dict[Spent, float]:
        """Time (s) of a job from its arrival to its end, or to the last event of the run, by what it did."""
        job, own = self._history.of(name), self.attempts(name)
        if job.arrival_s is None:
            return {}
        over_s = self._history.end_s if job.finish_s is None else job.finish_s
        whole = as_spans([(job.arrival_s, max(job.arrival_s, over_s))])
        running = union([spans for each in own for spans in each.spans.values()])
        found = {Spent.QUEUED: length_s(difference(whole, running))}
        for each in own:
            for spent, spans in each.spans.items():
                found[spent] = found.get(spent, 0.0) + length_s(spans)
        return found

    def attempts(self, name: str) -> list[AttemptTimes]:
        """Times of the attempts of a job, in order."""
        return self._by_job.get(name, [])

    def between(self, name: str, from_s: float, to_s: float) -> dict[Spent, float]:
        """Time (s) of the attempts of a job between two times, by what they did."""
        found = dict.fromkeys(Spent, 0.0)
        for each in self.attempts(name):
            for spent, spans in each.spans.items():
                found[spent] += covered_s(spans, from_s, to_s)
        return found

    def holders(self, name: str, *spent: Spent, from_s: float = 0.0, to_s: float = math.inf) -> dict[str, float]:
        """Time (s) of each other job with a turn on the devices of a job, while that one did one of some things.

        The job with most time comes first.
        """
        found: dict[str, float] = defaultdict(float)
        for each in self.attempts(name):
            spans = union([each.spans[one] for one in spent])
            spans = intersection(spans, as_spans([(from_s, min(to_s, self._history.end_s))]))
            for other, held_s in self._holding(self._history.devices_of(each.attempt.lanes), spans).items():
                if other != name:
                    found[other] += held_s
        return _most_first(found)

    def wait(self, name: str, at_s: float) -> tuple[float, tuple[str, ...]]:
        """Time (s) for which a job has waited for its turn at a time, and jobs that had one then; 0 if it did not."""
        for each in self.attempts(name):
            spans = each.spans[Spent.WAITS]
            place = int(spans[:, 0].searchsorted(at_s, "right")) - 1
            if place >= 0 and at_s < spans[place, 1]:
                from_s = float(spans[place, 0])
                behind = self.holders(name, Spent.WAITS, from_s=max(from_s, at_s - _MOMENT_S), to_s=at_s)
                return at_s - from_s, tuple(behind)
        return 0.0, ()

    def holding(self, device: str, from_s: float, to_s: float) -> dict[str, float]:
        """Time (s) of each job with a turn on a device between two times; most first."""
        return _most_first(self._holding([device], as_spans([(from_s, to_s)])))

    def _holding(self, devices: Sequence[str], spans: np.ndarray) -> dict[str, float]:
        """Time (s) of each job with a turn on some devices in a set of spans. A turn on several of them counts once."""
        import numpy as np

        attempts = [name for name, own in self._by_job.items() for _ in own]
        totals_s = np.zeros(len(attempts))
        for device in devices if len(spans) else ():
            turns, places = self._held.get(device, (empty(), np.empty(0, int)))
            held_s = covered_within_s(spans, turns[:, 0], turns[:, 1])
            np.maximum(totals_s, np.bincount(places, held_s, len(attempts)), out=totals_s)
        found: dict[str, float] = defaultdict(float)
        for place in np.flatnonzero(totals_s):
            found[attempts[place]] += float(totals_s[place])
        return found


def _most_first(times_s: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(times_s.items(), key=lambda item: -item[1]))


def end_s_of(attempt: AttemptHistory, history: RunHistory) -> float:
    """End (s) of an attempt; the last event of the run if it has none."""
    return history.end_s if attempt.ended_s is None else attempt.ended_s


def history_spans(history: RunHistory, periods: Iterable[SettingPeriod | ProfilingSpan | ParkedSpan]) -> np.ndarray:
    """Set of the spans of periods. One that goes on lasts to the last event of the run."""
    return as_spans((each.from_s, history.end_s if each.to_s is None else each.to_s) for each in periods)


def works_beyond_turns(attempt: AttemptHistory, history: RunHistory) -> bool:
    """Whether an attempt works on its devices all the time, whatever its trace says: child processes do, or ranks."""
    return len(attempt.lanes) > 1 or bool(history.of(attempt.job).usage.keeps_lane)


def _uses(attempt: AttemptHistory, history: RunHistory, turns: np.ndarray) -> np.ndarray:
    """Time in which an attempt works on its devices: its turns, or all of it from the first one on."""
    if not len(turns) or not works_beyond_turns(attempt, history):
        return turns
    return as_spans([(turns[0, 0], max(end_s_of(attempt, history), turns[-1, 1]))])


def _turns(kinds: np.ndarray, times_s: np.ndarray, over_s: float) -> np.ndarray:
    """Turns of an attempt. A turn without an end lasts to that of the attempt, or to the mark before the next turn."""
    import numpy as np

    is_turn = (kinds == Kind.TURN_BEGINS) | (kinds == Kind.TURN_ENDS)
    if not is_turn.any():
        return empty()
    end_s = max(over_s, times_s[-1])
    places = np.flatnonzero(is_turn)
    begins = kinds[places] == Kind.TURN_BEGINS
    # A begin after a begin: the end between them was lost with the process that should have written it.
    lost = times_s[places[np.flatnonzero(begins[:-1] & begins[1:]) + 1] - 1]
    from_s = np.concatenate([[] if begins[0] else times_s[:1], times_s[places[begins]]])
    to_s = np.sort(np.concatenate([times_s[places[~begins]], lost, [end_s] if begins[-1] else []]))
    return union([np.column_stack([from_s, to_s[: len(from_s)]])])


def _times(
    attempt: AttemptHistory,
    history: RunHistory,
    kinds: np.ndarray,
    times_s: np.ndarray,
    turns: np.ndarray,
    uses: np.ndarray,
    shared: dict[str, np.ndarray],
) -> AttemptTimes:
    asked_s, end_s = attempt.asked_s, max(attempt.asked_s, end_s_of(attempt, history))
    wanted_s = times_s[(kinds == Kind.TURN_BEGINS) | (kinds == Kind.WAITS)]
    first_s = min(end_s, max(asked_s, wanted_s[0])) if len(wanted_s) else end_s
    last_s = min(end_s, max(first_s, uses[-1, 1])) if len(uses) else first_s
    # A job that comes to its own end gives up its last turn for good. One that is stopped may have waited for another.
    is_over = attempt.outcome in _OWN_ENDS and not (len(wanted_s) and wanted_s[-1] > last_s)
    parked = history.of(attempt.job).parked
    rest = as_spans([(asked_s, end_s)])
    spans: dict[Spent, np.ndarray] = {}

    def take(spent: Spent, wanted: np.ndarray) -> None:
        nonlocal rest
        spans[spent], rest = intersection(rest, wanted), difference(rest, wanted)

    together = union([shared.get(device, empty()) for device in history.devices_of(attempt.lanes)])
    take(Spent.PARKED, as_spans((each.from_s, end_s if each.to_s is None else each.to_s) for each in parked))
    take(Spent.BESIDE, intersection(uses, together))
    take(Spent.ALONE, uses)
    take(Spent.STARTS, as_spans([(asked_s, first_s)]))
    take(Spent.ENDS, as_spans([(last_s, end_s)]) if is_over else empty())
    take(Spent.AWAY, _away(kinds, times_s))
    spans[Spent.WAITS] = rest
    is_iteration = (kinds == Kind.TRAIN) | (kinds == Kind.EVAL)
    return AttemptTimes(attempt, spans, turns, kinds[is_iteration], times_s[is_iteration])


def _away(kinds: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    """Spans from the end of a turn until the job wanted the next one, where it did not want it at once."""
    import numpy as np

    is_edge = (kinds != Kind.TRAIN) & (kinds != Kind.EVAL)
    edges, at_s = kinds[is_edge], times_s[is_edge]
    places = np.flatnonzero((edges[:-1] == Kind.TURN_ENDS) & (edges[1:] == Kind.WAITS))
    return np.column_stack([at_s[places], at_s[places + 1]]) if len(places) else empty()


# Sets of spans


def empty() -> np.ndarray:
    """Set without a span."""
    import numpy as np

    return np.empty((0, 2))


def as_spans(pairs: Iterable[tuple[float, float]]) -> np.ndarray:
    """Set of the given spans, which may overlap."""
    import numpy as np

    found = np.array(sorted(pairs), dtype=float).reshape(-1, 2)
    return union([found])


def length_s(spans: np.ndarray) -> float:
    """Sum (s) of the lengths of spans."""
    return float((spans[:, 1] - spans[:, 0]).sum())


def covered_until_s(spans: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """Time (s) in a set of spans before each of some times; shapes (n, 2), (m,) -> (m,)."""
    import numpy as np

    if not len(spans):
        return np.zeros(len(at_s))
    edges = spans.reshape(-1)
    lengths = np.cumsum(spans[:, 1] - spans[:, 0])
    known = np.column_stack([np.concatenate([[0.0], lengths[:-1]]), lengths]).reshape(-1)
    until_s: np.ndarray = np.interp(at_s, edges, known)
    return until_s


def covered_s(spans: np.ndarray, from_s: float, to_s: float) -> float:
    """Time (s) in a set of spans between two times."""
    import numpy as np

    before, after = covered_until_s(spans, np.array([from_s, max(from_s, to_s)]))
    return float(after - before)


def covered_within_s(spans: np.ndarray, from_s: np.ndarray, to_s: np.ndarray) -> np.ndarray:
    """Time (s) in a set of spans within each of some times; shapes (n, 2), (m,), (m,) -> (m,)."""
    found: np.ndarray = covered_until_s(spans, to_s) - covered_until_s(spans, from_s)
    return found


def union(sets: Sequence[np.ndarray]) -> np.ndarray:
    """Spans that are in any of some sets."""
    return _where(sets, 1)


def overlaps(sets: Sequence[np.ndarray]) -> np.ndarray:
    """Spans that are in two or more of some sets."""
    return _where(sets, 2)


def intersection(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spans that are in both sets."""
    return _where([one, other], 2)


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spans that are in the first set and not in the second."""
    import numpy as np

    if not len(one) or not len(other):
        return one
    low, high = min(one[0, 0], other[0, 0]) - 1.0, max(one[-1, 1], other[-1, 1]) + 1.0
    edges = np.concatenate([[low], other.reshape(-1), [high]]).reshape(-1, 2)
    return intersection(one, edges)


def _where(sets: Sequence[np.ndarray], least: int) -> np.ndarray:
    """Spans that are in at least this number of sets."""
    import numpy as np

    known = [each for each in sets if len(each)]
    if len(known) < least:
        return empty()
    at_s = np.concatenate([each.reshape(-1) for each in known])
    steps = np.concatenate([np.tile([1, -1], len(each)) for each in known])
    order = np.lexsort((-steps, at_s))  # begins before ends at equal times, so that spans that touch become one
    at_s, count = at_s[order], np.cumsum(steps[order])
    inside = count >= least
    begins = np.flatnonzero(inside & ~np.concatenate([[False], inside[:-1]]))
    ends = np.flatnonzero(~inside & np.concatenate([[False], inside[:-1]]))
    found = np.column_stack([at_s[begins], at_s[ends]])
    return found[found[:, 1] > found[:, 0]]
