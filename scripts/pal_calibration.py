"""Calibration of some GPUs, drawn from those of the Longhorn cluster that PAL's authors measured.

Source: Jain et al., "PAL", SC 2024; their repository, hal-uw/blox-pal, has the tables (`aggregated_data/sim`). A GPU's
time is the median of its runs, its speed the median of all GPUs' times over that. Only 20 GPUs were measured under all
three applications, so each class is drawn by itself, each measured GPU once: the spread of each class is as measured,
but not the combination of a GPU's speeds.

    python scripts/pal_calibration.py ../shared/data/pal/longhorn --nodes 16x4 > longhorn.csv
    ecoshare simulate TRACE --nodes 16x4 --policy pal --calibration longhorn.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import median

from ecoshare.base.device import SPEED_COLUMNS
from ecoshare.simulation.cluster import GPUS, Cluster, cluster

CLASSES = ("resnet", "bert", "pagerank")
"""Applications of PAL's classes A (computes), B and C (waits for memory)."""

Speeds = dict[str, dict[str, float]]
"""Speeds by device and class."""


def measured(folder: Path, job_class: str) -> list[float]:
    """Speeds of all measured GPUs, relative to the median one."""
    times: dict[str, list[float]] = defaultdict(list)
    with (folder / f"{job_class}-longhorn-agg.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            times[row["uuid"]].append(float(row["perf"]))
    medians = [median(of) for of in times.values()]
    return [median(medians) / each for each in medians]


def draw(folder: Path, where: Cluster, seed: int) -> Speeds:
    """Speeds of each class for each device of a cluster; the same seed gives the same.

    Raises:
        ValueError: Fewer GPUs were measured.
    """
    random, devices = Random(seed), [each.name for each in where.devices()]
    drawn = {each: random.sample(sorted(measured(folder, each)), len(devices)) for each in CLASSES}
    return {device: {each: drawn[each][place] for each in CLASSES} for place, device in enumerate(devices)}


def main() -> None:
    """Print a calibration as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with resnet-longhorn-agg.csv, bert-... and pagerank-...")
    parser.add_argument("--nodes", default="16x4", help="nodes and the GPUs of each; 136 GPUs at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(SPEED_COLUMNS)
    for device, speeds in draw(given.folder, cluster(None, given.nodes, GPUS["v100"]), given.seed).items():
        table.writerows((device, job_class, f"{speed:.4f}") for job_class, speed in speeds.items())


if __name__ == "__main__":
    main()
