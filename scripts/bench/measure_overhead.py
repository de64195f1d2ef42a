"""Cost of measuring for the measured jobs. The module is a part of bench_measure.py; alone it is `scripts/overhead.py`.

Meters: the controller reads them. It is stopped and continued every few seconds while two jobs train in one lane; the
jobs do not need it meanwhile, so their rates with and without it compare. The figure includes all other work of the
controller, and so is an upper bound on the cost of the meters.

Windows: a script is run until a little after its class has been measured. The first iterations of the window, in which
memory is observed, count in full. The others count by their median, against the median just before and after the
window: the machine has pauses of its own, and changes its speed, by many times the cost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ecoshare.core.commands import ProfileJob
from ecoshare.core.events import Profiled
from ecoshare.lane import trace
from ecoshare.lane.processes import processor_s
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.record import event_log
from scripts.bench.benchmarking import JOBS, ROOT, Figure, Options, median, run_benchmark, say
from scripts.bench.job_file import JobEntry, write_jobs

JOB = JOBS / "turns_job.py"
BESIDE_S = 1.5
HEAD = 16


EXAMPLES = {name: ["--epochs", "100000"] for name in ("mlp", "cnn", "vae")}
EXAMPLES |= {name: ["--steps", "1000000"] for name in ("gan", "transformer")}


def measure(options: Options) -> list[Figure]:
    """All figures, of the meters and of the windows."""
    say("what measuring costs: no other work should be on this machine now")
    figures = meters(5 if options.quick else 80, 2.0)
    return figures + windows({"cnn": EXAMPLES["cnn"]} if options.quick else EXAMPLES, 1 if options.quick else 5)


@contextmanager
def _run(jobs: Sequence[JobEntry], *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run under way, and its folder; it is stopped at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, jobs)), "--device", "cpu"]
        line += ["--no-report", "--policy", "fair"]
        process = subprocess.Popen(
            [*line, "--runs", str(folder / "runs"), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # more of them than free cores make times jump
        )
        try:
            yield process, folder / "runs" / "latest"
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def _table(folder: Path, jobs: int) -> LaneTable:
    """The table of lane 0, once all jobs are iterating."""
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        time.sleep(0.1)
        try:
            table = LaneTable(Path(json.loads((folder / "environment.json").read_text())["shared"]) / "lane0")
        except (OSError, KeyError, ValueError):
            continue
        if sum(slot.iterations > 20 for slot in table.slots) == jobs:
            return table
    raise SystemExit("the run does not go on")


def meters(pairs: int, each_s: float) -> list[Figure]:
    """Rate of iterations with the controller stopped, over the rate with it at work, less one."""
    jobs: list[JobEntry] = [{"name": f"j{n}", "script": str(JOB), "args": ["--layers", "4"]} for n in range(2)]
    ratios = []
    with _run(jobs, "--no-profiles") as (process, folder):
        table = _table(folder, len(jobs))

        def iterations() -> int:
            return sum(int(slot.iterations) for slot in table.slots)

        def rate() -> float:
            began, began_s = iterations(), time.monotonic()
            time.sleep(each_s)
            return (iterations() - began) / (time.monotonic() - began_s)

        began_s, spent_s = time.monotonic(), processor_s([process.pid])
        time.sleep(5 * each_s)
        spent = (processor_s([process.pid]) - spent_s) / (time.monotonic() - began_s)
        for pair in range(pairs):
            rates = {}
            for stopped in (pair % 2 == 0, pair % 2 == 1):  # the order changes: the machine drifts
                process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
                rates[stopped] = rate()
            process.send_signal(signal.SIGCONT)
            ratios.append(rates[True] / rates[False] - 1.0)
            say(f"meters: pair {pair + 1} of {pairs}: {100 * ratios[-1]:+.2f} %")
    spread = sorted(ratios)[len(ratios) // 4], sorted(ratios)[3 * len(ratios) // 4]
    note = f"{pairs} pairs of {each_s:.0f} s, quartiles {spread[0]:+.3f} to {spread[1]:+.3f}"
    return [
        Figure("controller with its meters over none", median(ratios), "", "<= 0.005", note),
        Figure("processor time of the controller", spent, "cores", note="over the time that it was left alone"),
    ]


def windows(scripts: dict[str, list[str]], times: int) -> list[Figure]:
    """Relative increase of a script's iteration time over a whole window, as the median of some runs."""
    figures = []
    for name, args in scripts.items():
        known = [each for _ in range(times) if (each := _window(name, args)) is not None]
        note = f"{len(known)} windows, {min(known, default=0.0):+.3f} to {max(known, default=0.0):+.3f}"
        figures.append(Figure(f"profiling window of {name}", median(known) if known else None, "", "<= 0.03", note))
    return figures


def _window(name: str, args: list[str]) -> float | None:
    job: JobEntry = {"name": name, "script": str(ROOT / "examples" / f"{name}.py"), "args": args}
    with tempfile.TemporaryDirectory() as store, _run([job], "--profiles", store) as (process, folder):
        end_s = time.monotonic() + 90.0
        while not (found := [each for each in _entries(folder) if isinstance(each, Profiled)]):
            if time.monotonic() > end_s:
                return None
            time.sleep(0.2)
        time.sleep(BESIDE_S)
        _end(process)  # the trace is whole then
        entries = _entries(folder)
        ended = found[0]
        if ended.error:
            say(f"{name}: {ended.error}")
            return None
        place = next(index for index, each in enumerate(entries) if isinstance(each, ProfileJob))
        began_s = next(each.at_s for each in reversed(entries[:place]) if hasattr(each, "at_s"))
        marks = trace.read(trace.trace_path(folder / "jobs" / name, 1))
        each = [one for one in trace.iterations(marks) if one.kind is trace.Kind.TRAIN]
        inside = [one.to_s - one.from_s for one in each if one.from_s >= began_s and one.to_s <= ended.at_s]
        before = [one.to_s - one.from_s for one in each if began_s - BESIDE_S < one.from_s and one.to_s < began_s]
        after = [one.to_s - one.from_s for one in each if ended.at_s < one.from_s < ended.at_s + BESIDE_S]
        head, rest = inside[:HEAD], inside[HEAD:]
        plain = (median(before) + median(after)) / 2
        overhead = (sum(each - plain for each in head) + len(rest) * (median(rest) - plain)) / (len(inside) * plain)
        say(f"{name}: {len(inside)} iterations inside, {len(before)} and {len(after)} beside: {100 * overhead:+.2f} %")
        return overhead


def _entries(folder: Path) -> list[object]:
    path = folder / "events.jsonl"
    return list(event_log.read(path)) if path.exists() else []


def main() -> None:
    """Run it from the command line."""
    run_benchmark("overhead", __doc__, measure, Options, script="overhead.py")


if __name__ == "__main__":
    main()
