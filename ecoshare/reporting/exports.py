"""Exports a run into the formats of other programs.

csv and parquet have one row for each job, json has the whole summary. html and perfetto also show the run over time.
prometheus has metrics, with the latencies of services in buckets.
"""

from __future__ import annotations

import csv
import io
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

from prometheus_client.exposition import generate_latest

from ecoshare.errors import UnfitEnvironment, UsageError, did_you_mean
from ecoshare.lane.serving.request_intervals import RequestInterval, cumulative_counts, total
from ecoshare.lane.serving.request_record import LATENCY_BOUNDS_S
from ecoshare.metrics.families import JOB_ENERGY, JOB_ITERATIONS, JOB_SLOWDOWN, JOB_TURN
from ecoshare.metrics.metric_set import MetricSet, ServiceSamples
from ecoshare.record.results.energy_summary import as_plain
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.record.run_data import RunData, read, with_output, with_traces
from ecoshare.record.run_folder import RunFolder, write_bytes


def prometheus(data: RunData) -> bytes:
    """The metrics of a run, finished or not, as text (UTF-8).

    `metrics/families.py` has the names and their meanings. A queue tells the same metrics of its jobs while it is up.
    """
    metrics = MetricSet({"run": PurePath(data.summary.run).name})
    for job in data.summary.jobs:
        metrics.add(JOB_ITERATIONS, job.iterations, job.name, "train")
        metrics.add(JOB_ITERATIONS, job.eval_iterations, job.name, "eval")
        metrics.add(JOB_TURN, job.held_s, job.name)
        metrics.add(JOB_SLOWDOWN, job.slowdown, job.name)
        if job.energy is not None:
            metrics.add(JOB_ENERGY, job.energy.value_j, job.name, job.energy.source)
        if job.service is not None:
            _samples(job.service, data.requests.get(job.name, ())).add_to(metrics, job.name)
    return generate_latest(metrics)


def _samples(service: ServiceSummary, requests: Sequence[RequestInterval]) -> ServiceSamples:
    sums = total(requests)
    up_to = cumulative_counts(requests, (*LATENCY_BOUNDS_S, math.inf))
    return ServiceSamples(
        target_s=service.target_s,
        missed_minutes=service.missed_minutes,
        results={
            "in_time": service.answered - service.late,
            "late": service.late,
            "failed": service.failed,
            "refused": service.refused,
            "cancelled": service.cancelled,
        },
        latencies=[later - earlier for earlier, later in pairwise([0, *up_to])],
        latency_s=0.0 if math.isnan(sums.mean_s) else sums.mean_s * up_to[-1],
        batches=sums.batches,
        longest_queue=sums.longest_queue,
    )


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


_MOST_MARKS = 250_000
"""Most marks for which the trace is written without a request: it then takes four seconds and 20 MB."""


def draw_end_of_run(folder: RunFolder, data: RunData, tell: Callable[[str], None]) -> bool:
    """Write both files, and return whether the report exists. Errors are not raised but passed to `tell` as a line.

    The result of the run is already written. An error here only prints a line, and Ctrl-C ends only the drawing.
    """
    drawn = False
    try:
        with _stopped_by_interrupt():
            data = with_traces(data, folder)
            drawn = _write(folder.report, html, with_output(data, folder), tell)
            if (marks := sum(map(len, data.traces.values()))) <= _MOST_MARKS:
                _write(folder.trace, perfetto, data, tell)
            else:
                folder.trace.unlink(missing_ok=True)
                command = f"ecoshare export {data.summary.run} --format perfetto --output trace.pftrace"
                tell(f"{marks} marks are many for a trace; `{command}` writes it all the same")
    except KeyboardInterrupt:
        tell("drawing was interrupted; `ecoshare export` draws what is missing")
    except Exception as error:
        tell(f"nothing is drawn: {error!r}")
    return drawn


def _write(path: Path, content: Callable[[RunData], bytes], data: RunData, tell: Callable[[str], None]) -> bool:
    """Write a file. If that fails, remove the file of an earlier session, since it is out of date."""
    try:
        write_bytes(path, content(data))
    except BaseException as error:
        path.unlink(missing_ok=True)
        interrupted = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # C modules may raise ImportError instead
        if interrupted or not isinstance(error, Exception):
            raise KeyboardInterrupt from error
        tell(f"{path.name} is not drawn: {error!r}")
        return False
    return True


@contextmanager
def _stopped_by_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals are handled in the main thread only
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not interrupt the clean-up
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
