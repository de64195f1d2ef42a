"""Measurements until the setting of a new packing is within 5 % of its optimum, with known classes and without.

Searches are simulated in the world that judges (energy_world.py), with 2 % noise on every number, by the adviser that
both drivers ask. Each seed has another world, and a random packing of two or three different classes that fit beside
each other and do more together than alone, at the default setting. Each class is first searched alone. Then the packing
is searched with those searches as its prior (`known`), and with the physical prior only (`afresh`); and the same again
with its jobs in one lane, in which they take turns. Then one of the jobs runs beside others: with what the
measurements of the first packings have taught (`known`), and without (`unwarned`).

A trial is one setting, measured once. The default setting is always the first of a packing, since all others are
relative to it. `trials` counts it, `trials after the default` does not. Trials count until the setting that the search
would keep at that moment is within 5 % of the least energy of any setting within the tuning limit, and keeps the limit,
both by the noise-free truth. A search that ends before counts one more than its budget.

The goal is a median of at most 2, for both counts. It is met easily after the default. With the default, the first
guess must be right, and it is for about half of the packings, so other seeds may have a median of 3. Much more is not
possible: a setting is kept only if it was *measured* within the limit, and the best settings are within the noise of
the limit. So the first guess of a search that knows every response fails in a third of the packings, too (`oracle`: a
prior that is the truth, to half a percent). `until tried` counts as in bench_tuner.py: until a setting within 5 % was
tried, with any measurement.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from random import Random
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import TUNING_LIMIT, Goal, Measurement, MeasurementStatus, Packing
from ecoshare.core.commands import AskSetting
from ecoshare.knowledge.advisers.earlier_searches import Earlier, prior_from, tuned_alone
from ecoshare.knowledge.advisers.setting_adviser import TunerAdviser
from ecoshare.knowledge.advisers.setting_search import BUDGET, PackedJob, observable
from scripts.bench.benchmarking import (
    DataOptions,
    Figure,
    add_data,
    median,
    percentile,
    run_benchmark,
    say,
)
from scripts.bench.energy_world import NOISE, MeasuredWorld, load
from tuner import Prior, Space
from tuner.objective import POWER

SEEDS, QUICK_SEEDS = 50, 5
COMPANIES = 3
WITHIN = 1.05
NEVER = BUDGET + 1
ORACLE_SD = 0.005

Array = NDArray[np.float64]
PriorOf = Callable[[Space, Sequence[PackedJob], Mapping[str, float]], Prior | None]


class JointOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        seeds: Number of packings.
    """

    seeds: int


class Truth:
    """A packing without noise, at every setting; a job is named after its class.

    Attributes:
        packing: One lane for all jobs, or one for each.
        times_s: Seconds an iteration while a job holds its turn, (n_jobs, n_settings).
        watts: Watts of the device, (n_settings,).
        cost: Joules spent per joule that the same work costs alone, (n_settings,).
        slower: Largest slowdown of a job against the default, (n_settings,).
        feasible: Whether every job keeps the tuning limit, (n_settings,).
    """

    def __init__(self, world: MeasuredWorld, jobs: Sequence[str], in_turns: bool) -> None:
        self.jobs = tuple(sorted(jobs))
        self.packing: Packing = (self.jobs,) if in_turns else tuple((job,) for job in self.jobs)
        self.at = world.space.index(world.default)
        alone = [world.states((job,)) for job in self.jobs]
        if in_turns:
            self.share = 1.0 / len(self.jobs)
            speeds = np.concatenate([each.speeds for each in alone])
            self.watts: Array = np.mean([each.watts for each in alone], axis=0)
        else:
            self.share, together = 1.0, world.states(self.jobs)
            speeds, self.watts = together.speeds, together.watts
        self.times_s: Array = np.array([[world.solo_s(job)] for job in self.jobs]) / speeds
        alone_w = np.array([[each.watts[self.at]] for each in alone])
        self.cost: Array = self.watts / (self.share * alone_w * speeds).sum(axis=0)
        self.slower: Array = (self.times_s / self.times_s[:, [self.at]]).max(axis=0)
        self.feasible = self.slower <= TUNING_LIMIT * (1.0 + 1e-9)
        self.good = self.feasible & (self.cost <= WITHIN * self.cost[self.feasible].min())


@dataclass(frozen=True)
class Course:
    """Course of a search.

    Attributes:
        tried: Indices of the tried settings, the default first.
        kept: Index of the setting that would be kept after each trial; None if there is none.
    """

    truth: Truth
    tried: tuple[int, ...]
    kept: tuple[int | None, ...]

    @property
    def trials(self) -> int:
        """Trials until the kept setting is within 5 % for the first time; `NEVER` if it never is."""
        return next((number for number, good in enumerate(self._good, 1) if good), NEVER)

    @property
    def trials_to_stay(self) -> int:
        """Trials until the kept setting is within 5 % and stays so."""
        bad = [number for number, good in enumerate(self._good, 1) if not good]
        return max(bad, default=0) + 1 if self._good[-1] else NEVER

    @property
    def trials_until_tried(self) -> int:
        """Trials until a setting within 5 % was tried."""
        return next((number for number, place in enumerate(self.tried, 1) if self.truth.good[place]), NEVER)

    @property
    def violations(self) -> int:
        """Trials over the tuning limit in truth, until the search has ended."""
        return sum(not self.truth.feasible[place] for place in self.tried)

    @property
    def longest_over(self) -> int:
        """Largest number of such trials in a row."""
        runs = groupby(bool(self.truth.feasible[place]) for place in self.tried)
        return max((len(list(run)) for feasible, run in runs if not feasible), default=0)

    @property
    def over(self) -> float:
        """Part by which the setting kept in the end is over the tuning limit in truth; 0 if it keeps it."""
        last = self.truth.at if self.kept[-1] is None else self.kept[-1]
        return 0.0 if self.truth.feasible[last] else float(self.truth.slower[last]) / TUNING_LIMIT - 1.0

    @property
    def regret(self) -> float:
        """Regret of the setting kept in the end, or of the default if none was; negative if it breaks the limit."""
        last = self.truth.at if self.kept[-1] is None else self.kept[-1]
        return float(self.truth.cost[last] / self.truth.cost[self.truth.feasible].min()) - 1.0

    @property
    def _good(self) -> list[bool]:
        return [place is not None and bool(self.truth.good[place]) for place in self.kept]


class Bench:
    """One world with its adviser, which gets noisy numbers only."""

    def __init__(self, world: MeasuredWorld, seed: int) -> None:
        self._world, self._seed = world, seed
        self._known = self._adviser(self._transferred)

    def known(self, truth: Truth) -> Course:
        """Search with the results of the earlier searches."""
        return self._search(self._known, truth, "known")

    def unwarned(self, truth: Truth) -> Course:
        """Search with the results of searches alone, but not with those of other packings."""
        return self._search(self._adviser(self._alone_only), truth, "known")  # with the noise of `known`

    def afresh(self, truth: Truth) -> Course:
        """Search without results of others."""
        return self._search(self._adviser(lambda _space, _jobs, _default_s: None), truth, "afresh")

    def oracle(self, truth: Truth) -> Course:
        """Search with the truth as its prior."""

        def prior(_space: Space, jobs: Sequence[PackedJob], _default_s: Mapping[str, float]) -> Prior:
            logs = torch.from_numpy(np.log(np.concatenate([truth.watts[None], truth.times_s])))
            logs[1:] -= logs[1:, [truth.at]].clone()
            draw = torch.Generator().manual_seed(self._seed)
            samples = logs + ORACLE_SD * torch.randn(100, *logs.shape, generator=draw, dtype=torch.double)
            # An unknown constant of times, as for all of them; jobs are in order.
            return Prior.of_samples(
                (POWER, *(observable(job.name) for job in jobs)), samples, [0.1] + [5.0] * len(jobs)
            )

        return self._search(self._adviser(prior), truth, "oracle")

    def _adviser(self, prior: PriorOf) -> TunerAdviser:
        world, goal = self._world, Goal("energy", TUNING_LIMIT, BUDGET, self._seed)
        return TunerAdviser(lambda: world.space, lambda: dict(world.default), self._alone, goal, prior=prior)

    def _transferred(self, space: Space, jobs: Sequence[PackedJob], default_s: Mapping[str, float]) -> Prior | None:
        if len(jobs) == 1:
            return None
        return self._prior(tuned_alone(self._known.searches), space, jobs, default_s)

    def _alone_only(self, space: Space, jobs: Sequence[PackedJob], default_s: Mapping[str, float]) -> Prior | None:
        earlier = [replace(each, in_company=()) for each in tuned_alone(self._known.searches)]
        return self._prior(earlier, space, jobs, default_s)

    def _prior(
        self, earlier: Sequence[Earlier], space: Space, jobs: Sequence[PackedJob], default_s: Mapping[str, float]
    ) -> Prior | None:
        classes = {job.name: job.name for job in jobs}
        return prior_from(space, self._world.default, jobs, classes, earlier, self._seed, default_s)

    def _alone(self, job: str) -> Solo:
        """Profile of a job alone."""
        world = self._world
        watts = float(world.states((job,)).watts[world.space.index(world.default)])
        alone_w = watts * self._noise(f"{job} alone watts", 0)
        return Solo(power_w=alone_w, iteration_s=world.solo_s(job) * self._noise(f"{job} alone", 0))

    def _noise(self, what: str, number: int) -> float:
        return self._world.noise(what, float(number))

    def _search(self, adviser: TunerAdviser, truth: Truth, name: str) -> Course:
        """Ask and measure until the search is over."""
        space, tried, kept = self._world.space, list[int](), list[int | None]()
        advice = adviser.answer(AskSetting(0, "tuner", "", truth.packing, None))
        while not advice.over:
            number = len(tried) + 1
            place = space.index({**self._world.default, **dict(advice.setting)})
            key = f"{name} {truth.packing}"
            times_s = {
                job: float(row[place]) * self._noise(f"{key} {job}", number)
                for job, row in zip(truth.jobs, truth.times_s, strict=True)
            }
            power_w = float(truth.watts[place]) * self._noise(f"{key} watts", number)
            shares = dict.fromkeys(truth.jobs, truth.share)
            trial = Measurement(advice.setting, MeasurementStatus.MEASURED, power_w, times_s=times_s, shares=shares)
            advice = adviser.answer(AskSetting(number, "tuner", "", truth.packing, trial))
            search = adviser.searches[truth.packing].search
            assert search is not None, advice.note
            tried.append(place)
            kept.append(None if search.best is None else space.index(search.best))
        if "failed" in advice.note:
            raise RuntimeError(advice.note)
        return Course(truth, tuple(tried), tuple(kept))


def packing(world: MeasuredWorld, seed: int) -> list[str]:
    """Two or three different classes that fit and pay beside each other."""
    draw = Random(f"packing {seed}")
    while True:
        jobs = draw.sample(world.classes, draw.choice((2, 3)))
        if world.fits(jobs) and world.states(jobs).speeds[:, world.space.index(world.default)].sum() > 1.0:
            return jobs


def other_company(world: MeasuredWorld, jobs: Sequence[str], seed: int) -> list[str]:
    """Another packing with the first of the jobs beside new ones; empty if none was found."""
    draw = Random(f"company {seed}")
    for _ in range(1000):
        others = draw.sample([each for each in world.classes if each not in jobs], len(jobs) - 1)
        found = [jobs[0], *others]
        if world.fits(found) and world.states(found).speeds[:, world.space.index(world.default)].sum() > 1.0:
            return found
    return []


def measure(options: JointOptions) -> list[Figure]:
    """All figures."""
    if options.data is None:
        return [Figure("trials of packings", None, "", note="give the folder of the measured tables with --data")]
    seeds = QUICK_SEEDS if options.quick else options.seeds
    found: dict[str, list[Course]] = {}
    for seed in range(seeds):
        world = load(options.data, seed)
        jobs = packing(world, seed)
        bench = Bench(world, seed)
        alone = [bench.known(Truth(world, [job], in_turns=True)) for job in jobs]
        words = []
        for where, in_turns in (("beside each other", False), ("in one lane", True)):
            truth = Truth(world, jobs, in_turns)
            for way in (bench.known, bench.afresh, bench.oracle):
                course = way(truth)
                found.setdefault(f"{where}, {way.__name__}", []).append(course)
                words.append(f"{where}, {way.__name__} {course.trials}")
        companies = {
            tuple(sorted(other_company(world, jobs, COMPANIES * seed + number))) for number in range(COMPANIES)
        }
        for again in sorted(companies):
            if again:
                for job in again:
                    bench.known(Truth(world, [job], in_turns=True))
                truth = Truth(world, again, in_turns=False)
                for way in (bench.unwarned, bench.known):
                    found.setdefault(f"in other company, {way.__name__}", []).append(way(truth))
        say(f"seed {seed}: {len(jobs)} jobs, alone {sum(len(each.tried) for each in alone)} trials; {'; '.join(words)}")
    return figures(found)


def figures(found: Mapping[str, Sequence[Course]]) -> list[Figure]:
    """Figures of each way of searching."""
    made = []
    for way, courses in found.items():
        trials = [float(each.trials) for each in courses]
        wanted = "<= 2" if way.endswith("known") else ""
        after = [each - 1.0 for each in trials]
        made += [
            Figure(f"{way}: trials after the default, median", median(after), "", wanted),
            Figure(f"{way}: trials after the default, p90", percentile(after, 0.9), ""),
            Figure(f"{way}: trials, median", median(trials), "", wanted, "the default is one of them"),
            Figure(f"{way}: trials, p90", percentile(trials, 0.9), "", note=_note(trials)),
            Figure(
                f"{way}: trials until it stays, median", median([float(each.trials_to_stay) for each in courses]), ""
            ),
            Figure(
                f"{way}: trials until tried, median", median([float(each.trials_until_tried) for each in courses]), ""
            ),
            Figure(f"{way}: within 5 % after 2 trials", 100.0 * fmean(each <= 2.0 for each in trials), "%"),
            Figure(f"{way}: within 5 % after 3 trials", 100.0 * fmean(each <= 3.0 for each in trials), "%"),
            Figure(f"{way}: trials of a search", fmean(float(len(each.tried)) for each in courses), ""),
            Figure(f"{way}: trials over the limit", fmean(float(each.violations) for each in courses), ""),
            Figure(f"{way}: most of them in a row", float(max(each.longest_over for each in courses)), ""),
            Figure(f"{way}: kept setting over the limit", 100.0 * fmean(each.over > 0.0 for each in courses), "%"),
            Figure(f"{way}: kept setting over it by 2 %", 100.0 * fmean(each.over > NOISE for each in courses), "%"),
            Figure(f"{way}: regret of it, median", 100.0 * median([each.regret for each in courses]), "%"),
        ]
        if way.endswith("known"):
            less = "unwarned" if "company" in way else "afresh"
            cold = [float(each.trials) for each in found[way.replace("known", less)]]
            made.append(Figure(f"{way}: median trials over {less}", median(trials) / median(cold), "x"))
            made.append(Figure(f"{way}: mean trials over {less}", fmean(trials) / fmean(cold), "x"))
    return made


def _note(trials: Sequence[float]) -> str:
    never = sum(each == NEVER for each in trials)
    return f"{NEVER} where it never is: {never} of {len(trials)}" if never else ""


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many packings")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("joint", __doc__, measure, JointOptions, _add_options)


if __name__ == "__main__":
    main()
