"""A power budget over 4 and 8 GPUs: joules and makespan beside equal limits, one clock for all, and a bound.

Runs are simulated. The world that judges (energy_world.py) is not the model that deals out the watts: it looks up the
measured responses of workloads to power limits (Zeus, V100), with drift, noise and measurements that take time. The
model learns these responses in each run, from nothing, as the live run does. The two share the meaning of a power
limit, and that a GPU alone in its lane runs one job.

Each mix has ten jobs a GPU, all there at once, and a budget of 0.5 to 0.85 of all limits. Ways: `equal limits` gives
each GPU the largest limit that its part of the budget allows; `uniform clock` sets the fastest clock with which the
GPUs together stay within the budget, whichever of the mix's jobs run; `dealt` is ecoshare. The bound is a fluid linear
program that knows every response: time of each class under each limit, with the average of the limits within the
budget. It has freedoms that no real schedule has, so it is safe. All ways run each job alone on a GPU.

The last figure counts the events after which limits above the budget may have been in force: from the command for a
limit to the answer to that for the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path
from random import Random

import numpy as np
from scipy.optimize import linprog

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.base.measurement import AS_FOUND, Setting
from ecoshare.core.commands import ApplySetting, Command
from ecoshare.core.events import Config, Done, Event
from ecoshare.devices.knob import GPU_CLOCK
from ecoshare.simulation.cluster import Cluster, GpuModel
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from scripts.bench.benchmarking import Figure, median, run_benchmark, say
from scripts.bench.energy import EnergyOptions, Judge, add_options
from scripts.bench.energy_world import MeasuredWorld, MixJob, load, mix

MIXES, QUICK_MIXES = 20, 2
SIZES = (4, 8)
JOBS_PER_GPU = 10
LEAST_PART, MOST_PART = 0.5, 0.85
OBJECTIVES = ("makespan", "energy")


@dataclass(frozen=True)
class FixedJudge(Judge):
    """Measured world in which every device has one setting all the time."""

    setting: Setting = AS_FOUND

    def speed(
        self, job: TraceJob, devices: Sequence[str], beside: Sequence[TraceJob], setting: Setting, at_s: float
    ) -> float:
        return super().speed(job, devices, beside, self.setting, at_s)

    def device_watts(self, jobs: Sequence[TraceJob], device: str, setting: Setting, at_s: float) -> float:
        """Power (W) above idle at the fixed setting."""
        return super().device_watts(jobs, device, self.setting, at_s)


@dataclass(frozen=True)
class Outcome:
    """Result of a mix under one way.

    Attributes:
        over: Number of events after which limits above the budget may have been in force.
        events: Number of events of the core.
    """

    joules: float
    makespan_s: float
    over: int = 0
    events: int = 0


@dataclass(frozen=True)
class Mix:
    """Jobs, GPUs and a budget."""

    jobs: tuple[MixJob, ...]
    gpus: int
    budget_w: float


class LimitWatch:
    """Sum of the limits that may be in force, after each event, from when it first was within the budget."""

    def __init__(self, devices: Sequence[str], found_w: float, budget_w: float) -> None:
        self._may = {name: [found_w] for name in devices}
        self._found_w, self._budget_w, self._asked = found_w, budget_w, dict[int, tuple[str, float]]()
        self.over = self.events = 0
        self._began = False

    def look(self, event: Event, commands: list[Command]) -> None:
        """Note an event and what follows from it. A limit may be in force from its command to that of the next."""
        self.events += 1
        if isinstance(event, Done) and event.command in self._asked:
            name, limit_w = self._asked.pop(event.command)
            self._may[name] = [limit_w]
        for each in commands:
            if isinstance(each, ApplySetting):
                limit_w = float(dict(each.setting).get(POWER_LIMIT, self._found_w))
                self._asked[each.id] = each.device, limit_w
                self._may[each.device].append(limit_w)
        now_w = sum(max(each) for each in self._may.values())
        self._began = self._began or now_w <= self._budget_w
        self.over += self._began and now_w > self._budget_w


def measure(options: EnergyOptions) -> list[Figure]:
    """All figures."""
    if options.data is None:
        return [Figure("power budget", None, "", note="give the folder of the measured tables with --data")]
    mixes = options.mixes or (QUICK_MIXES if options.quick else MIXES)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    over, events = 0, 0
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        for seed, (ratios, over_here, events_here) in enumerate(pool.map(partial(one, options.data), range(mixes))):
            for key, ratio in ratios.items():
                found[key].append(ratio)
            over, events = over + over_here, events + events_here
            say(f"mix {seed}: " + ", ".join(f"{what} over {way} {ratio:.3f}" for (what, way), ratio in ratios.items()))
    wanted = {"bound": "<= 1.05", "equal limits": "<= 1", "uniform clock": "<= 1"}
    return [
        *(
            Figure(
                f"{what}, dealt over {way}", median(ratios), "x", wanted[way], f"{min(ratios):.3f} to {max(ratios):.3f}"
            )
            for (what, way), ratios in found.items()
        ),
        Figure("events after which the limits exceeded the budget", float(over), "", "<= 0", f"of {events:,}"),
    ]


def one(data: Path, seed: int) -> tuple[dict[tuple[str, str], float], int, int]:
    """Ratios of a mix by figure and way; events over the budget, and all events."""
    world = load(data, seed)
    drawn = draw(world, seed)
    clock = uniform_clock(world, drawn)
    ratios: dict[tuple[str, str], float] = {}
    over = events = 0
    for objective, what in zip(OBJECTIVES, ("makespan", "joules"), strict=True):
        dealt = run(world, drawn, objective, drawn.budget_w)
        over += dealt.over
        events += dealt.events
        fixed = {
            "equal limits": run(world, drawn, objective, setting=equal_limit(world, drawn)),
            "uniform clock": run(world, drawn, objective, setting=clock),
        }
        value = attrgetter("makespan_s" if what == "makespan" else "joules")
        for way, each in fixed.items():
            ratios[what, way] = value(dealt) / value(each)
        ratios[what, "bound"] = value(dealt) / value(bound(world, drawn, objective))
    return ratios, over, events


def draw(world: MeasuredWorld, seed: int) -> Mix:
    """Mix of a seed: 4 and 8 GPUs in turn."""
    gpus, random = SIZES[seed % len(SIZES)], Random(f"budget {seed}")
    jobs = tuple(replace(each, arrival_s=0.0) for each in mix(world, seed, JOBS_PER_GPU * gpus))
    return Mix(jobs, gpus, random.uniform(LEAST_PART, MOST_PART) * gpus * limits(world)[-1])


def limits(world: MeasuredWorld) -> tuple[float, ...]:
    """Power limits (W) of a GPU, ascending."""
    return tuple(float(each) for each in world.space.knobs[1].values)


def run(
    world: MeasuredWorld, drawn: Mix, objective: str, budget_w: float = 0.0, setting: Setting = AS_FOUND
) -> Outcome:
    """Result of a mix: with a budget that ecoshare deals out, or with one setting of all GPUs."""
    limits_w = limits(world)
    gpu = GpuModel("judged", limits_w[-1], world.memory_bytes)
    cluster = Cluster(1, drawn.gpus, gpu, power_limits_w=limits_w)
    jobs = [
        TraceJob(each.name, each.job_class, 0.0, (Phase(each.iterations, world.solo_s(each.job_class)),))
        for each in drawn.jobs
    ]
    watch = LimitWatch([each.name for each in cluster.devices()], limits_w[-1], budget_w)
    config = Config(objective, 1, 1, power_budget_w=budget_w)
    judge = Judge(world) if budget_w else FixedJudge(world, setting=setting)
    result = Simulator(Trace("mix", "budget", tuple(jobs), ""), cluster, config, judge, Costs()).run(
        watch.look if budget_w else None
    )
    return Outcome(result.energy_j, result.makespan_s, watch.over, watch.events)


def equal_limit(world: MeasuredWorld, drawn: Mix) -> Setting:
    """Largest limit that an equal part of the budget allows."""
    limit_w = max(each for each in limits(world) if each <= drawn.budget_w / drawn.gpus + 1e-9)
    return AS_FOUND if limit_w == limits(world)[-1] else ((POWER_LIMIT, limit_w),)


def uniform_clock(world: MeasuredWorld, drawn: Mix) -> Setting:
    """Setting with the fastest clock at which the hungriest jobs of the mix keep the budget together; else the slowest.

    An operator would have to know these jobs.
    """
    names = [each.job_class for each in drawn.jobs]
    clocks = [place for place, each in enumerate(world.space.settings) if each[POWER_LIMIT] == limits(world)[-1]]
    watts = {name: world.states((name,)).watts for name in set(names)}

    def most_w(place: int) -> float:
        return sum(sorted((float(watts[name][place]) for name in names), reverse=True)[: drawn.gpus])

    fits = [place for place in clocks if most_w(place) <= drawn.budget_w]
    chosen = max(fits, key=most_w) if fits else min(clocks, key=most_w)
    assert GPU_CLOCK in world.space.settings[chosen]
    return world.setting(chosen)


def bound(world: MeasuredWorld, drawn: Mix, objective: str) -> Outcome:
    """Least makespan or least energy of any schedule in which the limits keep the budget on average.

    Raises:
        RuntimeError: The linear program was not solved.
    """
    work_s: dict[str, float] = defaultdict(float)
    for each in drawn.jobs:
        work_s[each.job_class] += each.work_s
    limits_w, unlocked = limits(world), world.default[GPU_CLOCK]
    places = [world.space.index({GPU_CLOCK: unlocked, POWER_LIMIT: each}) for each in limits_w]
    classes, count = sorted(work_s), len(limits_w)
    states = [world.states((each,)) for each in classes]
    speeds = np.array([state.speeds[0][places] for state in states])
    active_w = np.array([state.watts[places] for state in states]) - world.idle_w
    columns = len(classes) * count
    work = np.zeros((len(classes), columns + 1))
    for row in range(len(classes)):
        work[row, row * count : (row + 1) * count] = -speeds[row]
    more_w = np.tile(np.array(limits_w) - limits_w[0], len(classes))
    budget = np.append(more_w, -(drawn.budget_w - drawn.gpus * limits_w[0]))
    devices = np.append(np.ones(columns), -float(drawn.gpus))
    cost = np.zeros(columns + 1)
    if objective == "energy":
        cost[:columns] = active_w.ravel()
        cost[-1] = world.idle_w * drawn.gpus
    else:
        cost[-1] = 1.0
    longest_s = max(each.work_s / speeds[classes.index(each.job_class)].max() for each in drawn.jobs)
    solved = linprog(
        cost,
        A_ub=np.vstack([work, budget, devices]),
        b_ub=np.concatenate([[-work_s[each] for each in classes], [0.0, 0.0]]),
        bounds=[(0.0, None)] * columns + [(longest_s, None)],
        method="highs",
    )
    if not solved.success:
        raise RuntimeError(f"the linear program was not solved: {solved.message}")
    return Outcome(float(solved.fun), float(solved.fun))


def main() -> None:
    """Run it from the command line."""
    run_benchmark("power_budget", __doc__, measure, EnergyOptions, add_options)


if __name__ == "__main__":
    main()
