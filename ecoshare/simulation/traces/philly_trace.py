"""Microsoft's Philly trace in the form that Pollux uses: `timestamp,duration,num_gpus,gpu_time,cluster`.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019; the form:
Qiao et al., "Pollux", OSDI 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

from ecoshare.advisers.delimited import quoted
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulation.traces.sheet import Row, Sheet

COLUMNS = ("timestamp", "duration", "num_gpus")
"""Columns in use. GPU time is the product of two of them, and the reader does not separate clusters."""

_NOTE = "iterations are not known and taken to be of about a second, and a job's class is its number of GPUs"


def read(file: str, lines: Sequence[str]) -> Trace:
    """Jobs of a trace in Philly's form; time 0 is the arrival of the first job.

    A job of no duration never ran, so the reader leaves it out.

    Raises:
        InvalidJobFile: The file has faults; the error lists them.
    """
    sheet = Sheet(file, lines, ",")
    timestamp, duration, num_gpus = sheet.columns(COLUMNS, "a Philly trace")
    rows, left_out = [], 0
    for place, row in enumerate(sheet.rows()):
        at_s, duration_s = timestamp_s(sheet, row, timestamp), sheet.number(row, duration)
        gpus = sheet.whole(row, num_gpus)
        if duration_s > 0.0:
            rows.append((str(place), at_s, duration_s, gpus, row[0]))
        else:
            left_out += 1
    sheet.finish()
    first_s = min((row[1] for row in rows), default=0.0)
    phases: dict[float, tuple[Phase]] = {}  # durations repeat; sharing phases saves a third of the memory
    jobs = []
    for name, at_s, duration_s, gpus, line in rows:
        if duration_s not in phases:
            phases[duration_s] = (a_second_each(duration_s),)
        jobs.append(TraceJob(name, job_class(gpus), at_s - first_s, phases[duration_s], gpus, line=line))
    note = f"{_NOTE}; jobs of no duration, which are left out: {left_out}" if left_out else _NOTE
    return Trace(file, "Philly", in_order(jobs), note)


@cache
def job_class(gpus: int) -> str:
    """Class of a job of which only the number of GPUs is known."""
    return f"philly-{gpus}gpu"


def a_second_each(duration_s: float) -> Phase:
    """Phase of a known duration and unknown iterations, with about one iteration a second."""
    iterations = max(1, round(duration_s))
    return Phase(iterations, duration_s / iterations)


def timestamp_s(sheet: Sheet, row: Row, cell: int) -> float:
    """Date and time of a cell, in seconds. Without a time zone it is UTC, since only gaps matter."""
    text = row[1][cell].strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        sheet.wrong(row, cell, f"expected a date and time such as 2017-10-09 07:01:55, got {quoted(text)}")
        return 0.0
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
