"""Settings by phase against one setting for all phases, on power limits that Zeus measured on two models of GPU.

The scheduler and the watch over phases are the real ones, in virtual time. Time and watts at each limit are those of
the tables, made monotone (`energy_curves.monotone`). The settings that are known are the best of the tables within the
limit on the slowdown, so no model of ecoshare is judged, and no search. A case is a pair of workloads with different
networks, at the default batch sizes of the tables. All are held out: the constants of the watch were chosen before.
Invented are the lengths of the phases and the time of a change, which takes milliseconds on the fake GPU.

* *evaluates:* a job trains as one workload and evaluates as the other.
* *away:* two jobs share a lane by turns with equal work, and the second is away for a part of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import POWER_LIMIT, MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import AS_FOUND, JobPhase, KnownSetting, class_in
from ecoshare.core.commands import ApplySetting, OpenLane, StartJob
from ecoshare.core.events import SCHEMA, Config, Done, Event, JobArrived, PhaseBegan, RunOpened
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.settings.phase_watch import PhaseLengths, PhaseWatch
from scripts.bench.benchmarking import DataOptions, Figure, add_data, percentile, run_benchmark
from scripts.bench.energy_curves import measured_workloads, monotone

Array = NDArray[np.float64]

GPUS = {"v100": "a V100", "rtx6000": "an RTX 6000"}
SIZES = {"cifar100": 1024, "imagenet": 256, "movielens-1m": 1024, "squad": 32, "sentiment140": 128}
SPEECH_SIZES = {"v100": 192, "rtx6000": 128}
"""Default batch sizes by data set; that of the speech model, by GPU."""

MOST_SLOWER = (1.05, 1.1, 1.2)
"""Limits: time of an iteration / its time at the default setting, in every phase."""

CHANGE_S = 1
LENGTHS_S = (10.0, 60.0)
"""Shortest and longest phase of the other kind (s at the default setting)."""

_PHASES, _SEED = 8, 1
_FIRST, _SECOND = "first", "second"


@dataclass(frozen=True)
class Part:
    """Work of a phase by power limit, in ascending order: for a second of it at the highest limit.

    Attributes:
        times: Time (s).
        joules: Energy (J).
        slower: Largest time of a job / its time at the highest limit.
    """

    times: Array
    joules: Array
    slower: Array

    def within(self, limit: float) -> Array:
        """Energy (J) where the limit is kept, else infinite."""
        return np.where(self.slower <= limit, self.joules, np.inf)

    def best(self, limit: float) -> int:
        return int(np.argmin(self.within(limit)))


def by_turns(one: Part, other: Part) -> Part:
    """Two jobs that take turns with equal work."""
    return Part((one.times + other.times) / 2, (one.joules + other.joules) / 2, np.maximum(one.slower, other.slower))


def parts(data: Path, gpu: str) -> dict[str, Part]:
    """Each network at its default batch size."""
    found = {}
    for (dataset, network, _, size), points in measured_workloads(data, gpu).items():
        if size != SIZES.get(dataset, SPEECH_SIZES[gpu]) or len(points) < 7:
            continue
        limits = sorted(points)
        times = np.exp(monotone(np.log([points[each][0] for each in limits])[::-1])[::-1])
        watts = np.exp(monotone(np.log([points[each][1] for each in limits])))
        times /= times[-1]
        found[f"{network} {dataset}"] = Part(times, times * watts, times)
    return found


class OneDevice:
    """The scheduler with one device, in virtual time.

    Attributes:
        limit: Place of the power limit in force, from the highest one down: -1 is the highest.
        changes: Number of changes.
    """

    def __init__(self, jobs: Sequence[str], known: Sequence[KnownSetting]) -> None:
        """Jobs that run from time 0 on."""
        self.limit, self.changes = -1, 0
        self._core, self._coming = Scheduler(), list[tuple[int, ApplySetting]]()
        device = Device("cuda:0", "here", 8 << 30)
        self.tell(RunOpened(0.0, SCHEMA, Config("fair", 1, 4), (device,), known_settings=tuple(known)), 0)
        for name in jobs:
            self.tell(JobArrived(0.0, JobSpec(name, name, memory=MemoryDemand(1 << 30), profiled=True)), 0)

    def tell(self, event: Event, at_s: int) -> None:
        """Let the scheduler handle an event, and carry out what it commands."""
        for command in self._core.handle(event):
            if isinstance(command, ApplySetting):
                self._coming.append((at_s + CHANGE_S, command))
            elif isinstance(command, OpenLane | StartJob):
                self.tell(Done(float(at_s), command.id), at_s)

    def go_on(self, at_s: int) -> None:
        """Let settings come into force that are due."""
        for due in [each for each in self._coming if each[0] <= at_s]:
            self._coming.remove(due)
            self.limit, self.changes = int(dict(due[1].setting).get(POWER_LIMIT, -1)), self.changes + 1
            self.tell(Done(float(at_s), due[1].id), at_s)


def lived(training: Part, rest: Part, phase: JobPhase, limit: float, lengths_s: Sequence[float]) -> tuple[float, float]:
    """Energy (J) of all phases by the decisions of ecoshare, and the largest slowdown of a job in a phase."""

    def known(jobs: tuple[str, ...], part: Part) -> KnownSetting:
        best = part.best(limit) - len(part.times)
        return KnownSetting((jobs,), ((POWER_LIMIT, float(best)),) if best != -1 else AS_FOUND)

    jobs = (_FIRST,) if phase is JobPhase.EVALUATES else (_FIRST, _SECOND)
    other = (class_in(_FIRST, phase),) if phase is JobPhase.EVALUATES else (_FIRST,)
    device, watch, lengths = OneDevice(jobs, (known(jobs, training), known(other, rest))), PhaseWatch(), PhaseLengths()
    now_s, usage, joules, slowest = 0, Usage(), 0.0, 1.0
    for length_s in lengths_s:
        for part, kind in ((training, JobPhase.TRAINS), (rest, phase)):
            left_s, slower_s = length_s, 0.0
            while left_s > 1e-9:
                passed_s = min(1.0, left_s * part.times[device.limit])
                done_s = passed_s / part.times[device.limit]
                joules += done_s * part.joules[device.limit]
                left_s, now_s = left_s - done_s, now_s + 1
                slower_s += done_s * part.slower[device.limit]
                usage = Usage(
                    usage.iterations + 10 * (kind is JobPhase.TRAINS),
                    usage.eval_iterations + 10 * (kind is JobPhase.EVALUATES),
                    usage.held_s + (kind is not JobPhase.AWAY),
                )
                device.go_on(now_s)
                told = watch.saw(float(now_s), usage, kind is JobPhase.AWAY, jobs[-1], lengths)
                if told is not None:
                    device.tell(PhaseBegan(float(now_s), jobs[-1], told), now_s)
            slowest = max(slowest, float(slower_s) / length_s)
    return joules, slowest


def measure(options: DataOptions) -> list[Figure]:
    """Ratios of joules over all cases, by GPU and kind."""
    if options.data is None:
        raise SystemExit("error: --data DIR is missing\nhint: the folder with zeus_nsdi23")
    found: list[Figure] = []
    for gpu, words in GPUS.items():
        known = parts(options.data, gpu)
        for phase in (JobPhase.EVALUATES, JobPhase.AWAY):
            ratios, bounds, broken, kept = [], [], [], []
            for number, (one, other) in enumerate(permutations(known, 2)):
                random = Random(f"{_SEED} {gpu} {number}")
                lengths_s = [random.uniform(*LENGTHS_S) for _ in range(_PHASES)]
                work_s = sum(lengths_s)
                rest = known[other] if phase is JobPhase.EVALUATES else known[one]
                training = known[one] if phase is JobPhase.EVALUATES else by_turns(known[one], known[other])
                for limit in MOST_SLOWER[1:2] if options.quick else MOST_SLOWER:
                    single = work_s * float(np.min(training.within(limit) + rest.within(limit)))
                    best = work_s * float(np.min(training.within(limit)) + np.min(rest.within(limit)))
                    joules, slowest = lived(training, rest, phase, limit, lengths_s)
                    ratios.append(joules / single)
                    bounds.append(best / single)
                    broken.append(float(rest.slower[training.best(limit)]) / limit)
                    kept.append(slowest / limit)
            name = f"{words}, {'evaluating' if phase is JobPhase.EVALUATES else 'one of two away'}"
            cases = f"{len(ratios)} cases"
            found += [
                Figure(f"{name}: joules / those at one setting, mean", fmean(ratios), "x", "<= 0.95", cases),
                Figure(f"{name}: the same, best tenth", percentile(ratios, 0.1), "x"),
                Figure(f"{name}: the same, worst", max(ratios), "x"),
                Figure(f"{name}: least possible, mean", fmean(bounds), "x", "", "changes at once, for nothing"),
                Figure(f"{name}: cases that could reach 0.95", fmean(each <= 0.95 for each in bounds), ""),
                Figure(f"{name}: time of a phase / its limit, worst", max(kept), "x", "<= 1.0"),
                Figure(f"{name}: the same with training's setting throughout", max(broken), "x", "", "as before"),
            ]
    return found


def main() -> None:
    """Run the benchmark."""
    run_benchmark("phases", __doc__, measure, DataOptions, add_data)


if __name__ == "__main__":
    main()
