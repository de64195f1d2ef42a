"""Checks that take two GPUs: a run over all of them, gangs of ranks with NCCL, torchrun, and joules of each GPU.

Each run names its GPUs. Two partitions of the processors, with gloo, try out everything but CUDA and NCCL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ecoshare.devices.choice import find_all
from ecoshare.lane.supervisor.gang import folder_of
from scripts.bench.benchmarking import JOBS, Figure
from scripts.bench.gang_turns import turns
from scripts.bench.gpu.shared_run import SharedRun, share
from scripts.bench.job_file import JobEntry

ALL, GANGS, TORCHRUN = "a run over all GPUs", "gangs that share two GPUs", "torchrun on two GPUs"
PARTS = (ALL, GANGS, TORCHRUN)

STEPS = 3000
"""Iterations of each rank, of one to two milliseconds on a GPU."""

_GANGS = ("gang", "again")


def gpus() -> list[str]:
    """Names of the GPUs of a run that names none: those of the model of the first one."""
    return [device.name for device in find_all() if not device.on_processors]


def parts(
    folder: Path,
    names: Sequence[str],
    jobs: Sequence[JobEntry],
    printed: Mapping[str, bytes],
    device: str = "",
    steps: int = STEPS,
) -> dict[str, Callable[[], list[Figure]]]:
    """Parts of this check by name; each gives its figures. With one GPU, each says that it needs two.

    Args:
        folder: Folder for the runs.
        names: Names of the devices.
        jobs: Jobs for the run over all devices. Two copies of each run there, and a third on more than six devices.
        printed: Output of each of these jobs alone, as far as it repeats.
        device: Devices in one word, such as `cpu/2`; empty for the names.
        steps: Iterations of the gangs.
    """
    if len(names) < 2:
        return {part: partial(_lacking, part) for part in PARTS}
    two = device or ",".join(names[:2])
    copies = 3 if len(names) > 6 else 2
    gangs = Gangs(folder, two, steps)
    return {
        ALL: lambda: over_all(folder, device or ",".join(names), jobs, printed, copies),
        GANGS: gangs.shared,
        TORCHRUN: gangs.by_torchrun,
    }


def _lacking(part: str) -> list[Figure]:
    return [Figure(part, None, "", note="needs two GPUs")]


def over_all(
    folder: Path, device: str, jobs: Sequence[JobEntry], printed: Mapping[str, bytes], copies: int
) -> list[Figure]:
    """A run of copies of the jobs over all devices, with the joules of each device."""
    entries: list[JobEntry] = [{**job, "name": f"{job['name']}-{copy}"} for copy in range(copies) for job in jobs]
    run = share(folder / "all", entries, "--device", device, "--no-profiles")
    done = [job for job in run.summary["jobs"] if job["state"] == "completed"]
    devices = run.summary["devices"]
    used = {name for job in done for name in job["devices"]}
    repeat = [entry["name"] for entry in entries if entry["name"].rpartition("-")[0] in printed]
    same = [name for name in repeat if run.printed(name) == printed[name.rpartition("-")[0]]]
    errors = "; ".join(f"{job['name']}: {job['error']}" for job in run.summary["jobs"] if job["error"])
    figures = [
        Figure(f"{ALL}: jobs completed", len(done), f"of {len(entries)}", f">= {len(entries)}", errors[:300]),
        Figure(f"{ALL}: devices that had jobs", len(used), f"of {len(devices)}", f">= {len(devices)}"),
        Figure(f"{ALL}: same losses as alone", len(same), f"of {len(repeat)}", f">= {len(repeat)}"),
        Figure(f"{ALL}: time", run.wall_s, "s"),
    ]
    joules = [each["energy"] for each in devices]
    for each, energy in zip(devices, joules, strict=True):
        value_j = energy["value_j"] if energy else None
        figures.append(Figure(f"joules of {each['name']}", value_j, "J", note=energy["source"] if energy else ""))
    if all(joules) and run.summary["energy"]:
        ratio = sum(each["value_j"] for each in joules) / run.summary["energy"]["value_j"]
        figures.append(Figure("joules of all devices / those of the run", ratio, "x"))
    return figures


class Gangs:
    """Gangs of two ranks on two devices."""

    def __init__(self, folder: Path, device: str, steps: int) -> None:
        """Gangs of so many iterations; nothing runs yet."""
        self._folder, self._device = folder, device
        self._gang: JobEntry = {
            "name": _GANGS[0],
            "script": str(JOBS / "gang_job.py"),
            "args": [str(steps)],
            "gpus": 2,
            "launch": "ranks",
        }
        self._alone: list[bytes] | None = None

    def shared(self) -> list[Figure]:
        """Two gangs in the same lanes, against one alone."""
        alone = self._losses_alone()
        again: JobEntry = {**self._gang, "name": _GANGS[1]}
        run = self._run("gangs", self._gang, again)
        jobs = {job["name"]: job for job in run.summary["jobs"]}
        places = [run.folder / "jobs" / name for name in _GANGS]
        same = sum(_losses(run, name) == alone for name in _GANGS)
        found = [turns(place) for place in places]
        count, together = sum(len(each.iterations) for each in found), sum(each.together for each in found)
        kept = "; ".join(f"{name}: {job['keeps_lane']}" for name, job in jobs.items() if job["keeps_lane"])
        return [
            Figure(f"{GANGS}: with the losses of one alone", same, "of 2", ">= 2", kept),
            Figure(f"{GANGS}: turns", count, "", ">= 4", f"{run.wall_s:.1f} s"),
            Figure(f"{GANGS}: turns that the ranks ended together", together, f"of {count}", f">= {count}"),
        ]

    def by_torchrun(self) -> list[Figure]:
        """The gang as torchrun starts it: its ranks write to one file."""
        alone = self._losses_alone()
        run = self._run("torchrun", {**self._gang, "launch": "torchrun"})
        (job,) = run.summary["jobs"]
        same = sorted(run.printed(job["name"]).split()) == sorted(each.strip() for each in alone)
        note = f"{job['state']}; {job['keeps_lane'] or ''}; {job['error'] or ''}"
        return [Figure(f"{TORCHRUN}: the losses of the gang", float(same), "", ">= 1", note[:300])]

    def _losses_alone(self) -> list[bytes]:
        if self._alone is None:
            self._alone = _losses(self._run("gang", self._gang), _GANGS[0])
        return self._alone

    def _run(self, name: str, *jobs: JobEntry) -> SharedRun:
        return share(self._folder / name, jobs, "--device", self._device, "--no-profiles")


def _losses(run: SharedRun, gang: str) -> list[bytes]:
    """Output of both ranks.

    Raises:
        RuntimeError: A rank printed nothing.
    """
    place = run.folder / "jobs" / gang
    found = [(each / "stdout.log").read_bytes() for each in (place, folder_of(place, 1))]
    if not all(found):
        error = next(job["error"] for job in run.summary["jobs"] if job["name"] == gang)
        raise RuntimeError(f"{gang}: {error or 'a rank printed no loss'}")
    return found
