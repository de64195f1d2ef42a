"""Derives the result of a run from its plan, history, energy account and profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ecoshare.profiling.profile import Profile
from ecoshare.record.alone_time import alone_times
from ecoshare.record.baseline import baseline, search_cost_j
from ecoshare.record.energy_summary import device_energy, run_energy
from ecoshare.record.job_summary import job_state, job_summary
from ecoshare.record.packing_summary import packings
from ecoshare.record.run_energy import RunEnergy
from ecoshare.record.run_history import DeviceFailure, RunHistory
from ecoshare.record.run_summary import DeviceSummary, RunSummary, outcomes
from ecoshare.record.service_ends import is_open_ended, served_to_the_end
from ecoshare.record.service_summary import service_summary
from ecoshare.record.sweep_summary import sweeps
from ecoshare.record.turn_account import TurnAccount
from ecoshare.record.window_costs import search_energy_j, windows
from ecoshare.serving.request_intervals import RequestInterval
from ecoshare.values.service import service_of


def summarise(
    plan: dict[str, Any],
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
        plan: Content of plan.json, with the trials of its sweeps among the jobs.
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
    planned = {job["name"]: job for job in plan["jobs"]}
    classes = {name: job["class"] for name, job in planned.items()}
    own = {name: history.of(name) for name in planned}
    timeline = history.packings() if with_packings else None
    alone = {} if account is None else alone_times(account, history, profiles, others_busy)
    jobs = [
        job_summary(
            job,
            own[name],
            history.devices_of(own[name].lanes),
            plan["lanes"],
            energy,
            job_state(own[name], history.is_stopped, live, bool(history.unplaceable(own[name]))),
            history.unplaceable(own[name]),
            profiles.get(job["class"]),
            alone.get(name),
            {} if account is None else {spent.value: value_s for spent, value_s in account.of_job(name).items()},
            bool(history.settings),
            history.end_s,
        )
        for name, job in planned.items()
    ]
    for place, job in enumerate(jobs):
        if (served := planned[job.name].get("service")) is not None:
            target_s, missed = service_of(served).p99_s, len(own[job.name].missed)
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
        objective=plan["objective"],
        policy=plan["policy"],
        devices=tuple(_device(each, energy, history.failures.get(each["name"])) for each in plan["devices"]),
        lanes=plan["lanes"],
        state=_run_state({*states, *(["cancelled"] if by_user else [])}, live),
        makespan_s=max(finishes_s) - min(arrivals_s) if finishes_s and arrivals_s else None,
        mean_jct_s=sum(jcts_s) / len(jcts_s) if jcts_s else None,
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
        notes=tuple(plan["notes"]),
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
