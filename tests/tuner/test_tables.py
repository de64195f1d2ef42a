"""The tuner is never worse than plain constrained Bayesian optimization on measured tables (in `ECOSHARE_DATA`).

The tables are public and no part of this project: without the folder this is skipped, and says so.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import pytest
from scipy import stats

from scripts.bench import tuner_searches as searches
from scripts.bench import tuner_tables
from scripts.bench.tuner_tables import Problem
from tests.rounds import is_nightly, rounds


def trials(problems: Sequence[Problem], way: Callable[[Problem, int], searches.Search]) -> list[float]:
    """Measurements until a setting is good, for each problem and seed, with the noise of that seed."""
    seeds = range(rounds(1, nightly=3))
    return [float(searches.run(each, way(each, seed), seed).trials) for each in problems for seed in seeds]


def warm(problems: Sequence[Problem], whole: Sequence[Problem]) -> Callable[[Problem, int], searches.Search]:
    """Search of ours with the other workloads of the table as earlier measurements."""
    priors = {each: searches.warm(each, whole) for each in problems}
    return lambda problem, seed: searches.ours(problem, seed, priors[problem])


def assert_not_worse(ours: list[float], plain: list[float], what: str) -> None:
    """One-sided paired t-test: p < 0.05 only if our search takes more measurements beyond noise."""
    if ours == plain:
        return
    p = float(stats.ttest_rel(ours, plain, alternative="greater").pvalue)
    print(f"{what}: {fmean(ours):.2f} trials, plain {fmean(plain):.2f}, p = {p:.3g}")
    assert p >= 0.05, f"{what} takes {fmean(ours):.2f} trials, plain {fmean(plain):.2f}, p = {p:.3g}"


@pytest.mark.nightly
@pytest.mark.timeout(240)
@pytest.mark.skipif("ECOSHARE_DATA" not in os.environ, reason="ECOSHARE_DATA names no folder with the measured tables")
@pytest.mark.parametrize("number", range(3))
def test_ours_is_never_worse_than_plain_beyond_noise(number: int) -> None:
    """Pairs have one workload and seed: the claim is about the workloads of a table, and seeds are the noise."""
    tables: dict[str, list[Problem]] = defaultdict(list)
    for problem in tuner_tables.read(Path(os.environ["ECOSHARE_DATA"])):
        tables[problem.table].append(problem)
    assert len(tables) == 3
    table, whole = sorted(tables.items())[number]
    chosen = tuner_tables.spread(whole) if len(whole) > 20 else whole
    plain = trials(chosen, searches.plain)
    assert_not_worse(trials(chosen, searches.ours), plain, f"{table}, cold")
    if is_nightly() and all(each.space.settings == whole[0].space.settings for each in whole):
        assert_not_worse(trials(chosen, warm(chosen, whole)), plain, f"{table}, warm")


def test_worse_beyond_noise_is_noticed() -> None:
    """Without this check, a test that cannot fail would pass as well."""
    plain = [4.0, 6.0, 5.0, 7.0, 5.0, 6.0]
    assert_not_worse([5.0, 5.0, 6.0, 6.0, 5.0, 6.0], plain, "the same but for noise")
    with pytest.raises(AssertionError, match="p = "):
        assert_not_worse([each + 2.0 + 0.1 * place for place, each in enumerate(plain)], plain, "worse")
