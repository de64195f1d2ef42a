"""Result of a run as a typed value. `summary.json` is its view for other programs; docs/reports.md describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ecoshare.base.service import service_of
from ecoshare.core.job_ends import ended_by_user
from ecoshare.knowledge.profile import Profile
from ecoshare.lane.files import outputs
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.lane.supervisor.gang import folder_of, rank_in
from ecoshare.record.accounts.alone_time import alone_times
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.accounts.turn_account import TurnAccount
from ecoshare.record.plan_document import JobDocument, PlanDocument
from ecoshare.record.results.baseline import Baseline, baseline, search_cost_j
from ecoshare.record.results.costs_and_savings import WindowSummary, search_energy_j, windows
from ecoshare.record.results.energy_summary import DeviceEnergy, as_plain, device_energy, run_energy
from ecoshare.record.results.job_summary import JobSummary, job_state, job_summary
from ecoshare.record.results.packing_summary import PackingSummary, packings
from ecoshare.record.results.service_summary import service_summary
from ecoshare.record.results.sweep_summary import SweepSummary, sweeps
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import DeviceFailure, JobHistory, RunHistory
from ecoshare.record.setting_history import BudgetSummary, SettingPeriod

_OVER = ("completed", "failed", "pruned")


def is_open_ended(job: JobDocument) -> bool:
    """Whether a job of a plan is a service without a last request."""
    return job.service is not None and service_of(job.service.as_dict()).is_open_ended


def served_to_the_end(
    jobs: Sequence[JobSummary], services: set[str], others: Sequence[str], own: Mapping[str, JobHistory], stopped: bool
) -> tuple[list[JobSummary], bool]:
    """Jobs of a summary, in which each open-ended service that was stopped at its end has completed.

    A service ends when all other jobs have ended. In a run of such services alone, it ends when the user stops the run;
    it has completed then if it needed no SIGKILL.

    Args:
        jobs: Jobs of the summary. A service that was stopped is cancelled there.
        services: Names of the open-ended services.
        others: States of the other jobs and of the sweeps.
        own: History of each job.
        stopped: Whether the user stopped the last session.

    Returns:
        The jobs, and whether the user has ended one of these services. Such a run is interrupted all the same.
    """
    is_over = bool(others) and all(state in _OVER for state in others)
    found, by_user = [], False
    for job in jobs:
        ended = own[job.name].exit
        ends_here = not others and stopped and ended is not None and ended_by_user(ended.outcome, ended.exit_code)
        if job.name in services and job.state == "cancelled" and (is_over or ends_here):
            by_user |= ends_here
            job = replace(job, state="completed", error=None)
        found.append(job)
    return found, by_user


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
        away_s: Time (s) for which other runs of the machine had the devices; None if none shared them.
        down_s: Time (s) from the end of each session to the beginning of the next one; None if the run had one session.
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
    away_s: float | None = None
    down_s: float | None = None
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


def summarise(
    plan: PlanDocument,
    history: RunHistory,
    energy: RunEnergy,
    run: str,
    live: bool = False,
    profiles: Mapping[str, Profile] = MappingProxyType({}),
    load_s: float = 0.0,
    with_packings: bool = True,
    requests: Mapping[str, Sequence[RequestInterval]] = MappingProxyType({}),
    account: TurnAccount | None = None,
    others_busy: Callable[[float, float], float] = lambda _from_s, _to_s: 0.0,
) -> RunSummary:
    """Summarise a run.

    Args:
        plan: The plan, with the trials of its sweeps among the jobs.
        history: History of the run.
        energy: Joules of the run.
        run: Path of the run folder, as users would type it.
        live: Whether the run still goes on.
        profiles: Profiles of the jobs' classes, as far as they exist.
        load_s: Time (s) that the run's server took to load torch.
        with_packings: Whether the packings are asked for. If not, what follows from them is not known.
        requests: Requests of each service, by the name of its job.
        account: Account of the turns of the run; None if they are not known.
        others_busy: Returns the part of the processors that other programs kept busy between two times (s), 0 to 1.
    """
    planned = {job.name: job for job in plan.jobs}
    classes = {name: job.job_class for name, job in planned.items()}
    own = {name: history.of(name) for name in planned}
    timeline = history.packings() if with_packings else None
    alone = {} if account is None else alone_times(account, history, profiles, others_busy)
    jobs = [
        job_summary(
            job,
            own[name],
            history.devices_of(own[name].lanes),
            plan.lanes,
            energy,
            job_state(own[name], history.is_stopped, live, bool(history.unplaceable(own[name]))),
            history.unplaceable(own[name]),
            profiles.get(job.job_class),
            alone.get(name),
            {} if account is None else {spent.value: value_s for spent, value_s in account.of_job(name).items()},
            bool(history.settings),
            history.end_s,
        )
        for name, job in planned.items()
    ]
    for place, job in enumerate(jobs):
        if (served := planned[job.name].service) is not None:
            target_s, missed = served.p99_s, len(own[job.name].missed)
            found = service_summary(target_s, requests.get(job.name, ()), job.energy_j, missed)
            jobs[place] = replace(job, service=found)
    swept = sweeps(plan, jobs, history, energy)
    measured = windows(history.windows, classes, profiles, energy)
    finishes_s = [job.finish_s for job in jobs if job.finish_s is not None]
    arrivals_s = [job.arrival_s for job in jobs if job.arrival_s is not None]
    jcts_s = [job.jct_s for job in jobs if job.state == "completed" and job.jct_s is not None]
    # Limits keep a budget: none of them was tried to save joules, and the default setting would not have kept it.
    limited = history.power_budget is not None and history.power_budget.sets_limits
    compared = None if limited else timeline
    tried_j = 0.0 if limited else None if timeline is None else search_cost_j(timeline, energy, history.end_s)
    services = {name for name, job in planned.items() if is_open_ended(job)}
    others = [state for name, state in outcomes(jobs, swept).items() if name not in services]
    jobs, by_user = served_to_the_end(jobs, services, others, own, history.is_stopped)
    # A job that was cancelled on its own has its end, so it does not interrupt the run.
    states = {"failed" if name in history.cancelled else state for name, state in outcomes(jobs, swept).items()}
    return RunSummary(
        run=run,
        objective=plan.objective,
        policy=plan.policy,
        devices=tuple(_device(each, energy, history.failures.get(each["name"])) for each in plan.devices),
        lanes=plan.lanes,
        state=_run_state({*states, *(["cancelled"] if by_user else [])}, live),
        makespan_s=max(finishes_s) - min(arrivals_s) if finishes_s and arrivals_s else None,
        mean_jct_s=sum(jcts_s) / len(jcts_s) if jcts_s else None,
        away_s=history.away_s,
        down_s=history.down_s,
        energy=run_energy(energy),
        idle_energy_j=energy.idle_j,
        idle_power_w=energy.idle_w,
        empty_power_w=energy.empty_w,
        search_energy_j=search_energy_j(measured, tried_j) if energy.value_j is not None else None,
        jobs=tuple(jobs),
        sweeps=tuple(swept),
        windows=tuple(measured),
        settings=tuple(history.settings),
        packings=() if timeline is None else tuple(packings(timeline, energy, history.end_s)),
        power_budget=history.power_budget,
        baseline=baseline(
            jobs, profiles, compared, energy, history.end_s, planned, load_s, others_busy(0.0, history.end_s)
        ),
        notes=tuple(plan.notes),
    )


def _device(fields: Mapping[str, Any], energy: RunEnergy, failed: DeviceFailure | None) -> DeviceSummary:
    own = energy.of(fields["name"])
    return DeviceSummary(fields, device_energy(own), own.idle_j, own.idle_w, failed)


def _run_state(jobs: set[str], live: bool) -> str:
    if live:
        return "running"
    if jobs <= {"completed"}:
        return "completed"
    return "interrupted" if "cancelled" in jobs else "failed"
