"""Joules over the clairvoyant bound, with parts of what `ecoshare` does not know replaced by the truth.

The mixes, the judging world and the bound are those of energy.py. Each mix is simulated as it is (`base`), with one
part true, with all parts true, and with all parts true but one. The first figures say what a part is worth alone. The
last ones include interactions: the best setting is worth more to jobs in the right groups.

A true part comes from the world that judges, without noise and drift:

* `speeds`: speeds and power of each group at the default setting are known. Groups are chosen by them.
* `response`: the response of each group to the settings is known. A packing has its best setting when its search ends,
  whatever the search has found, and groups are compared at their best settings.
* `search`: advice, measurements and changes of the setting take no time. Beside `response`, the first measurement of a
  packing is the only one, and its best setting follows at once.
* `windows`: each class has its profile, with the noise of a profiler, when its first job arrives. No window is opened.
* `arrivals`: all jobs are there at once. JCTs count from then on, so they are no fair comparison.
* `limits`: no job has a slowdown limit, as in the bound.
* `prices`: the work of the jobs that have arrived has its dual prices in the bound. Beside `response`, the prices of
  the whole mix say which setting is the best one.

Parts overlap. A search that takes no time measures more groups, which improves the estimates of speeds. A profile
without a window lets the search begin earlier. True prices follow from true speeds and responses, and are of little use
to estimates that contradict them. So the parts of the distance do not add up to that of all parts.

The joules above the bound are also told by what was at work at the time (energy_excess.py), as means.

All parts together do not reach the bound. The order of jobs remains, and so do the greedy choice of groups, warm-ups
before a search, last jobs without a neighbour, drift, and the power of an idle device, which the bound leaves out. A
short mix that works while the device is cool can go below the bound (energy_bound.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from unittest import mock

import numpy as np
import torch

from ecoshare.base.measurement import TUNING_LIMIT, PairSpeed, Setting
from ecoshare.core.commands import AskInterference, AskSetting
from ecoshare.core.placement import packer
from ecoshare.core.placement.colocation_estimates import GPU_GUESS, ColocationEstimates, ColocationForecast, FirstGuess
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulated_services import Foresee
from scripts.bench.benchmarking import Figure, median, run_benchmark, say
from scripts.bench.energy import (
    LANES,
    OURS,
    WAYS,
    EnergyOptions,
    Outcome,
    add_options,
    jobs_in_mix,
    outcome,
    simulate,
    unjudged_adviser,
)
from scripts.bench.energy_bound import Bound, bound
from scripts.bench.energy_excess import AccountingJudge, ExcessAccount, When
from scripts.bench.energy_world import MeasuredWorld, MixJob, load, mix

MIXES, QUICK_MIXES, QUICK_JOBS = 24, 1, 3
"""Mixes, and in a quick run the jobs of each. A quick run has no variants with all parts true but one."""

MOMENT_S = 1e-3
"""Time (s) of a measurement that takes no time: a measurement over 0 s would have no power."""

LEAST_PRICE = 1e-6
"""Least price of work by which the best setting is chosen / power alone."""


class Part(Enum):
    """Part of the truth that `ecoshare` does not know. The module says what each one is."""

    SPEEDS = "speeds"
    RESPONSE = "response"
    SEARCH = "search"
    WINDOWS = "windows"
    ARRIVALS = "arrivals"
    LIMITS = "limits"
    PRICES = "prices"


Parts = frozenset[Part]

BASE, ALL = "base", "all true"
ALL_PARTS: Parts = frozenset(Part)
ALONE = {f"{part.value} true": frozenset({part}) for part in Part}
LEFT_OUT = {f"all true but {part.value}": ALL_PARTS - {part} for part in Part}
QUICK_VARIANTS: Mapping[str, Parts] = {BASE: frozenset(), **ALONE, ALL: ALL_PARTS}
VARIANTS: Mapping[str, Parts] = {**QUICK_VARIANTS, **LEFT_OUT}
"""True parts of each variant."""


@dataclass(frozen=True, slots=True)
class Best:
    """Best setting of a packing under the tuning limit, and what changes with it.

    Attributes:
        faster: Speed at the setting / speed at the default setting, by class.
        hotter: Power of the device at the setting / power at the default setting.
    """

    setting: Setting
    faster: Mapping[str, float]
    hotter: float


class Truth:
    """Truth about packings of one lane for each job. Two jobs of a class are alike, so speeds are by class."""

    def __init__(self, world: MeasuredWorld, worth_w: Mapping[str, float]) -> None:
        """Truth about a world.

        Args:
            worth_w: Worth (J) of a second of work alone, by class. The best setting of a packing has the least joules
                for the worth of its work.
        """
        self._world, self._worth_w = world, worth_w
        self._default = world.space.index(world.default)
        self._best: dict[tuple[str, ...], Best] = {}

    def fits(self, classes: Sequence[str]) -> bool:
        """Whether these classes may be at work at once. Nothing is known of those that may not."""
        return self._world.fits(classes)

    def at_default(self, classes: Sequence[str]) -> ColocationForecast:
        """Speeds and power at the default setting, without errors."""
        packing = tuple(sorted(classes))
        states = self._world.states(packing)
        speeds = dict(zip(packing, states.speeds[:, self._default].tolist(), strict=True))
        errors = (0.0,) * len(packing)
        return ColocationForecast(tuple(speeds[each] for each in classes), errors, float(states.watts[self._default]))

    def best(self, classes: Sequence[str]) -> Best:
        """Best setting of a packing. The core keeps the default instead if a slowdown limit would break."""
        packing = tuple(sorted(classes))
        if packing not in self._best:
            self._best[packing] = self._best_of(packing)
        return self._best[packing]

    def _best_of(self, packing: tuple[str, ...]) -> Best:
        states = self._world.states(packing)
        faster = states.speeds / states.speeds[:, [self._default]]
        worth_w = np.array([self._worth_w[each] for each in packing]) @ states.speeds
        kept = (faster * TUNING_LIMIT >= 1.0 - 1e-9).all(axis=0)
        place = int(np.where(kept, states.watts / worth_w, np.inf).argmin())
        hotter = float(states.watts[place] / states.watts[self._default])
        return Best(self._world.setting(place), dict(zip(packing, faster[:, place].tolist(), strict=True)), hotter)


class KnownEstimates(ColocationEstimates):
    """Estimates of a packer with the true speeds of groups, their true response to settings, or both."""

    def __init__(self, truth: Truth, parts: Parts, guess: FirstGuess = GPU_GUESS) -> None:
        super().__init__(guess)
        self._truth, self._parts = truth, parts

    def forecast(self, classes: Sequence[str]) -> ColocationForecast:
        return self._at_best(classes, self._at_default(classes))

    def hoped(
        self, classes: Sequence[str], expected: ColocationForecast, hope: float, in_its_time: bool = True
    ) -> ColocationForecast:
        """See `ColocationEstimates`. Nothing is left to hope for if the speeds are known."""
        if Part.SPEEDS in self._parts:
            return expected
        return self._at_best(classes, super().hoped(classes, self._at_default(classes), hope, in_its_time))

    def _at_default(self, classes: Sequence[str]) -> ColocationForecast:
        if Part.SPEEDS in self._parts and self._truth.fits(classes):
            return self._truth.at_default(classes)
        return super().forecast(classes)

    def _at_best(self, classes: Sequence[str], default: ColocationForecast) -> ColocationForecast:
        """Forecast at the best setting, if the response is known, from one at the default setting."""
        if Part.RESPONSE not in self._parts or not self._truth.fits(classes):
            return default
        best = self._truth.best(classes)
        faster = [best.faster[each] for each in classes]
        speeds = tuple(speed * by for speed, by in zip(default.speeds, faster, strict=True))
        errors = tuple(error * by for error, by in zip(default.errors, faster, strict=True))
        return ColocationForecast(speeds, errors, default.power_w * best.hotter)


@contextmanager
def packer_estimates(make: Callable[[], ColocationEstimates]) -> Iterator[None]:
    """Context in which the packers of simulations have estimates of this kind."""
    # A packer makes its estimates by itself, deep in the core of a run. No argument of a simulation reaches them.
    with mock.patch.object(packer, "ColocationEstimates", make):
        yield


@dataclass(frozen=True)
class Variant:
    """A mix with some true parts.

    Attributes:
        least: Bound on the joules of the mix, with the dual prices of its work.
        foresee: Adviser on interference. True prices replace its prices.
        parts: Parts that are true.
    """

    world: MeasuredWorld
    jobs: Sequence[MixJob]
    least: Bound
    foresee: Foresee
    parts: Parts

    def run(self, account: ExcessAccount) -> Outcome:
        """Result of the mix under `ecoshare`, of which an account is kept."""
        worth_w = self._alone_w()
        if Part.PRICES in self.parts:
            # A class that fills gaps beside another one has price 0, and no setting would be best for it alone.
            worth_w = {each: max(self.least.prices[each], LEAST_PRICE * alone_w) for each, alone_w in worth_w.items()}
        truth = Truth(self.world, worth_w)
        config = replace(WAYS[OURS], profile=Part.WINDOWS not in self.parts)
        costs = Costs()
        if Part.SEARCH in self.parts:
            costs = replace(costs, trial_s=MOMENT_S, ask_s=0.0, apply_s=0.0)
        jobs = [self._job(each) for each in self.jobs]
        with packer_estimates(partial(KnownEstimates, truth, self.parts)):
            foresee = self._true_prices if Part.PRICES in self.parts else self.foresee
            revise = partial(self._true_setting, truth) if Part.RESPONSE in self.parts else _as_advised
            judge = AccountingJudge(self.world, account=account)
            result = simulate(self.world, jobs, config, account.watch, foresee, costs, revise, judge)
        return outcome(result, jobs)

    def _alone_w(self) -> dict[str, float]:
        """Power (W) of each class alone at the default setting."""
        default = self.world.space.index(self.world.default)
        return {each: float(self.world.states((each,)).watts[default]) for each in {job.job_class for job in self.jobs}}

    def _job(self, job: MixJob) -> MixJob:
        if Part.ARRIVALS in self.parts:
            job = replace(job, arrival_s=0.0)
        return replace(job, slowdown_limit=None) if Part.LIMITS in self.parts else job

    def _true_prices(self, ask: AskInterference) -> tuple[tuple[PairSpeed, ...], dict[str, float]]:
        pairs, _ = self.foresee(ask)
        # The question does not say how many jobs a class has, so a group may be of one class, as in `work_prices`.
        work = [each for each in ask.work_s for _ in range(LANES)]
        alone_w = self._alone_w()
        prices = {name: alone_w[name] for name, _ in ask.work_s}
        return pairs, prices | dict(bound(self.world, work, LANES, tuning_limit=TUNING_LIMIT).prices)

    def _true_setting(self, truth: Truth, ask: AskSetting, advice: Advice) -> Advice:
        """Best setting in place of the end of a search. If measurements take no time, the first one is the end."""
        if any(len(lane) != 1 for lane in ask.packing):
            return advice  # jobs are about to move: the world has no state of turns
        # The first measurement is made in any case, because it says how fast the jobs are beside each other.
        if not advice.over and (ask.measurement is None or Part.SEARCH not in self.parts):
            return advice
        best = truth.best([name for lane in ask.packing for name in lane])
        # The forecast of the packing is at this setting already, so limits are checked as if it slowed no job further.
        return Advice(best.setting, True, "it is known", slower=1.0)


def _as_advised(_ask: AskSetting, advice: Advice) -> Advice:
    return advice


@dataclass(frozen=True)
class MixOutcomes:
    """Results of a mix.

    Attributes:
        bound_j: Bound on the energy (J).
        outcomes: Outcome of each variant.
        above: Joules of each variant above the bound / bound, by what was at work.
    """

    bound_j: float
    outcomes: Mapping[str, Outcome]
    above: Mapping[str, Mapping[When, float]]

    def over_bound(self, variant: str) -> float:
        """Joules of a variant over the bound."""
        return self.outcomes[variant].joules / self.bound_j

    def joules(self, variant: str, reference: str) -> float:
        """Joules of a variant over those of another one."""
        return self.outcomes[variant].joules / self.outcomes[reference].joules

    def mean_jct(self, variant: str) -> float:
        """Mean JCT of a variant over that of the base."""
        return self.outcomes[variant].mean_jct_s / self.outcomes[BASE].mean_jct_s


def run_mix(data: Path, is_quick: bool, seed: int) -> MixOutcomes:
    """Results of a mix; a quick one is short."""
    world = load(data, seed)
    jobs = mix(world, seed, QUICK_JOBS if is_quick else jobs_in_mix(seed))
    least = bound(world, [(each.job_class, each.work_s) for each in jobs], LANES, tuning_limit=TUNING_LIMIT)
    foresee = unjudged_adviser(data)
    outcomes, above = {}, {}
    for name, parts in (QUICK_VARIANTS if is_quick else VARIANTS).items():
        account = ExcessAccount(least.prices)
        made = outcomes[name] = Variant(world, jobs, least, foresee, parts).run(account)
        above[name] = {when: account.joules[when] / least.joules for when in When}
        # A line for each simulation, so that an interrupted run has not lost those that are done.
        over, jct_s = made.joules / least.joules, made.mean_jct_s
        say(f"mix {seed}, {name}: joules over the bound {over:.4f}, mean JCT {jct_s:.1f} s")
    return MixOutcomes(least.joules, outcomes, above)


def measure(options: EnergyOptions) -> list[Figure]:
    """All figures."""
    if options.data is None:
        return [Figure("joules of mixes", None, "", note="give the folder of the measured tables with --data")]
    mixes = options.mixes or (QUICK_MIXES if options.quick else MIXES)
    run = partial(run_mix, options.data, options.quick)
    # One thread each: threads of several processes wait for each other and take twice the time.
    with ProcessPoolExecutor(options.workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        return figures(list(pool.map(run, range(mixes))))


def figures(found: Sequence[MixOutcomes]) -> list[Figure]:
    """Joules over the bound and over the reference, and mean JCT over the base, of every variant.

    The reference is the base. If all parts are true but one, it is the variant with all parts true. The part of the
    distance is that between a variant and its reference, over the distance between base and bound, as means over mixes.
    """
    distance = fmean(each.over_bound(BASE) - 1.0 for each in found)
    made = []
    for name in found[0].outcomes:
        made.append(Figure(f"{name}: joules over the bound", median([each.over_bound(name) for each in found]), "x"))
        for when in When:
            above = 100.0 * fmean(each.above[name][when] for each in found)
            made.append(Figure(f"{name}: joules above the bound, {when.value}", above, "% of the bound"))
        if name == BASE:
            continue
        reference = ALL if name in LEFT_OUT else BASE
        ratios = [each.joules(name, reference) for each in found]
        true, not_true = (reference, name) if name in LEFT_OUT else (name, reference)
        part = 100.0 * fmean(each.over_bound(not_true) - each.over_bound(true) for each in found) / distance
        made += [
            Figure(f"{name}: joules over {reference}, median", median(ratios), "x"),
            Figure(f"{name}: joules over {reference}, mean", fmean(ratios), "x"),
            Figure(f"{name}: part of the distance to the bound", part, "%"),
            Figure(f"{name}: mean JCT over {BASE}", median([each.mean_jct(name) for each in found]), "x"),
        ]
    return made


def main() -> None:
    """Run it from the command line."""
    run_benchmark("energy_parts", __doc__, measure, EnergyOptions, add_options)


if __name__ == "__main__":
    main()
