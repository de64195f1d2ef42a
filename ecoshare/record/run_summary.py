"""Result of a run as a typed value. `summary.json` is its view for other programs; docs/summary.md describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.lane.files import outputs
from ecoshare.lane.gang import folder_of, rank_in
from ecoshare.record.baseline import Baseline
from ecoshare.record.budget_record import BudgetSummary
from ecoshare.record.energy_summary import DeviceEnergy
from ecoshare.record.job_summary import JobSummary
from ecoshare.record.packing_summary import PackingSummary
from ecoshare.record.plain_values import as_plain
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import DeviceFailure
from ecoshare.record.setting_history import SettingPeriod
from ecoshare.record.sweep_summary import SweepSummary
from ecoshare.record.window_costs import WindowSummary

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """Device of a run.

    Attributes:
        fields: All fields of the device in plan.json.
        energy: Energy of the device; None if it is not known.
        idle_energy_j: Part (J) of the energy that no job caused; None if it is not known.
        idle_power_w: Power (W) of the device at rest; None if it is not known.
        failed: Failure of the device in the last session that used it; None if it works.
    """

    fields: Mapping[str, Any]
    energy: DeviceEnergy | None = None
    idle_energy_j: float | None = None
    idle_power_w: float | None = None
    failed: DeviceFailure | None = None

    @property
    def name(self) -> str:
        """Name of the device in the run, such as `cuda:0`."""
        return str(self.fields["name"])

    @property
    def model(self) -> str:
        """Name that the maker gives the device; empty if it is not known."""
        return self.fields.get("model") or ""

    @property
    def driver(self) -> str:
        """Version of the driver; empty if there is none."""
        return self.fields.get("driver") or ""

    @property
    def memory_bytes(self) -> int:
        """Memory (bytes) for jobs; 0 if it is not known."""
        return self.fields.get("memory_bytes") or 0

    @property
    def cores(self) -> int:
        """Number of processors that the run may use; 0 if it is not known."""
        return self.fields.get("cores") or 0

    @property
    def power_limit_w(self) -> float:
        """Power limit (W); 0 if there is none."""
        return self.fields.get("power_limit_w") or 0.0

    def as_dict(self) -> dict[str, Any]:
        """The fields of plan.json, and those of the run."""
        own = ("energy", "idle_energy_j", "idle_power_w", "failed")
        return {**self.fields, **{name: as_plain(getattr(self, name)) for name in own}}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Result of a run; a value that is not known is None, never zero.

    Attributes:
        schema_version: Version of the JSON view.
        run: Path of the run folder, as users would type it.
        lanes: Number of lanes of a device.
        state: `completed`, `failed`, `interrupted`, or `running` while the run goes on.
        makespan_s: Time (s) from the first arrival to the last finish.
        mean_jct_s: Mean job completion time (s) of the jobs that completed.
        devices: Devices in the order of the plan, each with its own energy.
        energy: Energy of all devices.
        idle_energy_j: Part (J) of the energy that no job caused.
        idle_power_w: Power (W) of all devices at rest.
        empty_power_w: Power (W) of all GPUs before the first job, without its context.
        search_energy_j: Joules of the windows and of the settings that were tried and not kept, beyond the work.
        jobs: Jobs in the order of the plan, then trials in the order in which they were drawn.
        windows: Profiling windows.
        settings: Settings that the device was put to, in order of time.
        packings: Packings that ran, in the order in which they first ran.
        power_budget: Power budget, and how much the limits took of it; None without a budget.
        baseline: Predicted cost of the same work otherwise.
        notes: Notes of the plan.
    """

    schema_version: int = field(default=SCHEMA_VERSION, init=False)
    run: str
    objective: str
    policy: str
    devices: tuple[DeviceSummary, ...]
    lanes: int
    state: str
    makespan_s: float | None = None
    mean_jct_s: float | None = None
    energy: DeviceEnergy | None = None
    idle_energy_j: float | None = None
    idle_power_w: float | None = None
    empty_power_w: float | None = None
    search_energy_j: float | None = None
    jobs: tuple[JobSummary, ...] = ()
    sweeps: tuple[SweepSummary, ...] = ()
    windows: tuple[WindowSummary, ...] = ()
    settings: tuple[SettingPeriod, ...] = ()
    packings: tuple[PackingSummary, ...] = ()
    power_budget: BudgetSummary | None = None
    baseline: Baseline = field(default_factory=Baseline)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The object of `summary.json`."""
        return {each: as_plain(getattr(self, each)) for each in self.__dataclass_fields__}

    def stderr_of(self, job: str) -> str:
        """Path of the errors of a job, or of the rank that ended it, as users would type it."""
        error = next((each.error for each in self.jobs if each.name == job), None)
        folder, rank = RunFolder(Path(self.run)).job(job), rank_in(error or "")
        return str(outputs(folder_of(folder, rank) if rank else folder)[1])

    def outcomes(self) -> dict[str, str]:
        """State of each job and sweep of the job file."""
        return outcomes(self.jobs, self.sweeps)


def outcomes(jobs: Iterable[JobSummary], sweeps: Iterable[SweepSummary]) -> dict[str, str]:
    """State of each job and sweep of the job file.

    A sweep is completed if any trial completed: its purpose is the best trial, and some trials may fail. A sweep with
    cancelled trials, or with trials still to draw, is cancelled.
    """
    found = {job.name: job.state for job in jobs if job.sweep is None}
    for sweep in sweeps:
        states = [*([] if sweep.exhausted else ["cancelled"]), *sweep.states]
        found[sweep.name] = next((each for each in ("cancelled", "completed") if each in states), "failed")
    return found
