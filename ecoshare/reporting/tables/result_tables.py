"""Prints a sweep at the end of a run: counts, energy, target, and a table of the best trials or configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy, number
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.record.results.sweep_summary import SweepSummary
from ecoshare.reporting.figures import UNKNOWN, say, small_energy
from ecoshare.reporting.tables.job_table import NOT_KNOWN
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

_MOST_NAMES = 6


def print_sweep(sweep: SweepSummary, console: Console) -> None:
    """Print one sweep."""
    for line in sweep_words(sweep):
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


def sweep_words(sweep: SweepSummary) -> list[str]:
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
    if sweep.metric is not None and sweep.states.get("completed") and not sweep.best:
        lines.append(f"  {_silent(sweep.metric)}")
    if sweep.error:
        lines.append(f"  its sampler failed: {sweep.error}")
    return lines


def _silent(metric: str) -> str:
    if "{" in metric:
        return f"no line that its trials printed matches {metric!r}"
    return f"none of its trials called ecoshare.report({metric}=...)"


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


_LESSER = {"p50": 1, "p99.9": 2, "batch": 3, "refused": 4, "failed": 5}
"""Columns that a narrow terminal drops, the largest number first. summary.json has all of them."""

_COLUMNS: dict[str, Callable[[ServiceSummary], str]] = {
    "target p99": lambda each: format_duration(each.target_s),
    "p50": lambda each: _duration(each.p50_s),
    "p99": lambda each: _duration(each.p99_s),
    "p99.9": lambda each: _duration(each.p999_s),
    "requests": lambda each: str(each.arrived),
    "late": lambda each: str(each.late),
    "failed": lambda each: str(each.failed),
    "refused": lambda each: str(each.refused),
    "batch": lambda each: UNKNOWN if each.mean_batch is None else f"{each.mean_batch:.1f}",
}


def print_services(jobs: Sequence[JobSummary], console: Console) -> None:
    """Print the table of the jobs that are services; nothing if there are none."""
    services = [(job, job.service) for job in jobs if job.service is not None]
    if not services:
        return
    columns = service_columns([(job.name, service) for job, service in services])
    sources = {job.energy.source for job, _ in services if job.energy is not None}
    source = f",\n{sources.pop()}" if len(sources) == 1 else ""
    joules = [Text(_joules(each.energy_per_request_j)) for _, each in services]
    columns.append(TableColumn(Text(f"energy/request{source}"), joules, right=True))
    print_columns(columns, console)


def service_columns(services: Sequence[tuple[str, ServiceSummary]]) -> list[TableColumn]:
    """Columns of a table of services, each with its name. The table has no joules yet."""
    columns = [TableColumn(Text("service"), [Text(name) for name, _ in services], is_name=True)]
    for heading, written in _COLUMNS.items():
        cells = [Text(written(each), style=_style(heading, each)) for _, each in services]
        columns.append(TableColumn(Text(heading), cells, right=True, lesser=_LESSER.get(heading, 0)))
    return columns


def service_cells(service: ServiceSummary) -> dict[str, str]:
    """Cells of a service by their headings, for tables elsewhere."""
    return {heading: written(service) for heading, written in _COLUMNS.items()}


def service_rows(jobs: Sequence[JobSummary]) -> list[dict[str, str]]:
    """All that is known of the jobs that are services: a row for each, which maps columns to cells."""
    return [_row(job, job.service) for job in jobs if job.service is not None]


def _row(job: JobSummary, service: ServiceSummary) -> dict[str, str]:
    energy_j, source = service.energy_per_request_j, job.energy.source if job.energy is not None else ""
    return {
        "service": job.name,
        "target p99": format_duration(service.target_s),
        "p50": _duration(service.p50_s, NOT_KNOWN),
        "p90": _duration(service.p90_s, NOT_KNOWN),
        "p99": _duration(service.p99_s, NOT_KNOWN),
        "p99.9": _duration(service.p999_s, NOT_KNOWN),
        "requests": str(service.arrived),
        "late": str(service.late),
        "failed": str(service.failed),
        "refused": str(service.refused),
        "goodput": NOT_KNOWN if service.goodput_per_s is None else f"{number(service.goodput_per_s)}/s",
        "mean batch": NOT_KNOWN if service.mean_batch is None else f"{service.mean_batch:.2f}",
        "energy per request": NOT_KNOWN if energy_j is None else f"{small_energy(energy_j)} {source}",
    }


def _style(heading: str, service: ServiceSummary) -> str:
    return "red" if heading == "p99" and service.met is False else ""


def _duration(value_s: float | None, unknown: str = UNKNOWN) -> str:
    return unknown if value_s is None else format_duration(value_s)


def _joules(value_j: float | None) -> str:
    return UNKNOWN if value_j is None else small_energy(value_j)
