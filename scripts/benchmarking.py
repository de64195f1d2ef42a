"""What all benchmarks share: their options, the machine's facts, and the form of their figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Figure:
    """One measured number, and what was wanted of it.

    Attributes:
        value: None where it could not be measured; `note` says why.
        wanted: Such as `<= 50`; empty where nothing was.
    """

    name: str
    value: float | None
    unit: str
    wanted: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the value is as wanted; None where nothing was wanted or measured."""
        if not self.wanted or self.value is None:
            return None
        sign, bound = self.wanted.split()
        return self.value <= float(bound) if sign == "<=" else self.value >= float(bound)


def main(
    name: str,
    about: str | None,
    measure: Callable[[argparse.Namespace], list[Figure]],
    more: Callable[[argparse.ArgumentParser], None] = lambda _parser: None,
) -> None:
    """Run a benchmark from the command line and print its figures.

    Args:
        more: Adds options of its own.
    """
    parser = argparse.ArgumentParser(prog=f"scripts/bench_{name}.py", description=(about or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a part of it, under 50 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, and nothing else")
    more(parser)
    options = parser.parse_args()
    figures = measure(options)
    if options.json:
        result = {"bench": name, "machine": machine(), "quick": options.quick}
        print(json.dumps({**result, "figures": [{**asdict(each), "met": each.met} for each in figures]}, indent=1))
        return
    width = max(len(each.name) for each in figures)
    for each in figures:
        value = "      -" if each.value is None else f"{each.value:7.4g}"
        verdict = {True: "met", False: "NOT met", None: ""}[each.met]
        print(f"{each.name:{width}}  {value} {each.unit:5} {each.wanted:9} {verdict:8} {each.note}".rstrip())


def machine() -> dict[str, Any]:
    """Facts that a figure means nothing without."""
    from ecoshare.hardware import devices

    device = devices.processors()
    versions = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
    )
    return {
        "processor": device.model,
        "cores": device.cores,
        "load": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": versions.stdout.strip(),
    }


def say(text: str) -> None:
    """A word on progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def median(values: list[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of them lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
