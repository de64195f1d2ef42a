"""Hundreds of small trials: Ray Tune, Optuna's threads, joblib's processes, and ecoshare.

The figures are makespan, processor time and peak memory. Each tool runs the same 300 trials of three small models (as
in Salus' experiment, Yu and Chowdhury, MLSys 2020, 5.2), two at a time, each with one thread: long ones of 500
iterations, and short ones of 20; `ecoshare-fused` has them in shared processes. Losses are compared with those of
joblib's processes, to the bit.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from scripts.bench.benchmarking import Figure, Options, median, run_benchmark, say
from scripts.bench.sweep_ways import Spent, needs, run

WAYS = ("ray", "optuna", "joblib", "ecoshare", "ecoshare-fused")
SIZES = {"short": (300, 20), "long": (300, 500)}
QUICK = {"short": (9, 20), "long": (6, 500)}


class SweepOptions(Options):
    """Options of this benchmark.

    Attributes:
        size: Sizes of trials, keys of `SIZES`; None for all.
        way: Ways to run them, of `WAYS`; None for all.
        rounds: Number of times that each way is run, in turn.
    """

    size: list[str] | None
    way: list[str] | None
    rounds: int


def measure(options: SweepOptions) -> list[Figure]:
    """All figures."""
    figures = []
    sizes = QUICK if options.quick else SIZES
    for size in options.size or (["short"] if options.quick else sizes):
        figures += _size(size, *sizes[size], options.way or WAYS, options.rounds)
    return figures


def _size(size: str, trials: int, iterations: int, ways: Sequence[str], rounds: int) -> list[Figure]:
    figures = []
    spent: dict[str, list[Spent]] = {}
    for way in ways:
        if missing := needs(way):
            figures.append(Figure(f"{size}: makespan, {way}", None, "s", note=f"{missing} is not installed"))
        else:
            spent[way] = []
    for way in rounds * list(spent):
        one = run(way, trials, iterations)
        spent[way].append(one)
        processor = f"{one.processor_s:.1f} s of processors"
        say(f"{size}, {way}: {one.wall_s:.1f} s, {processor}, {one.peak_bytes / 2**20:.0f} MiB")
    note = f"{trials} trials" if rounds == 1 else f"{trials} trials; median of {rounds} rounds in turn"
    wall_s = {way: median([each.wall_s for each in all_of]) for way, all_of in spent.items()}
    for way, all_of in spent.items():
        figures.append(Figure(f"{size}: makespan, {way}", wall_s[way], "s", note=note))
        processor_s = median([each.processor_s for each in all_of])
        figures.append(Figure(f"{size}: processor time, {way}", processor_s, "s"))
        peak_bytes = max(each.peak_bytes for each in all_of)
        figures.append(Figure(f"{size}: peak memory, {way}", peak_bytes / 2**20, "MiB"))
    for way, all_of in spent.items() if "joblib" in spent else ():
        pairs = [zip(each.losses, spent["joblib"][0].losses, strict=True) for each in all_of]
        others = sum(one != other for pair in pairs for one, other in pair)
        wanted_of = "<= 0" if way.startswith("ecoshare") else ""
        figures.append(Figure(f"{size}: losses other than joblib's, {way}", float(others), "", wanted_of))
    wanted = {"ray": ">= 10" if size == "short" else ">= 1.3", "joblib": ">= 1"}
    for own in ("ecoshare", "ecoshare-fused"):
        for other in ("ray", "optuna", "joblib"):
            if own in wall_s and other in wall_s:
                ratio = wall_s[other] / wall_s[own]
                figures.append(Figure(f"{size}: {other} / {own}", ratio, "x", wanted.get(other, "")))
    return figures


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=SIZES, action="append", help="only these; both, but short with --quick")
    parser.add_argument("--way", choices=WAYS, action="append", help="only these")
    parser.add_argument("--rounds", type=int, default=1, help="times that each way is run, in turn")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("sweep", __doc__, measure, SweepOptions, _add_options)


if __name__ == "__main__":
    main()
