"""Logs in the Standard Workload Format: 18 numbers a line, header lines with `;`. Processors count as GPUs.

::

    ; UnixStartTime: 1086000000
    ; MaxProcs: 128
    1  0  30  3600  8 -1 -1  8  7200 -1  1  3  1 -1  1 -1 -1 -1
    │  │   │     │  │        │     │     │  └ user           └ partition, two fields after the queue
    │  │   │     │  │        │     │     └ status: 0 failed, 1 completed, 2 to 4 a part of another line, 5 cancelled
    │  │   │     │  │        │     └ requested time (s), the limit
    │  │   │     │  │        └ requested processors
    │  │   │     │  └ allocated processors
    │  │   │     └ run time (s)
    │  │   └ wait (s)
    │  └ submission (s since the start)
    └ number of the job; -1 stands for what is not known

Source: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999;
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf, isfinite

from ecoshare.base.plural import counted
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.knowledge.advisers.delimited import MOST_MISTAKES, quoted
from ecoshare.simulation.traces.sheet import number

FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)

_PARTS = (2, 3, 4)
"""Statuses of lines that are a part of a job, which has a line of its own."""


def is_in_form(line: str) -> bool:
    """Whether a first line is of this format: a header, or 18 cells."""
    return line.lstrip().startswith(";") or len(line.split()) == len(FIELDS)


def read(file: str, lines: Sequence[str]) -> tuple[list[BatchJob], int | None, int]:
    """Jobs in the order of the file, processors of the machine or None, and the number of jobs that are left out.

    Jobs that never ran, and jobs without a number of processors, are left out.

    Raises:
        InvalidJobFile: The file has faults; the error lists them with line and column.
    """
    header = dict[str, float]()
    mistakes: list[Mistake] = []
    jobs, left_out = [], 0
    seen = dict[str, int]()
    for place, text in enumerate(lines, 1):
        if text.lstrip().startswith(";"):
            name, _, value = text.strip().lstrip("; ").partition(":")
            header[name.strip()] = number(value.split()[0]) if value.split() else -1.0
            continue
        row = _row(text, place, mistakes)
        if row is None:
            continue
        name = f"{row['job number']:g}"
        if row["status"] in _PARTS:
            continue
        if (first := seen.setdefault(name, place)) != place:
            mistakes.append(Mistake(place, 1, FIELDS[0], f"{name} is also the number of the job in line {first}"))
        job = _job(name, row, max(0.0, header.get("UnixStartTime", 0.0)))
        if job is not None:
            jobs.append(job)
        else:
            left_out += 1
    if mistakes:
        rest = len(mistakes) - MOST_MISTAKES
        raise InvalidJobFile(file, mistakes[:MOST_MISTAKES], f"and {rest} more" if rest > 0 else "")
    processors = header.get("MaxProcs", -1.0)
    return jobs, int(processors) if isfinite(processors) and processors >= 1.0 else None, left_out


def _row(text: str, place: int, mistakes: list[Mistake]) -> dict[str, float] | None:
    """Numbers of a line by field; None for a blank line, and after a mistake."""
    cells = list(re.finditer(r"\S+", text))
    if not cells:
        return None
    if len(cells) != len(FIELDS):
        got = counted(len(cells), "number")
        mistakes.append(Mistake(place, 1, "", f"expected {len(FIELDS)} numbers, got {got}"))
        return None
    row = {}
    for name, cell in zip(FIELDS, cells, strict=True):
        value = number(cell[0])
        if not value >= -1.0:
            mistakes.append(
                Mistake(place, cell.start() + 1, name, f"expected a number of -1 or more, got {quoted(cell[0])}")
            )
        row[name] = value
    return row if all(value >= -1.0 for value in row.values()) else None


def _job(name: str, row: dict[str, float], start_s: float) -> BatchJob | None:
    processors = row["requested processors"] if row["requested processors"] > 0.0 else row["allocated processors"]
    if processors < 1.0 or row["run time"] < 0.0 or row["submit time"] < 0.0:
        return None
    return BatchJob(
        name,
        start_s + row["submit time"],
        int(processors),
        row["run time"],
        row["requested time"] if row["requested time"] > 0.0 else inf,
        f"{row['user']:g}" if row["user"] >= 0.0 else "",
        f"{row['partition']:g}" if row["partition"] >= 0.0 else "",
        row["wait time"] if row["wait time"] >= 0.0 else None,
    )
