"""Result of a run's sweeps: the best trials or configurations in order, and the cost of each sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan, sqrt
from typing import Any

from ecoshare.base.job_spec import Configuration
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.plan_document import PlanDocument, SweepDocument
from ecoshare.record.results.costs_and_savings import all_spent_j
from ecoshare.record.results.energy_summary import JobEnergy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.run_history import RunHistory

MOST_BEST = 10
"""Most trials or configurations in a list of the best."""


@dataclass(frozen=True, slots=True)
class ConfigurationResult:
    """Result of the completed trials of one configuration, which differ in their seed alone.

    Attributes:
        values: Values of the configuration by name.
        value: Mean of the last values of its trials.
        error: Standard error of that mean; None if no configuration has two completed trials.
        trials: Names of the trials.
    """

    values: dict[str, str]
    value: float
    error: float | None
    trials: tuple[str, ...]


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
        configurations: Best configurations, in order, if the trials differ in a seed; else empty.
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
    configurations: tuple[ConfigurationResult, ...] = ()
    energy: SweepEnergy | None = None
    device_energy_j: float | None = None
    target: float | None = None
    target_trial: str | None = None
    target_s: float | None = None
    target_energy_j: float | None = None
    error: str | None = None


def with_trials(plan: PlanDocument, history: RunHistory) -> PlanDocument:
    """Plan with the drawn trials added to its jobs, in the order in which they were drawn."""
    templates = {sweep.name: sweep for sweep in plan.sweeps}
    trials = {
        name: templates[job.spec.sweep].trial(name, dict(job.spec.values))
        for name, job in history.jobs.items()
        if job.spec is not None and job.spec.sweep in templates
    }
    jobs = [*(job for job in plan.jobs if job.name not in trials), *trials.values()]
    return plan.model_copy(update={"jobs": jobs})


def sweeps(
    plan: PlanDocument, jobs: Sequence[JobSummary], history: RunHistory, energy: RunEnergy
) -> list[SweepSummary]:
    """Counts, best trials and costs of each sweep.

    Args:
        plan: The plan.
        jobs: Jobs of the summary, trials included.
        history: History of the run.
        energy: Joules of the run.
    """
    own: dict[str, list[JobSummary]] = {sweep.name: [] for sweep in plan.sweeps}
    for job in jobs:
        if job.sweep is not None:
            own[job.sweep].append(job)
    return [_sweep(sweep, own[sweep.name], history, energy) for sweep in plan.sweeps]


def _sweep(sweep: SweepDocument, trials: list[JobSummary], history: RunHistory, energy: RunEnergy) -> SweepSummary:
    began_s = min((trial.arrival_s for trial in trials if trial.arrival_s is not None), default=0.0)
    ended_s = max((trial.finish_s for trial in trials if trial.finish_s is not None), default=None)
    reached_s, which = _first(sweep, trials, history)
    own = [trial.energy for trial in trials if trial.energy is not None]
    return SweepSummary(
        name=sweep.name,
        by=sweep.by,
        space=sweep.space,
        metric=sweep.metric,
        goal=sweep.goal,
        trials=sweep.trials,
        exhausted=sweep.name in history.exhausted,
        states=dict(Counter(trial.state for trial in trials)),
        best=tuple(_best(trial) for trial in ranked(trials, sweep.goal)[:MOST_BEST]),
        configurations=tuple(_configurations(sweep, trials)[:MOST_BEST]),
        energy=SweepEnergy(sum(each.value_j for each in own), own[0].source) if own else None,
        device_energy_j=all_spent_j(energy.everywhere(began_s, ended_s)) if ended_s is not None else None,
        target=sweep.target,
        target_trial=which,
        target_s=reached_s - began_s if reached_s is not None else None,
        target_energy_j=all_spent_j(energy.everywhere(began_s, reached_s)) if reached_s is not None else None,
        error=history.exhausted.get(sweep.name) or None,
    )


def ranked(trials: Iterable[JobSummary], goal: str) -> list[JobSummary]:
    """Completed trials with a value, the best first."""
    known = [(trial.value, trial) for trial in trials if trial.state == "completed" and trial.value is not None]
    return [trial for _, trial in sorted(known, key=lambda each: each[0], reverse=goal == "maximize")]


def _configurations(sweep: SweepDocument, trials: Sequence[JobSummary]) -> list[ConfigurationResult]:
    """Configurations in order; empty if none was to be repeated."""
    replicates = sweep.replicates
    of = {
        trial.name: tuple((key, str(each)) for key, each in trial.values.items() if key not in replicates)
        for trial in trials
    }
    if not replicates or len(set(of.values())) == len(trials):
        return []
    through = (
        (trial.name, of[trial.name], trial.value)
        for trial in trials
        if trial.state == "completed" and trial.value is not None
    )
    return ranked_configurations(through, sweep.goal == "maximize")


def ranked_configurations(
    trials: Iterable[tuple[str, Configuration, float]], maximise: bool = False
) -> list[ConfigurationResult]:
    """Configurations of completed trials, the best first.

    The order goes by the end of the mean's standard error that is worse for the configuration. Thus one that owes its
    mean to a single lucky trial is not first. The standard deviation of a trial is taken to be that of all
    configurations together: a few trials of one tell little about it.

    Args:
        trials: Name, configuration and last value of each trial.
        maximise: Whether larger values are better.
    """
    own: dict[Configuration, list[tuple[str, float]]] = {}
    for name, configuration, value in trials:
        own.setdefault(configuration, []).append((name, value))
    means = {each: sum(value for _, value in told) / len(told) for each, told in own.items()}
    squares = [(value - means[each]) ** 2 for each, told in own.items() for _, value in told if isfinite(means[each])]
    freedom = sum(len(told) - 1 for each, told in own.items() if isfinite(means[each]))
    deviation = sqrt(sum(squares) / freedom) if freedom else None
    found = [
        ConfigurationResult(
            dict(each),
            means[each],
            None if deviation is None else deviation / sqrt(len(told)),
            tuple(name for name, _ in told),
        )
        for each, told in own.items()
    ]

    def at_worst(result: ConfigurationResult) -> tuple[bool, float]:
        worst = (-result.value if maximise else result.value) + (result.error or 0.0)
        return isnan(worst), worst

    return sorted(found, key=at_worst)


def _best(trial: JobSummary) -> BestTrial:
    assert trial.value is not None, "trials without a value have no rank"
    return BestTrial(trial.name, trial.value, trial.values, trial.steps, trial.jct_s, trial.energy)


def _first(sweep: SweepDocument, trials: Iterable[JobSummary], history: RunHistory) -> tuple[float | None, str | None]:
    """Time (s) at which a trial first reached the target, and its name; None for both if none did."""
    target = sweep.target
    if target is None:
        return None, None
    sign = -1 if sweep.goal == "maximize" else 1
    reports = ((trial.name, history.jobs[trial.name].reports) for trial in trials)
    moments = [(at_s, name) for name, told in reports for at_s, value in told if sign * value <= sign * target]
    return min(moments, default=(None, None))
