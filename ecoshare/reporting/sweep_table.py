"""The sweeps of a run in the table that ends it: their counts, and the trials that do best."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.reporting.units import number

_MOST_NAMES = 6


def print_sweep(sweep: dict[str, Any], console: Console) -> None:
    """Print one sweep."""
    for line in words(sweep):
        console.print(Text(line), soft_wrap=True)
    if not sweep["best"]:
        return
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = list(sweep["best"][0]["values"])[:_MOST_NAMES]
    source = f",\n{sweep['energy']['source']}" if sweep["energy"] is not None else ""
    table.add_column("trial", no_wrap=True)
    for name in (metric_name(sweep), *names, "steps", "JCT", f"energy{source}"):
        table.add_column(Text(name), justify="right", overflow="fold")
    for trial in sweep["best"]:
        table.add_row(
            Text(trial["name"]),
            number(trial["value"]),
            *(Text(short(trial["values"].get(name, "-"))) for name in names),
            str(trial["steps"]),
            "-" if trial["jct_s"] is None else format_duration(trial["jct_s"]),
            "-" if trial["energy"] is None else format_energy(trial["energy"]["value_j"]),
        )
    console.print(table)


def words(sweep: dict[str, Any]) -> list[str]:
    """What it came to, in a few lines."""
    counts = ", ".join(f"{count} {state}" for state, count in sorted(sweep["states"].items()))
    cost = ""
    if sweep["energy"] is not None:
        whole = sweep["device_energy_j"]
        cost = f"; {format_energy(sweep['energy']['value_j'])} {sweep['energy']['source']}"
        if whole is not None:
            cost += f" of the {format_energy(whole)} that the device took meanwhile"
    most = f", {sweep['trials']} trials" if sweep["trials"] is not None else ""
    lines = [f"sweep {sweep['name']} ({sweep['by']}{most}): {counts or 'none drawn'}{cost}"]
    if sweep["target"] is not None:
        lines.append(f"  {_target(sweep)}")
    if sweep["error"]:
        lines.append(f"  its sampler failed: {sweep['error']}")
    return lines


def _target(sweep: dict[str, Any]) -> str:
    what = f"{metric_name(sweep)} {number(sweep['target'])}"
    if sweep["target_trial"] is None:
        return f"no trial reached {what}"
    joules = "" if sweep["target_energy_j"] is None else f" and {format_energy(sweep['target_energy_j'])} of the device"
    return f"{what} reached first by {sweep['target_trial']}, after {format_duration(sweep['target_s'])}{joules}"


def metric_name(sweep: dict[str, Any]) -> str:
    """The metric in a word: what stands before the number in what is printed."""
    text: str = (sweep["metric"] or "value").split("{")[0]
    return text.strip().rstrip("=:").strip() or "value"


def short(text: str) -> str:
    """A value as people read it: a number to four digits."""
    try:
        value = float(text)
    except ValueError:
        return text
    return text if len(text) <= 6 else number(value)
