"""The table that ends a run, drawn from its summary."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.settings import setting_words
from ecoshare.reporting.sweep_table import print_sweep
from ecoshare.reporting.verdicts import sharing, verdicts
from ecoshare.reporting.windows import search_energy_j

_MOST_ERRORS = 10


def print_summary(summary: dict[str, Any], console: Console) -> None:
    """Print the jobs, the totals, why jobs failed, and where to look further."""
    own = [job for job in summary["jobs"] if job["sweep"] is None]
    if own:
        _print_jobs(own, console)
        console.print()
    for sweep in summary["sweeps"]:
        print_sweep(sweep, console)
        console.print()
    if answer := sharing(summary):
        console.print(Text(answer, style="bold"), soft_wrap=True)
    console.print(Text(totals(summary)), soft_wrap=True)
    if summary["windows"]:
        console.print(Text(measured(summary)), soft_wrap=True)
    if tried := settings_tried(summary):
        console.print(Text(tried), soft_wrap=True)
    for line in verdicts(summary):
        console.print(Text(line), soft_wrap=True)
    for each in summary["settings"][:_MOST_ERRORS]:
        console.print(Text(f"set: {setting_words(each)}"), soft_wrap=True)
    failed = [job for job in summary["jobs"] if job["error"] and job["state"] != "pruned"]
    for job in failed[:_MOST_ERRORS]:
        console.print(Text.assemble((job["name"], "red"), f": {job['error']}"), soft_wrap=True)
    if len(failed) > _MOST_ERRORS:
        console.print(f"… and {len(failed) - _MOST_ERRORS} more; see summary.json")
    console.print(Text(f"run folder: {summary['run']}"), soft_wrap=True)


def _print_jobs(jobs: list[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    narrow = console.width < 80
    table.add_column("job", overflow="fold", min_width=6)
    table.add_column("state", no_wrap=True)
    sources = {job["energy"]["source"] for job in jobs if job["energy"] is not None}
    source = f",\n{sources.pop()}" if len(sources) == 1 else ""
    for name in ("JCT", *(() if narrow else ("queued",)), "slowdown", "iterations", f"energy{source}"):
        table.add_column(name, justify="right", no_wrap=True)
    for job in jobs:
        table.add_row(
            Text(job["name"]),
            Text(job["state"], style=COLOURS.get(job["state"], "")),
            _duration(job["jct_s"]),
            *(() if narrow else (_duration(job["queue_s"]),)),
            "-" if job["slowdown"] is None else f"{job['slowdown']:.2f}",
            iterations(job),
            _joules(job["energy"]) if source else energy(job["energy"]),
        )
    console.print(table)


def totals(summary: dict[str, Any]) -> str:
    """Makespan, mean JCT and energy in one line."""
    completed = sum(job["state"] == "completed" for job in summary["jobs"])
    of = "" if completed == len(summary["jobs"]) else f" of the {completed} completed"
    parts = [f"makespan {_duration(summary['makespan_s'])}", f"mean JCT {_duration(summary['mean_jct_s'])}{of}"]
    if summary["energy"] is not None:
        idle = format_energy(summary["idle_energy_j"])
        if summary["idle_power_w"] is None:
            idle += " (the draw at rest is not known: the jobs' part has it)"
        parts.append(f"energy {energy(summary['energy'])} of which idle {idle} ({summary['energy']['about']})")
    else:
        parts.append("energy not known")
    return ", ".join(parts)


def measured(summary: dict[str, Any]) -> str:
    """What measuring new classes cost, in one line."""
    made = [window for window in summary["windows"] if window["error"] is None]
    known = [window["lost_s"] for window in made if window["lost_s"] is not None]
    lost_s = sum(known) if known else None
    spent = search_energy_j(summary["windows"])
    source = summary["energy"]["source"] if summary["energy"] is not None else ""
    cost = f" and {format_energy(spent)} {source}" if spent is not None and source else ""
    classes = f"{len(made)} new class" + ("" if len(made) == 1 else "es")
    failed = (
        f"; {len(summary['windows']) - len(made)} windows came to nothing"
        if len(made) < len(summary["windows"])
        else ""
    )
    return f"measured {classes}, which cost {_duration(lost_s)}{cost} beyond the work done meanwhile{failed}"


def settings_tried(summary: dict[str, Any]) -> str:
    """How many settings were tried, and what that cost, in one line; empty where none was."""
    searched = [each for each in summary["packings"] if each["settings_tried"]]
    if not searched:
        return ""
    count = sum(each["settings_tried"] for each in searched)
    whole_j, windows_j = summary["search_energy_j"], search_energy_j(summary["windows"])
    cost = ""
    if whole_j is not None:
        cost = (
            f", which cost {format_energy(whole_j - (windows_j or 0.0))} {summary['energy']['source']} beyond the work"
        )
    of = "1 packing" if len(searched) == 1 else f"{len(searched)} packings"
    return f"tried {count} setting{'' if count == 1 else 's'} of {of}{cost}"


def energy(value: dict[str, Any] | None) -> str:
    """Joules with the word that says how they are known."""
    return _joules(value) if value is None else f"{_joules(value)} {value['source']}"


def _joules(value: dict[str, Any] | None) -> str:
    """Joules under a heading that says how they are known."""
    return "-" if value is None else format_energy(value["value_j"])


def iterations(job: dict[str, Any]) -> str:
    """Training iterations, and those of evaluation apart."""
    evaluated = f" +{job['eval_iterations']} eval" if job["eval_iterations"] else ""
    return f"{job['iterations']}{evaluated}"


def _duration(value_s: float | None) -> str:
    return "-" if value_s is None else format_duration(value_s)
