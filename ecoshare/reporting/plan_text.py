"""Prints the plan of a run, for `--dry-run`."""

from __future__ import annotations

import os
import shlex

from rich.console import Console
from rich.text import Text

from ecoshare.base.attempt import Outcome
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_size, number
from ecoshare.record.plan_document import JobDocument, PlanDocument, SweepDocument
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.figures import say
from ecoshare.reporting.reason_words import listed
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

_MOST_REASONS = 3


def fused_words(history: RunHistory) -> list[str]:
    """Lines about the jobs that may share a process; none if no such job started.

    Args:
        history: History of the run.
    """
    specs = {name: job.spec for name, job in history.jobs.items() if job.spec is not None and job.spec.fused}
    refused = {(each.job, each.number) for each in history.attempts if each.was_refused}
    commands = [command for name in specs for command in history.jobs[name].starts.values()]
    started = {key: each for each in commands if (key := (each.job, each.attempt)) not in refused}
    exits = sorted((event for job in history.jobs.values() for event in job.exits.values()), key=lambda each: each.at_s)
    moved = {(each.job, each.attempt): each.reason for each in exits if each.outcome is Outcome.MOVED_OUT}
    if not started:
        return []
    shared = {key: each for key, each in started.items() if each.fused and key not in moved}
    jobs = {job for job, _ in shared}
    # Each lane and script has one process. A process that replaced a dead one is not counted.
    processes = {(each.lanes, _script(specs[each.job])) for each in shared.values()}
    alone = {job for job, _ in started} - jobs - {job for job, _ in moved}
    parts = [f"{counted(len(jobs), 'job')} ran in {counted(len(processes), 'shared process', 'shared processes')}"]
    if alone:
        why = "a process is shared no more once a job was moved out" if moved else "until their memory was known"
        parts.append(f"{len(alone)} in {'a process of its' if len(alone) == 1 else 'processes of their'} own ({why})")
    lines = [f"isolation lane: {', '.join(parts)}"]
    lines += [f"moved out to a process of its own: {job}: {reason}" for (job, _), reason in moved.items()][
        :_MOST_REASONS
    ]
    if len(moved) > _MOST_REASONS:
        lines.append(f"{counted(len(moved) - _MOST_REASONS, 'more job')} moved out")
    return lines


def asked_for(plan: PlanDocument) -> str:
    """Names of the jobs and sweeps of a plan that may share a process; empty if there are none."""
    names = [job.name for job in _everything(plan) if job.isolation == "lane"]
    more = len(names) - _MOST_REASONS
    return ", ".join(names[:_MOST_REASONS]) + (f" and {more} more" if more > 0 else "")


def _script(spec: JobSpec) -> str:
    return spec.solo.family if spec.solo is not None else spec.job_class


_MOST_ROWS = 50


def print_plan(plan: PlanDocument, console: Console) -> None:
    """Print device, objective, policy, lanes, sweeps and jobs of a plan."""
    several = len(plan.devices) > 1
    for place, device in enumerate(plan.devices):
        heading = "" if place else "devices" if several else "device"
        part = f", {counted(device['cores'], 'core')}" if device.get("processors") else ""
        say(console, f"{heading:9}  {device['name']}  {device['model']}{part}")
    memory = format_size(min(device["memory_bytes"] for device in plan.devices))
    options = "".join(f", {name} {value:g}" for name, value in plan.options.items())
    say(console, f"objective  {plan.objective}, policy {plan.policy}{options}")
    words = f"{plan.lanes} that share {memory}" if plan.lanes > 1 else f"1 of {memory}"
    where = " on each device" if several else ""
    say(console, f"lanes      {words}{where}, at most {counted(plan.places_per_lane, 'job')} in each")
    if plan.host_bytes:
        say(console, f"parked     jobs may have {format_size(plan.host_bytes)} of host memory")
    if budget := plan.power_budget:
        how = "power limits" if budget.by == "limits" else "the choice of the jobs that start"
        say(console, f"power      at most {number(budget.watts)} W for all devices together, by {how}")
    if launchers := [f"{job.name} ({job.launcher})" for job in _everything(plan) if job.launcher]:
        say(console, f"launchers  {listed(launchers)}: each keeps its lane from start to end for child processes")
    if fused := asked_for(plan):
        say(console, f"isolation  lane: {fused}: jobs of one script and lane share a process")
    console.print()
    for sweep in plan.sweeps:
        _print_sweep(sweep, console)
    if not plan.jobs:
        return
    print_columns(_columns(plan.jobs[:_MOST_ROWS]), console)
    if len(plan.jobs) > _MOST_ROWS:
        console.print(f"… and {len(plan.jobs) - _MOST_ROWS} more")


def _everything(plan: PlanDocument) -> list[JobDocument]:
    """Jobs of a plan, and the common part of the trials of each sweep."""
    return [*plan.jobs, *plan.sweeps]


def _columns(jobs: list[JobDocument]) -> list[TableColumn]:
    iterations = [Text(_iterations(job)) for job in jobs]
    arrivals = [Text(format_duration(job.arrival_s)) for job in jobs]
    return [
        TableColumn(Text("job"), [Text(job.name) for job in jobs], is_name=True),
        TableColumn(Text("class"), [Text(job.job_class) for job in jobs], is_name=True, lesser=3),
        TableColumn(Text("runs"), [Text(_runs(job)) for job in jobs], is_name=True),
        TableColumn(Text("arrival"), arrivals, right=True, lesser=2),
        TableColumn(Text("priority"), [Text(str(job.priority)) for job in jobs], right=True, lesser=4),
        TableColumn(Text("iterations"), iterations, right=True, lesser=1),
    ]


def _print_sweep(sweep: SweepDocument, console: Console) -> None:
    """Print sampler, metric, early stopping, command and search space of a sweep."""
    stop = f", stopped early by {sweep.stop}" if sweep.stop else ""
    metric = f", {sweep.goal} {sweep.metric}" if sweep.metric else ""
    trials = counted(sweep.trials or 0, "trial")
    head = f"sweep {sweep.name}: {trials} by {sweep.by}, at most {sweep.parallel} at once"
    say(console, f"{head}{metric}{stop}")
    say(console, f"  runs {_runs(sweep)}")
    for name, values in sweep.space.items():
        say(console, f"  {name}: {values}")
    console.print()


def _runs(job: JobDocument) -> str:
    program = [_short(job.script)] if job.script else ["-m", job.module or ""]
    return shlex.join([*program, *job.args])


def _iterations(job: JobDocument) -> str:
    """Number of iterations; `~` marks a number that was learned from earlier runs."""
    if job.iterations is None:
        return "-"
    return f"{'~' if job.iterations_learned is not None else ''}{job.iterations}"


def _short(path: str) -> str:
    """Path relative to the current folder, if it lies below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
