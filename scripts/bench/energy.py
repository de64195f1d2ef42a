"""Joules, mean JCT and broken limits of random mixes of jobs on one GPU, the search included, beside other ways.

Runs are simulated. The world that judges (energy_world.py) is not the model that decides. It looks up measured pair
speeds and power responses, and has drift, noise and contention for which the predictor has no term. No measured table
joins clocks, power limits and co-location, so no figure here predicts a card.

Ways: `exclusive` one job after the other, shortest first; `exclusive, tuned` the same with a search for each class
(PolyThrottle alone); `packed` all that fit take turns in one lane (Salus alone); `blind` all that fit run beside each
other, as under MPS; `ecoshare`; the same jobs in `a later run`, which has what the first has kept; and a bound that no
way can pass (energy_bound.py) that lets settings cost an iteration as much as the ways that tune do.

The hyperparameters of the pair predictor are fitted to Gavel's K80s and P100s alone: they never saw a pair on the V100,
which judges. The profiled `busy` of a class is not made of its delays on the V100. The last figure is the rank
correlation that the two have nevertheless, as they have a common cause (energy_world.py).
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean
from typing import ClassVar

import torch
from scipy.stats import spearmanr

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import TUNING_LIMIT, ColocationMeasurement, Goal, KnownSetting, Packing, Setting
from ecoshare.core.commands import AskInterference, AskSetting, Command, ProfileJob
from ecoshare.core.events import ClassesKnown, Config, Event, JobArrived, Profiled, SettingAdvised
from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies import register
from ecoshare.core.policies.common import ObjectivePolicy
from ecoshare.core.records import Job, Key
from ecoshare.knowledge.advisers import interference_adviser
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.knowledge.advisers.earlier_searches import prior_from, tuned_alone
from ecoshare.knowledge.advisers.setting_adviser import TunerAdviser
from ecoshare.knowledge.advisers.setting_search import PackedJob
from ecoshare.simulation.cluster import Cluster, GpuModel
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.simulated_services import Foresee
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from scripts.bench.benchmarking import DataOptions, Figure, add_data, median, run_benchmark, say
from scripts.bench.energy_bound import bound
from scripts.bench.energy_world import MeasuredWorld, MixJob, busy_and_delay, load, mix
from scripts.bench.interference import TABLES, centre
from scripts.bench.interference_tables import table_of
from tuner import Prior, Space

MIXES, QUICK_MIXES = 200, 4
FEWEST, MOST = 5, 30
LANES, PLACES = 3, 4
DRIFT_S = 30.0
"""Time (s) between two updates of the drift for running jobs."""

WAYS = {
    "exclusive": Config("srtf", 1, 1),
    "exclusive, tuned": Config("srtf", 1, 1, profile=True, search=True),
    "packed": Config("fair", 1, 16),
    "blind": Config("blind", 4, 1),
    "ecoshare": Config("energy", LANES, PLACES, profile=True, search=True, counts_jobs=True),
}
OURS, LATER = "ecoshare", "ecoshare, a later run"

Revise = Callable[[AskSetting, Advice], Advice]
"""Function that may replace the answer of the setting adviser."""


class EnergyOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        mixes: Number of mixes; None for the default.
        workers: Processes; None if the number of processors is unknown.
    """

    mixes: int | None
    workers: int | None


class Blind(ObjectivePolicy):
    """All jobs that fit run beside each other, in the order of arrival."""

    name: ClassVar[str] = "blind"

    def order(self, job: Job, at_s: float) -> Key:
        """Order by arrival."""
        return (job.arrival_s,)

    def spent(self, forecast: ColocationForecast) -> float:
        """Cost of a group: more members are better."""
        return 0.5 ** len(forecast.speeds) / sum(forecast.speeds)

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Value that is the same for every job."""
        return 1.0


register(Blind.name, Blind)


@dataclass(frozen=True)
class Judge:
    """Measured world with the interface of the simulator."""

    world: MeasuredWorld
    changes_s: float = DRIFT_S

    @property
    def idle_w(self) -> float:
        """Idle power (W) of the card."""
        return self.world.idle_w

    def speed(
        self, job: TraceJob, devices: Sequence[str], beside: Sequence[TraceJob], setting: Setting, at_s: float
    ) -> float:
        """Speed of `job`, the first of the classes at work."""
        classes = [job.job_class, *(each.job_class for each in beside)]
        return self.world.state(classes, setting, at_s, devices[0]).speeds[0]

    def watts(self, job: TraceJob) -> float:
        """Active power (W) of a job alone."""
        return self.device_watts([job], "", (), 0.0)

    def device_watts(self, jobs: Sequence[TraceJob], device: str, setting: Setting, at_s: float) -> float:
        """Power (W) of these jobs beyond idle."""
        return self.world.state([each.job_class for each in jobs], setting, at_s, device).watts - self.world.idle_w

    def solo(self, job: TraceJob, device: str, at_s: float) -> Solo:
        """Profile of a job alone, as a profiler measures it."""
        seen = self.world.profile(job.job_class, at_s, device)
        family = job.job_class.partition(" (")[0]
        idle_w = self.measured(self.world.idle_w, f"idle {device}", at_s)
        return Solo(family, seen.iteration_s, seen.watts, idle_w, seen.busy, seen.memory_busy)

    def measured(self, value: float, what: str, at_s: float) -> float:
        """A value with the noise of measuring."""
        return value * self.world.noise(what, at_s)


class Learned:
    """Knowledge that a run keeps for later ones: measured packings, and the settings that were found."""

    def __init__(self) -> None:
        self._colocations: tuple[ColocationMeasurement, ...] = ()
        self._settings: dict[Packing, KnownSetting] = {}
        self._asked: dict[int, Packing] = {}

    def watch(self, event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, SettingAdvised) and event.over and (packing := self._asked.get(event.command)):
            self._settings[packing] = KnownSetting(packing, event.setting, event.slower)
        for each in commands:
            if isinstance(each, AskSetting):
                self._asked[each.id] = each.packing
            elif isinstance(each, AskInterference):
                self._colocations = each.colocations

    @property
    def known(self) -> ClassesKnown:
        """The same as the first event of a later run."""
        return ClassesKnown(0.0, tuple(self._settings.values()), self._colocations)


@dataclass(frozen=True)
class Outcome:
    """Result of a mix under one way.

    Attributes:
        broken: Number of jobs over their limit.
        limited: Number of jobs that have a limit.
    """

    joules: float
    mean_jct_s: float
    makespan_s: float
    broken: int
    limited: int


def run(world: MeasuredWorld, jobs: Sequence[MixJob], config: Config, foresee: Foresee | None = None) -> Outcome:
    """Result of a mix under one way."""
    return outcome(simulate(world, jobs, config, foresee=foresee), jobs)


def simulate(
    world: MeasuredWorld,
    jobs: Sequence[MixJob],
    config: Config,
    watch: Callable[[Event, list[Command]], None] = lambda event, commands: None,
    foresee: Foresee | None = None,
    costs: Costs | None = None,
    revise: Revise = lambda _ask, advice: advice,
    judge: Judge | None = None,
    known: ClassesKnown | None = None,
) -> SimulationResult:
    """Simulation of a mix under one way, with all its events.

    Args:
        watch: Called with each event and its commands.
        foresee: Adviser on interference; None for ecoshare's own.
        costs: Durations of windows, measurements and advice; None for those of a live run.
        revise: Called with each question to the setting adviser and its answer. The run gets what it returns.
        judge: Judge of the run, of this world; None for a plain one.
        known: Packings that earlier runs have measured; None for none.
    """
    trace = Trace("mix", "energy", tuple(_job(world, each, config.policy != Blind.name) for each in jobs), "")
    gpu = GpuModel("judged", max(world.space.knobs[1].values), world.memory_bytes)
    solos: dict[str, Solo] = {}
    named = {each.name: each.job_class for each in jobs}

    def told(event: Event, commands: list[Command]) -> None:
        windows.update({command.id: named[command.job] for command in commands if isinstance(command, ProfileJob)})
        if isinstance(event, Profiled) and event.solo is not None:
            solos[windows[event.command]] = event.solo
        elif isinstance(event, JobArrived) and event.job.profiled and event.job.solo is not None:
            solos.setdefault(event.job.job_class, event.job.solo)
        watch(event, commands)

    def alone(job: str) -> Solo:
        solo = solos.get(named[job])
        return Solo() if solo is None else solo

    windows: dict[int, str] = {}
    goal = Goal("energy", TUNING_LIMIT, 12)
    space, default = lambda: world.space, lambda: dict(world.default)
    limits = {each.name: each.slowdown_limit for each in jobs}

    def prior(space: Space, jobs: Sequence[PackedJob], default_s: Mapping[str, float]) -> Prior | None:
        over = {packing: each for packing, each in adviser.searches.items() if each.ending}
        earlier = tuned_alone(over, named.__getitem__)
        return prior_from(space, world.default, jobs, named, earlier, goal.seed, default_s)

    adviser = TunerAdviser(
        space, default, alone, goal, prior=prior, class_of=named.__getitem__, slowdown_limit=limits.__getitem__
    )

    def tuner(ask: AskSetting) -> Advice:
        return revise(ask, adviser.answer(ask))

    truth = judge or Judge(world)
    simulator = Simulator(trace, Cluster(1, 1, gpu), config, truth, costs or Costs(), tuner, foresee, known=known)
    return simulator.run(told)


def _job(world: MeasuredWorld, job: MixJob, with_limit: bool) -> TraceJob:
    iteration_s = world.solo_s(job.job_class)
    return TraceJob(
        job.name,
        job.job_class,
        job.arrival_s,
        (Phase(job.iterations, iteration_s),),
        memory=world.memory(job.job_class),
        slowdown_limit=job.slowdown_limit if with_limit else None,
    )


def outcome(result: SimulationResult, jobs: Sequence[MixJob]) -> Outcome:
    """Numbers of a result that are compared."""
    limits = {each.name: each.slowdown_limit for each in jobs if each.slowdown_limit is not None}
    slowdowns = {each.name: each.placed_s / each.service_s for each in result.finished}
    broken = sum(slowdowns[name] > limit for name, limit in limits.items())
    return Outcome(result.energy_j, float(result.jcts_s.mean()), result.makespan_s, broken, len(limits))


def measure(options: EnergyOptions) -> list[Figure]:
    """All figures."""
    if options.data is None:
        return [Figure("joules of mixes", None, "", note="give the folder of the measured tables with --data")]
    mixes = options.mixes or (QUICK_MIXES if options.quick else MIXES)
    found: dict[str, list[Outcome]] = {way: [] for way in (*WAYS, LATER)}
    bounds, free, told = [], [], []
    # One thread each: threads of several processes wait for each other and take twice the time.
    with ProcessPoolExecutor(options.workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for seed, (outcomes, least, least_free, rho) in enumerate(pool.map(partial(one, options.data), range(mixes))):
            bounds.append(least)
            free.append(least_free / least)
            told.append(rho)
            for way, each in outcomes.items():
                found[way].append(each)
            words = ", ".join(f"{way} {each.joules / least:.3f}" for way, each in outcomes.items())
            say(f"mix {seed}: joules over the bound: {words}")
    without = Figure("bound without a tuning limit, over the bound", median(free), "x")
    known = Figure("rank correlation of busy and mean delay", median(told), "", note="of the classes of a world")
    return [*figures(found, bounds), without, known]


def one(data: Path, seed: int) -> tuple[dict[str, Outcome], float, float, float]:
    """Results of a mix under every way, its bounds with and without the tuning limit, and a rank correlation.

    The correlation is Spearman's, between the profiled `busy` of the classes and the mean delay that each causes.
    """
    world = load(data, seed)
    jobs = mix(world, seed, jobs_in_mix(seed))
    foresee = unjudged_adviser(data)
    outcomes = {way: run(world, jobs, config, foresee) for way, config in WAYS.items() if way != OURS}
    learned = Learned()
    outcomes[OURS] = outcome(simulate(world, jobs, WAYS[OURS], learned.watch, foresee), jobs)
    known = replace(WAYS[OURS], profile=False)  # each class has its profile
    outcomes[LATER] = outcome(simulate(world, jobs, known, foresee=foresee, known=learned.known), jobs)
    work = [(each.job_class, each.work_s) for each in jobs]
    limited, free = bound(world, work, LANES, tuning_limit=TUNING_LIMIT), bound(world, work, LANES)
    return outcomes, limited.joules, free.joules, float(spearmanr(*busy_and_delay(world)).statistic)


def jobs_in_mix(seed: int) -> int:
    """Number of jobs in the mix of a seed."""
    return Random(f"jobs {seed}").randint(FEWEST, MOST)


def unjudged_adviser(data: Path) -> Foresee:
    """Adviser on interference with hyperparameters that saw no pair on the GPU of the judging world."""
    return partial(interference_adviser.foresee, centre=_unjudged(data))


@cache
def _unjudged(data: Path) -> dict[str, float]:
    """Hyperparameters of the pair predictor that saw no pair on the GPU of the judging world."""
    tables = [table_of(data, *each).profiled() for each in TABLES if each[1] != "v100"]
    return centre(tables, {each.name: list(each.speeds) for each in tables})


def figures(found: dict[str, list[Outcome]], bounds: Sequence[float]) -> list[Figure]:
    """Joules over the bound, mean JCT over exclusive, and broken limits of every way."""
    made = []
    for way, each in found.items():
        over = [one.joules / least for one, least in zip(each, bounds, strict=True)]
        jcts = [one.mean_jct_s / other.mean_jct_s for one, other in zip(each, found["exclusive"], strict=True)]
        limited = sum(one.limited for one in each)
        broken = 100.0 * sum(one.broken for one in each) / limited if limited else math.nan
        ours = way == OURS
        made += [
            Figure(f"{way}: joules over the bound", median(over), "x", "<= 1.1" if ours else ""),
            Figure(f"{way}: mean JCT over exclusive", median(jcts), "x"),
            Figure(f"{way}: limits broken", broken, "%", "<= 1" if ours else ""),
        ]
        if way not in (OURS, LATER):
            less = fmean(mine.joules < other.joules for mine, other in zip(found[OURS], each, strict=True))
            made.append(Figure(f"{way}: mixes in which {OURS} needs less", 100.0 * less, "%", ">= 95"))
    return made


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of a benchmark with mixes."""
    add_data(parser)
    parser.add_argument("--mixes", type=int, help="how many")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes; the figures do not depend on it"
    )


def main() -> None:
    """Run it from the command line."""
    run_benchmark("energy", __doc__, measure, EnergyOptions, add_options)


if __name__ == "__main__":
    main()
