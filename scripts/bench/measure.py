"""Accuracy of the split of energy among jobs, and cost of measuring for the jobs.

The split is judged on a driver with power that is not additive in the jobs. The truth is the Shapley value of that
driver's own model: each subset of the jobs is run on it, in virtual time, with the same work. The method knows the
energy of each job alone at full speed, and the energy of the device for all of them.
"""

from __future__ import annotations

import itertools
import math
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ecoshare.devices.nvidia import nvml
from ecoshare.record.accounts.energy_account import Work, split
from scripts.bench import measure_overhead
from scripts.bench.benchmarking import Figure, Options, median, percentile, run_benchmark
from tests.driver import FakeDriver, presets

WINDOW_S = 10.0
WANTED = {"ours": ("<= 0.05", "<= 0.15")}

Load = tuple[float, float]  # utilisation of the multiprocessors and of the memory, each 0 to 1


class Bench:
    """Device that runs loads."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self._gpu = nvml.NvmlDevice(driver.gpu(0).uuid)
        self._most = 6
        self._known: dict[tuple[Load, ...], float] = {}

    def watts(self, loads: Sequence[Load]) -> float:
        """Mean power under constant loads; idle jobs keep their contexts, too."""
        key = tuple(sorted(load for load in loads if load != (0.0, 0.0)))
        if key not in self._known:
            padded = [*key, *[(0.0, 0.0)] * (self._most - len(key))]
            for pid, (compute, memory) in enumerate(padded, start=1):
                self._driver.gpu(0).load(pid, compute=compute, memory=memory, used_bytes=1 << 30)
            self._driver.advance(1.0)  # the counter is past the change
            before_j = self._gpu.energy_j()
            self._driver.advance(WINDOW_S)
            self._known[key] = (self._gpu.energy_j() - before_j) / WINDOW_S
        return self._known[key]


def shapley(players: int, cost: Callable[[tuple[int, ...]], float]) -> list[float]:
    """Shapley value from subsets."""
    values = []
    for player in range(players):
        others = [each for each in range(players) if each != player]
        value = 0.0
        for size in range(players):
            weight = math.factorial(size) * math.factorial(players - size - 1) / math.factorial(players)
            for members in itertools.combinations(others, size):
                value += weight * (cost(tuple(sorted((*members, player)))) - cost(members))
        values.append(value)
    return values


def mix(bench: Bench, alone: Sequence[Load]) -> dict[str, list[float]]:
    """Relative errors of each method for one mix of jobs, each in a lane of its own."""
    # Together they get as far as the busier of the two resources lets them.
    speed = min(1.0, 1.0 / max(sum(load[0] for load in alone), sum(load[1] for load in alone)))
    slowed = [(compute * speed, memory * speed) for compute, memory in alone]
    idle_w = bench.watts([])
    truth = shapley(len(alone), lambda members: bench.watts([slowed[each] for each in members]) - idle_w)
    active_w = bench.watts(slowed) - idle_w
    claims = [speed * (bench.watts([load]) - idle_w) for load in alone]
    busy = [compute for compute, _ in slowed]
    methods = {
        "ours": split(active_w, [Work(str(lane), lane, claim) for lane, claim in enumerate(claims)]),
        "in proportion to joules alone": [active_w * claim / sum(claims) for claim in claims],
        "by utilisation": [active_w * each / sum(busy) for each in busy],
        "equal": [active_w / len(alone)] * len(alone),
    }
    return {
        name: [abs(share - true) / true for share, true in zip(shares, truth, strict=True)]
        for name, shares in methods.items()
    }


def measure(options: Options) -> list[Figure]:
    """Errors by number of jobs."""
    draw = random.Random(0)
    mixes = 20 if options.quick else 60
    figures: list[Figure] = []
    errors: dict[int, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, FakeDriver(Path(folder), [presets.H200], virtual=True) as driver:
        bench = Bench(driver)
        for jobs in range(1, 7):
            errors[jobs] = {}
            for _ in range(mixes):
                alone = [(draw.uniform(0.1, 1.0), draw.uniform(0.05, 0.9)) for _ in range(jobs)]
                for name, each in mix(bench, alone).items():
                    errors[jobs].setdefault(name, []).extend(each)
    for name in errors[1]:
        for jobs in errors:
            figures.append(Figure(f"error of {name}, {jobs} jobs, median", median(errors[jobs][name]), ""))
        whole = [each for jobs in errors for each in errors[jobs][name]]
        wanted = WANTED.get(name, ("", ""))
        figures.append(Figure(f"error of {name}, median", median(whole), "", wanted[0]))
        figures.append(Figure(f"error of {name}, p95", percentile(whole, 0.95), "", wanted[1]))
    return figures + measure_overhead.measure(options)


def main() -> None:
    """Run it from the command line."""
    run_benchmark("measure", __doc__, measure, Options)


if __name__ == "__main__":
    main()
