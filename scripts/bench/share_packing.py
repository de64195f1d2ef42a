"""Chosen groups of jobs against all jobs beside each other, on the processors: for bench_share.py.

The mix has jobs that keep all processors busy, which slow each other, and jobs that mostly wait, which fit beside any
job (share_job.py). Ways:

* *in turn*: one after the other, as plain processes.
* *blind*: all beside each other from the beginning, as plain processes, without a choice. The operating system does
  the same with jobs that are started at once, and on a GPU the driver's time slices or MPS do.
* *one lane*: ecoshare's turns (`--policy fair`); a job that waits for its data lets the next ones go on.
* *packer*: ecoshare as it runs by default (`--objective energy`), with no profile of any class: windows and measured
  pairs are part of its time.
* *packer, known*: the same once more, by the profiles of that run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from statistics import mean

from scripts.bench.benchmarking import JOBS, Figure, median, say
from scripts.bench.share_ways import Task, all_at_once, one_after_the_other, shared

JOB = JOBS / "share_job.py"

MIX = {
    "busy-wide": ("busy", 1024, 0.0, 300),
    "loads-slowly": ("loads", 256, 4.0, 750),
    "asks-often": ("asks", 256, 20.0, 1_100),
    "busy-narrow": ("busy", 768, 0.0, 700),
    "loads-faster": ("loads", 256, 2.0, 1_400),
    "asks-rarely": ("asks", 256, 40.0, 600),
}
"""Kind, width, waiting time (ms) and steps of each job: for 20 to 30 s alone on two cores."""

QUICK_JOBS, QUICK_SHARE = 2, 0.06

ROUNDS = 3
PACKER = ("--objective", "energy", "--control", "off", "--no-report")
LANE = ("--policy", "fair", "--no-profiles", "--no-report", "--jobs-per-lane")
LIMIT = 2.0
"""Time of `blind` over the time in turn, after which it is given up."""

Ways = dict[str, list[list[float]]]
"""JCTs (s) by way and round; none for a way that was given up."""


def tasks(quick: bool) -> list[Task]:
    """The mix."""
    names = list(MIX)[: QUICK_JOBS if quick else len(MIX)]
    made = []
    for name in names:
        kind, width, wait_ms, steps = MIX[name]
        steps = round(steps * (QUICK_SHARE if quick else 1.0))
        args = [kind, "--width", str(width), "--wait-ms", str(wait_ms), "--steps", str(steps)]
        made.append(Task(name, JOB, args, steps))
    return made


def measure(quick: bool) -> list[Figure]:
    """All figures: times by way, and ratios of ways that ran in the same round."""
    mix = tasks(quick)
    ways: Ways = {"in turn": [], "blind": [], "one lane": [], "packer": [], "packer, known": []}
    for _ in range(1 if quick else ROUNDS):
        # Profiles are of this round: what an earlier one has learned is no part of `packer`.
        with tempfile.TemporaryDirectory() as profiles:
            ways["in turn"].append(one_after_the_other(mix))
            ways["packer"].append(shared(mix, *PACKER, "--profiles", profiles))
            ways["packer, known"].append(shared(mix, *PACKER, "--profiles", profiles))
            ways["one lane"].append(shared(mix, *LANE, str(len(mix))))
            blind = all_at_once(mix, LIMIT * ways["in turn"][-1][-1])
        ways["blind"].append(blind or [])
        say("packing: " + ", ".join(f"{way} {max(each[-1], default=0):.1f} s" for way, each in ways.items()))
    return figures(ways)


def figures(ways: Ways) -> list[Figure]:
    """Medians over rounds, and medians of the ratios of each round."""
    made = []
    for way, rounds in ways.items():
        done = [run for run in rounds if run]
        note = f"{len(done)} of {len(rounds)} rounds"
        made += [
            Figure(f"packing: makespan, {way}", median([max(run) for run in done]) if done else None, "s", note=note),
            Figure(f"packing: mean JCT, {way}", median([mean(run) for run in done]) if done else None, "s", note=note),
        ]
    for ours in ("packer", "packer, known"):
        for other in ("blind", "in turn", "one lane"):
            made += [
                _ratio(f"packing: makespan, {ours} / {other}", _both(ways, ours, other), max),
                _ratio(f"packing: mean JCT, {ours} / {other}", _both(ways, ours, other), mean),
            ]
    return made


def _both(ways: Ways, one: str, other: str) -> list[tuple[list[float], list[float]]]:
    return [(mine, its) for mine, its in zip(ways[one], ways[other], strict=True) if mine and its]


def _ratio(
    name: str, rounds: Sequence[tuple[list[float], list[float]]], figure: Callable[[list[float]], float]
) -> Figure:
    if not rounds:
        return Figure(name, None, "x", note=f"given up in every round, after {LIMIT:g} times the time in turn")
    wanted = "<= 1" if name.endswith("blind") else ""
    return Figure(name, median([figure(mine) / figure(its) for mine, its in rounds]), "x", wanted)
