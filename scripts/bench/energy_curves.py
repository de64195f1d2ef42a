"""Measured curves of time and watts, against the power limit and the GPU clock, for the world that judges.

Curves are logarithms, time over that at the highest value and watts beyond idle, made to go in the direction of their
knob (`monotone`). energy_world.py says which parts are measured, looked up or invented.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ecoshare.simulation.cluster import IDLE_SHARE

Array = NDArray[np.float64]

CLOCKS_MHZ = (795.0, 900.0, 1005.0, 1110.0, 1215.0, 1320.0, 1425.0, 1530.0)
"""Clocks of a V100; the ratio of the lowest to the highest is about that of the measured kernels."""
_MEMORY_BOUND = 1.8
"""Bound on the slowdown at half the clock: a kernel below it waits for memory."""

_A4000_W = 140.0
"""Power limit (W) of the A4000, from the data sheet, since the table has no idle power."""

Workload = tuple[str, str, str, int]
"""Dataset, network, optimizer, batch size."""


def measured_workloads(data: Path, gpu: str = "v100") -> dict[Workload, dict[float, tuple[float, float]]]:
    """Seconds an epoch and power (W), by power limit, of each workload that Zeus measured."""
    found: dict[Workload, dict[float, tuple[float, float]]] = defaultdict(dict)
    with (data / "zeus_nsdi23" / f"summary_power_{gpu}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["dataset"], row["network"], row["optimizer"], int(row["batch_size"])
            found[key][float(row["power_limit"])] = float(row["time_per_epoch"]), float(row["average_power"])
    return dict(found)


def titan(data: Path) -> list[Array]:
    """Curves of the micro-benchmarks of gpuPTXModel at the higher memory clock."""
    folder, blocks = data / "gpuptxmodel", list[list[list[float]]]()
    for line in (folder / "microbenchmarks__aggregated_dataset_gtxtitanx.csv").read_text().splitlines():
        if "," not in line:
            blocks.append([])
        else:
            blocks[-1].append([float(cell) for cell in line.split(",")])
    idle_w = np.array((folder / "idle_pows_gtxtitanx.txt").read_text().split(), dtype=float)
    curves = []
    for block in blocks:
        rows = np.array([row for row in block if row[0] == max(each[0] for each in block)])
        curves.append(_curve(rows[:, 1], rows[:, 2], rows[:, 3] - idle_w[-len(rows) :]))
    return curves


def a4000(data: Path) -> Array:
    """The curve of Kernel Tuner's FP32 kernel, by the clocks that were achieved."""
    path = data / "kernel_tuner" / "synthetic_fp32_cache_NVIDIA_RTX_A4000.json"
    points = json.loads(path.read_text())["cache"].values()
    rows = np.array(sorted((each["core_freq"], each["time"], each["nvml_power"]) for each in points))
    return _curve(rows[:, 0], rows[:, 1], rows[:, 2] - IDLE_SHARE * _A4000_W)


def _curve(mhz: Array, times: Array, active_w: Array) -> Array:
    """(2, n_clocks) logarithms of time and active watts at the world's clocks, over those at the highest."""
    logs = np.stack([monotone(np.log(times)[::-1])[::-1], monotone(np.log(active_w))])
    logs -= logs[:, [-1]]
    asked = np.log(np.array(CLOCKS_MHZ) / CLOCKS_MHZ[-1])
    return np.stack([np.interp(asked, np.log(mhz / mhz[-1]), row) for row in logs])


def monotone(values: Array) -> Array:
    """Rising values; where they fall, half way between the rising curves above and below."""
    above, below = np.maximum.accumulate(values), np.minimum.accumulate(values[::-1])[::-1]
    middle: Array = 0.5 * (above + below)
    return middle


def by_clock(kernels: Sequence[Array], work: float, share: float, seed: int, name: str) -> Array:
    """(2, n_clocks) curve of a class that keeps the device at work for a part of its time at the highest clock.

    The curve is the mean of logarithms, so that the energy of an iteration is the energy of its kernels.

    Args:
        work: Part of the time in which the device is at work.
        share: Part of `work` that waits for memory.
    """
    computing = [each for each in kernels if each[0, 0] >= math.log(_MEMORY_BOUND)]
    waiting = [each for each in kernels if each[0, 0] < math.log(_MEMORY_BOUND)]
    one, other = (
        group[int(len(group) * uniform(seed, name, kind))]
        for group, kind in ((computing, "computing"), (waiting, "waiting"))
    )
    kernel = (1.0 - share) * one + share * other
    active_w = monotone(kernel[1] + (1.0 - work) * kernel[0])
    return np.stack([work * kernel[0], active_w - active_w[-1]])


def by_cap(caps_w: Array, limits_w: Array, idle_w: float, by_limit: Array, by_clock: Array) -> Array:
    """(2, n_caps) curve by limits at each cap.

    Below the lowest limit a class draws no more than the cap, and is slowed as by the clocks with which it draws as
    little, extrapolated.
    """
    logs = np.stack([np.interp(np.log(caps_w), np.log(limits_w), row) for row in by_limit])
    lower = caps_w < limits_w[0]
    logs[1, lower] = np.minimum(by_limit[1, 0], np.log(caps_w[lower] - idle_w))
    less = logs[1, lower] - by_limit[1, 0]
    beyond = np.minimum(0.0, less - by_clock[1, 0]) * by_clock[0, 0] / by_clock[1, 0]
    logs[0, lower] = by_limit[0, 0] + np.interp(less, by_clock[1], by_clock[0]) + beyond
    return logs


def uniform(*key: object) -> float:
    """Number in (0, 1) that is the same for the same key in every process."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 0.5) / 2.0**64


def between(low: float, high: float, *key: object) -> float:
    """Number between two others that is the same for the same key in every process."""
    return low + (high - low) * uniform(*key)
