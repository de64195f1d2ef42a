"""Options, machine facts and figures, as all benchmarks share them.

A benchmark is a module with a function that measures and a `main` that hands it to `run_benchmark`:

    class ManyOptions(Options):
        iterations: int

    def measure(options: ManyOptions) -> list[Figure]: ...

    def main() -> None:
        run_benchmark("many", __doc__, measure, ManyOptions, add_options)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"
"""Folder of the training scripts that benchmarks start by path."""


class Options(argparse.Namespace):
    """Options of every benchmark; a benchmark with options of its own declares them in a subclass."""

    quick: bool
    json: bool


class DataOptions(Options):
    """Options of a benchmark that reads measured tables or traces.

    Attributes:
        data: Folder of the tables; None if it was not given.
    """

    data: Path | None


Given = TypeVar("Given", bound=Options)


@dataclass(frozen=True)
class Figure:
    """One measured number, and the bound that it should keep.

    Attributes:
        value: None if it could not be measured; `note` says why.
        wanted: Bound such as `<= 50`; empty if there is none.
    """

    name: str
    value: float | None
    unit: str
    wanted: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the value keeps its bound; None without a bound or a value."""
        if not self.wanted or self.value is None:
            return None
        sign, bound = self.wanted.split()
        return self.value <= float(bound) if sign == "<=" else self.value >= float(bound)


@dataclass(frozen=True)
class Machine:
    """Machine on which figures were measured.

    Attributes:
        load: Mean number of runnable processes in the last minute.
    """

    processor: str
    cores: int
    load: float
    platform: str
    python: str
    torch: str


def keep_to(folder: Path) -> None:
    """Let ecoshare keep profiles and state in a folder, never in those of the user, and take the machine for quiet."""
    for name in ("profiles", "state"):
        (folder / name).mkdir()
        os.environ[f"ECOSHARE_{name.upper()}"] = str(folder / name)
    os.environ["ECOSHARE_ASSUME_QUIET"] = "1"


def run_benchmark(
    name: str,
    about: str | None,
    measure: Callable[[Given], list[Figure]],
    options: type[Given],
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _parser: None,
    script: str = "",
) -> None:
    """Run a benchmark from the command line and print its figures.

    Args:
        options: Class of the parsed options.
        add_options: Adds the benchmark's own options to the parser.
        script: Name of its command in scripts/; empty for `bench_NAME.py`.
    """
    program = f"scripts/{script or f'bench_{name}.py'}"
    parser = argparse.ArgumentParser(prog=program, description=(about or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a part of it, under 50 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, and nothing else")
    add_options(parser)
    given = parser.parse_args(namespace=options())
    figures = measure(given)
    if given.json:
        result = {"bench": name, "machine": asdict(machine()), "quick": given.quick}
        print(json.dumps({**result, "figures": [{**asdict(each), "met": each.met} for each in figures]}, indent=1))
        return
    width = max(len(each.name) for each in figures)
    for each in figures:
        value = "      -" if each.value is None else f"{each.value:7.4g}"
        verdict = {True: "met", False: "NOT met", None: ""}[each.met]
        print(f"{each.name:{width}}  {value} {each.unit:5} {each.wanted:9} {verdict:8} {each.note}".rstrip())


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add `--data DIR`, the option of `DataOptions`."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the measured tables and traces")


def machine() -> Machine:
    """Present machine; a figure means nothing without it."""
    from ecoshare.devices import registry

    device = registry.processors()
    versions = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
    )
    return Machine(
        processor=device.model,
        cores=device.cores,
        load=os.getloadavg()[0],
        platform=platform.platform(),
        python=platform.python_version(),
        torch=versions.stdout.strip(),
    )


def say(text: str) -> None:
    """Print a line on progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def children_s() -> float:
    """Processor time (s) of all processes that this one has waited for, and of those that they have waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Quantile: the value below which a part `share` of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
