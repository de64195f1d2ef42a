"""Scripts that use a GPU in different ways: the same parameters alone and shared, and what ecoshare's hooks cost.

Each kind of script runs by itself, and then two copies of each share one lane. Two kinds are timed alone, with and
without ecoshare. A script with long iterations is cut for another one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ecoshare.lane import trace
from scripts.bench.benchmarking import JOBS, Figure, median
from scripts.bench.gpu.shared_run import SharedRun, share
from scripts.bench.job_file import JobEntry

KINDS = {
    "plain": "processor ahead of the GPU",
    "fetches": "15 ms to fetch each batch, in the process itself",
    "scaler": "float16 with a GradScaler",
    "pinned": "two workers, pinned memory",
    "streams": "forward passes in a stream of their own",
    "graph": "replays of a CUDA graph",
    "malloc": "cudaMallocAsync, chosen by the script",
    "visible": "CUDA_VISIBLE_DEVICES, set by the script",
    "compile": "torch.compile",
}
"""Kinds of scripts, in words."""

ON_PROCESSORS = ("plain", "fetches", "pinned")
"""Kinds that run without a GPU, too."""

STEPS = 300
MEASURED = ("plain", "fetches")
"""Kinds of which the cost of ecoshare's hooks is measured."""

_MOST_SLOWER = 1.05
_BOUND_S = 0.5
"""Bound (s) of the longest wait of two jobs in a lane."""


def figures(folder: Path, device: str = "cuda", steps: int = STEPS, rounds: int = 3) -> list[Figure]:
    """Figures of all kinds that can run on a device.

    Args:
        rounds: How often the cost of the hooks is measured: the median counts.
    """
    folder.mkdir()
    words = {kind: [kind, str(steps), device] for kind in (KINDS if device == "cuda" else ON_PROCESSORS)}
    alone = {kind: _alone(args) for kind, args in words.items()}
    found = [
        Figure(f"{kind}: alone", None, "", note=done.stderr.decode(errors="replace")[-200:])
        for kind, done in alone.items()
        if done.returncode
    ]
    run = _shared(folder / "shared", [words[kind] for kind, done in alone.items() if not done.returncode], 2)
    for job in run.summary["jobs"]:
        kind = job["name"].partition("-")[0]
        same = job["state"] == "completed" and run.printed(job["name"]) == alone[kind].stdout
        note = job["error"] or KINDS[kind]
        if not same and _alone(words[kind]).stdout != alone[kind].stdout:
            found.append(Figure(f"{job['name']}: does not repeat alone", None, "", note=note))
            continue
        found.append(Figure(f"{job['name']}: the same parameters as alone", float(same), "", ">= 1", note))
        found.append(Figure(f"{job['name']}: iterations seen", job["iterations"], f"of {steps}", f">= {steps}"))
    found += [_cost(folder / kind, words[kind], rounds) for kind in MEASURED]
    return found + cut_turns(folder / "cut", device, 20 * steps)


def cut_turns(folder: Path, device: str, steps: int) -> list[Figure]:
    """A script with iterations of a second and more beside one with short ones, in one lane.

    Args:
        steps: Iterations of the second one.
    """
    each = [["long", "4", device], ["plain", str(steps), device]]
    run = _shared(folder, each, 1)
    figures = [
        Figure(f"cut: {args[0]}, the same parameters as alone", float(same), "", ">= 1")
        for args in each
        for same in [run.printed(f"{args[0]}-0") == _alone(args).stdout]
    ]
    marks = trace.read(trace.trace_path(run.folder / "jobs" / "plain-0", 1))
    turns = [each for each in marks if each.kind in (trace.Kind.TURN_BEGINS, trace.Kind.TURN_ENDS)][2:]
    waits_s = [begins.at_s - ends.at_s for ends, begins in zip(turns[1::2], turns[2::2], strict=False)]
    note = f"{len(waits_s)} waits after the first turns, in which both prepare"
    return [*figures, Figure("cut: longest wait of plain / bound", max(waits_s) / _BOUND_S, "", "<= 1.1", note)]


def _cost(folder: Path, args: list[str], rounds: int) -> Figure:
    """Time of the loop by itself under ecoshare, against that without: the median of rounds of each, in turns."""
    times: list[tuple[float, float]] = []
    for number in range(rounds):
        run = _shared(Path(f"{folder}-{number}"), [args], 1)
        under_s = _seconds((run.folder / "jobs" / f"{args[0]}-0" / "stderr.log").read_bytes())
        times.append((under_s, _seconds(_alone(args).stderr)))
    under_s, alone_s = (median(each) for each in zip(*times, strict=True))
    note = f"{under_s:.2f} s and {alone_s:.2f} s"
    return Figure(f"{args[0]}: under ecoshare / alone", under_s / alone_s, "", f"<= {_MOST_SLOWER}", note)


def _alone(args: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, str(JOBS / "kind_job.py"), *args], capture_output=True, check=False)


def _shared(folder: Path, each: list[list[str]], copies: int) -> SharedRun:
    script = str(JOBS / "kind_job.py")
    jobs: list[JobEntry] = [
        {"name": f"{args[0]}-{number}", "script": script, "args": args} for args in each for number in range(copies)
    ]
    where = "cpu" if each[0][-1] == "cpu" else "cuda:0"
    lane = ("--lanes", "1", "--jobs-per-lane", str(len(jobs)))
    return share(folder, jobs, "--no-profiles", *lane, "--device", where)


def _seconds(stderr: bytes) -> float:
    return float(stderr.split()[-1])
