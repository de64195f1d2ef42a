"""Exports a run into the formats of other programs.

csv and parquet have one row for each job, json has the whole summary. html and perfetto also show the run over time.
prometheus has metrics, with the latencies of services in buckets.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields
from typing import Any

from ecoshare.errors import UnfitEnvironment, UsageError, did_you_mean
from ecoshare.record.results.energy_summary import as_plain
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.record.run_data import RunData, read, with_output, with_traces
from ecoshare.record.run_folder import RunFolder

FORMS = ("csv", "json", "parquet", "html", "perfetto", "prometheus")
BINARY = ("parquet", "perfetto")
"""Formats that no terminal can show."""

_WITH_PACKINGS = ("html", "json")
"""Formats that show packings and savings."""

COLUMNS: dict[str, type] = {
    "name": str,
    "class": str,
    "state": str,
    "exit_code": int,
    "attempts": int,
    "iterations": int,
    "eval_iterations": int,
    "arrival_s": float,
    "start_s": float,
    "finish_s": float,
    "jct_s": float,
    "queue_s": float,
    "slowdown": float,
    "longest_wait_s": float,
    "parks": int,
    "parked_s": float,
    "peak_memory_bytes": int,
    "energy_j": float,
    "energy_source": str,
    "energy_per_iteration_j": float,
    "sweep": str,
    "values": str,
    "value": float,
    "steps": int,
    "service_target_s": float,
    "service_missed_minutes": int,
    "service_arrived": int,
    "service_answered": int,
    "service_late": int,
    "service_failed": int,
    "service_refused": int,
    "service_cancelled": int,
    "service_goodput_per_s": float,
    "service_mean_s": float,
    "service_p50_s": float,
    "service_p90_s": float,
    "service_p99_s": float,
    "service_p999_s": float,
    "service_mean_batch": float,
    "service_energy_per_request_j": float,
    "error": str,
}


def check(form: str) -> None:
    """Check that a format is one of `FORMS`.

    Raises:
        UsageError: If it is another format.
    """
    if form not in FORMS:
        raise UsageError(f"--format {form}: expected {', '.join(FORMS[:-1])} or {FORMS[-1]}", did_you_mean(form, FORMS))


def export(folder: RunFolder, form: str) -> bytes:
    """The content of a file in one of `FORMS`; text is UTF-8.

    Raises:
        UsageError: If the format is not in `FORMS`, or the folder is damaged.
        UnfitEnvironment: If parquet is asked for and pyarrow is not installed.
    """
    check(form)
    data = read(folder, packings=form in _WITH_PACKINGS)
    if form == "parquet":
        return parquet(data.summary)
    if form == "html":
        return html(with_output(with_traces(data, folder), folder))
    if form == "perfetto":
        return perfetto(with_traces(data, folder))
    if form == "prometheus":
        from ecoshare.reporting.prometheus import prometheus  # prometheus-client loads a web server

        return prometheus(data)
    text = table(data.summary) if form == "csv" else json.dumps(data.summary.as_dict(), indent=2) + "\n"
    return text.encode(errors="backslashreplace")


def table(summary: RunSummary) -> str:
    """The jobs as csv; a value that is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    for row in _rows(summary):
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def parquet(summary: RunSummary) -> bytes:
    """The same jobs and columns as a Parquet file; a value that is not known is null.

    Raises:
        UnfitEnvironment: If pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnfitEnvironment(
            f"--format parquet needs pyarrow, which cannot be imported: {error}", "pip install 'ecoshare[parquet]'"
        ) from error
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(_rows(summary), schema=schema), file)
    return file.getvalue()


def html(data: RunData) -> bytes:
    """The report, as the content of an HTML file."""
    from ecoshare.reporting.html import html  # matplotlib takes half a second

    return html(data).encode(errors="backslashreplace")


def perfetto(data: RunData) -> bytes:
    """The trace for ui.perfetto.dev, as the content of a file."""
    from ecoshare.reporting.perfetto import perfetto

    return perfetto(data)


def _rows(summary: RunSummary) -> list[dict[str, Any]]:
    rows = []
    for job in summary.jobs:
        row = as_plain(job)
        row["energy_j"] = None if job.energy is None else job.energy.value_j
        row["energy_source"] = None if job.energy is None else job.energy.source
        row["values"] = json.dumps(job.values) if job.values else None
        served = {each.name: getattr(job.service, each.name, None) for each in fields(ServiceSummary)}
        row |= {f"service_{name}": value for name, value in served.items()}
        row["service_mean_batch"] = None if job.service is None else job.service.mean_batch
        rows.append({name: row[name] for name in COLUMNS})
    return rows


def _cell(value: Any) -> Any:
    """The value; text that a spreadsheet would take for a formula is quoted, since no output of a job may run there."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
