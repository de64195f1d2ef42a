"""ecoshare's own form of a trace: CSV with a line of names, then one job on each line.

::

    name,class,arrival_s,launch_s,startup_s,gpus,priority,persistent_bytes,ephemeral_bytes,skew,announced,phases
    0,vgg16,12.5,,0.0,2,0,,,0.7427229,1,1000 x 0.25; 500 x 0.4

The last cell has the phases of the job: iterations x seconds of one. `500 x 0.4 / 50` says that 50 iterations are an
epoch. Empty cells are unknown values. Numbers are read back bit for bit. A column `share` may follow, with the part of
each of its GPUs that a job asks for. Services have columns of their own (`service_columns.py`), and need no phases.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from ecoshare.advisers.delimited import quoted
from ecoshare.errors import UsageError
from ecoshare.simulation.traces.job_trace import AnswerTime, Phase, Trace, TraceJob, in_order
from ecoshare.simulation.traces.service_columns import SERVICE_COLUMNS, ServiceColumns, any_service
from ecoshare.simulation.traces.service_columns import cells as service_cells
from ecoshare.simulation.traces.sheet import Row, Sheet, number
from ecoshare.values.class_profile import MemoryDemand

COLUMNS = (
    "name",
    "class",
    "arrival_s",
    "launch_s",
    "startup_s",
    "gpus",
    "priority",
    "persistent_bytes",
    "ephemeral_bytes",
    "skew",
    "announced",
    "phases",
)

SHARE = "share"
"""Column of traces in which jobs ask for a part of a GPU."""


def write(trace: Trace, path: Path) -> None:
    """Write a trace to `path`.

    Raises:
        UsageError: The file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    shares, serves = any(job.share is not None for job in trace.jobs), any_service(trace.jobs)
    writer.writerow([*COLUMNS, *((SHARE,) if shares else ()), *(SERVICE_COLUMNS if serves else ())])
    for job in trace.jobs:
        share = ["" if job.share is None else repr(job.share)] if shares else []
        writer.writerow([*_cells(job), *share, *(service_cells(job) if serves else ())])
    try:
        path.write_text(text.getvalue(), encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def read(file: str, lines: Sequence[str]) -> Trace:
    """Jobs of a trace in ecoshare's own form.

    Raises:
        InvalidJobFile: The file has faults; the error lists them.
    """
    sheet = Sheet(file, lines, ",")
    places = sheet.columns(COLUMNS, "a trace of ecoshare's own form")
    name, job_class, arrival, launch, startup, gpus, priority, persistent, ephemeral, skew, announced, phases = places
    (share,) = sheet.columns([SHARE], "") if SHARE in sheet.names else (None,)
    services = ServiceColumns(sheet)
    jobs = []
    for row in sheet.rows():
        service, answer = services.read(row) or (None, None)
        job = TraceJob(
            name=sheet.name(row, name),
            job_class=sheet.text(row, job_class),
            arrival_s=sheet.number(row, arrival),
            phases=_phases(sheet, row, phases) if answer is None or row[1][phases].strip() else _one_batch(answer),
            gpus=sheet.whole(row, gpus),
            priority=sheet.whole(row, priority, least=None),
            memory=_memory(sheet, row, persistent, ephemeral),
            share=None if share is None else _part(sheet, row, share, least=sheet.positive),
            startup_s=sheet.number(row, startup),
            launch_s=sheet.number(row, launch) if row[1][launch].strip() else None,
            skew=_part(sheet, row, skew, least=sheet.number),
            announced=bool(sheet.whole(row, announced, least=0)),
            service=service,
            answer=answer,
            spread=services.spread(row),
            line=row[0],
        )
        if not sheet.mistakes:
            jobs.append(job)
    sheet.finish()
    return Trace(file, "ecoshare", in_order(jobs), "nothing was assumed")


def _cells(job: TraceJob) -> list[str]:
    memory = job.memory
    return [
        job.name,
        job.job_class,
        repr(job.arrival_s),
        "" if job.launch_s is None else repr(job.launch_s),
        repr(job.startup_s),
        str(job.gpus),
        str(job.priority),
        "" if memory is None else str(memory.persistent_bytes),
        "" if memory is None else str(memory.ephemeral_bytes),
        "" if job.skew is None else repr(job.skew),
        str(int(job.announced)),
        "; ".join(_phase(phase) for phase in job.phases),
    ]


def _phase(phase: Phase) -> str:
    epoch = "" if phase.epoch_iterations is None else f" / {phase.epoch_iterations}"
    return f"{phase.iterations} x {phase.iteration_s!r}{epoch}"


def _phases(sheet: Sheet, row: Row, cell: int) -> tuple[Phase, ...]:
    found = []
    for part in row[1][cell].split(";"):
        count, _, rest = part.partition("x")
        each, _, epoch = rest.partition("/")
        iterations, iteration_s, of = number(count), number(each), number(epoch or "1")
        if not (min(iterations, of) >= 1 and iterations.is_integer() and of.is_integer() and iteration_s > 0.0):
            sheet.wrong(row, cell, f"expected iterations x seconds, such as '1000 x 0.25', got {quoted(part.strip())}")
            break
        found.append(Phase(int(iterations), iteration_s, int(of) if epoch else None))
    return tuple(found)


def _one_batch(answer: AnswerTime) -> tuple[Phase, ...]:
    return (Phase(1, answer.mean_s(1)),)


def _memory(sheet: Sheet, row: Row, persistent: int, ephemeral: int) -> MemoryDemand | None:
    """Memory from its two cells; None if both are empty."""
    if not row[1][persistent].strip() and not row[1][ephemeral].strip():
        return None
    return MemoryDemand(sheet.whole(row, persistent, least=0), sheet.whole(row, ephemeral, least=0))


def _part(sheet: Sheet, row: Row, cell: int, least: Callable[[Row, int], float]) -> float | None:
    """Part of 1 in a cell; None if it is empty.

    Args:
        least: Reads the number of a cell, and has the bound below: `Sheet.number` or `Sheet.positive`.
    """
    if not row[1][cell].strip():
        return None
    value = least(row, cell)
    if value > 1.0:
        sheet.wrong(row, cell, f"expected a part of 1 at most, got {quoted(row[1][cell].strip())}")
    return value
