"""Power of a recorded device from its run folder: idle, and above idle for each job class.

Power of a class = joules attributed to its completed jobs / time of these jobs in the trace. So a simulated job uses
the joules of the recorded job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ecoshare.common.plural import counted
from ecoshare.devices.meter import PowerModel
from ecoshare.errors import UsageError
from ecoshare.record.run_data import RunData
from ecoshare.record.run_data import read as read_run
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Session
from ecoshare.simulation.gpus import GpuModel, Watts
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.values.joules import MEASURED


@dataclass(frozen=True, slots=True)
class Recorded:
    """Device with its recorded power.

    Attributes:
        gpu: Model of the device, with its recorded power.
        active_w: Power (W) above idle, keyed by job class.
        about: Source of the power values, in words.
    """

    gpu: GpuModel
    active_w: Mapping[str, float]
    about: str


@dataclass(slots=True)
class _Spent:
    """Energy (J) above idle of some jobs, and their time (s) in the trace."""

    energy_j: float = 0.0
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """Result for a run folder without the power of its device.

    Attributes:
        model: Name that the maker gives the device; empty if unknown, too.
    """

    model: str = ""


def read(path: Path, trace: Trace) -> Recorded | NotRecorded:
    """Power of the device that the run in the folder at `path` used.

    Args:
        trace: Trace of the jobs of this run.

    Raises:
        UsageError: The run folder is damaged.
    """
    folder = RunFolder(path)
    if not (folder.environment.is_file() and folder.plan.is_file()):
        return NotRecorded()
    data = read_run(folder)
    try:
        return _power(data, trace)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{folder.environment} does not describe a device", "the run folder is damaged") from error


def _power(data: RunData, trace: Trace) -> Recorded | NotRecorded:
    device = data.environment["devices"][0]  # the others are of the same model
    fields = data.environment["power_models"].get(device["name"])
    model = PowerModel(**fields) if fields else None
    session, classes = data.energy.session, _spent(data, trace)
    if session is not None and classes:
        idle_w, about = session.idle_w or 0.0, _about(session)
        active_w = {job_class: spent.energy_j / spent.time_s for job_class, spent in classes.items()}
        mean_w = sum(each.energy_j for each in classes.values()) / sum(each.time_s for each in classes.values())
    elif model is not None:
        active_w, idle_w, mean_w = {}, model.idle_w, model.busy_w - model.idle_w
        about = "its power model at full load; the run has no joules of completed jobs"
    else:
        return NotRecorded(device["model"])
    name = f"{device['model']}, {counted(device['cores'], 'core')}" if device["kind"] == "cpu" else device["model"]
    busy_w = 0.0 if model is None else model.busy_w
    most_w = max(device["power_limit_w"] or 0.0, busy_w, idle_w + max(active_w.values(), default=0.0))
    gpu = GpuModel(name, most_w, device["memory_bytes"], Watts(idle_w, mean_w))
    return Recorded(gpu, active_w, about)


def _spent(data: RunData, trace: Trace) -> dict[str, _Spent]:
    """Energy and time of the jobs in the trace for each class; classes without energy are left out."""
    classes: dict[str, _Spent] = {}
    for job in trace.jobs:
        energy = data.energy.job(job.name)
        if energy is None:
            continue
        # If the meter missed a part of a job, the missed iterations count like the metered ones.
        metered = data.energy.iterations(job.name)
        missed = job.iterations / metered if 0 < metered < job.iterations else 1.0
        spent = classes.setdefault(job.job_class, _Spent())
        spent.energy_j += energy.value_j * missed
        spent.time_s += job.service_s
    return classes


def _about(session: Session) -> str:
    """Source of the joules, in words."""
    idle = "" if session.idle_w is not None else "; its draw at rest is not known and counts as work"
    by = f" by {session.meter}" if session.source == MEASURED else ""
    return f"joules {session.source}{by}{idle}"
