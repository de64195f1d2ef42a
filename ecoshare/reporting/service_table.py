"""Table of the services of a run: a line for each, with its target and the percentiles of its latencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from ecoshare.jobs.quantities import format_duration, number
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.reporting.figures import UNKNOWN, small_energy
from ecoshare.reporting.job_table import NOT_KNOWN
from ecoshare.reporting.text_table import TableColumn, print_columns

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
