"""A queue: kills lose nothing that it acknowledged, many clients neither wait nor slow the jobs, and it does not grow.

::

    kills     up --resume ──► jobs are submitted without a pause ──► SIGKILL at a random moment ──► again
              at last: each acknowledged job has completed, and none that had ended has begun again
    clients   a job trains; 50 clients submit, list and follow ──► times of their answers
                            the same seconds without clients   ──► slowdown of the job, as the median of pairs
    growth    small jobs come and go for an hour ──► memory and open files at the end, against those after a tenth
    month     100,000 small jobs ──► memory, open files, log, and the next start; only if it is named: `queue_month.py`

The clients run in one process of their own. It shares the second processor with the controller of the queue, so the
times contain what the clients take to ask. All parts are real: processes, socket, database and log.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ecoshare.api.queue_client import Queue
from ecoshare.errors import EcoshareError
from scripts.bench.benchmarking import Figure, Options, keep_to, median, percentile, run_benchmark, say
from scripts.bench.queue_growth import growth
from scripts.bench.queue_month import JOBS, QUICK_JOBS, month
from scripts.fuzz.commands import nothing_left, token_of
from scripts.fuzz.rounds import Lost
from tests.queue.queues import served
from tests.warm import ROOT, wait_for

KILLS, QUICK_KILLS = 200, 2
CLIENTS, PAIRS, QUICK_PAIRS, WINDOW_S = 50, 8, 1, 5.0
LASTS_S = 2.5
"""Time (s) within which an opened queue is killed."""

NAME = "test"
LANES = ("--lanes", "2")
PARTS = ("kills", "clients", "growth", "month")
GROWTH_MINUTES, QUICK_GROWTH_S = 60.0, 10.0

ONCE = "import sys, time\ntime.sleep(float(sys.argv[1]))\nprint('done')\n"
TRAIN = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    loss = (model(torch.randn(512, 256)) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


class QueueOptions(Options):
    """Options of this benchmark.

    Attributes:
        only: Part to measure; empty for all but `month`.
        jobs: Number of jobs of `month`.
        minutes: Length of `growth`.
    """

    only: str
    jobs: int
    minutes: float


def kills(folder: Path, count: int) -> list[Figure]:
    """Kill the queue so many times while jobs are submitted, and look at what has become of them."""
    dice, acknowledged, tries, refused = random.Random(0), set[str](), 0, 0
    (folder / "once.py").write_text(ONCE)
    runs = folder / "state" / "queues" / NAME / "runs"
    again: set[str] = set()
    left_over: list[str] = []
    for number in range(count):
        with served(folder, *LANES, "--resume") as up:
            until_s = time.monotonic() + dice.uniform(0.0, LASTS_S)
            recorded = _ended_well(runs)
            while time.monotonic() < until_s:
                tries += 1
                length = f"{dice.choice([0.0, 0.0, 0.05, 0.5])}"
                try:
                    acknowledged.update(Queue(NAME).submit([folder / "once.py"], [length]).jobs)
                except EcoshareError:
                    refused += 1
                time.sleep(dice.uniform(0.0, 0.1))
            up.kill()
        again |= _begun_again(runs, recorded)
        with contextlib.suppress(FileNotFoundError):
            try:
                nothing_left(token_of(runs / "latest"), 5.0)
            except Lost as lost:
                left_over.append(f"{lost.finding}: {lost.detail}"[:200])
        say(f"kill {number + 1} of {count}: {len(acknowledged)} jobs acknowledged")
    with served(folder, *LANES, "--resume"):
        ends = {name: Queue(NAME).wait(name)[0] for name in sorted(acknowledged)}
        recorded = _ended_well(runs)
    again |= _begun_again(runs, recorded)
    bad = sorted(name for name, job in ends.items() if job.state != "completed")
    note = f"{len(acknowledged)} jobs acknowledged, {refused} of {tries} submissions refused"
    return [
        Figure("kills", count, "", note=note),
        Figure("acknowledged jobs that did not complete", len(bad), "", "<= 0", ", ".join(bad[:5])),
        Figure("jobs that had ended and began again", len(again), "", "<= 0", ", ".join(sorted(again)[:5])),
        Figure("kills after which something stayed", len(left_over), "", "<= 0", "; ".join(left_over[:2])),
    ]


def _ended_well(runs: Path) -> set[Path]:
    """Exit records of attempts that completed, before anything was started again."""
    found = set()
    for path in runs.glob("[0-9]*/jobs/*/exit-*.json"):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(path.read_text())["outcome"] == "completed":
                found.add(path)
    return found


def _begun_again(runs: Path, recorded: set[Path]) -> set[str]:
    """Names of jobs with an attempt after one that had completed."""
    again = set()
    for path in recorded:
        number = int(path.stem.rpartition("-")[2])
        if (path.with_name(f"exit-{number + 1}.json")).exists() or (
            path.with_name(f"stdout.attempt-{number}.log").exists()
        ):
            again.add(path.parent.name)
    assert all(path.is_relative_to(runs) for path in recorded)
    return again


def clients(folder: Path, pairs: int) -> list[Figure]:
    """Times of answers to many clients, and what they take from a job."""
    (folder / "train.py").write_text(TRAIN)
    (folder / "once.py").write_text(ONCE)
    with served(folder, *LANES):
        queue = Queue(NAME)
        queue.submit([folder / "train.py"], options={"name": "train"})
        wait_for(lambda: queue.job("train").iterations > 20)
        ratios, times_s = [], list[float]()
        for number in range(pairs):
            alone = _rate(queue)
            asking = subprocess.Popen(
                [sys.executable, "-m", "scripts.bench.queue_clients", str(CLIENTS), str(WINDOW_S + 2.0), str(folder)],
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
            time.sleep(1.5)  # they have begun
            beside = _rate(queue)
            told, _ = asking.communicate()
            answers = json.loads(told)
            times_s += answers["times_s"]
            ratios.append(alone / beside)
            p99_s = percentile(answers["times_s"], 0.99)
            count = len(answers["times_s"])
            say(f"pair {number + 1} of {pairs}: {count} answers, p99 {1e3 * p99_s:.0f} ms, {ratios[-1]:.3f}")
        queue.end("now")
    note = f"{CLIENTS} clients, each with a request a second: lists, one job, output, submissions"
    spread = f"of {pairs} pairs, {_spread(ratios)}"
    return [
        Figure("answers", len(times_s), "", note=note),
        Figure("time of an answer, median", 1e3 * percentile(times_s, 0.5), "ms"),
        Figure("time of an answer, p99", 1e3 * percentile(times_s, 0.99), "ms", "<= 50"),
        Figure("slowdown of the job beside them", median(ratios), "", "<= 1.01", spread),
    ]


def _spread(values: list[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


def _rate(queue: Queue) -> float:
    """Iterations per second of the job over a window."""
    before, began_s = queue.job("train").iterations, time.monotonic()
    time.sleep(WINDOW_S)
    return (queue.job("train").iterations - before) / (time.monotonic() - began_s)


def measure(options: QueueOptions) -> list[Figure]:
    """All figures."""
    found: list[Figure] = []
    for part in PARTS:
        if part != (options.only or part) or (part == "month" and not options.only):
            continue
        with tempfile.TemporaryDirectory(prefix=f"bench-queue-{part}-") as name:
            keep_to(Path(name))
            if part == "month":
                found += month(Path(name), QUICK_JOBS if options.quick else options.jobs)
            elif part == "kills":
                found += kills(Path(name), QUICK_KILLS if options.quick else KILLS)
            elif part == "growth":
                found += growth(Path(name), NAME, QUICK_GROWTH_S if options.quick else 60.0 * options.minutes, LANES)
            else:
                found += clients(Path(name), QUICK_PAIRS if options.quick else PAIRS)
    return found


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=PARTS, default="", help="measure this part alone")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs of `month`, a multiple of 1,000")
    parser.add_argument("--minutes", type=float, default=GROWTH_MINUTES, help="length of `growth`")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("queue", __doc__, measure, QueueOptions, _options)
