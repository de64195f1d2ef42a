"""Columns of services in a trace of ecoshare's own form. A file has all of them or none; other jobs leave them empty.

::

    p99_s,batch,queue,rate_per_s,clients,arrivals,count,seed,fixed_s,each_s,wake_up_s,spread
    0.05,1 2 4 8,256,40,,,,0,0.002,0.001,0.0003,0.1   40 requests a second, drawn; a batch of n takes 2 ms + n x 1 ms
    0.02,1,256,,,day.txt,,,0.004,,,                   times (s) from a file beside the trace, one a line
    0.05,1 2,256,,3,,1000,,0.002,0.001,,              three clients, each sends when it has its answer; 1000 requests

An idle service sees a request after `wake_up_s`. Without `count`, a file has a last request; the other sources go on
until all other jobs have ended. `spread` is the standard deviation of a batch's time / its mean. A job beside services
may have one, too: that of its iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ecoshare.advisers.delimited import quoted
from ecoshare.serving.request_source import read_arrivals
from ecoshare.simulation.traces.job_trace import AnswerTime, TraceJob
from ecoshare.simulation.traces.sheet import Row, Sheet, number
from ecoshare.values.service import QUEUE, RequestSource, ServiceSpec

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
    """Reader of the columns of services in one sheet. Mistakes go to the sheet."""

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
