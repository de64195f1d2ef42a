"""Prints a sweep at the end of a run: counts, energy, target, and a table of the best trials or configurations."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy, number
from ecoshare.record.results.sweep_summary import SweepSummary
from ecoshare.reporting.prose import say
from ecoshare.reporting.text_table import TableColumn, print_columns

_MOST_NAMES = 6


def print_sweep(sweep: SweepSummary, console: Console) -> None:
    """Print one sweep."""
    for line in words(sweep):
        say(console, line)
    if not sweep.best:
        return
    console.print()
    print_columns(list(_configurations(sweep) if sweep.configurations else _trials(sweep)), console)


def _configurations(sweep: SweepSummary) -> Iterator[TableColumn]:
    best = sweep.configurations
    for place, name in enumerate(list(best[0].values)[:_MOST_NAMES]):
        yield _figures(
            name, [short(each.values[name]) for each in best], lesser=0 if place < 2 else place, is_name=True
        )
    yield _figures(f"{metric_name(sweep.metric)},\nmean", [number(each.value) for each in best], is_name=True)
    yield _figures("standard\nerror", ["-" if each.error is None else number(each.error) for each in best])
    names = [Text(", ".join(each.trials)) for each in best]
    yield TableColumn(Text("trials"), names, lesser=_MOST_NAMES + 1, is_prose=True)


def _trials(sweep: SweepSummary) -> Iterator[TableColumn]:
    best = sweep.best
    source = f",\n{sweep.energy.source}" if sweep.energy is not None else ""
    yield TableColumn(Text("trial"), [Text(trial.name) for trial in best], is_name=True)
    yield _figures(metric_name(sweep.metric), [number(trial.value) for trial in best], is_name=True)
    for place, name in enumerate(list(best[0].values)[:_MOST_NAMES]):
        values = [short(trial.values.get(name, "-")) for trial in best]
        yield _figures(name, values, lesser=1 + place, is_name=True)
    yield _figures("steps", [str(trial.steps) for trial in best], lesser=_MOST_NAMES + 2)
    times = ["-" if trial.jct_s is None else format_duration(trial.jct_s) for trial in best]
    yield _figures("JCT", times, lesser=_MOST_NAMES + 1)
    joules = ["-" if trial.energy is None else format_energy(trial.energy.value_j) for trial in best]
    yield _figures(f"energy{source}", joules)


def _figures(heading: str, cells: list[str], lesser: int = 0, is_name: bool = False) -> TableColumn:
    return TableColumn(Text(heading), [Text(cell) for cell in cells], right=True, lesser=lesser, is_name=is_name)


def words(sweep: SweepSummary) -> list[str]:
    """Result of a sweep in a few lines: counts by state, energy, target and error."""
    counts = ", ".join(f"{count} {state}" for state, count in sorted(sweep.states.items()))
    cost = ""
    if sweep.energy is not None:
        whole = sweep.device_energy_j
        cost = f"; {format_energy(sweep.energy.value_j)} {sweep.energy.source}"
        if whole is not None:
            cost += f" of the {format_energy(whole)} that the device took meanwhile"
    most = f", {counted(sweep.trials, 'trial')}" if sweep.trials is not None else ""
    lines = [f"sweep {sweep.name} ({sweep.by}{most}): {counts or 'none drawn'}{cost}"]
    if sweep.target is not None:
        lines.append(f"  {_target(sweep)}")
    if sweep.error:
        lines.append(f"  its sampler failed: {sweep.error}")
    return lines


def _target(sweep: SweepSummary) -> str:
    assert sweep.target is not None, "asked only of a sweep with a target"
    what = f"{metric_name(sweep.metric)} {number(sweep.target)}"
    if sweep.target_trial is None or sweep.target_s is None:
        return f"no trial reached {what}"
    joules = "" if sweep.target_energy_j is None else f" and {format_energy(sweep.target_energy_j)} of the device"
    return f"{what} reached first by {sweep.target_trial}, after {format_duration(sweep.target_s)}{joules}"


def metric_name(metric: str | None) -> str:
    """Name of the metric: the text before the number in the output of a job."""
    text = (metric or "value").split("{")[0]
    return text.strip().rstrip("=:").strip() or "value"


def short(text: str) -> str:
    """A value in short: numbers longer than six characters are rounded to four digits."""
    try:
        value = float(text)
    except ValueError:
        return text
    return text if len(text) <= 6 else number(value)
