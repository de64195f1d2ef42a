"""Judging world of services: batches on measured tables or invented workloads, and a queue in front of them.

The queue is simulated request by request with the live rule for the size of a batch
(`ecoshare.lane.serving.batch_worker`). It shares no formula with the tuner's prediction. Times of batches have a
lognormal variation; a job that trains beside the service hands the turn over at the end of an iteration, as it does
while the service has had less than its share.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ecoshare.knowledge.advisers.service_search import ServiceMeasurement, TrainingBeside
from ecoshare.lane.serving.batch_worker import batch_size
from scripts.bench.tuner_tables import Problem, read
from tests.tuner import invented
from tuner import Knob, Role, ServiceLoad, Setting, Space, dispersion

NOISE = 0.02
"""Noise of a measured power, as in the tables of Zeus."""
WINDOW, WINDOW_BATCHES = 1_000, 5
"""Requests of a measurement, and number of largest batches that they fill, at least."""
LONG, LONG_BATCHES = 10_000, 50
"""The same of the truth."""
COUNTED = 10
"""Intervals of a measurement in which requests are counted. A live one has a second each, and 4 to 60 of them."""
IDLE = 0.15
"""Assumed ratio: watts of an idle device / largest power. No table has it."""
_FULL = 10
"""Full batches of a size after which its mean time counts as measured."""
_LATE = 1_000.0
"""Requests of a queue without an end wait for about so many largest batches: a simulation ends there."""

Array = np.ndarray
Draw = np.random.Generator


@dataclass(frozen=True)
class Truth:
    """Service at a setting, without noise.

    Attributes:
        energy: Joules spent / joules of the same work alone at the default setting.
    """

    p99_s: float
    energy: float


@dataclass(eq=False)
class Case:
    """One service on one device.

    Attributes:
        family: Kind of the case; the best static setting is chosen among cases of one family.
        logs: Logarithms of power (W) and time of a request in a full batch (s), (2, n_settings).
        variation: Standard deviation of the logarithm of a batch's time.
        bursts: Squared coefficient of variation of the gaps between requests; 1 for a Poisson process.
        training_w: Power (W) while the neighbour trains, (n_settings,); None without a neighbour.
        iteration_s: Iteration (s) of the neighbour, (n_settings,).
    """

    family: str
    name: str
    space: Space
    default: Setting
    logs: Array
    rate_per_s: float
    idle_w: float
    variation: float
    seed: int
    bursts: float = 1.0
    training_w: Array | None = None
    iteration_s: Array | None = None
    target_s: float = math.inf
    _truths: dict[int, Truth] = field(default_factory=dict)

    @property
    def at(self) -> int:
        """Index of the default."""
        return self.space.index(self.default)

    @property
    def load(self) -> ServiceLoad:
        """Requests of the service."""
        return ServiceLoad(self.rate_per_s, self.idle_w)

    @property
    def training(self) -> list[TrainingBeside]:
        """Neighbour as a profile tells it."""
        if self.training_w is None or self.iteration_s is None:
            return []
        return [TrainingBeside("training", float(self.training_w[self.at]), float(self.iteration_s[self.at]))]

    def measure(self, place: int, number: int) -> ServiceMeasurement:
        """Measurement of a setting, with noise."""
        draw = np.random.default_rng([self.seed, place, number])
        found, _ = self._run(place, draw, WINDOW, WINDOW_BATCHES)
        return replace(found, power_w=found.power_w * math.exp(NOISE * draw.standard_normal()))

    def truth(self, place: int) -> Truth:
        """Truth at a setting."""
        if place not in self._truths:
            found, busy = self._run(place, np.random.default_rng([self.seed, place]), LONG, LONG_BATCHES)
            work_w = self.rate_per_s * math.exp(self.logs[:, self.at].sum())
            if self.training_w is not None and self.iteration_s is not None:
                trained = max(0.0, 1.0 - busy) / self.iteration_s[place]
                work_w += trained * self.training_w[self.at] * self.iteration_s[self.at]
            self._truths[place] = Truth(found.p99_s, float(found.power_w / work_w))
        return self._truths[place]

    def _run(
        self, place: int, draw: np.random.Generator, requests: int, batches: int
    ) -> tuple[ServiceMeasurement, float]:
        """A service that runs for a while, and the part of the time in which it works."""
        sizes = self._sizes(place)
        request_s = {size: math.exp(self.logs[1, at]) for size, at in sizes.items()}
        allowed = sorted(sizes)
        count = max(requests, batches * allowed[-1])
        shape = 1.0 / self.bursts
        arrivals = np.cumsum(draw.gamma(shape, 1.0 / (self.rate_per_s * shape), count))
        iteration_s = 0.0 if self.iteration_s is None else float(self.iteration_s[place])
        taken, took_s, ends_s = self._serve(arrivals, allowed, request_s, iteration_s, draw)
        served = int(taken.sum())
        latencies = np.repeat(ends_s, taken) - arrivals[:served]
        watts = np.exp(self.logs[0, [sizes[size] for size in allowed]])
        joules = float(took_s @ watts[np.maximum(0, np.searchsorted(allowed, taken, side="right") - 1)])
        busy = min(1.0, self.rate_per_s * float(took_s.sum()) / served)
        rest_w = self.idle_w if self.training_w is None else float(self.training_w[place])
        times = {size: took_s[taken == size] for size in allowed}
        return ServiceMeasurement(
            power_w=busy * joules / float(took_s.sum()) + (1.0 - busy) * rest_w,
            p99_s=float(np.quantile(latencies, 0.99)),
            batch=float(taken.mean()),
            batch_s=float(took_s.mean()),
            full_s={float(size): float(each.mean()) for size, each in times.items() if len(each) >= _FULL},
            times_s={"training": iteration_s} if iteration_s else {},
            dispersion=dispersion(np.histogram(arrivals[:served], COUNTED)[0].tolist()),
        ), busy

    def _serve(
        self,
        arrivals: Array,
        allowed: list[int],
        request_s: dict[int, float],
        iteration_s: float,
        draw: np.random.Generator,
    ) -> tuple[Array, Array, Array]:
        """Requests, time (s) and end (s) of each batch."""
        come = arrivals.tolist()
        vary = np.exp(self.variation * draw.standard_normal(len(come)) - self.variation**2 / 2.0).tolist()
        upper = {size: size * each * math.exp(2.33 * self.variation) for size, each in request_s.items()}
        taken, took_s, ends_s = [], [], []
        first, free_s, most_s = 0, 0.0, _LATE * request_s[allowed[-1]] * allowed[-1]
        while first < len(come) and free_s - come[first] < most_s:
            begin_s = max(free_s, come[first])
            if iteration_s and come[first] > free_s:
                begin_s = free_s + math.ceil((come[first] - free_s) / iteration_s) * iteration_s
            waiting = bisect_right(come, begin_s, first) - first
            left_s = come[first] + self.target_s - begin_s
            size = batch_size(allowed, waiting, left_s, lambda size: upper.get(size, upper[allowed[0]]))
            used = size if size in request_s else allowed[0]
            took_s.append(used * request_s[used] * vary[first])
            free_s = begin_s + took_s[-1]
            taken.append(size)
            ends_s.append(free_s)
            first += size
        return np.array(taken), np.array(took_s), np.array(ends_s)

    def _sizes(self, place: int) -> dict[int, int]:
        """Setting with each size that may be used at a setting, by size."""
        own = self.space.settings[place]
        names = [knob.name for knob in self.space.knobs if knob.role is not Role.WORK_SIZE]
        return {
            int(each["batch_size"]): at
            for at, each in enumerate(self.space.settings)
            if all(each[name] == own[name] for name in names) and float(each["batch_size"]) <= float(own["batch_size"])
        }


TARGETS = (1.2, 0.8, 1.5, 2.0, 1.3)
"""Targets, in multiples of the p99 at the default setting. One of them is broken there."""


def measured_cases(folder: Path, every: int = 1) -> list[Case]:
    """Services on the tables of Zeus: each workload alone, and beside training of the next one in its table."""
    problems = [each for each in read(folder) if "limit" in each.table]
    wanted = []
    for number, problem in enumerate(problems):
        others = [each for each in problems if each.table == problem.table]
        beside = others[(others.index(problem) + 1) % len(others)]
        wanted += [(problem, None, 100 * number), (problem, beside, 100 * number + 1)]
    return [_case(*each) for each in wanted[::every]]


def invented_cases(spaces: int) -> list[Case]:
    """Services on invented devices: four families."""
    cases = []
    for family, (draw_space, has_mate, bursts) in _FAMILIES.items():
        for number in range(spaces):
            seed = 7_000 + 100 * len(family) + number
            space, default = draw_space(seed)
            work = invented.workload(space, default, seed, device=seed)
            problem = Problem(family, str(number), space, default, work.logs)
            mate = None
            if has_mate:
                alone = Space.product(*(each for each in space.knobs if each.role is not Role.WORK_SIZE))
                at = {name: value for name, value in default.items() if name != "batch_size"}
                mate = Problem(family, "mate", alone, at, invented.workload(alone, at, seed + 50, device=seed).logs)
            cases.append(_case(problem, mate, seed, bursts))
    return cases


def _clocks_and_batches(seed: int) -> tuple[Space, Setting]:
    draw = np.random.default_rng([seed, 5])
    core = np.round(np.linspace(draw.uniform(0.4, 0.6), 1.0, draw.integers(6, 12)) * 1500.0)
    batches = 2.0 ** np.arange(draw.integers(3, 7))
    space = Space.product(
        Knob("core", tuple(core.tolist()), Role.CORE_CLOCK),
        Knob("batch_size", tuple(batches.tolist()), Role.WORK_SIZE),
    )
    return space, {"core": float(core[-1]), "batch_size": float(batches[-1])}


_FAMILIES = {
    "power limit x batch": (invented.limits_and_batches, False, 1.0),
    "power limit x batch, beside training": (invented.limits_and_batches, True, 1.0),
    "clock x batch": (_clocks_and_batches, False, 1.0),
    "clock x batch, bursts": (_clocks_and_batches, False, 4.0),
}


def _case(problem: Problem, mate: Problem | None, seed: int, bursts: float = 1.0) -> Case:
    """Service of a workload with a load, a neighbour's iteration and a target that are drawn."""
    draw = np.random.default_rng([seed, 9])
    sizes = problem.space.column(Role.WORK_SIZE)
    assert sizes is not None, "a service has batches"
    space, default, logs = _in_requests(problem, math.gcd(*map(int, sizes)))
    at, batch = space.index(default), float(default["batch_size"])
    logs[1] += math.log(0.02) - math.log(batch) - logs[1, at]  # 20 ms for a batch of the default size
    largest_w = float(np.exp(logs[0]).max())
    case = Case(
        family=problem.table if mate is None or "beside" in problem.table else f"{problem.table}, beside training",
        name=problem.name,
        space=space,
        default=default,
        logs=logs,
        rate_per_s=draw.uniform(0.15, 0.5 if mate is not None else 0.7) * batch / 0.02,
        idle_w=IDLE * largest_w,
        variation=float(draw.choice([0.03, 0.1, 0.2])),
        seed=seed,
        bursts=bursts,
    )
    if mate is not None:
        where = [_like(mate, each) for each in space.settings]
        case.training_w = np.exp(mate.logs[0, where])
        case.iteration_s = 0.02 * draw.uniform(0.3, 1.5) * np.exp(mate.logs[1, where] - mate.logs[1, mate.at])
    case.target_s = float(draw.choice(TARGETS)) * case.truth(case.at).p99_s
    case._truths.clear()
    return case


def _in_requests(problem: Problem, whole: int) -> tuple[Space, dict[str, float | str], Array]:
    """The problem with batch sizes in requests of `whole` samples each."""

    def smaller(setting: Setting) -> dict[str, float | str]:
        return {**setting, "batch_size": float(setting["batch_size"]) / whole}

    knobs = [
        replace(knob, values=tuple(value / whole for value in knob.values)) if knob.role is Role.WORK_SIZE else knob
        for knob in problem.space.knobs
    ]
    space = Space(knobs, [smaller(each) for each in problem.space.settings])
    return space, smaller(problem.default), problem.logs.copy()


def _like(mate: Problem, setting: Setting) -> int:
    """Index of the mate's setting with the same values of all knobs but its own batch."""
    return mate.space.index({**mate.default, **{name: setting[name] for name in setting if name != "batch_size"}})
