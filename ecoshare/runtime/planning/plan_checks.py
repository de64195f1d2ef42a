"""Checks and notes of a plan: devices of the jobs, launchers, services, and gangs over several machines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import DeviceInfo
from ecoshare.base.documents import open_regular
from ecoshare.base.plural import counted, listed
from ecoshare.base.service import ARRIVALS
from ecoshare.core.memory import cached_bytes, lane_bytes, promised
from ecoshare.errors import UsageError
from ecoshare.jobs.fields import Isolation, Launch
from ecoshare.jobs.load import LoadedJobs, mistake_of
from ecoshare.jobs.request_trace import RequestTrace, read_trace
from ecoshare.jobs.schema import JobConfig
from ecoshare.knowledge.gang_time_store import GangTimeStore
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane import confinement
from ecoshare.lane.files import make_folder
from ecoshare.policy_names import widens
from ecoshare.record.run_folder import RunFolder, unwritable, write_text
from ecoshare.runtime.planning.job_class import JobClass
from ecoshare.runtime.planning.planned_job import PlannedJob


def check_devices(loaded: LoadedJobs, jobs: Sequence[PlannedJob], devices: Sequence[DeviceInfo]) -> None:
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
    for name in confinement.NAMES:
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


def device_notes(jobs: Sequence[PlannedJob], policy: str, has_budget: bool, on_processors: bool) -> list[str]:
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
        found.append(f"{listed(choose)} {verb} a GPU by {confinement.NAMES[0]}: the one of the lane is used instead")
    if resizable := [job.spec.name for job in jobs if job.spec.widest > job.spec.gpus]:
        if not widens(policy):
            found.append(
                f"policy {policy} gives {listed(resizable)} as many devices as `gpus`; fluid and equal may give more"
            )
        elif has_budget:
            found.append(f"under a power budget {listed(resizable)} get as many devices as `gpus`")
    return found


_CHOOSES = re.compile(
    rf"""(?:\[|setdefault\(|putenv\()\s*["'](?:{"|".join(confinement.NAMES)})["']\s*(?:\]\s*=[^=]|,)"""
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


_MOST_NAMED = 3


def with_whole_device(job: PlannedJob, memory_bytes: int) -> PlannedJob:
    """The job with all memory of the device if it is a launcher, else the job itself.

    On a GPU nothing limits the memory of child processes, and a profile has measured the launcher alone.

    Args:
        job: A job for a GPU.
        memory_bytes: Memory (bytes) of the device that the run may use.
    """
    if not job.launcher:
        return job
    return replace(job, spec=replace(job.spec, memory=MemoryDemand(memory_bytes)))


def with_cuts(job: PlannedJob) -> PlannedJob:
    """The job, marked as one with turns that can be cut if it has a process and a lane of its own."""
    spec = job.spec
    able = spec.gpus == spec.widest == 1 and spec.service is None and not (spec.fused or job.launcher)
    return replace(job, spec=replace(spec, cuttable=able))


def cut_notes(jobs: Sequence[PlannedJob], memory_bytes: int) -> list[str]:
    """Note about jobs that a service cannot interrupt inside an iteration, since there is no memory for two of them.

    Args:
        jobs: Jobs of the run.
        memory_bytes: Memory (bytes) of each device for jobs.
    """
    known = [(job.spec, promised(job.spec.memory, memory_bytes)) for job in jobs if job.spec.memory is not None]
    services = [demand for spec, demand in known if spec.service is not None]
    uncut = [
        spec.name
        for spec, demand in known
        if spec.cuttable
        and any(lane_bytes(pair) <= memory_bytes < cached_bytes(pair) for pair in product([demand], services))
    ]
    if not uncut:
        return []
    why = "the device has no memory for the caches of both"
    return [f"beside a service, the turn of {listed(uncut)} ends between iterations only: {why}"]


def launcher_notes(jobs: Sequence[PlannedJob], on_processors: bool) -> list[str]:
    """Notes for the user about the launchers among these jobs; empty if there is none."""
    found = [job for job in jobs if job.launcher]
    if not found:
        return []
    names = ", ".join(f"{job.spec.name} ({job.launcher})" for job in found[:_MOST_NAMED])
    names += f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    memory = "" if on_processors else ", with all memory of the device"
    lines = [f"{names}: child processes do the work, so the job keeps its lane from start to end{memory}"]
    limited = [job.spec.name for job in found if job.source.startup_timeout_s is not None]
    if limited:
        names = ", ".join(limited[:_MOST_NAMED])
        lines.append(f"`startup_timeout` of {names}: no step of a child process is seen, so it limits the whole job")
    return lines


def service_notes(jobs: Sequence[PlannedJob]) -> list[str]:
    """Notes about servers that sleep, processes of services, and the end of services without a last request.

    Args:
        jobs: All jobs, and the template of each sweep.
    """
    found = [
        f"{job.spec.name} sleeps while other jobs of its lane have the turn: clients ask it at "
        f"http://127.0.0.1:{job.spec.service.port}"
        for job in jobs
        if job.spec.service is not None and job.spec.service.sleep
    ]
    apart = [
        job.spec.name
        for job in jobs
        if job.spec.service is not None and job.spec.service.requests is None and job.source.isolation == "lane"
    ]
    if apart:
        what = "gets a process of its own" if len(apart) == 1 else "get processes of their own"
        found.append(f"{listed(apart)} {what}: `isolation: lane` is for services with `requests`")
    services = [job.spec.name for job in jobs if job.spec.is_open_ended]
    if not services:
        return found
    verb = "serves" if len(services) == 1 else "serve"
    until = "until Ctrl-C" if len(services) == len(jobs) else "until all other jobs have ended"
    return [*found, f"{listed(services)} {verb} {until}"]


def check_places(jobs: Sequence[PlannedJob], places: int) -> None:
    """Refuse services that would leave no place for the other jobs of a run, which then never ended.

    Args:
        jobs: All jobs, and the template of each sweep.
        places: Places of all lanes together.

    Raises:
        UsageError: The services would take all places.
    """
    services = [job.spec.name for job in jobs if job.spec.is_open_ended]
    if services and len(services) < len(jobs) and len(services) >= places:
        raise UsageError(
            f"{listed(services)} would keep all places of the run ({places}), so other jobs would wait for ever",
            "give more with --lanes or --jobs-per-lane, or give the services a last request (`count`)",
        )


def write_arrivals(jobs: Iterable[PlannedJob], folder: RunFolder) -> None:
    """Write the times of the requests of each service with a trace into the folder of its job: one (s) a line.

    The times are divided by `speed`. A file of an earlier session stays as it is.

    Raises:
        UsageError: A trace has changed since the job file was read, and has mistakes now.
        UnfitEnvironment: The disk is full, or permission is missing.
    """
    traces: dict[tuple[Path, str], RequestTrace] = {}
    for job in jobs:
        requests = job.source.service.requests if job.source.service is not None else None
        if requests is None or requests.trace is None:
            continue
        path = folder.job(job.spec.name) / ARRIVALS
        if path.exists():
            continue
        key = requests.trace, requests.task or ""
        if key not in traces:
            traces[key] = read_trace(requests.trace, str(requests.trace), requests.task or "")
        if problems := traces[key].problems:
            raise UsageError(f"requests of {job.spec.name}: {problems[0]}")
        times_s = traces[key].arrivals_s[: requests.count]
        try:
            make_folder(path.parent)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        write_text(path, "".join(f"{at_s / requests.speed:.6f}\n" for at_s in times_s))


MOST_SLOWDOWN = 1.25
"""Slowdown over several machines from which a gang waits for room on one: a fifth of its devices' time is lost."""


def most_nodes(
    jobs: Iterable[tuple[JobConfig, JobClass]],
    devices: Sequence[DeviceInfo],
    store: ProfileStore | None,
) -> tuple[dict[str, int], list[str]]:
    """Most machines of each job: as in the job file, or one if more cost too much. Each such gang has a note.

    Tiresias consolidates jobs if the sizes of the tensors of their models are skewed (Gu et al., NSDI 2019, section
    3.5), which is a guess at what the network costs them. Here it is measured: `gang_learning.py` keeps the time of an
    iteration on one machine and over several.

    Args:
        jobs: Jobs with their classes.
        devices: Devices of the run.
        store: Profiles of job classes, which have the times of gangs beside them; None to use none.
    """
    largest = max(Counter(device.node for device in devices).values())
    found: dict[str, int] = {}
    notes: list[str] = []
    kept = GangTimeStore(store.folder) if store is not None else None
    for job, job_class in jobs:
        found[job.name] = job.nodes
        fits = job.gpus > 1 and (job.most_gpus or job.gpus) <= largest
        times = kept.find(job_class.name) if kept is not None and fits and job.nodes > 1 else None
        slowdowns = {} if times is None else {each: x for each, x in times.slowdowns.items() if each <= job.nodes}
        if slowdowns and min(slowdowns.values()) >= MOST_SLOWDOWN:
            nodes, slowdown = min(slowdowns.items(), key=lambda each: each[1])
            found[job.name] = 1
            over = counted(nodes, "machine")
            notes.append(
                f"{job.name} keeps to one machine: over {over} its iterations took {slowdown:.2f} times as long"
            )
    return found, notes + (kept.notes if kept is not None else [])
