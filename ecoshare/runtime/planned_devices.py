"""Devices of the jobs of a plan: whether the run has them, and whether the number may change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ecoshare.common.documents import open_regular
from ecoshare.common.plural import counted, listed
from ecoshare.jobs.fields import Isolation, Launch
from ecoshare.jobs.load import LoadedJobs, mistake_of
from ecoshare.lane import visible_devices
from ecoshare.policy_names import widens
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.values.device import DeviceInfo


def check(loaded: LoadedJobs, jobs: Sequence[PlannedJob], devices: Sequence[DeviceInfo]) -> None:
    """Check that each job can have its devices.

    Raises:
        InvalidJobFile: A job cannot, with its place in the file.
    """
    for job in jobs:
        if mistake := _mistake(job, devices):
            raise mistake_of(loaded, job.spec.name, *mistake)


def _mistake(job: PlannedJob, devices: Sequence[DeviceInfo]) -> tuple[str, str, str] | None:
    """Key, description and remedy of a mistake; None if there is none."""
    config = job.source
    for name in visible_devices.NAMES:
        hides = devices[0].on_processors and config.env.get(name) in ("", "-1")
        if name in config.env and not hides:
            return "env", f"{name} would take the job off the device of its lane", "give `--device` to the run"
    if config.nodes > 1 and config.launch is not Launch.RANKS:
        return "nodes", "only the ranks of `launch: ranks` can run on several machines", "give `launch: ranks`"
    if config.gpus > len(devices):
        cuts = f"`--device cpu/{config.gpus}` cuts the processors into so many" if devices[0].on_processors else ""
        return "gpus", f"the job needs {counted(config.gpus, 'device')}, and the run has {len(devices)}", cuts
    if config.most_gpus is None:
        return None
    if config.most_gpus < config.gpus:
        return "most_gpus", f"{config.most_gpus} is less than the {config.gpus} of `gpus`", ""
    if config.most_gpus == config.gpus:
        return None
    if not config.preemptible:
        words = "a job is stopped and started again to get another number of devices"
        return "most_gpus", words, "give `preemptible: true` if the script saves its state on SIGTERM"
    if config.launch is Launch.TORCHRUN:
        return "most_gpus", "torchrun keeps its number of ranks", "give `launch: ranks`"
    if config.isolation is Isolation.LANE:
        return "most_gpus", "jobs that share a process have one device", "leave out `isolation: lane`"
    return None


def notes(jobs: Sequence[PlannedJob], policy: str, has_budget: bool, on_processors: bool) -> list[str]:
    """Notes for the user about jobs that do not get the devices that they could use; empty if there is none.

    Args:
        jobs: Jobs of the run.
        policy: Name of the policy.
        has_budget: Whether the run has a power budget.
        on_processors: Whether the jobs run on the processors.
    """
    found = []
    scripts = set() if on_processors else {job.source.script for job in jobs if job.source.script is not None}
    choosing = {script for script in scripts if _chooses(script)}
    if choose := [job.spec.name for job in jobs if job.source.script in choosing]:
        verb = "chooses" if len(choose) == 1 else "choose"
        found.append(
            f"{listed(choose)} {verb} a GPU by {visible_devices.NAMES[0]}: the one of the lane is used instead"
        )
    if resizable := [job.spec.name for job in jobs if job.spec.widest > job.spec.gpus]:
        if not widens(policy):
            found.append(
                f"policy {policy} gives {listed(resizable)} as many devices as `gpus`; fluid and equal may give more"
            )
        elif has_budget:
            found.append(f"under a power budget {listed(resizable)} get as many devices as `gpus`")
    return found


_CHOOSES = re.compile(
    rf"""(?:\[|setdefault\(|putenv\()\s*["'](?:{"|".join(visible_devices.NAMES)})["']\s*(?:\]\s*=[^=]|,)"""
)
"""Lines of a script that set such a variable."""

_MOST_BYTES = 1 << 20
"""Most bytes of a script that are looked through."""


def _chooses(script: Path) -> bool:
    """Whether a script sets a variable that chooses devices, as far as its source shows."""
    try:
        with open_regular(script) as file:
            return _CHOOSES.search(file.read(_MOST_BYTES).decode(errors="replace")) is not None
    except OSError:
        return False
