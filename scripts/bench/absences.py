"""Jobs that leave their turn to load data, in one lane with plain jobs that never do (policy `fair`).

The job with the loader gets a batch every 10 ms from two workers, and does some 5 ms of work with it. A plain job has
iterations of the same work. Alone is an ordinary process, measured before each shared run; figures are medians of
rounds. The job waits for its data for as long as it computes. It should get in at the next boundary of a plain job once
its batch is there, and no wait should exceed the bound of the lane.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ecoshare.core.turns import WAIT_PER_JOB_S
from scripts.bench.benchmarking import JOBS, Figure, Options, median, run_benchmark, say
from scripts.bench.job_file import JobEntry, write_jobs

JOB = JOBS / "absences_job.py"
STEPS, QUICK_STEPS = 150, 60
FETCH_MS, WORK = 20, 400
ROUNDS = 3


@dataclass(frozen=True)
class Sharing:
    """Result of a shared run.

    Attributes:
        slowdown: Time of an iteration of the loader's job over that alone.
        held_s: Time (s) with the turn, of the loader's job.
        plain_held_s: Time (s) with the turn of all plain jobs.
        plain_iterations: Iterations of all plain jobs, for each of the loader's job.
        longest_wait_s: Longest wait (s) of any job for the turn.
    """

    slowdown: float
    held_s: float
    plain_held_s: float
    plain_iterations: float
    longest_wait_s: float


def measure(options: Options) -> list[Figure]:
    """All figures."""
    figures, steps = [], QUICK_STEPS if options.quick else STEPS
    for plain in (1,) if options.quick else (1, 2):
        rounds = [shared(plain, steps) for _ in range(1 if options.quick else ROUNDS)]
        name, bound_s = f"beside {plain} plain", (plain + 1) * WAIT_PER_JOB_S
        note = ", ".join(f"{each.slowdown:.2f}" for each in rounds)
        figures += [
            Figure(f"slowdown of the loader's job, {name}", median([each.slowdown for each in rounds]), "x", note=note),
            Figure(f"plain iterations for each of its, {name}", median([each.plain_iterations for each in rounds]), ""),
            Figure(f"time held by plain jobs / by it, {name}", median([_held(each) for each in rounds]), "x"),
            Figure(f"longest wait, {name}", max(each.longest_wait_s for each in rounds), "s", f"<= {bound_s}"),
        ]
    return figures


def shared(plain: int, steps: int) -> Sharing:
    """One run beside this many plain jobs, and the loader's job alone right before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = folder / "done"
        loads = ["loads", str(steps), str(FETCH_MS), str(WORK), str(done)]
        alone = subprocess.run([sys.executable, str(JOB), *loads], capture_output=True, text=True, check=True)
        done.unlink()
        jobs: list[JobEntry] = [{"name": "loads", "script": str(JOB), "args": loads}]
        jobs += [
            {"name": f"plain{number}", "script": str(JOB), "args": ["trains", str(WORK), str(done)]}
            for number in range(plain)
        ]
        line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, jobs)), "--device", "cpu", "--json"]
        line += ["--policy", "fair", "--lanes", "1", "--jobs-per-lane", str(plain + 1), "--no-profiles"]
        line += ["--runs", str(folder / "runs")]
        run = subprocess.run(line, capture_output=True, text=True, check=True)
        found = {each["name"]: each for each in json.loads(run.stdout)["jobs"]}
        own, others = found["loads"], [each for name, each in found.items() if name != "loads"]
        printed = (folder / "runs" / "latest" / "jobs" / "loads" / "stdout.log").read_text()
        result = Sharing(
            slowdown=float(printed.split()[-1]) / float(alone.stdout.split()[-1]),
            held_s=own["held_s"],
            plain_held_s=sum(each["held_s"] for each in others),
            plain_iterations=sum(each["iterations"] for each in others) / steps,
            longest_wait_s=max(each["longest_wait_s"] for each in found.values()),
        )
        say(f"beside {plain} plain: {result}")
        return result


def _held(each: Sharing) -> float:
    return each.plain_held_s / each.held_s


def main() -> None:
    """Run it from the command line."""
    run_benchmark("absences", __doc__, measure, Options)


if __name__ == "__main__":
    main()
