"""Prints the result of a run from its summary: tables of jobs and sweeps, totals and errors."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.record.results.costs_and_savings import search_energy_j
from ecoshare.record.results.energy_summary import DeviceEnergy, JobEnergy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.setting_history import setting_words
from ecoshare.reporting.figures import printable, with_steps
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.prose import say
from ecoshare.reporting.reason_words import listed
from ecoshare.reporting.service_table import print_services
from ecoshare.reporting.sweep_table import print_sweep
from ecoshare.reporting.text_table import TableColumn, print_columns
from ecoshare.reporting.verdicts import sharing, verdicts

_MOST_ERRORS = 10

_CONTEXTS_W = 5.0
"""Power (W) of contexts from which on it is told."""

_LESSER = {"queued": 3, "iterations": 2, "slowdown": 1}
"""Columns that a narrow terminal drops, the largest number first. summary.json has all of them."""


def print_summary(summary: RunSummary, console: Console, with_meter: bool = True) -> None:
    """Print jobs, sweeps, totals, settings, errors and the run folder.

    Args:
        with_meter: Whether the totals say what gave the joules.
    """
    own = [job for job in summary.jobs if job.sweep is None]
    if own:
        _print_jobs(own, console, len(summary.devices) > 1)
        console.print()
    if any(job.service is not None for job in own):
        print_services(own, console)
        console.print()
    for sweep in summary.sweeps:
        print_sweep(sweep, console)
        console.print()
    if answer := sharing(summary):
        say(console, printable(answer, console.encoding), "bold")
    say(console, totals(summary, with_meter))
    for line in devices(summary):
        say(console, line)
    if summary.windows:
        say(console, measured(summary))
    if tried := settings_tried(summary):
        say(console, tried)
    for line in verdicts(summary):
        say(console, line)
    for line in kept_lanes(summary)[:_MOST_ERRORS]:
        say(console, printable(line, console.encoding))
    if beside := beside_the_gpu(summary):
        say(console, printable(beside, console.encoding), "yellow")
    if moved := parked(summary):
        say(console, printable(moved, console.encoding))
    if summary.power_budget is not None:
        say(console, summary.power_budget.words)
    for each in summary.settings[:_MOST_ERRORS]:
        say(console, f"set: {setting_words(each)}")
    failed = [job for job in summary.jobs if job.error and job.state != "pruned"]
    for job in failed[:_MOST_ERRORS]:
        say(console, Text.assemble((job.name, "red"), f": {job.error}"))
    if len(failed) > _MOST_ERRORS:
        console.print(f"… and {len(failed) - _MOST_ERRORS} more; see summary.json")
    say(console, f"run folder: {summary.run}")


def _print_jobs(jobs: Sequence[JobSummary], console: Console, with_devices: bool) -> None:
    sources = {job.energy.source for job in jobs if job.energy is not None}
    source = f",\n{sources.pop()}" if len(sources) == 1 else ""
    cells = {
        "JCT": [_duration(job.jct_s) for job in jobs],
        "queued": [_duration(job.queue_s) for job in jobs],
        "slowdown": ["-" if job.slowdown is None else f"{job.slowdown:.2f}" for job in jobs],
        "iterations": [iterations(job) for job in jobs],
        f"energy{source}": [_joules(job.energy) if source else energy(job.energy) for job in jobs],
    }
    states = [Text(job.state, style=COLOURS.get(job.state, "")) for job in jobs]
    columns = [
        TableColumn(Text("job"), [Text(job.name) for job in jobs], is_name=True),
        TableColumn(Text("state"), states),
        *([TableColumn(Text("device"), [Text(",".join(job.devices)) for job in jobs])] if with_devices else []),
        *(
            TableColumn(Text(heading), list(map(Text, written)), right=True, lesser=_LESSER.get(heading, 0))
            for heading, written in cells.items()
        ),
    ]
    print_columns(columns, console)


def totals(summary: RunSummary, with_meter: bool = True) -> str:
    """Makespan, mean JCT and energy in one line, and what gave the joules."""
    jobs = len(summary.jobs)
    completed = sum(job.state == "completed" for job in summary.jobs)
    parts = [] if summary.makespan_s is None else [f"makespan {format_duration(summary.makespan_s)}"]
    if completed == 0:
        parts.append("no job completed")
    else:
        of = "" if completed == jobs else f" of {counted(completed, 'completed job')}"
        parts.append(f"mean JCT {_duration(summary.mean_jct_s)}{of}")
    if summary.energy is not None:
        idle = format_energy(summary.idle_energy_j or 0.0)
        if summary.idle_power_w is None:
            idle += " (the draw at rest is not known: the jobs' part has it)"
        elif summary.empty_power_w is not None and summary.idle_power_w - summary.empty_power_w >= _CONTEXTS_W:
            idle += f" ({summary.empty_power_w:.0f} W before the first job, {summary.idle_power_w:.0f} W with contexts)"
        meter = f" ({summary.energy.about}; told once, `ecoshare doctor` tells it again)" if with_meter else ""
        parts.append(f"energy {energy(summary.energy)} of which idle {idle}{meter}")
    else:
        parts.append("energy not known")
    return ", ".join(parts)


def devices(summary: RunSummary) -> list[str]:
    """Jobs, energy and idle part of each device, one line each; empty for one device: the totals are its own."""
    if len(summary.devices) == 1:
        return []
    lines = []
    for each in summary.devices:
        jobs = sum(each.name in job.devices for job in summary.jobs)
        joules = "energy not known"
        if each.energy is not None:
            joules = f"energy {energy(each.energy)} of which idle {format_energy(each.idle_energy_j or 0.0)}"
        failed = "" if each.failed is None else f", {each.failed.in_words}"
        lines.append(f"{each.name}: {counted(jobs, 'job')}, {joules}{failed}")
    return lines


def measured(summary: RunSummary) -> str:
    """Cost of measuring new classes, in one line. The run must have at least one window."""
    made = [window for window in summary.windows if window.error is None]
    missed = len(summary.windows) - len(made)
    failed = f"{counted(missed, 'window')} came to nothing"
    if not made:
        return f"no new class was measured: {failed}"
    known = [window.lost_s for window in made if window.lost_s is not None]
    spent = search_energy_j(summary.windows)
    source = summary.energy.source if summary.energy is not None else ""
    costs = [format_duration(sum(known))] if known else []
    costs += [f"{format_energy(spent)} {source}"] if spent is not None and source else []
    words = f"measured {counted(len(made), 'new class', 'new classes')}"
    words += (
        f", which cost {' and '.join(costs)} beyond the work done meanwhile" if costs else "; the cost is not known"
    )
    return f"{words}; {failed}" if missed else words


def settings_tried(summary: RunSummary) -> str:
    """Number of settings that were measured, and their cost, in one line; empty if there were none.

    Limits that keep a power budget are no such settings.
    """
    if summary.power_budget is not None and summary.power_budget.sets_limits:
        return ""
    searched = [each for each in summary.packings if each.settings_tried]
    if not searched:
        return ""
    count = sum(each.settings_tried for each in searched)
    whole_j, windows_j = summary.search_energy_j, search_energy_j(summary.windows)
    cost = ""
    if whole_j is not None and summary.energy is not None:
        cost = f", which cost {format_energy(whole_j - (windows_j or 0.0))} {summary.energy.source} beyond the work"
    return f"tried {counted(count, 'setting')} of {counted(len(searched), 'packing')}{cost}"


def kept_lanes(summary: RunSummary) -> list[str]:
    """Lines about the jobs that kept their lanes to their ends, one for each reason."""
    names: dict[tuple[str, bool], list[str]] = {}
    for job in summary.jobs:
        if job.keeps_lane:
            names.setdefault((job.keeps_lane, job.iterations > 0), []).append(job.name)
    return [
        f"{listed(jobs)} kept {'its lane to its end' if len(jobs) == 1 else 'their lanes to their ends'}: {why}"
        + ("" if are_seen else "; iterations of child processes are not seen")
        for (why, are_seen), jobs in names.items()
    ]


def beside_the_gpu(summary: RunSummary) -> str:
    """Jobs that never used their GPU, in one line; empty if there is none."""
    jobs = [job.name for job in summary.jobs if job.is_beside_its_gpu]
    if not jobs:
        return ""
    return (
        f"{listed(jobs)} never used the GPU and did all work on the processors, of which the joules are not known "
        "(does the script choose a device?)"
    )


def parked(summary: RunSummary) -> str:
    """Jobs that were parked and for how long, in one line; empty if none was."""
    jobs = [job for job in summary.jobs if job.parks]
    told = [f"{job.name} {counted(job.parks, 'time')} for {format_duration(job.parked_s)}" for job in jobs]
    return f"parked for other jobs: {listed(told)}" if told else ""


def energy(value: DeviceEnergy | JobEnergy | None) -> str:
    """Joules with their source, such as `measured`; `-` if they are not known."""
    return _joules(value) if value is None else f"{_joules(value)} {value.source}"


def _joules(value: DeviceEnergy | JobEnergy | None) -> str:
    """Joules without their source, for a column with the source in its heading."""
    return "-" if value is None else format_energy(value.value_j)


def iterations(job: JobSummary) -> str:
    """Number of training iterations, followed by that of evaluation iterations. Those of child processes are unseen."""
    if job.keeps_lane and not job.iterations and not job.eval_iterations:
        return "not seen"
    evaluated = f" +{job.eval_iterations} eval" if job.eval_iterations else ""
    return with_steps(str(job.iterations), job.by_steps) + evaluated


def _duration(value_s: float | None) -> str:
    return "-" if value_s is None else format_duration(value_s)
