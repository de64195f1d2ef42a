"""Joules a request and targets of services: our search for clocks, power limit and batch size against other ways.

A case is a service with a load, a target, and perhaps a job that trains in its lane (service_world.py). It stands on a
measured table (`--data DIR`) or on an invented workload, none of which has the form of the tuner's model. A queue is
simulated in front of it, so p99 and joules are results of arrivals and batches, not of the tuner's formula. Each way
begins at the default setting and has at most 8 measurements, with the noise of a power meter and of a percentile of
about 1,000 requests. The figures use the truth: joules over those of the best setting that keeps the target, settings
tried that break it, and how often the kept setting breaks it. A kept setting that breaks the target is not within 3 %.

Cases in which no setting keeps the target are counted apart. `predicted` compares the upper bound (95 %) with the true
p99 at all settings up to 1.3 of the target, after the first measurement and after the last.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from ecoshare.knowledge.advisers.service_search import BUDGET, ServiceSearch, ServiceSearchEnding
from scripts.bench.benchmarking import DataOptions, Figure, add_data, median, percentile, run_benchmark, say
from scripts.bench.plain_botorch import most_improving
from scripts.bench.service_world import Case, invented_cases, measured_cases

SPACES, QUICK_SPACES, QUICK_EVERY = 3, 1, 13
WITHIN, CONFIDENCE, NEAR = 0.03, 0.95, 1.3


class ServiceTuningOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        spaces: Number of invented devices in each family.
    """

    spaces: int


@dataclass(frozen=True)
class Outcome:
    """Result of one way on one case.

    Attributes:
        tried: Indices of the measured settings.
        kept: Index of the setting that is kept in the end.
        ending: Reason why our search ended; None for other ways.
        bounds: Upper bound / true p99 near the target, after the first measurement and after the last.
    """

    case: Case
    tried: tuple[int, ...]
    kept: int
    ending: ServiceSearchEnding | None = None
    bounds: tuple[Sequence[float], Sequence[float]] = ((), ())

    @property
    def broken(self) -> int:
        """Measurements that break the target in truth."""
        return sum(self.case.truth(place).p99_s > self.case.target_s for place in self.tried)

    @property
    def is_kept(self) -> bool:
        """Whether the kept setting keeps the target."""
        return self.case.truth(self.kept).p99_s <= self.case.target_s

    @property
    def regret(self) -> float:
        """Joules of the kept setting over those of the best one that keeps the target, as a part of them."""
        return self.case.truth(self.kept).energy / _least(self.case) - 1.0


def _least(case: Case) -> float:
    """Least joules of the settings that keep the target; infinity if none does."""
    truths = [case.truth(place) for place in range(len(case.space))]
    return min((each.energy for each in truths if each.p99_s <= case.target_s), default=math.inf)


def ours(case: Case) -> Outcome:
    """Our search."""
    search = ServiceSearch(case.space, case.default, case.target_s, case.load, case.measure(case.at, 0), case.training)
    tried, first = [case.at], _bounds(case, search)
    while (setting := search.next()) is not None:
        tried.append(case.space.index(setting))
        search.told(case.measure(tried[-1], len(tried) - 1))
    kept = case.at if search.best is None else case.space.index(search.best)
    return Outcome(case, tuple(tried), kept, search.ending, (first, _bounds(case, search)))


def _bounds(case: Case, search: ServiceSearch) -> list[float]:
    true = [case.truth(place).p99_s for place in range(len(case.space))]
    bounds = [search.bound_s(setting, CONFIDENCE) for setting in case.space.settings]
    return [bound / p99_s for bound, p99_s in zip(bounds, true, strict=True) if p99_s <= NEAR * case.target_s]


def default_only(case: Case) -> Outcome:
    """No search."""
    return Outcome(case, (case.at,), case.at)


def static_best(case: Case, others: Sequence[Case]) -> Outcome:
    """One setting, relative to the default, for all other cases of the family: the best that most of them can keep."""
    here = _relative(case)
    broken, logs = np.zeros(len(here)), np.zeros(len(here))
    for other in others:
        if other is case or other.space.features.shape[1] != case.space.features.shape[1]:
            continue
        nearest = np.abs(here[:, None] - _relative(other)[None]).sum(axis=2).argmin(axis=1)
        truths = [other.truth(int(place)) for place in nearest]
        broken += [each.p99_s > max(other.target_s, other.truth(other.at).p99_s) for each in truths]
        logs += [math.log(each.energy) for each in truths]
    place = int(np.lexsort((logs, broken))[0])
    return Outcome(case, (place,), place)


def _relative(case: Case) -> np.ndarray:
    logs = np.log(case.space.numbers)
    return np.asarray(logs - logs[case.at])


def plain_botorch(case: Case) -> Outcome:
    """Constrained search as in botorch's tutorials: a `SingleTaskGP` each for joules and p99, and qLogNEI.

    The default and two random settings come first. It keeps the measured setting with least joules that was measured
    within the target, or else the one with the least p99.
    """
    torch.manual_seed(case.seed)
    points = torch.from_numpy(case.space.features)
    search = ServiceSearch(case.space, case.default, case.target_s, case.load, case.measure(case.at, 0), case.training)
    tried, logs = [case.at], []
    draw = np.random.default_rng(case.seed)
    others = [int(place) for place in draw.permutation(len(points)) if place != case.at]
    while True:
        found = case.measure(tried[-1], len(tried) - 1)
        logs.append([math.log(search.energy(found)), math.log(found.p99_s / case.target_s)])
        if len(tried) == min(BUDGET, len(points)):
            break
        told = torch.tensor(logs, dtype=torch.double)
        if len(tried) < 3:
            tried.append(others[len(tried) - 1])
        else:
            tried.append(most_improving(points, tried, told, [-1.0, 0.0], lambda samples: samples[..., 1]))
    kept = [(joules, place) for (joules, late), place in zip(logs, tried, strict=True) if late <= 0.0]
    likeliest = min(zip([late for _, late in logs], tried, strict=True))[1]
    return Outcome(case, tuple(tried), min(kept)[1] if kept else likeliest)


def measure(options: ServiceTuningOptions) -> list[Figure]:
    """Figures of all ways on all cases."""
    torch.set_num_threads(1)
    figures: list[Figure] = []
    groups: dict[str, list[Case]] = {}
    if options.data is None:
        figures.append(Figure("measured tables", None, "", note="give their folder with --data"))
    else:
        groups["measured tables"] = measured_cases(options.data, QUICK_EVERY if options.quick else 1)
    for case in invented_cases(QUICK_SPACES if options.quick else options.spaces):
        name = "invented, bursts" if case.bursts > 1.0 else "invented"
        groups.setdefault(name, []).append(case)
    for name, cases in groups.items():
        figures += _group(name, cases)
    return figures


def _group(name: str, cases: Sequence[Case]) -> list[Figure]:
    possible = [case for case in cases if math.isfinite(_least(case))]
    say(f"{name}: {len(cases)} cases, {len(possible)} with a setting that keeps the target")
    ways: dict[str, Callable[[Case], Outcome]] = {
        "default": default_only,
        "static best": lambda case: static_best(case, [each for each in cases if each.family == case.family]),
        "plain botorch": plain_botorch,
        "ours": ours,
    }
    figures = [Figure(f"{name}: cases", float(len(cases)), "", note=f"{len(possible)} can keep their target")]
    for way, carry_out in ways.items():
        outcomes = [carry_out(case) for case in cases]
        figures += _figures(f"{name}: {way}", [each for each in outcomes if each.case in possible], way == "ours")
        if way == "ours":
            figures += _said(name, [each for each in outcomes if each.case not in possible])
            figures += _predicted(name, outcomes)
    return figures


def _figures(name: str, outcomes: Sequence[Outcome], is_ours: bool) -> list[Figure]:
    if not outcomes:
        return []
    kept = [each for each in outcomes if each.is_kept]
    good = fmean(each.is_kept and each.regret <= WITHIN for each in outcomes)
    broken = [float(each.broken) for each in outcomes]
    regret = 100.0 * median([each.regret for each in kept]) if kept else None
    say(f"{name}: {regret} % over the best, {100 * good:.0f} % within 3 %, {fmean(broken):.2f} over the target")
    figures = [
        Figure(f"{name}, joules over the best, median", regret, "%", "<= 3" if is_ours else "", "where it is kept"),
        Figure(f"{name}, within 3 % of the best", 100.0 * good, "%"),
        Figure(f"{name}, kept setting breaks the target", 100.0 * (1.0 - len(kept) / len(outcomes)), "%"),
    ]
    if name.endswith(("ours", "botorch")):
        wanted = ("<= 8", "<= 1") if is_ours else ("", "")
        figures += [
            Figure(f"{name}, measurements, most", float(max(len(each.tried) for each in outcomes)), "", wanted[0]),
            Figure(f"{name}, measurements, mean", fmean(len(each.tried) for each in outcomes), ""),
            Figure(f"{name}, over the target, mean", fmean(broken), "", wanted[1]),
            Figure(f"{name}, over the target, most", max(broken), "", wanted[1]),
        ]
    return figures


def _said(name: str, impossible: Sequence[Outcome]) -> list[Figure]:
    """How often the search says that no setting can keep the target, where none can."""
    if not impossible:
        return []
    said = fmean(each.ending is ServiceSearchEnding.NONE_KEEPS for each in impossible)
    note = f"{len(impossible)} cases; the others go on until the budget, or believe a percentile by chance"
    return [Figure(f"{name}: ours, says that no setting keeps the target", 100.0 * said, "%", note=note)]


def _predicted(name: str, outcomes: Sequence[Outcome]) -> list[Figure]:
    figures = []
    for number, when in enumerate(("first", "last")):
        ratios = [ratio for each in outcomes for ratio in each.bounds[number]]
        if not ratios:
            continue
        inside = 100.0 * fmean(ratio >= 1.0 for ratio in ratios)
        where = f"{name}: predicted after the {when} measurement"
        figures += [
            Figure(f"{where}, p99 inside the bound", inside, "%", ">= 95", f"{len(ratios)} settings"),
            Figure(f"{where}, bound / p99, median", median(ratios), "x", "<= 1.5"),
            Figure(f"{where}, bound / p99, p90", percentile(ratios, 0.9), "x"),
        ]
    return figures


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--spaces", type=int, default=SPACES, metavar="N", help="invented devices in each family")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("service_tuning", __doc__, measure, ServiceTuningOptions, _add_options)


if __name__ == "__main__":
    main()
