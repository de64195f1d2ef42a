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
from itertools import pairwise
from pathlib import Path

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.service import QUEUE, RequestSource, ServiceSpec
from ecoshare.errors import UsageError
from ecoshare.knowledge.advisers.delimited import quoted
from ecoshare.lane.serving.request_source import read_arrivals
from ecoshare.simulation.traces.job_trace import AnswerTime, Phase, Trace, TraceJob, in_order
from ecoshare.simulation.traces.sheet import Row, Sheet, number

SERVICE_COLUMNS = (
    "p99_s",
    "batch",
    "queue",
    "rate_per_s",
    "clients",
    "arrivals",
    "count",
    "seed",
    "fixed_s",
    "each_s",
    "wake_up_s",
    "spread",
)


class ServiceColumns:
    """Reader of the columns of services in one sheet. Mistakes go to the sheet.

    ::

        p99_s,batch,queue,rate_per_s,clients,arrivals,count,seed,fixed_s,each_s,wake_up_s,spread
        0.05,1 2 4 8,256,40,,,,0,0.002,0.001,0.0003,0.1   40 requests a second, drawn; a batch of n: 2 ms + n x 1 ms
        0.02,1,256,,,day.txt,,,0.004,,,                   times (s) from a file beside the trace, one a line
        0.05,1 2,256,,3,,1000,,0.002,0.001,,              three clients, each sends after its answer; 1000 requests

    An idle service sees a request after `wake_up_s`. Without `count`, a file has a last request; the other sources go
    on until all other jobs have ended. `spread` is the standard deviation of a batch's time / its mean. A job beside
    services may have one, too: that of its iterations.
    """

    def __init__(self, sheet: Sheet) -> None:
        """Find the columns.

        Raises:
            InvalidJobFile: The sheet has some of the columns, but not all.
        """
        self._sheet = sheet
        named = any(name in sheet.names for name in SERVICE_COLUMNS)
        places = sheet.columns(SERVICE_COLUMNS, "a trace with services") if named else []
        self._places = dict(zip(SERVICE_COLUMNS, places, strict=False))

    def spread(self, row: Row) -> float:
        """Spread of the times of a row: of its batches or its iterations."""
        return self._number(row, "spread") if self._places else 0.0

    def read(self, row: Row) -> tuple[ServiceSpec, AnswerTime] | None:
        """Service of a row and the time of its batches; None if the job is no service."""
        given = [name for name in self._places if self._text(row, name) and name != "spread"]
        if not given:
            return None
        if "p99_s" not in given:
            self._sheet.wrong(row, self._places[given[0]], "a service has a target, and the column p99_s is empty")
            return None
        target_s = self._sheet.positive(row, self._places["p99_s"])
        answer = AnswerTime(*(self._number(row, name) for name in ("fixed_s", "each_s", "wake_up_s")))
        if not answer.mean_s(1) > 0.0:
            self._sheet.wrong(row, self._places["fixed_s"], "the time of a batch, fixed_s + each_s, is above 0")
        elif answer.mean_s(1) > target_s:
            what = f"a batch of one request takes {answer.mean_s(1):g} s alone, more than its target of {target_s:g} s"
            self._sheet.wrong(row, self._places["p99_s"], what)
        queue = self._whole(row, "queue", 1) or QUEUE
        return ServiceSpec(target_s, self._batch(row), queue, self._source(row)), answer

    def _source(self, row: Row) -> RequestSource:
        sources = [name for name in ("rate_per_s", "clients", "arrivals") if self._text(row, name)]
        if len(sources) != 1:
            place = self._places[sources[1] if sources else "rate_per_s"]
            self._sheet.wrong(row, place, "requests come from one of rate_per_s, clients and arrivals")
            return RequestSource()
        path = self._arrivals(row) if "arrivals" in sources else ""
        rate = self._sheet.positive(row, self._places["rate_per_s"]) if "rate_per_s" in sources else 0.0
        return RequestSource(
            path, rate, self._whole(row, "clients", 1), self._whole(row, "count", 1), self._whole(row, "seed", 0)
        )

    def _arrivals(self, row: Row) -> str:
        """Path of the file of arrivals, which is relative to the trace."""
        path = Path(self._sheet.file).parent / self._text(row, "arrivals")
        try:
            read_arrivals(path)
        except OSError as error:
            self._sheet.wrong(row, self._places["arrivals"], f"cannot read {path}: {error.strerror or error}")
        except ValueError as error:
            self._sheet.wrong(row, self._places["arrivals"], str(error))
        return str(path)

    def _batch(self, row: Row) -> tuple[int, ...]:
        numbers = [number(each) for each in self._text(row, "batch").split()]
        wrong = any(not each.is_integer() or each < 1 for each in numbers)
        if wrong or any(after <= before for before, after in pairwise(numbers)):
            what = f"expected batch sizes such as '1 2 4 8', got {quoted(self._text(row, 'batch'))}"
            self._sheet.wrong(row, self._places["batch"], what)
            return ()
        return tuple(map(int, numbers))

    def _text(self, row: Row, name: str) -> str:
        return row[1][self._places[name]].strip()

    def _number(self, row: Row, name: str) -> float:
        return self._sheet.number(row, self._places[name]) if self._text(row, name) else 0.0

    def _whole(self, row: Row, name: str, least: int) -> int:
        return self._sheet.whole(row, self._places[name], least) if self._text(row, name) else 0


def cells(job: TraceJob) -> list[str]:
    """Cells of a job; empty ones if it is no service."""
    if job.service is None:
        return [""] * (len(SERVICE_COLUMNS) - 1) + [_known(job.spread)]
    service, source = job.service, job.service.requests or RequestSource()
    answer = job.answer or AnswerTime(job.phases[0].iteration_s)
    return [
        repr(service.p99_s),
        " ".join(map(str, service.batch_sizes)),
        str(service.queue),
        _known(source.rate_per_s),
        _known(source.clients),
        source.arrivals,
        _known(source.count),
        _known(source.seed),
        repr(answer.fixed_s),
        repr(answer.each_s),
        _known(answer.wake_up_s),
        _known(job.spread),
    ]


def any_service(jobs: Sequence[TraceJob]) -> bool:
    """Whether a trace needs these columns."""
    return any(job.service is not None or job.spread for job in jobs)


def _known(value: float) -> str:
    return repr(value) if value else ""


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
        writer.writerow([*_cells(job), *share, *(cells(job) if serves else ())])
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
