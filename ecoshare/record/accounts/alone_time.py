"""Time that the iterations of a job would have taken alone, on the same machine in the same state.

::

    iteration      ■■■■   ■■■■   ■■■■■■■     ■■■■····■■■■■     ■■■■
    a neighbour                  ▒▒▒▒▒▒▒
    counts as      own    own    expected    expected          own

An iteration for which a job had its devices to itself took as long as it would have taken alone: whatever made it slow,
no neighbour did. Only for the others a time alone is expected: the mean of such iterations of the job, else of its
class in this run, else that of the profile. So a job that was never beside another one has no cost of sharing, and what
other programs took from all iterations alike is none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ecoshare.base.attempt import Usage
from ecoshare.base.batch_means import error_of_any
from ecoshare.knowledge.profile import IterationTimes, Profile
from ecoshare.lane.trace import Kind
from ecoshare.record.accounts.turn_account import (
    AttemptTimes,
    Spent,
    TurnAccount,
    covered_s,
    covered_within_s,
    end_s_of,
    history_spans,
    length_s,
)
from ecoshare.record.run_history import RunHistory

if TYPE_CHECKING:
    import numpy as np


WARM_UP = 10
"""First iterations of an attempt that give no mean: they allocate memory, choose kernels and fill caches."""

_KINDS = (Kind.TRAIN, Kind.EVAL)

_SURE = 0.05
"""Relative error of a mean up to which times of the run itself go before those of the profile."""

_TOUCHED = 0.02
"""Part of an iteration beside a turn of another job above which the iteration counts as beside it."""


GUESSED_SHARE, GUESSED_ERROR = 0.75, 0.144
"""Time alone / time beside neighbours where nothing is known, and its standard error: even from a half to the whole."""

_MOST_GUESSED = 0.1
"""Part of the time alone that may be guessed if a slowdown is told."""


@dataclass(frozen=True, slots=True)
class AloneTime:
    """Time alone of the iterations of an attempt, from its first boundary to its last; of its turns if it has none.

    Attributes:
        wall_s: Wall time (s) of the iterations, with all waits for the turn, that for the first turn included.
        working_s: The same without the waits.
        alone_s: Time (s) that they would have taken alone.
        error_s: Standard error (s) of `alone_s`.
        beside_s: Part (s) of `working_s` in iterations for which a time alone is expected.
        guessed_s: Part (s) of `alone_s` that is a guess, since nothing is known of such iterations alone.
        prepared_beside_s: Time (s) with the turn outside of the iterations while a neighbour held a turn, too.
    """

    wall_s: float
    working_s: float
    alone_s: float
    error_s: float = 0.0
    beside_s: float = 0.0
    guessed_s: float = 0.0
    prepared_beside_s: float = 0.0

    @property
    def slowdown(self) -> float | None:
        """Cost of the neighbours: wall time, waits included / time alone; at least 1. None if it is not known."""
        return self._over(self.wall_s)

    @property
    def interference(self) -> float | None:
        """Cost of the neighbours without the waits: working time / time alone; at least 1. None if it is not known."""
        return self._over(self.working_s)

    def _over(self, time_s: float) -> float | None:
        if self.alone_s <= 0.0 or self.guessed_s > _MOST_GUESSED * self.alone_s:
            return None
        return max(1.0, time_s / self.alone_s)


@dataclass(frozen=True, slots=True)
class _Mean:
    """Mean time (s) of an iteration alone, with its standard error (s)."""

    mean_s: float
    error_s: float


@dataclass(frozen=True, slots=True)
class _Iterations:
    """Iterations of an attempt, from the end of the one before to their own ends; arrays of shape (n,).

    Attributes:
        own_s: Time (s) without the waits for the turn.
        is_own: Whether no neighbour and no setting had a part in the time.
        is_typical: Whether the time belongs into a mean: it is own, warm, and its memory was not observed.
    """

    kinds: np.ndarray
    own_s: np.ndarray
    is_own: np.ndarray
    is_typical: np.ndarray

    def typical_s(self, kind: Kind) -> np.ndarray:
        """Times (s) of one kind that belong into a mean."""
        found: np.ndarray = self.own_s[self.is_typical & (self.kinds == kind)]
        return found


def alone_times(
    account: TurnAccount,
    history: RunHistory,
    profiles: Mapping[str, Profile],
    others_busy: Callable[[float, float], float],
) -> dict[str, AloneTime]:
    """Time alone of the last attempt of each job, by the name of the job.

    Args:
        account: Account of the turns.
        history: History of the run.
        profiles: Profiles by class. Doubtful ones are not used.
        others_busy: Returns the part of the processors that other programs kept busy between two times (s). They may
            have taken as much of the iterations beside neighbours, which is a part of the error.
    """
    split = {key: found for key, times in account.times.items() if (found := _split(times, history)) is not None}
    classes = {name: job.spec.job_class for name, job in history.jobs.items() if job.spec is not None}
    pooled: dict[tuple[str, Kind], list[np.ndarray]] = defaultdict(list)
    for (name, _), each in split.items():
        for kind in _KINDS:
            pooled[classes[name], kind].append(each.typical_s(kind))
    of_class = {key: _mean(found) for key, found in pooled.items()}
    result = {}
    for name, job_class in classes.items():
        job = history.jobs[name]
        times = account.times.get((name, job.attempt))
        if times is None:
            continue
        profile = None if job.widened else profiles.get(job_class)
        iterations, means = split.get((name, job.attempt)), dict[Kind, _Mean | None]()
        if iterations is not None:
            for kind in _KINDS:
                own = _mean([iterations.typical_s(kind)])
                means[kind] = _best([own, of_class[job_class, kind], _of_profile(profile, kind)])
        told = _by_turns(times) if job.usage.by_time else _alone_time(job.usage, iterations, means)
        busy = others_busy(times.attempt.asked_s, end_s_of(times.attempt, history))
        error_s = math.hypot(told.error_s, busy * told.beside_s)
        inside_s = covered_s(times.spans[Spent.BESIDE], *times.ends_s[[0, -1]]) if len(times.ends_s) else 0.0
        outside_s = max(0.0, length_s(times.spans[Spent.BESIDE]) - inside_s)
        first_s = covered_s(times.spans[Spent.WAITS], 0.0, times.ends_s[0]) if len(times.ends_s) else 0.0
        wall_s = told.wall_s + first_s
        result[name] = replace(told, wall_s=wall_s, error_s=error_s, prepared_beside_s=outside_s)
    return result


def by_counters(usage: Usage, lanes: int, profile: Profile | None) -> AloneTime | None:
    """Time alone where no turns are known, from the counters of a job; None before two iterations are done.

    Args:
        usage: Resources that the attempt used.
        lanes: Number of lanes of a device. In a single one no job runs beside another.
        profile: Profile of the class, which tells the time alone if there are several lanes; None without one.
    """
    working_s, done = usage.span_s - usage.waited_s, usage.done
    if done < 2 or working_s <= 0.0:
        return None
    if lanes == 1:
        return AloneTime(usage.span_s, working_s, working_s)
    expected_s = None if profile is None else profile.alone_s(usage.iterations, usage.eval_iterations)
    if profile is None or profile.doubt or expected_s is None:
        guess_s = GUESSED_SHARE * working_s
        return AloneTime(usage.span_s, working_s, guess_s, GUESSED_ERROR * working_s, working_s, guess_s)
    error_s = profile.alone_error_s(usage.iterations, usage.eval_iterations)
    alone_s = min(working_s, expected_s * (done - 1) / done)
    return AloneTime(usage.span_s, working_s, alone_s, expected_s if error_s is None else error_s, working_s)


def _alone_time(usage: Usage, found: _Iterations | None, means: Mapping[Kind, _Mean | None]) -> AloneTime:
    working_s = max(0.0, usage.span_s - usage.waited_s)
    spent_s = expected_s = error_s = guessed_s = 0.0
    for kind in _KINDS if found is not None else ():
        assert found is not None
        beside = found.own_s[~found.is_own & (found.kinds == kind)]
        if not len(beside):
            continue
        beside_s = float(beside.sum())
        spent_s += beside_s
        if (mean := means[kind]) is None:
            guessed_s += GUESSED_SHARE * beside_s
            error_s = math.hypot(error_s, GUESSED_ERROR * beside_s)
        else:
            # No neighbour makes an iteration faster: where it seems so, the mean is that of another time.
            expected_s += min(beside_s, len(beside) * mean.mean_s)
            error_s = math.hypot(error_s, len(beside) * mean.error_s, max(0.0, len(beside) * mean.mean_s - beside_s))
    alone_s = max(0.0, working_s - (spent_s - expected_s - guessed_s))
    return AloneTime(usage.span_s, working_s, alone_s, error_s, spent_s, guessed_s)


def _by_turns(times: AttemptTimes) -> AloneTime:
    """Time alone of a job without iterations: that with the turn, of which a neighbour may have had a part."""
    held_s, beside_s = length_s(times.held), length_s(times.spans[Spent.BESIDE])
    waits_s = length_s(times.spans[Spent.WAITS]) + length_s(times.spans[Spent.PARKED])
    if beside_s <= _TOUCHED * held_s:
        return AloneTime(held_s + waits_s, held_s, held_s)
    guessed_s = GUESSED_SHARE * beside_s
    return AloneTime(
        held_s + waits_s, held_s, held_s - beside_s + guessed_s, GUESSED_ERROR * beside_s, beside_s, guessed_s
    )


def _split(times: AttemptTimes, history: RunHistory) -> _Iterations | None:
    """Iterations of an attempt; None for fewer than two."""
    import numpy as np

    if len(times.ends_s) < 2:
        return None
    from_s, to_s = times.ends_s[:-1], times.ends_s[1:]

    def inside(spans: np.ndarray) -> np.ndarray:
        return covered_within_s(spans, from_s, to_s)

    waits_s = inside(times.spans[Spent.WAITS]) + inside(times.spans[Spent.PARKED])
    own_s = to_s - from_s - waits_s
    devices = set(history.devices_of(times.attempt.lanes))
    settings = history_spans(history, (each for each in history.settings if each.device in devices))
    windows = history_spans(history, (each for each in history.windows if each.job == times.attempt.job))
    touched_s = inside(times.spans[Spent.BESIDE]) + inside(settings)
    is_warm = np.arange(1, len(to_s) + 1) >= WARM_UP
    # The first iterations are as they are: no mean tells what they would have been. So are those after a hand-over of a
    # job that waits for no other.
    is_own = ((touched_s <= _TOUCHED * own_s) & (waits_s <= 0.0)) | ~is_warm
    is_typical = is_own & is_warm & (inside(windows) <= 0.0) & (own_s > 0.0)
    return _Iterations(times.kinds[1:], own_s, is_own, is_typical)


def _mean(durations_s: Iterable[np.ndarray]) -> _Mean | None:
    import numpy as np

    found = np.concatenate(list(durations_s))
    error = error_of_any(found.tolist())
    return None if error is None else _Mean(float(found.mean()), error * float(found.mean()))


def _of_profile(profile: Profile | None, kind: Kind) -> _Mean | None:
    """Mean of a profile. An error that is not known counts as large as the time."""
    if profile is None or profile.doubt:
        return None
    times: IterationTimes | None = profile.train if kind is Kind.TRAIN else profile.eval
    if times is None:
        return None
    return _Mean(times.mean_s, times.mean_s if times.standard_error_s is None else times.standard_error_s)


def _best(candidates: Iterable[_Mean | None]) -> _Mean | None:
    """First mean with an error of 5 % or less, else the one with the smallest error; None for none."""
    known = [each for each in candidates if each is not None]
    sure = (each for each in known if each.error_s <= _SURE * each.mean_s)
    return next(sure, None) or min(known, key=lambda each: each.error_s / each.mean_s, default=None)
