"""Pairs of job types that Gavel measured, and what is known of each type alone, for the judge of predicted speeds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ecoshare.knowledge.advisers.interference_model import PairMeasurement, Traits
from ecoshare.simulation.traces.measured_speeds import read, speed_of

GPUS = ("v100", "p100", "k80")
_PROFILED = "log_iteration_s"
"""The only number in Gavel's tables that a profile of a live run has, too."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Table:
    """Measured pairs on a GPU.

    Attributes:
        speeds: Speed of both types of a pair over that alone, by their names in order.
        used: How much of the GPU a type may use, 0 to 1: a stand-in, see `_used`.
    """

    name: str
    traits: dict[str, Traits]
    speeds: dict[Pair, tuple[float, float]]
    used: dict[str, float]

    def seen(self, pairs: Sequence[Pair]) -> list[PairMeasurement]:
        """Both sides of these pairs."""
        both = []
        for one, other in pairs:
            speed, others = self.speeds[one, other]
            both += [PairMeasurement(one, other, speed), PairMeasurement(other, one, others)][
                : 1 if one == other else 2
            ]
        return both

    def profiled(self) -> Table:
        """The same pairs, with only those traits that a profile of a live run has: script and iteration time."""
        traits = {name: Traits(each.family, {_PROFILED: each.numbers[_PROFILED]}) for name, each in self.traits.items()}
        return replace(self, traits=traits)


def table_of(data: Path, file: str, gpu: str) -> Table:
    """The pairs on `gpu` in one of Gavel's two files.

    The numbers of a type are the logarithms of its iteration time, of its batch size, and of its speed on a V100 over
    that on the two other GPUs, which shows whether the GPU or the host limits it.
    """
    path = data / "gavel" / f"{file}_throughputs.json"
    alone = {model: _alone(read(path, model).table) for model in GPUS}
    rows = {_type(key): row for key, row in read(path, gpu).table.items()}
    names = [name for name, speed in alone[gpu].items() if speed]
    speeds = {}
    for one in names:
        for other, pair in ((_type(key), pair) for key, pair in rows[one].items() if key != "null"):
            if other not in names or one > other or not all(pair):
                continue
            # A pair is not faster than alone, but by errors of measuring.
            speeds[one, other] = min(1.0, pair[0] / alone[gpu][one]), min(1.0, pair[1] / alone[gpu][other])
    traits = {name: Traits(script_of(name), _numbers(name, gpu, alone)) for name in names}
    return Table(f"{file} {gpu}", traits, speeds, _used(traits))


def script_of(name: str) -> str:
    """Script of a type: its name without the batch size."""
    return name.partition(" (")[0]


def _alone(rows: Mapping[str, Mapping[str, object]]) -> dict[str, float]:
    """Iterations a second of types that need one GPU; 0 if a pair does not fit."""
    return {name: speed_of(row.get("null")) or 0.0 for key, row in rows.items() if (name := _type(key))}


def _type(key: str) -> str:
    """Name of a type, from `('A3C', 1)` or a bare name; empty for types of more than one GPU."""
    found = re.fullmatch(r"\('(.*)', (\d+)\)", key)
    if found is None:
        return key
    return found[1] if found[2] == "1" else ""


def _numbers(name: str, gpu: str, alone: dict[str, dict[str, float]]) -> dict[str, float]:
    numbers = {_PROFILED: -math.log(alone[gpu][name])}
    batch = re.search(r"batch size (\d+)", name)
    if batch:
        numbers["log_batch"] = math.log(float(batch[1]))
    for other in ("k80", "p100"):
        if alone["v100"].get(name) and alone[other].get(name):
            numbers[f"log_v100_over_{other}"] = math.log(alone["v100"][name] / alone[other][name])
    return numbers


def _used(traits: dict[str, Traits]) -> dict[str, float]:
    """Gain of a type from a V100 over a K80, scaled to 0 for the least and 1 for the most.

    Gavel's tables have no utilisations. A type that uses all of a GPU gains most from a faster one, and a type that
    waits for its host gains nothing. Types without this number are in the middle.
    """
    ratios = {name: each.numbers.get("log_v100_over_k80") for name, each in traits.items()}
    there = [ratio for ratio in ratios.values() if ratio is not None]
    low, high = min(there), max(there)
    return {name: 0.5 if ratio is None else (ratio - low) / (high - low) for name, ratio in ratios.items()}
