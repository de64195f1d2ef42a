#!/usr/bin/env python3
"""Hundreds of small trials: Ray Tune, Optuna's threads, joblib's processes, and ecoshare; makespan and peak memory.

The same 300 trials of three small models (as in Salus' experiment, Yu and Chowdhury, MLSys 2020, 5.2), two at a time,
each with one thread: long ones of 500 iterations, and short ones of 20; `ecoshare-fused` has them in shared processes.
Losses are compared with those that joblib's processes give, to the bit.
"""

from __future__ import annotations

import argparse

from benchmarking import Figure, main, say
from sweep_ways import needs, run

WAYS = ("ray", "optuna", "joblib", "ecoshare", "ecoshare-fused")
SIZES = {"short": (300, 20), "long": (300, 500)}
QUICK = {"short": (24, 20), "long": (6, 500)}


def measure(options: argparse.Namespace) -> list[Figure]:
    """All figures."""
    figures = []
    sizes = QUICK if options.quick else SIZES
    for size in options.size or (["short"] if options.quick else sizes):
        figures += _size(size, *sizes[size])
    return figures


def _size(size: str, trials: int, iterations: int) -> list[Figure]:
    figures, wall_s, losses = [], {}, {}
    for way in WAYS:
        if missing := needs(way):
            figures.append(Figure(f"{size}: makespan, {way}", None, "s", note=f"{missing} is not installed"))
            continue
        spent = run(way, trials, iterations)
        losses[way], wall_s[way] = spent.losses, spent.wall_s
        say(f"{size}, {way}: {spent.wall_s:.1f} s, {spent.peak_bytes / 2**20:.0f} MiB")
        figures.append(Figure(f"{size}: makespan, {way}", spent.wall_s, "s", note=f"{trials} trials"))
        figures.append(Figure(f"{size}: peak memory, {way}", spent.peak_bytes / 2**20, "MiB"))
    for way in losses if "joblib" in losses else ():
        others = sum(one != other for one, other in zip(losses[way], losses["joblib"], strict=True))
        wanted_of = "<= 0" if way.startswith("ecoshare") else ""
        figures.append(Figure(f"{size}: losses other than joblib's, {way}", float(others), "", wanted_of))
    wanted = {"ray": ">= 10" if size == "short" else ">= 1.3", "joblib": ">= 1"}
    for own in ("ecoshare", "ecoshare-fused"):
        for other in ("ray", "optuna", "joblib"):
            if other in wall_s:
                ratio = wall_s[other] / wall_s[own]
                figures.append(Figure(f"{size}: {other} / {own}", ratio, "x", wanted.get(other, "")))
    return figures


def more(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--size", choices=SIZES, action="append", help="only these; both, but short with --quick")


if __name__ == "__main__":
    main("sweep", __doc__, measure, more)
