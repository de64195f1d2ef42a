#!/usr/bin/env python3
"""The example mix three ways: one after the other, all at once without control, and through ecoshare; and packing.

One after the other and all at once run in the user's own environment, all cores each. Ecoshare runs with the policy
that serves each figure: `pack` for the makespan, `srtf` for the mean JCT. There is one lane, so nobody is beside
anybody.

The second mix is one in which it matters who runs beside whom (share_packing.py): jobs that keep all processors busy,
and jobs that mostly wait. *Blind* means there that all of them are started beside each other as plain processes, and
nobody looks who they are; ecoshare chooses groups, once without profiles and once with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import mean

import share_packing
from benchmarking import ROOT, Figure, main, median, say
from share_ways import Task, all_at_once, one_after_the_other, shared

EXAMPLES = ROOT / "examples"
MIX = {
    "mlp": (["--epochs", "{n}"], 40, 75),
    "gnn": (["--epochs", "{n}"], 300, 1),
    "cnn": (["--epochs", "{n}"], 10, 50),
    "vae": (["--epochs", "{n}"], 20, 32),
    "gan": (["--steps", "{n}"], 1000, 2),
    "transformer": (["--steps", "{n}"], 360, 1),
}
"""For each example: its arguments, its usual length, and its iterations for each unit of that."""

QUICK_JOBS, QUICK_SHARE = 2, 0.1
ROUNDS = 2


def tasks(quick: bool) -> list[Task]:
    """The examples, or a part of some of them."""
    made = []
    for name in list(MIX)[: QUICK_JOBS if quick else len(MIX)]:
        args, length, each = MIX[name]
        units = max(1, round(length * (QUICK_SHARE if quick else 1.0)))
        made.append(Task(name, EXAMPLES / f"{name}.py", [arg.format(n=units) for arg in args], units * each))
    return made


def measure(options: argparse.Namespace) -> list[Figure]:
    """All figures, or those of one mix."""
    parts = {"examples": examples, "packing": share_packing.measure}
    chosen = [options.only] if options.only else list(parts)
    return [figure for name in chosen for figure in parts[name](options.quick)]


def examples(quick: bool) -> list[Figure]:
    """Of the example mix."""
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


if __name__ == "__main__":
    main(
        "share",
        __doc__,
        measure,
        lambda parser: parser.add_argument("--only", choices=("examples", "packing"), help="one of the two mixes"),
    )
