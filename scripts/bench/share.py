"""The example mix three ways: one after the other, all at once without control, and through ecoshare; and packing.

One after the other and all at once run in the user's own environment, all cores each. Ecoshare runs with the policy
that serves each figure: `pack` for the makespan, `srtf` for the mean JCT. There is one lane, so no job
runs beside another.

In the second mix the choice of neighbours matters (share_packing.py): it has jobs that keep all processors busy, and
jobs that mostly wait. *Blind* starts all of them beside each other as plain processes. Ecoshare chooses groups, once
without profiles and once with them.

The third part has several runs at once, which take turns (share_runs.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import mean

from scripts.bench import share_packing, share_runs
from scripts.bench.benchmarking import ROOT, Figure, Options, median, run_benchmark, say
from scripts.bench.share_ways import Task, all_at_once, one_after_the_other, shared

EXAMPLES = ROOT / "examples"
MIX = {
    "mlp": (["--epochs", "{n}"], 40, 75),
    "gnn": (["--epochs", "{n}"], 300, 1),
    "cnn": (["--epochs", "{n}"], 10, 50),
    "vae": (["--epochs", "{n}"], 20, 32),
    "gan": (["--steps", "{n}"], 1000, 2),
    "transformer": (["--steps", "{n}"], 360, 1),
}
"""Arguments of each example, its usual length, and its iterations for each unit of that length."""

QUICK_JOBS, QUICK_SHARE = 2, 0.1
ROUNDS = 2


class ShareOptions(Options):
    """Options of this benchmark.

    Attributes:
        only: The part to run, `examples`, `packing` or `runs`; None for all.
    """

    only: str | None


def tasks(quick: bool) -> list[Task]:
    """The examples, or a part of some of them."""
    made = []
    for name in list(MIX)[: QUICK_JOBS if quick else len(MIX)]:
        args, length, each = MIX[name]
        units = max(1, round(length * (QUICK_SHARE if quick else 1.0)))
        made.append(Task(name, EXAMPLES / f"{name}.py", [arg.format(n=units) for arg in args], units * each))
    return made


def measure(options: ShareOptions) -> list[Figure]:
    """All figures, or those of one part."""
    parts = {"examples": examples, "packing": share_packing.measure, "runs": share_runs.measure}
    chosen = [options.only] if options.only else list(parts)[: 2 if options.quick else 3]
    return [figure for name in chosen for figure in parts[name](options.quick)]


def examples(quick: bool) -> list[Figure]:
    """Figures of the example mix."""
    mix = tasks(quick)
    policies = ("pack", "srtf") if quick else ("pack", "srtf", "fair")
    ways: dict[str, list[list[float]]] = {way: [] for way in ("in turn", "at once", *policies)}
    for _ in range(1 if quick else ROUNDS):
        ways["in turn"].append(one_after_the_other(mix))
        for policy in policies:
            ways[policy].append(shared(mix, "--policy", policy, "--no-profiles", "--jobs-per-lane", str(len(mix))))
        if (jcts_s := all_at_once(mix, limit_s := 2 * ways["in turn"][-1][-1])) is not None:
            ways["at once"].append(jcts_s)
        say(", ".join(f"{way} {max(each[-1]):.1f} s" for way, each in ways.items() if each))
    figures = []
    for way, runs in ways.items():
        note = "" if runs else f"not done after {limit_s:.0f} s"
        figures.append(Figure(f"makespan, {way}", median([max(run) for run in runs]) if runs else None, "s", note=note))
        figures.append(
            Figure(f"mean JCT, {way}", median([mean(run) for run in runs]) if runs else None, "s", note=note)
        )
    figures.append(_against_better("makespan, pack / the better", ways, "pack", max))
    figures.append(_against_better("mean JCT, srtf / the better", ways, "srtf", mean))
    return figures


def _against_better(
    name: str, ways: dict[str, list[list[float]]], way: str, figure: Callable[[list[float]], float]
) -> Figure:
    ratios = []
    for number, run in enumerate(ways[way]):
        others = [ways[other][number] for other in ("in turn", "at once") if number < len(ways[other])]
        ratios.append(figure(run) / min(figure(other) for other in others))
    return Figure(name, median(ratios), "x", "<= 1.03")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=("examples", "packing", "runs"), help="one part")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("share", __doc__, measure, ShareOptions, _add_options)


if __name__ == "__main__":
    main()
