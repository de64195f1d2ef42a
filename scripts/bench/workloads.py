"""Jobs that wait for their data, beside one that computes: embeddings over a network, and a graph from the disk.

Each is shared with `examples/cnn.py` four ways: each of them alone, one after the other, both at once without any
choice (two lanes), and by `--objective energy` with the profiles and pairs of an earlier run. All four are runs of
ecoshare, and the start of torch is in each. Outputs are compared with those of the scripts alone. Joules are
modelled from processor time where the machine has no counter.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.benchmarking import ROOT, Figure, Options, keep_to, median, run_benchmark, say
from scripts.bench.job_file import JobEntry, write_jobs

EXAMPLES = ROOT / "examples"
ROUNDS, QUICK_ROUNDS = 3, 1


@dataclass(frozen=True)
class Shared:
    """Outcome of a run.

    Attributes:
        makespan_s: From the first arrival to the last end.
        energy_j: Joules of the device in that time.
        printed: Output of each job.
    """

    makespan_s: float
    energy_j: float
    printed: dict[str, bytes]


def workloads(data: Path, quick: bool) -> dict[str, JobEntry]:
    """Jobs that wait for data, by what the figures call them."""
    dlrm, disk = str(EXAMPLES / "dlrm.py"), str(EXAMPLES / "gnn_disk.py")
    remote = ["--delay", "0.05", "--steps", "30" if quick else "400"]
    embeddings: JobEntry = {"name": "embeddings", "script": dlrm, "args": remote}
    if quick:
        return {"embeddings": embeddings}
    return {
        "embeddings": embeddings,
        "embeddings, cached": {"name": "cached", "script": dlrm, "args": [*remote, "--lookahead", "8"]},
        "graph on disk": {"name": "graph", "script": disk, "args": ["--epochs", "4", "--folder", str(data)]},
    }


def measure(options: Options) -> list[Figure]:
    """All figures."""
    figures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keep_to(folder)
        computes: JobEntry = {
            "name": "cnn",
            "script": str(EXAMPLES / "cnn.py"),
            "args": ["--epochs", "1" if options.quick else "10"],
        }
        for title, job in workloads(folder, options.quick).items():
            alone = {each["name"]: _printed(each) for each in (job, computes)}  # makes the file of the graph, too
            figures += _figures(title, folder, job, computes, alone, QUICK_ROUNDS if options.quick else ROUNDS)
    return figures


def _figures(
    title: str, folder: Path, job: JobEntry, computes: JobEntry, alone: dict[str, bytes], rounds: int
) -> list[Figure]:
    """Figures of one workload, as medians of rounds."""
    _run(folder, [job, computes], "--objective", "energy")  # learns
    times, turns_s, turns_j, blind, same = list[float](), list[float](), list[float](), list[float](), True
    for _ in range(rounds):
        own, other = (_run(folder, [each], "--objective", "energy") for each in (job, computes))
        after = _run(folder, [job, computes], "--policy", "fifo", "--lanes", "1", "--jobs-per-lane", "1")
        at_once = _run(folder, [job, computes], "--policy", "fifo", "--lanes", "2", "--jobs-per-lane", "1")
        shared = _run(folder, [job, computes], "--objective", "energy")
        times.append(shared.makespan_s / max(own.makespan_s, other.makespan_s))
        turns_s.append(shared.makespan_s / after.makespan_s)
        turns_j.append(shared.energy_j / after.energy_j)
        blind.append(shared.makespan_s / at_once.makespan_s)
        same = same and all(each.printed == alone for each in (after, at_once, shared))
        say(
            f"{title}: alone {own.makespan_s:.1f} and {other.makespan_s:.1f} s, one after the other "
            f"{after.makespan_s:.1f} s {after.energy_j:.0f} J, at once {at_once.makespan_s:.1f} s "
            f"{at_once.energy_j:.0f} J, shared {shared.makespan_s:.1f} s {shared.energy_j:.0f} J"
        )
    return [
        Figure(f"{title}: makespan / the longer alone", median(times), "x", "<= 1.15"),
        Figure(f"{title}: makespan / one after the other", median(turns_s), "x"),
        Figure(f"{title}: makespan / all at once", median(blind), "x"),
        Figure(f"{title}: joules / one after the other", median(turns_j), "x", "<= 1"),
        Figure(f"{title}: outputs equal those alone", float(same), "", ">= 1"),
    ]


def _printed(job: JobEntry) -> bytes:
    """Output of a script as a plain process."""
    line = [sys.executable, job["script"], *job.get("args", [])]
    return subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout


def _run(folder: Path, jobs: list[JobEntry], *options: str) -> Shared:
    """Run jobs with profiles and measurements in one folder.

    Raises:
        RuntimeError: The command fails.
    """
    line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, jobs)), "--device", "cpu", "--json"]
    line += ["--no-report", "--runs", str(folder / "runs"), *options]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    told = json.loads(done.stdout)
    outputs = {each["name"]: folder / "runs/latest/jobs" / each["name"] / "stdout.log" for each in jobs}
    return Shared(
        told["makespan_s"], told["energy"]["value_j"], {name: path.read_bytes() for name, path in outputs.items()}
    )


def main() -> None:
    """Run it from the command line."""
    run_benchmark("workloads", __doc__, measure, Options)


if __name__ == "__main__":
    main()
