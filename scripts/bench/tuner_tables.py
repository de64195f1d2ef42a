"""Tables that map settings to time and power, measured or invented, as problems for bench_tuner.py.

The tables are public (Zeus: ml-energy/zeus, `trace/`; Titan X: hpc-ulisboa/gpuPTXModel) and not part of this project.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.tuner import invented
from tuner import Knob, Role, Setting, Space

BLOCKS = 12
"""Number of the Titan X micro-benchmarks that are used, spread over their kinds."""

_DEFAULT_BATCH = {
    "shufflenetv2": 1024,
    "resnet50": 256,
    "ncf": 1024,
    "squad": 32,
    "sentiment140": 128,
    ("deepspeech2", "v100"): 192,
    ("deepspeech2", "rtx6000"): 128,
}


@dataclass(frozen=True, eq=False)
class Problem:
    """One workload on one device; it is equal only to itself.

    Attributes:
        table: The device and its knobs; workloads of one table can learn from each other.
        logs: (2, n_settings) logarithms of power (W) and time.
        is_held_out: Whether nothing of the workload was looked at since the searches have used botorch.
    """

    table: str
    name: str
    space: Space
    default: Setting
    logs: NDArray[np.float64]
    is_held_out: bool = False

    @property
    def at(self) -> int:
        """Index of the default."""
        return self.space.index(self.default)

    def feasible(self, most: float) -> NDArray[np.bool_]:
        """(n_settings,) whether time stays within a multiple of the default's."""
        result: NDArray[np.bool_] = self.logs[1] - self.logs[1, self.at] <= np.log(most)
        return result

    @property
    def joules(self) -> NDArray[np.float64]:
        """(n_settings,) logarithm of the energy."""
        total: NDArray[np.float64] = self.logs.sum(axis=0)
        return total


def read(folder: Path) -> list[Problem]:
    """All problems, table by table; a third of each table is held out."""
    return [*_part(_titan(folder)), *_part(_zeus(folder, "v100")), *_part(_zeus(folder, "rtx6000"))]


def _part(table: list[Problem]) -> list[Problem]:
    """The problems, with the first third (rounded up) by the checksums of their names marked as held out."""
    names = sorted((each.name for each in table), key=lambda name: zlib.crc32(name.encode()))
    held_out = names[: math.ceil(len(names) / 3)]
    return [replace(each, is_held_out=each.name in held_out) for each in table]


def _titan(folder: Path) -> list[Problem]:
    blocks: dict[str, list[list[float]]] = {}
    name = ""
    path = folder / "gpuptxmodel" / "microbenchmarks__aggregated_dataset_gtxtitanx.csv"
    for row in csv.reader(path.read_text().splitlines()):
        if len(row) == 1:
            name = row[0]
        elif row:
            blocks.setdefault(name, []).append([float(cell) for cell in row])
    return [_clocks(name, rows) for name, rows in blocks.items()]


def _clocks(name: str, rows: list[list[float]]) -> Problem:
    memory, core = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
    space = Space.product(Knob("core", tuple(core), Role.CORE_CLOCK), Knob("memory", tuple(memory), Role.MEMORY_CLOCK))
    logs = np.empty((2, len(space)))
    for row in rows:
        place = space.index({"memory": row[0], "core": row[1]})
        logs[:, place] = np.log(row[3]), np.log(row[2])
    return Problem("core x memory clock", name, space, {"core": core[-1], "memory": memory[-1]}, logs)


def _zeus(folder: Path, device: str) -> list[Problem]:
    rows: dict[tuple[str, str, str], dict[tuple[float, float], tuple[float, float]]] = defaultdict(dict)
    for row in csv.DictReader((folder / "zeus_nsdi23" / f"summary_power_{device}.csv").read_text().splitlines()):
        key = row["dataset"], row["network"], row["optimizer"]
        point = float(row["power_limit"]), float(row["batch_size"])
        rows[key][point] = float(row["average_power"]), float(row["time_per_epoch"])
    problems = []
    for (dataset, network, optimizer), points in rows.items():
        batch = next(_DEFAULT_BATCH[key] for key in (dataset, network, (network, device)) if key in _DEFAULT_BATCH)
        limits, batches = sorted({point[0] for point in points}), sorted({point[1] for point in points})
        knobs = [
            Knob("power_limit", tuple(limits), Role.POWER_LIMIT),
            Knob("batch_size", tuple(batches), Role.WORK_SIZE),
        ]
        space = Space(knobs, ({"power_limit": limit, "batch_size": size} for limit, size in sorted(points)))
        logs = np.log(np.array([points[point] for point in sorted(points)])).T
        default = {"power_limit": limits[-1], "batch_size": float(batch)}
        table = f"power limit x batch, {device}"
        problems.append(Problem(table, f"{network} {dataset} {optimizer}", space, default, logs))
    return problems


def invent(spaces: int) -> list[Problem]:
    """Invented workloads, three on each of a number of spaces of either kind."""
    return [
        Problem(f"invented, {kind}", f"{seed}.{each}", space, default, workload.logs)
        for kind, draw in (("power limit x batch", invented.limits_and_batches), ("clocks", invented.clocks))
        for seed in range(200, 200 + spaces)
        for space, default in [draw(seed)]
        for each in range(3)
        for workload in [invented.workload(space, default, 1000 * seed + each)]
    ]


def spread(problems: list[Problem], count: int = BLOCKS) -> list[Problem]:
    """`count` problems of a list, at even distances: the file has its kinds one after the other."""
    return problems[:: max(1, len(problems) // count)][:count]
