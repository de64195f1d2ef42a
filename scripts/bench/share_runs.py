"""Several runs at once on the same processors: shares, losses between slices, the start of one that comes later.

Each run is a real `ecoshare run` with two jobs in one lane, which write when each iteration ended. All runs are those
of one user: the shares of users follow from the same rule, which tests play in virtual time
(`tests/core/test_slices.py`).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.benchmarking import JOBS, Figure, median, say
from scripts.bench.job_file import JobEntry, write_jobs

WINDOW_S, QUICK_WINDOW_S = 24.0, 4.0
"""Time (s) for each run in which iterations are counted: a whole number of its slices."""

_STARTS_S = 6.0
"""Time (s) for all runs to load torch."""


class OneRun:
    """A run with two jobs in one lane, started now."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """Start the command; its jobs train for so long."""
        folder.mkdir()
        self._files = [folder / f"times{number}" for number in range(2)]
        jobs: list[JobEntry] = [
            {"name": f"job{number}", "script": str(JOBS / "timed_job.py"), "args": [str(seconds), str(path)]}
            for number, path in enumerate(self._files)
        ]
        line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, jobs)), "--device", "cpu"]
        line += ["--no-profiles", "--lanes", "1", "--policy", "fair", "--control", "off", "--json"]
        environment = {**os.environ, "ECOSHARE_STATE": str(folder.parent)}
        self.began_s = time.monotonic()
        self._process = subprocess.Popen(
            [*line, "--runs", str(folder / "runs")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def first_s(self) -> float:
        """Time (s) from the command to the end of the first iteration."""
        while not (times := self.times()):
            assert self._process.poll() is None, "the run has ended without an iteration"
            time.sleep(0.02)
        return times[0] - self.began_s

    def wait(self) -> None:
        """Wait for the end."""
        assert self._process.wait() == 0, "the run has failed"

    def times(self) -> list[float]:
        """Times (s, monotonic) of the ends of all iterations so far, sorted."""
        found = [path.read_text().rpartition("\n")[0].split() for path in self._files if path.exists()]
        return sorted(float(each) for each in itertools.chain.from_iterable(found))


def measure(quick: bool) -> list[Figure]:
    """All figures."""
    window_s = QUICK_WINDOW_S if quick else WINDOW_S
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-runs-") as name:
        folder = Path(name)
        rate, first_s = _alone(folder, window_s)
        for count in (2,) if quick else (2, 4):
            done = _together(folder, count, count * window_s)
            after, _ = _alone(folder, window_s)
            figures += _figures(done, count * window_s, (rate + after) / 2)
            rate = after
        return figures if quick else figures + _short(folder, first_s, 5)


def _alone(folder: Path, window_s: float) -> tuple[float, float]:
    """Iterations a second of one run alone, and the time (s) to its first."""
    run = OneRun(Path(tempfile.mkdtemp(dir=folder)) / "run", _STARTS_S + window_s)
    first_s = run.first_s()
    run.wait()
    times = run.times()
    until_s = times[-1] - 1.0
    from_s = until_s - window_s
    return (bisect_left(times, until_s) - bisect_left(times, from_s)) / window_s, first_s


def _together(folder: Path, count: int, window_s: float) -> list[int]:
    """Iterations of some runs at once in a window (s)."""
    place = Path(tempfile.mkdtemp(dir=folder))
    runs = [OneRun(place / f"run{number}", 2.0 * _STARTS_S + window_s) for number in range(count)]
    for each in runs:
        each.first_s()
    from_s = time.monotonic()
    for each in runs:
        each.wait()
    return [
        bisect_left(times, from_s + window_s) - bisect_left(times, from_s) for times in (each.times() for each in runs)
    ]


def _figures(done: Sequence[int], window_s: float, rate: float) -> list[Figure]:
    """Shares of some runs, and their iterations against those of one run alone in that time, before and after."""
    count = len(done)
    shares = [count * each / sum(done) for each in done]
    whole = sum(done) / window_s / rate
    told = [round(each, 3) for each in shares]
    say(f"{count} runs: shares {told}, together / alone {whole:.3f} ({rate:.1f} a second)")
    return [
        Figure(f"{count} runs: least share / fair", min(shares), "", ">= 0.97"),
        Figure(f"{count} runs: largest share / fair", max(shares), "", "<= 1.03"),
        Figure(f"{count} runs: iterations together / in turn", whole, "", ">= 0.97", f"alone {rate:.1f} a second"),
    ]


def _short(folder: Path, alone_s: float, rounds: int) -> list[Figure]:
    """Time to the first iteration of a run that comes to a long one, beyond that on free processors."""
    over_s = []
    place = Path(tempfile.mkdtemp(dir=folder))
    long = OneRun(place / "long", 6.0 + 8.0 * rounds)
    long.first_s()
    for number in range(rounds):
        time.sleep(1.0 + 0.37 * number)
        short = OneRun(place / f"short{number}", 1.0)
        over_s.append(short.first_s() - alone_s)
        short.wait()
    long.wait()
    say(f"a short run begins {[round(each, 2) for each in over_s]} s later than on free processors ({alone_s:.2f} s)")
    return [Figure("short run: first iteration later than on free processors", median(over_s), "s", "<= 2")]
