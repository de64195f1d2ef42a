"""Summary of a run's sweeps: the best trials in order, and the cost of each sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ecoshare.core.commands import AskSampler, Command, StartJob
from ecoshare.core.events import Event, Exhausted, JobArrived, Reported, RunOpened
from ecoshare.record.energy_account import EnergyAccount
from ecoshare.record.window_costs import all_spent_j

MOST_BEST = 10
"""Most trials in the list of the best."""


def with_trials(plan: dict[str, Any], entries: Iterable[Event | Command]) -> dict[str, Any]:
    """Plan with the drawn trials added to its jobs, in the order in which they were drawn."""
    templates = {sweep["name"]: sweep for sweep in plan.get("sweeps", ())}
    if not templates:
        return plan
    trials: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, JobArrived) and entry.job.sweep in templates and entry.job.name not in trials:
            template = templates[entry.job.sweep]
            own = {"name": entry.job.name, "sweep": entry.job.sweep, "values": dict(entry.job.values)}
            trials[entry.job.name] = {**template, **own}
    own_jobs = [{"sweep": None, "values": {}, **job} for job in plan["jobs"] if job["name"] not in trials]
    return {**plan, "jobs": [*own_jobs, *trials.values()]}


def reported(entries: Iterable[Event | Command]) -> dict[str, list[tuple[float, float]]]:
    """Reports of each trial in its last attempt: time (s) and value."""
    values: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        if isinstance(entry, StartJob):
            values.pop(entry.job, None)
        elif isinstance(entry, Reported):
            values.setdefault(entry.job, []).append((entry.at_s, entry.value))
    return values


def sweeps(
    plan: dict[str, Any],
    jobs: Sequence[dict[str, Any]],
    told: Mapping[str, Sequence[tuple[float, float]]],
    entries: Iterable[Event | Command],
    account: EnergyAccount,
) -> list[dict[str, Any]]:
    """Counts, best trials and costs of each sweep, as in docs/summary.md.

    Args:
        plan: Content of plan.json.
        jobs: Jobs of the summary, trials included.
        told: Reports of each trial: time (s) and value.
        entries: Entries of the event log, in order.
        account: Energy account of the run.
    """
    if not plan.get("sweeps"):
        return []
    over = _exhausted(entries)
    own: dict[str, list[dict[str, Any]]] = {sweep["name"]: [] for sweep in plan["sweeps"]}
    for job in jobs:
        if job["sweep"] is not None:
            own[job["sweep"]].append(job)
    return [_sweep(sweep, own[sweep["name"]], told, account, over) for sweep in plan["sweeps"]]


def _sweep(
    sweep: dict[str, Any],
    trials: list[dict[str, Any]],
    told: Mapping[str, Sequence[tuple[float, float]]],
    account: EnergyAccount,
    over: Mapping[str, str],
) -> dict[str, Any]:
    began_s = min((trial["arrival_s"] for trial in trials if trial["arrival_s"] is not None), default=0.0)
    ended_s = max((trial["finish_s"] for trial in trials if trial["finish_s"] is not None), default=None)
    reached_s, which = _first(sweep, [(trial["name"], told.get(trial["name"], ())) for trial in trials])
    own = [trial["energy"] for trial in trials if trial["energy"] is not None]
    return {
        "name": sweep["name"],
        "by": sweep["by"],
        "space": sweep["space"],
        "metric": sweep["metric"],
        "goal": sweep["goal"],
        "trials": sweep["trials"],
        "exhausted": sweep["name"] in over,
        "states": dict(Counter(trial["state"] for trial in trials)),
        "best": [_best(trial) for trial in ranked(trials, sweep["goal"])[:MOST_BEST]],
        "energy": {"value_j": sum(each["value_j"] for each in own), "source": own[0]["source"]} if own else None,
        "device_energy_j": all_spent_j(account, [(began_s, ended_s)]) if ended_s is not None else None,
        "target": sweep["target"],
        "target_trial": which,
        "target_s": reached_s - began_s if reached_s is not None else None,
        "target_energy_j": all_spent_j(account, [(began_s, reached_s)]) if reached_s is not None else None,
        "error": over.get(sweep["name"]) or None,
    }


def _exhausted(entries: Iterable[Event | Command]) -> dict[str, str]:
    """Sweeps with an exhausted sampler, each with the sampler's error, or an empty text without one."""
    asked: dict[int, str] = {}
    over: dict[str, str] = {}
    for entry in entries:
        match entry:
            case RunOpened():
                asked.clear()  # a resumed run counts its commands anew
            case AskSampler():
                asked[entry.id] = entry.sweep
            case Exhausted():
                over[asked[entry.command]] = entry.error or over.get(asked[entry.command], "")
    return over


def ranked(trials: Iterable[dict[str, Any]], goal: str) -> list[dict[str, Any]]:
    """Completed trials with a value, the best first."""
    known = [trial for trial in trials if trial["state"] == "completed" and trial["value"] is not None]
    return sorted(known, key=lambda trial: trial["value"], reverse=goal == "maximize")


def _best(trial: dict[str, Any]) -> dict[str, Any]:
    return {name: trial[name] for name in ("name", "value", "values", "steps", "jct_s", "energy")}


def _first(
    sweep: dict[str, Any], told: Iterable[tuple[str, Sequence[tuple[float, float]]]]
) -> tuple[float | None, str | None]:
    """Time (s) at which a trial first reached the target, and its name; None for both if none did."""
    target = sweep["target"]
    if target is None:
        return None, None
    sign = -1 if sweep["goal"] == "maximize" else 1
    moments = [(at_s, name) for name, values in told for at_s, value in values if sign * value <= sign * target]
    return min(moments, default=(None, None))
