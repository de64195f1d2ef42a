"""Ranks that never call `set_device`: they name their GPU in each call, and the first one is the current one of all.

Two gangs of the same script share their lanes. Each rank has to be paced, drained and limited on its own GPU: on the
first one, the processor would run far ahead, and each rank would have a context there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ecoshare.lane.supervisor.gang import folder_of
from scripts.bench.benchmarking import JOBS, Figure
from scripts.bench.gang_turns import turns
from scripts.bench.gpu.shared_run import SharedRun, share
from scripts.bench.job_file import JobEntry

PART = "ranks without set_device"

STEPS = 300
"""Iterations of each rank, of some milliseconds on a GPU."""

_MOST_AHEAD = 3
"""Most iterations that a processor is ahead of its GPU: two by the rule of the hooks, and a part of one."""

_GANGS = ("gang", "again")


def figures(
    folder: Path, names: Sequence[str], script: Path = JOBS / "rank_job.py", args: Sequence[str] = (str(STEPS),)
) -> list[Figure]:
    """Figures of gangs with two ranks, or with one if there is one GPU.

    Args:
        folder: New folder for the runs.
        names: Names of the GPUs; at least one.
        script: Script of a rank; see `rank_job.py`.
        args: Arguments of the script.
    """
    folder.mkdir()
    ranks = min(2, len(names))
    gangs: list[JobEntry] = [
        {"name": name, "script": str(script), "args": list(args), "class": "gang", "gpus": ranks, "launch": "ranks"}
        for name in _GANGS
    ]
    where = ("--device", ",".join(names[:ranks]), "--no-profiles", "--lanes", "1", "--jobs-per-lane", "2")
    alone = share(folder / "alone", gangs[:1], *where)
    run = share(folder / "shared", gangs, *where)
    wanted = [_printed(alone, _GANGS[0], rank) for rank in range(ranks)]
    same = sum(_printed(run, name, rank) == wanted[rank] for name in _GANGS for rank in range(ranks))
    told = [_told(run, name, rank) for name in _GANGS for rank in range(ranks)]
    found = [turns(run.folder / "jobs" / name, ranks) for name in _GANGS]
    count, together = sum(len(each.iterations) for each in found), sum(each.together for each in found)
    errors = "; ".join(f"{job['name']}: {job['error']}" for job in run.summary["jobs"] if job["error"])
    of = 2 * ranks
    lacking = [Figure(f"{PART}: two ranks", None, "", note="needs two GPUs: a rank alone was tried")]
    return [
        *(lacking if ranks < 2 else []),
        Figure(f"{PART}: the same parameters as alone", same, f"of {of}", f">= {of}", errors[:300]),
        Figure(f"{PART}: turns", count, "", ">= 4", f"{run.wall_s:.1f} s"),
        Figure(f"{PART}: turns that the ranks ended together", together, f"of {count}", f">= {count}"),
        Figure(f"{PART}: iterations ahead of the GPU", max(each["ahead"] for each in told), "", f"<= {_MOST_AHEAD}"),
        Figure(f"{PART}: other GPUs that a rank is on", max(each["elsewhere"] for each in told), "", "<= 0"),
    ]


def _printed(run: SharedRun, gang: str, rank: int) -> bytes:
    """Output of a rank.

    Raises:
        RuntimeError: It has printed nothing.
    """
    if not (said := (_place(run, gang, rank) / "stdout.log").read_bytes()):
        error = next(job["error"] for job in run.summary["jobs"] if job["name"] == gang)
        raise RuntimeError(f"{gang}: {error or 'a rank printed nothing'}")
    return said


def _told(run: SharedRun, gang: str, rank: int) -> dict[str, float]:
    lines = (_place(run, gang, rank) / "stderr.log").read_bytes().splitlines()
    found: dict[str, float] = json.loads(lines[-1])
    return found


def _place(run: SharedRun, gang: str, rank: int) -> Path:
    place = run.folder / "jobs" / gang
    return folder_of(place, rank) if rank else place
