"""Verdict on a variant of a training script, from its profile and that of the script as it was.

A variant pays if an iteration takes less time or fewer joules, and nothing gets worse: neither time, nor joules, nor
what the scripts report after equally many reports. Iterations of both are taken to do equal work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from ecoshare.knowledge.profile import Profile

COST_COUNTS, QUALITY_COUNTS = 0.05, 0.02
"""Least relative changes of time or joules, and of a reported value, that count. Windows of one script differ as much
on a busy machine, and so do seeds."""

_ERRORS = 2.0
"""Number of standard errors that a change must exceed."""

_HIGHER, _LOWER = frozenset({"accuracy", "acc", "score"}), frozenset({"loss", "error", "perplexity"})
"""Last words of the names of reported values that are judged: better if higher, or if lower."""

_FEWEST_REPORTS = 8


@dataclass(frozen=True, slots=True)
class VariantChange:
    """Change of one quantity from the first variant to the second.

    Attributes:
        relative: (second - first) / first.
        error: Standard error of `relative`.
        counts: Least change that counts.
        is_better_higher: Whether more of the quantity is better.
        source: Source of the quantity, such as `modelled`; empty if it needs none.
    """

    name: str
    relative: float
    error: float
    counts: float = COST_COUNTS
    is_better_higher: bool = False
    source: str = ""

    @property
    def gain(self) -> int:
        """1 if the second variant is better, -1 if it is worse, 0 if the change does not count."""
        if not abs(self.relative) > max(self.counts, _ERRORS * self.error):
            return 0
        return 1 if (self.relative > 0.0) is self.is_better_higher else -1

    def __str__(self) -> str:
        error = f" ± {100 * self.error:.2g}" if self.error else ""
        return f"{self.name} {100 * self.relative:+.3g}{error} %{self.source and f' ({self.source})'}"


def judged(changes: Sequence[VariantChange]) -> str:
    """Verdict in words: `pays`, `does not pay`, `is a trade` or `makes no difference`."""
    gains = {change.gain for change in changes}
    if 1 in gains:
        return "is a trade" if -1 in gains else "pays"
    return "does not pay" if -1 in gains else "makes no difference"


def quality(name: str, first: Sequence[float | None], second: Sequence[float | None]) -> VariantChange | None:
    """Change of a reported value: mean over the later half of the reports that both have.

    Equal reports are subtracted from each other, so progress that both make is no error.

    Returns:
        None if the name is not judged, if there are too few reports, or if those of `first` are not finite. A second
        value that is not finite is an infinite loss.
    """
    last = name.replace("-", "_").rpartition("_")[2].lower()
    count = min(len(first), len(second))
    if count < _FEWEST_REPORTS or last not in _HIGHER | _LOWER:
        return None
    before = [value for value in first[count // 2 : count] if value is not None]
    after = [value for value in second[count // 2 : count] if value is not None]
    if len(before) < count - count // 2 or not fmean(before):
        return None
    is_better_higher, scale = last in _HIGHER, abs(fmean(before))
    if len(after) < len(before):
        return VariantChange(name, -math.inf if is_better_higher else math.inf, 0.0, QUALITY_COUNTS, is_better_higher)
    apart = [(new - old) / scale for old, new in zip(before, after, strict=True)]
    error = stdev(apart) / math.sqrt(len(apart))
    return VariantChange(name, fmean(apart), error, QUALITY_COUNTS, is_better_higher)


def with_common_reports(first: Profile, second: Profile) -> tuple[Profile, Profile]:
    """Both profiles with equally many reports of each name, so that what is reported follows from equal work."""

    def cut(one: Profile, other: Profile) -> Profile:
        counts = {name: len(other.reported.get(name, values)) for name, values in one.reported.items()}
        return one.model_copy(update={"reported": {name: one.reported[name][: counts[name]] for name in counts}})

    return cut(first, second), cut(second, first)


def changes(first: Profile, second: Profile) -> Iterator[VariantChange]:
    """Changes of the time and joules of a training iteration, and of the reported values that are judged."""
    one, other = first.train, second.train
    error = 0.0
    if one is not None and other is not None and one.mean_s:
        times = other.mean_s / one.mean_s
        error = times * math.hypot(*((each.standard_error_s or 0.0) / (each.mean_s or 1.0) for each in (one, other)))
        yield VariantChange("time", times - 1, error)
    spent, now = first.energy, second.energy
    is_same = spent is not None and now is not None and (spent.source, spent.scope) == (now.source, now.scope)
    if is_same and first.origin.device_model == second.origin.device_model:
        assert spent is not None
        assert now is not None
        if spent.per_iteration_j and now.per_iteration_j is not None:
            # The error of modelled joules is unknown, but not less than that of the time.
            own = math.hypot(spent.relative_error or 0.0, now.relative_error or 0.0)
            joules = now.per_iteration_j / spent.per_iteration_j
            yield VariantChange("joules", joules - 1, max(error, joules * own), source=now.source)
    for name, values in first.reported.items():
        if (change := quality(name, values, second.reported.get(name, ()))) is not None:
            yield change


def verdict(first: Profile, second: Profile) -> str:
    """Verdict in one line; empty if the scripts report nothing in common, since their iterations may differ in work."""
    if not first.reported.keys() & second.reported.keys():
        return ""
    found = list(changes(first, second))
    told = ", ".join(map(str, found))
    doubt = first.doubt or second.doubt
    if not doubt and not any(change.counts == QUALITY_COUNTS for change in found):
        doubt = "too few reports of an accuracy or a loss are in common (--iterations measures longer)"
    if doubt:
        return f"open, since {doubt}: {told}"
    return f"the second {judged(found)}: {told}"
