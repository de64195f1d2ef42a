"""Result of a run's sweeps: the best trials in order, and the cost of each sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ecoshare.record.energy_summary import JobEnergy
from ecoshare.record.job_summary import JobSummary
from ecoshare.record.run_energy import RunEnergy
from ecoshare.record.run_history import RunHistory
from ecoshare.record.window_costs import all_spent_j

MOST_BEST = 10
"""Most trials in the list of the best."""


@dataclass(frozen=True, slots=True)
class BestTrial:
    """One of the best trials of a sweep; the fields are those of its `JobSummary`."""

    name: str
    value: float
    values: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    jct_s: float | None = None
    energy: JobEnergy | None = None


@dataclass(frozen=True, slots=True)
class SweepEnergy:
    """Energy (J) of all trials of a sweep, without idle; `source` as in `JobEnergy`."""

    value_j: float
    source: str


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """Result of a sweep; a value that is not known is None.

    Attributes:
        by: Sampler: `grid`, `random` or `optuna`.
        space: Values of each parameter, as in the job file.
        goal: `minimize` or `maximize`.
        trials: Number of trials to draw.
        exhausted: Whether its sampler had no more trials; if false, the run was cut off before.
        states: Number of drawn trials in each state.
        best: Best trials that completed, in order.
        device_energy_j: Joules of all devices from the first arrival of a trial to the last end of one.
        target: Value to be reached.
        target_trial: Trial that reached the target first.
        target_s: Time (s) from the first arrival until then.
        target_energy_j: Joules of all devices in that time.
        error: Reason why its sampler failed.
    """

    name: str
    by: str
    space: dict[str, Any] = field(default_factory=dict)
    metric: str | None = None
    goal: str = "minimize"
    trials: int | None = None
    exhausted: bool = True
    states: dict[str, int] = field(default_factory=dict)
    best: tuple[BestTrial, ...] = ()
    energy: SweepEnergy | None = None
    device_energy_j: float | None = None
    target: float | None = None
    target_trial: str | None = None
    target_s: float | None = None
    target_energy_j: float | None = None
    error: str | None = None


def with_trials(plan: dict[str, Any], history: RunHistory) -> dict[str, Any]:
    """Plan with the drawn trials added to its jobs, in the order in which they were drawn."""
    templates = {sweep["name"]: sweep for sweep in plan.get("sweeps", ())}
    if not templates:
        return plan
    trials: dict[str, dict[str, Any]] = {}
    for name, job in history.jobs.items():
        if job.spec is not None and job.spec.sweep in templates:
            own = {"name": name, "sweep": job.spec.sweep, "values": dict(job.spec.values)}
            trials[name] = {**templates[job.spec.sweep], **own}
    own_jobs = [{"sweep": None, "values": {}, **job} for job in plan["jobs"] if job["name"] not in trials]
    return {**plan, "jobs": [*own_jobs, *trials.values()]}


def sweeps(
    plan: Mapping[str, Any], jobs: Sequence[JobSummary], history: RunHistory, energy: RunEnergy
) -> list[SweepSummary]:
    """Counts, best trials and costs of each sweep.

    Args:
        plan: Content of plan.json.
        jobs: Jobs of the summary, trials included.
        history: History of the run.
        energy: Joules of the run.
    """
    own: dict[str, list[JobSummary]] = {sweep["name"]: [] for sweep in plan.get("sweeps", ())}
    for job in jobs:
        if job.sweep is not None:
            own[job.sweep].append(job)
    return [_sweep(sweep, own[sweep["name"]], history, energy) for sweep in plan.get("sweeps", ())]


def _sweep(sweep: Mapping[str, Any], trials: list[JobSummary], history: RunHistory, energy: RunEnergy) -> SweepSummary:
    began_s = min((trial.arrival_s for trial in trials if trial.arrival_s is not None), default=0.0)
    ended_s = max((trial.finish_s for trial in trials if trial.finish_s is not None), default=None)
    reached_s, which = _first(sweep, trials, history)
    own = [trial.energy for trial in trials if trial.energy is not None]
    return SweepSummary(
        name=sweep["name"],
        by=sweep["by"],
        space=sweep["space"],
        metric=sweep["metric"],
        goal=sweep["goal"],
        trials=sweep["trials"],
        exhausted=sweep["name"] in history.exhausted,
        states=dict(Counter(trial.state for trial in trials)),
        best=tuple(_best(trial) for trial in ranked(trials, sweep["goal"])[:MOST_BEST]),
        energy=SweepEnergy(sum(each.value_j for each in own), own[0].source) if own else None,
        device_energy_j=all_spent_j(energy.everywhere(began_s, ended_s)) if ended_s is not None else None,
        target=sweep["target"],
        target_trial=which,
        target_s=reached_s - began_s if reached_s is not None else None,
        target_energy_j=all_spent_j(energy.everywhere(began_s, reached_s)) if reached_s is not None else None,
        error=history.exhausted.get(sweep["name"]) or None,
    )


def ranked(trials: Iterable[JobSummary], goal: str) -> list[JobSummary]:
    """Completed trials with a value, the best first."""
    known = [(trial.value, trial) for trial in trials if trial.state == "completed" and trial.value is not None]
    return [trial for _, trial in sorted(known, key=lambda each: each[0], reverse=goal == "maximize")]


def _best(trial: JobSummary) -> BestTrial:
    assert trial.value is not None, "trials without a value have no rank"
    return BestTrial(trial.name, trial.value, trial.values, trial.steps, trial.jct_s, trial.energy)


def _first(
    sweep: Mapping[str, Any], trials: Iterable[JobSummary], history: RunHistory
) -> tuple[float | None, str | None]:
    """Time (s) at which a trial first reached the target, and its name; None for both if none did."""
    target = sweep["target"]
    if target is None:
        return None, None
    sign = -1 if sweep["goal"] == "maximize" else 1
    reports = ((trial.name, history.jobs[trial.name].reports) for trial in trials)
    moments = [(at_s, name) for name, told in reports for at_s, value in told if sign * value <= sign * target]
    return min(moments, default=(None, None))
