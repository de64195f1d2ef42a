"""World that judges ecoshare's savings: measured numbers as far as they exist, and none of ecoshare's own models.

No public table joins clocks, power limit and co-location: tables of settings are of one job on the card (Zeus,
gpuPTXModel, Kernel Tuner), and tables of neighbours are of one setting, without a meter (Gavel). This module joins
them, in a form that the predictor does not have, and with parts that it cannot have.

* *Measured:* speeds alone and beside one other at the default setting, and which pairs exceed the memory (Gavel, V100).
* *Looked up,* with straight lines in logarithms between measured points: time and watts at each power limit, of the
  workload (Zeus, V100) that a class stands for; time and active watts at each GPU clock, over those at the highest, as
  the geometric mean of two kernels (Titan X, A4000), one that computes and one that waits for memory, and of a host
  that no clock changes. The slower time and the lower power of the two knobs count. Noise of a table against the
  direction of its knob is replaced by the middle between the monotone curves above and below it.
* *Generated:* what a profile tells of the interference of a class. The cause is hidden: the intensity of the class, as
  Gavel's K80s and P100s show it (`_intensities`). The V100's pairs, which judge, are not read for it.
* *Invented:* the workload and kernels of a class with a name that does not tell them; its bytes; idle watts
  (`IDLE_SHARE` of the largest limit, less than the lightest workload draws); and, hidden behind the seed, the change of
  a neighbour's delay with the setting, the cost of a third job, the overlap of watts, throttling under a shared limit
  (`MeasuredWorld.states`), drift and noise. The predictor has no term for any of these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from ecoshare.base.class_profile import POWER_LIMIT, MemoryDemand
from ecoshare.base.measurement import Setting
from ecoshare.devices.knob import GPU_CLOCK, UNLOCKED
from ecoshare.simulation.cluster import IDLE_SHARE
from ecoshare.simulation.traces import measured_speeds
from scripts.bench.energy_curves import (
    CLOCKS_MHZ,
    Workload,
    a4000,
    between,
    by_cap,
    by_clock,
    measured_workloads,
    monotone,
    titan,
    uniform,
)
from tuner import Knob, Role, Space
from tuner.space import Value

Array = NDArray[np.float64]

NOISE, DRIFT = 0.02, 0.02
_DRIFT_PERIOD_S = (480.0, 720.0)

_MEMORY_SHARES = {"ResNet-50": 0.346, "Transformer": 0.421}
"""Part of the kernels' time that waits for memory: Orion's for ResNet-50 and Transformer-XL on a V100 (its
`summary.csv`). Other families get a random value, 0.1 to 0.7."""

_STAND_INS = {
    "ResNet-18": ("cifar100", "shufflenetv2"),
    "ResNet-50": ("imagenet", "resnet50"),
    "Transformer": ("sentiment140", "bert_base_uncased"),
    "LM": ("librispeech", "deepspeech2"),
    "Recommendation": ("movielens-1m", "ncf"),
}
"""Workloads of Zeus in place of Gavel's job types, at the nearest batch size by ratio; other types get any, by hash."""

_MEMORY_BYTES = 16 << 30
_PEAKS_GIB = {
    "ResNet-18": {16: 1.2, 32: 1.4, 64: 1.8, 128: 2.6, 256: 4.2},
    "ResNet-50": {16: 3.4, 32: 5.4, 64: 6.6, 128: 11.0},
    "Transformer": {16: 4.4, 32: 6.55, 64: 6.7, 128: 6.9, 256: 9.5},
    "A3C": {0: 5.2},
    "LM": {5: 5.1, 10: 5.2, 20: 5.4, 40: 5.8, 80: 6.6},
    "Recommendation": {512: 3.6, 1024: 4.4, 2048: 5.1, 4096: 5.6, 8192: 6.2},
    "CycleGAN": {0: 6.6},
}
"""P + T (GiB) by batch size, invented so that the 21 pairs that do not fit by Gavel's table exceed its V100s' 16 GiB.
No sums do that and keep all others: 3 of the 330 measured pairs are lost (all with a Transformer)."""
_PERSISTENT_SHARE = 0.7
"""P of a family, as a part of the peak of its smallest batch size; invented."""

_OTHER_GPUS = ("k80", "p100")
"""Models of GPU with tables that say how intense a class is; the judged pairs are of a V100."""

_CAP_STEP_W = 2.5
_NEAR = 0.7
"""Mean power over the limit from which a limit slows a workload: its phases differ. A slowdown below that is noise."""


@dataclass(frozen=True, slots=True)
class State:
    """State of a device at a moment.

    Attributes:
        speeds: Speed of each job: seconds of work, as alone at the default setting, done in a second.
        watts: Watts of the whole device, idle included.
        throttled: Whether the power limit slows a job.
    """

    speeds: tuple[float, ...]
    watts: float
    throttled: bool


@dataclass(frozen=True, slots=True)
class States:
    """States without drift, for all settings in the order of the space: (n_jobs, n_settings), and (n_settings,)."""

    speeds: Array
    watts: Array
    throttled: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a class alone at the default setting: noisy, with imperfect features.

    Attributes:
        busy: Share of the time with a kernel at work: the mean of two parts, with an error of up to 10 % of the class.
            One part is the square root of active watts over the most that any workload draws, as a driver counts
            moments with any kernel, however small. The other is the hidden intensity of the class.
        memory_busy: Part of it that waits for memory, with another such error.
    """

    iteration_s: float
    watts: float
    busy: float
    memory_busy: float


@dataclass(frozen=True, slots=True)
class MixJob:
    """A job of a mix.

    Attributes:
        work_s: All its iterations, alone at the default setting.
        slowdown_limit: Largest slowdown that it accepts, at least 1; None for no limit.
    """

    name: str
    job_class: str
    arrival_s: float
    iterations: int
    work_s: float
    slowdown_limit: float | None


@dataclass(frozen=True, slots=True)
class _JobClass:
    """The truth of a class; its curves are of times over that at the default and of watts beyond idle.

    Attributes:
        cap_times: Times at the caps of the world; `cap_w`: watts there.
        clock_times: Times at the clocks of the world; `clock_w`: watts there.
        swell: A neighbour's delay grows by its slowdown alone to the power of this.
        crowd: The part of the product of two neighbours' delays by which it is slower beside both; 0 would add delays
            up, 1 multiply slowdowns.
        overlap: Part of what the lesser ones of several draw that is not drawn twice.
    """

    solo_s: float
    memory: MemoryDemand
    cap_times: Array
    cap_w: Array
    clock_times: Array
    clock_w: Array
    busy: float
    memory_busy: float
    swell: float
    crowd: float
    overlap: float


class MeasuredWorld:
    """The truth on one device: a pure function of jobs, setting, moment and device. `load` makes it.

    Attributes:
        classes: Classes of jobs, in Gavel's words.
        space: Settings, named as ecoshare's knobs; `default` is one of them.
        idle_w: Watts without a job at work, at any setting.
        memory_bytes: Memory of the card.
    """

    def __init__(
        self,
        seed: int,
        classes: Mapping[str, _JobClass],
        pairs: Mapping[tuple[str, str], float],
        limits_w: Sequence[float],
        caps_w: Array,
    ) -> None:
        """A world of these.

        Args:
            pairs: Speed of a class beside another; those that do not fit are missing.
            caps_w: Ascending, the limits among them: what a shared limit may come down to for each.
        """
        self.classes = tuple(classes)
        self.idle_w, self.memory_bytes = IDLE_SHARE * limits_w[-1], _MEMORY_BYTES
        clock = Knob(GPU_CLOCK, CLOCKS_MHZ[:-1], Role.CORE_CLOCK, {UNLOCKED: CLOCKS_MHZ[-1]})
        self.space = Space.product(clock, Knob(POWER_LIMIT, tuple(limits_w), Role.POWER_LIMIT))
        self.default: dict[str, Value] = {GPU_CLOCK: UNLOCKED, POWER_LIMIT: limits_w[-1]}
        self._seed, self._known, self._pairs = seed, dict(classes), dict(pairs)
        self._limits_w, self._caps_w = tuple(limits_w), caps_w
        self._states: dict[tuple[str, ...], States] = {}

    def solo_s(self, job_class: str) -> float:
        """Seconds an iteration alone at the default setting: measured."""
        return self._known[job_class].solo_s

    def memory(self, job_class: str) -> MemoryDemand:
        """Memory that a class needs: invented."""
        return self._known[job_class].memory

    def fits(self, jobs: Sequence[str]) -> bool:
        """Whether classes may be at work on one card at once, each with all that it needs."""
        return sum(self.memory(each).peak_bytes for each in jobs) <= self.memory_bytes

    def setting(self, place: int) -> Setting:
        """A setting of the space as ecoshare's core writes it: only what is not the default."""
        values = self.space.settings[place].items()
        return tuple(sorted((name, value) for name, value in values if value != self.default[name]))

    def state(self, jobs: Sequence[str], setting: Setting, at_s: float, device: str) -> State:
        """State while these classes are at work, each in a lane of its own.

        Raises:
            KeyError: There is no such setting.
            ValueError: They do not fit.
        """
        order = sorted(range(len(jobs)), key=lambda place: jobs[place])
        states = self.states(tuple(jobs[place] for place in order))
        column = self.space.index({**self.default, **dict(setting)})
        faster, hotter = self._drift(at_s, device)
        found = [0.0] * len(jobs)
        for row, place in enumerate(order):
            found[place] = float(states.speeds[row, column]) * faster
        return State(tuple(found), float(states.watts[column]) * hotter, bool(states.throttled[column]))

    def states(self, jobs: Sequence[str]) -> States:
        """All settings at once, without drift; kept, since a mix has few packings.

        Alone, speed and watts are looked up. Beside others the delay by each is the measured one (times the neighbour's
        own slowdown at the setting, to a power: invented); delays add up, and a part of the product of each two comes
        on top. Active watts count by a job's progress, and the lesser ones not in full. If the sum is more than the
        limit, every job follows its own curve by limits, down to the largest cap that keeps the limit.

        Raises:
            ValueError: They do not fit.
        """
        key = tuple(jobs)
        if key not in self._states:
            self._states[key] = self._beside(key) if key else self._idle()
        return self._states[key]

    def profile(self, job_class: str, at_s: float, device: str) -> Profile:
        """Profile of a class alone on a device at a moment: the truth with drift and noise."""
        state, known = self.state([job_class], (), at_s, device), self._known[job_class]
        key = f"profile {job_class} {device}"
        return Profile(
            known.solo_s / state.speeds[0] * self.noise(f"{key} time", at_s),
            state.watts * self.noise(f"{key} watts", at_s),
            min(1.0, known.busy * self.noise(f"{key} busy", at_s)),
            min(1.0, known.memory_busy * self.noise(f"{key} memory", at_s)),
        )

    def noise(self, key: str, at_s: float) -> float:
        """Factor by which a measurement is too large: log-normal, 2 %, different for each key and moment."""
        return math.exp(NOISE * NormalDist().inv_cdf(uniform(self._seed, "noise", key, float(at_s))))

    def _drift(self, at_s: float, device: str) -> tuple[float, float]:
        """Factors by which speeds and watts are off: a warm chip draws more, and is slower for a part of that."""

        def wave(name: str) -> float:
            period_s = between(*_DRIFT_PERIOD_S, self._seed, device, name, "period")
            return math.sin(2.0 * math.pi * (at_s / period_s + uniform(self._seed, device, name, "phase")))

        warmth = wave("warmth")
        return 1.0 + 0.5 * DRIFT * (wave("speed") - warmth), 1.0 + DRIFT * warmth

    def _idle(self) -> States:
        count = len(self.space)
        return States(np.empty((0, count)), np.full(count, self.idle_w), np.zeros(count, dtype=bool))

    def _beside(self, jobs: tuple[str, ...]) -> States:
        if not self.fits(jobs):
            raise ValueError(f"{', '.join(jobs)} do not fit on a card of {self.memory_bytes} bytes")
        known, count = [self._known[job] for job in jobs], len(jobs)
        # All (n_jobs, n_clocks, n_caps).
        times = np.stack([np.maximum(each.clock_times[:, None], each.cap_times[None, :]) for each in known])
        drawn_w = np.stack([np.minimum(each.clock_w[:, None], each.cap_w[None, :]) for each in known])
        swollen = np.stack([times[place] ** each.swell for place, each in enumerate(known)])
        left = np.ones_like(times)
        for one, job in enumerate(jobs):
            others = [other for other in range(count) if other != one]
            delays = [(1.0 / self._pairs[job, jobs[other]] - 1.0) * swollen[other] for other in others]
            contention = sum((a * b for a, b in combinations(delays, 2)), np.zeros_like(left[one]))
            left[one] /= 1.0 + sum(delays) + known[one].crowd * contention
        each_w = drawn_w * left
        overlap = sum(each.overlap for each in known) / count
        active_w = (1.0 - overlap) * each_w.sum(axis=0) + overlap * each_w.max(axis=0)
        rates, watts, throttled = [], [], []
        for limit_w in self._limits_w:
            top = int(np.searchsorted(self._caps_w, limit_w))
            # A mean may be measured above the limit by a little.
            most_w = np.maximum(limit_w - self.idle_w, drawn_w[:, :, top].max(axis=0))
            fit = active_w[:, : top + 1] <= most_w[:, None] * (1.0 + 1e-12)
            caps = np.where(fit.any(axis=1), top - fit[:, ::-1].argmax(axis=1), 0)
            clocks = np.arange(len(caps))
            rates.append((left / times)[:, clocks, caps])
            watts.append(self.idle_w + active_w[clocks, caps])
            held = [
                (each.cap_times[caps] > 1.005 * each.clock_times) & (self.idle_w + each.cap_w[top] > _NEAR * limit_w)
                for each in known
            ]
            throttled.append(np.any(held, axis=0) | (caps < top))
        rows = [np.stack(each, axis=-1).reshape(*each[0].shape[:-1], -1) for each in (rates, watts, throttled)]
        return States(*rows)


def load(data: Path, seed: int, gpu: str = "v100") -> MeasuredWorld:
    """The world of a seed, made of the tables in a folder.

    Raises:
        ValueError: There are no watts of this GPU, or a pair would fit that does not by Gavel's table.
    """
    if gpu != "v100":
        raise ValueError(f"only a V100 was measured with neighbours and with power limits, not {gpu!r}")
    table = measured_speeds.read(data / "gavel" / "simulation_throughputs.json", gpu).table
    single = {key: found[1] for key in table if (found := re.fullmatch(r"\('(.+)', 1\)", key))}
    pairs = {
        (one, other): min(1.0, table[key][beside][0] / table[key]["null"])
        for key, one in single.items()
        for beside, other in single.items()
        if table[key][beside][0]
    }
    solo_s = {one: 1.0 / table[key]["null"] for key, one in single.items() if any(pair[0] == one for pair in pairs)}
    intensities = _intensities(data)
    workloads, kernels = measured_workloads(data), [*titan(data), a4000(data)]
    limits_w = np.unique([limit for points in workloads.values() for limit in points])
    idle_w = IDLE_SHARE * float(limits_w[-1])
    most_w = max(points[limits_w[-1]][1] for points in workloads.values()) - idle_w
    caps_w = np.unique([*np.arange(idle_w + _CAP_STEP_W, limits_w[-1], _CAP_STEP_W), *limits_w])

    def made(name: str) -> _JobClass:
        points = workloads[_stand_in(name, workloads, seed)]
        cap_logs = np.log([(points[limit][0], points[limit][1] - idle_w) for limit in limits_w]).T
        cap_logs = np.stack([monotone(cap_logs[0, ::-1])[::-1], monotone(cap_logs[1])])
        work = min(1.0, math.exp(cap_logs[1, -1]) / most_w)
        share = _MEMORY_SHARES.get(_family(name)[0], between(0.1, 0.7, seed, name, "memory share"))
        clock_logs = by_clock(kernels, work, share, seed, name)
        cap_logs = by_cap(caps_w, limits_w, idle_w, cap_logs, clock_logs)
        busy = 0.5 * (math.sqrt(work) + intensities[name]) * between(0.9, 1.1, seed, name, "busy")
        return _JobClass(
            solo_s=solo_s[name],
            memory=_memory(name),
            cap_times=np.exp(cap_logs[0] - cap_logs[0, -1]),
            cap_w=np.exp(cap_logs[1]),
            clock_times=np.exp(clock_logs[0]),
            clock_w=np.exp(clock_logs[1] + cap_logs[1, -1]),
            busy=busy,
            memory_busy=busy * share * between(0.9, 1.1, seed, name, "memory busy"),
            swell=between(-0.8, 0.8, seed, name, "swell"),
            crowd=between(0.2, 0.8, seed, name, "crowd"),
            overlap=between(0.05, 0.3, seed, name, "overlap"),
        )

    world = MeasuredWorld(seed, {name: made(name) for name in solo_s}, pairs, tuple(map(float, limits_w)), caps_w)
    for one in solo_s:
        for other in solo_s:
            if (one, other) not in pairs and world.fits((one, other)):
                raise ValueError(f"{one} and {other} would fit, but not by Gavel's table")
    return world


def busy_and_delay(world: MeasuredWorld) -> tuple[list[float], list[float]]:
    """Profiled `busy` of each class, and the mean delay that it causes: 1 - speed, over all classes that fit beside."""
    at = world.space.index(world.default)
    busy = [world.profile(each, 0.0, "gpu0").busy for each in world.classes]
    delays = [
        [1.0 - float(world.states((other, each)).speeds[0, at]) for other in world.classes if world.fits((other, each))]
        for each in world.classes
    ]
    return busy, [fmean(each) for each in delays]


def _intensities(data: Path) -> dict[str, float]:
    """Hidden intensity of each class, 0 to 1: the mean delay that it causes on other models of GPU.

    The tables are of another file than the pairs that judge, and of a K80 and a P100, each with the same weight.
    """
    found: dict[str, list[float]] = {}
    for gpu in _OTHER_GPUS:
        table = measured_speeds.read(data / "gavel" / "oracle_throughputs.json", gpu).table
        for name in table:
            pairs = [(row[name][0], row["null"]) for row in table.values() if row["null"] and row.get(name, (0.0,))[0]]
            if pairs:
                found.setdefault(name, []).append(fmean(1.0 - min(1.0, beside / alone) for beside, alone in pairs))
    return {name: fmean(each) for name, each in found.items()}


def mix(world: MeasuredWorld, seed: int, jobs: int) -> list[MixJob]:
    """Random jobs of 1 to 10 minutes in the order of their arrivals, drawn from a seed.

    A quarter is there at once; the others arrive at random, with 1 to 2 times the work that one device does alone in
    that time. A third has a slowdown limit.
    """
    draw = Random(f"mix {seed}")
    classes = [draw.choice(world.classes) for _ in range(jobs)]
    solos_s = [world.solo_s(each) for each in classes]
    counts = [max(1, round(math.exp(draw.uniform(math.log(60.0), math.log(600.0))) / solo_s)) for solo_s in solos_s]
    works_s = [count * solo_s for count, solo_s in zip(counts, solos_s, strict=True)]
    gap_s = sum(works_s) / jobs / draw.uniform(1.0, 2.0)
    limited, at_s, made = set(draw.sample(range(jobs), round(jobs / 3))), 0.0, []
    for place in range(jobs):
        if place >= max(1, jobs // 4):
            at_s += draw.expovariate(1.0 / gap_s)
        limit = draw.uniform(1.5, 3.0) if place in limited else None
        made.append(MixJob(f"j{place:02d}", classes[place], at_s, counts[place], works_s[place], limit))
    return made


def _family(name: str) -> tuple[str, int]:
    """Family and batch size of a class, `LM` and 5 of `LM (batch size 5)`; the size is 0 if the name has none."""
    family, _, size = name.removesuffix(")").partition(" (batch size ")
    return family, int(size or 0)


def _memory(name: str) -> MemoryDemand:
    family, size = _family(name)
    peaks_gib = _PEAKS_GIB[family]
    peak_gib = peaks_gib[size]
    persistent = int(_PERSISTENT_SHARE * min(peaks_gib.values()) * 2**30)
    return MemoryDemand(persistent, int(peak_gib * 2**30) - persistent)


def _stand_in(name: str, workloads: Collection[Workload], seed: int) -> Workload:
    """Workload in place of a class; any workload if the class name does not tell."""
    family, size = _family(name)
    alike = [each for each in workloads if each[:2] == _STAND_INS.get(family)]
    if not alike:
        return sorted(workloads)[int(len(workloads) * uniform(seed, name, "stand-in"))]
    return min(alike, key=lambda each: (abs(math.log(each[3] / size)), each))
