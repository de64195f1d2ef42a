"""A plan in words, for `--dry-run`."""

from __future__ import annotations

import os
import shlex
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecoshare.jobs.quantities import format_duration, format_size
from ecoshare.reporting.fused_words import asked_for

_MOST_ROWS = 50


def print_plan(plan: dict[str, Any], console: Console) -> None:
    """Print what would be run, and how."""
    device = plan["device"]
    shared = plan["lanes_share_memory"]
    memory = format_size(plan["memory_bytes"] // (1 if shared else plan["lanes"]))
    console.print(Text(f"device     {device['name']}  {device['model']}"), soft_wrap=True)
    options = "".join(f", {name} {value:g}" for name, value in plan["options"].items())
    console.print(f"objective  {plan['objective']}, policy {plan['policy']}{options}")
    words = f"{plan['lanes']} that share {memory}" if shared else f"{plan['lanes']} of {memory}"
    console.print(f"lanes      {words}, at most {plan['places_per_lane']} jobs in each")
    if fused := asked_for(plan):
        console.print(Text(f"isolation  lane: {fused}: jobs of one script and lane share a process"), soft_wrap=True)
    console.print()
    for sweep in plan["sweeps"]:
        _print_sweep(sweep, console)
    if not plan["jobs"]:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "class", "runs"):
        table.add_column(name)
    for name in ("arrival", "priority", "iterations"):
        table.add_column(name, justify="right")
    for job in plan["jobs"][:_MOST_ROWS]:
        table.add_row(
            Text(job["name"]),
            Text(job["class"]),
            Text(_runs(job), overflow="ellipsis"),
            format_duration(job["arrival_s"]),
            str(job["priority"]),
            "-" if job["iterations"] is None else str(job["iterations"]),
        )
    console.print(table)
    if len(plan["jobs"]) > _MOST_ROWS:
        console.print(f"… and {len(plan['jobs']) - _MOST_ROWS} more")


def _print_sweep(sweep: dict[str, Any], console: Console) -> None:
    """Print what a sweep tries, and how."""
    stop = f", stopped early by {sweep['stop']}" if sweep["stop"] else ""
    metric = f", {sweep['goal']} {sweep['metric']}" if sweep["metric"] else ""
    head = f"sweep {sweep['name']}: {sweep['trials']} trials by {sweep['by']}, at most {sweep['parallel']} at once"
    console.print(Text(f"{head}{metric}{stop}"), soft_wrap=True)
    console.print(Text(f"  runs {_runs(sweep)}"), soft_wrap=True)
    for name, values in sweep["space"].items():
        console.print(Text(f"  {name}: {values}"), soft_wrap=True)
    console.print()


def _runs(job: dict[str, Any]) -> str:
    program = [_short(job["script"])] if job["script"] else ["-m", job["module"]]
    return shlex.join([*program, *job["args"]])


def _short(path: str) -> str:
    """A path as one would type it here."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
