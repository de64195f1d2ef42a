#!/usr/bin/env python3
"""The example mix three ways: one after the other, all at once without control, and through ecoshare.

One after the other and all at once run in the user's own environment, all cores each. Ecoshare runs with the policy
that serves each figure: `pack` for the makespan, `srtf` for the mean JCT.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

from benchmarking import ROOT, Figure, main, median, say

EXAMPLES = ROOT / "examples"
MIX = {
    "mlp": (["--epochs", "{n}"], 40, 75),
    "cnn": (["--epochs", "{n}"], 10, 50),
    "vae": (["--epochs", "{n}"], 20, 32),
    "gan": (["--steps", "{n}"], 1000, 2),
    "gnn": (["--epochs", "{n}"], 300, 1),
    "transformer": (["--steps", "{n}"], 360, 1),
}
"""For each example: its arguments, its usual length, and its iterations for each unit of that."""


def commands(share: float) -> dict[str, tuple[list[str], int]]:
    """Arguments and number of iterations of each example at a share of its usual length."""
    mix = {}
    for name, (args, length, each) in MIX.items():
        units = max(1, round(length * share))
        mix[name] = ([arg.format(n=units) for arg in args], units * each)
    return mix


def one_after_the_other(mix: dict[str, tuple[list[str], int]]) -> list[float]:
    """JCT of each, all having arrived at the beginning."""
    began_s = time.monotonic()
    jcts_s = []
    for name, (args, _) in mix.items():
        subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py"), *args], check=True, capture_output=True)
        jcts_s.append(time.monotonic() - began_s)
    return jcts_s


def all_at_once(mix: dict[str, tuple[list[str], int]], limit_s: float) -> list[float] | None:
    """JCT of each; None where they are not done after `limit_s`."""
    began_s = time.monotonic()
    running = {
        subprocess.Popen([sys.executable, str(EXAMPLES / f"{name}.py"), *args], stdout=subprocess.DEVNULL)
        for name, (args, _) in mix.items()
    }
    jcts_s = []
    while running and time.monotonic() - began_s < limit_s:
        for process in [each for each in running if each.poll() is not None]:
            running.remove(process)
            jcts_s.append(time.monotonic() - began_s)
        time.sleep(0.01)
    for process in running:
        process.kill()
        process.wait()
    return None if running else jcts_s


def shared(mix: dict[str, tuple[list[str], int]], policy: str) -> list[float]:
    """JCT of each, and of the whole command as the last."""
    with tempfile.TemporaryDirectory() as name:
        jobs = [
            {"name": job, "script": str(EXAMPLES / f"{job}.py"), "args": args, "iterations": iterations}
            for job, (args, iterations) in mix.items()
        ]
        path = Path(name) / "jobs.yaml"
        path.write_text(json.dumps({"version": 1, "jobs": jobs}))
        line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cpu", "--no-profiles", "--json"]
        line += ["--policy", policy]
        line += ["--jobs-per-lane", str(len(mix)), "--runs", str(Path(name) / "runs")]
        began_s = time.monotonic()
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        whole_s = time.monotonic() - began_s
        assert done.returncode == 0, done.stderr
        finishes_s = [job["finish_s"] for job in json.loads(done.stdout)["jobs"]]
    # The command's own start and end count: its last job is done when it returns.
    return [*sorted(finishes_s)[:-1], whole_s]


def measure(options: argparse.Namespace) -> list[Figure]:
    """All figures."""
    share, rounds = (0.1, 1) if options.quick else (1.0, 2)
    mix = commands(share)
    ways: dict[str, list[list[float]]] = {"in turn": [], "at once": [], "pack": [], "srtf": [], "fair": []}
    for _ in range(rounds):
        ways["in turn"].append(one_after_the_other(mix))
        ways["pack"].append(shared(mix, "pack"))
        ways["srtf"].append(shared(mix, "srtf"))
        ways["fair"].append(shared(mix, "fair"))
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


def _against_better(name: str, ways: dict[str, list[list[float]]], way: str, figure) -> Figure:
    ratios = []
    for number, run in enumerate(ways[way]):
        others = [ways[other][number] for other in ("in turn", "at once") if number < len(ways[other])]
        ratios.append(figure(run) / min(figure(other) for other in others))
    return Figure(name, median(ratios), "x", "<= 1.03")


if __name__ == "__main__":
    main("share", __doc__, measure)
