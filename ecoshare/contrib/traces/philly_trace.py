"""Microsoft's Philly trace: its `cluster_job_log`, and the form that Pollux made of it.

The log is a JSON list of jobs, each with the attempts to run it:

::

    [{"jobid": "application_1506638472019_14001", "submitted_time": "2017-10-03 00:13:19", "status": "Pass",
      "attempts": [{"start_time": "2017-10-03 00:15:05", "end_time": "2017-10-03 00:35:30",
                    "detail": [{"ip": "m289", "gpus": ["gpu0", "gpu1"]}]}, ...], ...}, ...]

A job lasts as long as its attempts together: the waits between them are results of a simulation. A time that was not
recorded is null, empty or "None". A job without an end of its last attempt still ran when the log was taken.

Pollux' table has `timestamp,duration,num_gpus,gpu_time,cluster`, with the same durations.

Sources: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019, and
msr-fiddle/philly-traces for the log; Qiao et al., "Pollux", OSDI 2021 for the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.knowledge.advisers.delimited import MOST_MISTAKES
from ecoshare.simulation.traces.cluster_jobs import NEVER_RAN, UNFINISHED, ClusterJobs
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.traces.sheet import Sheet, timestamp_s

COLUMNS = ("timestamp", "duration", "num_gpus")
"""Columns of the table in use. GPU time is the product of two of them, and the reader does not separate clusters."""


def read(file: str, lines: Sequence[str]) -> Trace:
    """Jobs of Pollux' table. A job of no duration never ran, so the reader leaves it out.

    Raises:
        InvalidJobFile: The file has faults; the error lists them.
    """
    sheet = Sheet(file, lines, ",")
    timestamp, duration, num_gpus = sheet.columns(COLUMNS, "a Philly trace")
    jobs = ClusterJobs(file, "Philly")
    for place, row in enumerate(sheet.rows()):
        at_s, duration_s = sheet.timestamp_s(row, timestamp), sheet.number(row, duration)
        jobs.add(str(place), at_s, duration_s, sheet.whole(row, num_gpus), row[0])
    sheet.finish()
    return jobs.trace()


def _given_moment_s(value: object) -> float:
    return timestamp_s(value if isinstance(value, str) else json.dumps(value))


def _moment_s(value: object) -> float | None:
    return None if value in (None, "", "None") else _given_moment_s(value)


_Moment = Annotated[float | None, BeforeValidator(_moment_s)]


class _Server(BaseModel):
    gpus: list[str]


class _Attempt(BaseModel):
    start_time: _Moment
    end_time: _Moment
    detail: list[_Server]


class _Job(BaseModel):
    jobid: str
    submitted_time: Annotated[float, BeforeValidator(_given_moment_s)]
    attempts: list[_Attempt]


def read_log(file: str, lines: Sequence[str]) -> Trace:
    """Jobs of a `cluster_job_log`, one after the other, so that the objects of 100,000 jobs are never there at once.

    Raises:
        InvalidJobFile: The file has faults. The error lists them with the line and column at which their job begins,
            and the job's place in the list, from 0.
    """
    text = "".join(lines)
    scan = json.JSONDecoder().raw_decode
    jobs, names, mistakes = ClusterJobs(file, "Philly"), set[str](), []
    place, line, counted_to = 0, 1, 0
    at = _after_blanks(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        line, counted_to = line + text.count("\n", counted_to, at), at
        try:
            value, end = scan(text, at)
            end = _after_blanks(text, end)
            if text[end : end + 1] not in (",", "]"):
                raise json.JSONDecodeError("expected ',' or ']' after a job", text, end)
        except json.JSONDecodeError as error:
            mistakes.append(Mistake(error.lineno, error.colno, f"[{place}]", f"no JSON: {error.msg}"))
            break
        except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets without end
            mistakes.append(Mistake(line, _column(text, at), f"[{place}]", f"no JSON: {error}"))
            break
        try:
            _add(jobs, names, place, _Job.model_validate(value), line)
        except ValidationError as error:
            column = _column(text, at)
            mistakes += [Mistake(line, column, f"[{place}]{where}", what) for where, what in _faults(error)]
        place += 1
        at = _after_blanks(text, end + 1) if text[end] == "," else end
    if mistakes:
        rest = len(mistakes) - MOST_MISTAKES
        raise InvalidJobFile(file, mistakes[:MOST_MISTAKES], f"and {rest} more" if rest > 0 else "")
    return jobs.trace("a job lasts as long as its attempts together")


def _add(jobs: ClusterJobs, names: set[str], place: int, job: _Job, line: int) -> None:
    if not job.attempts:
        jobs.leave_out(NEVER_RAN)
        return
    spans_s = [
        attempt.end_time - attempt.start_time
        for attempt in job.attempts
        if attempt.start_time is not None and attempt.end_time is not None
    ]
    if not spans_s or job.attempts[-1].end_time is None:
        jobs.leave_out(UNFINISHED)
        return
    # The clock went back an hour on 5 November 2017: a span of that night can be negative.
    duration_s = sum(max(0.0, span_s) for span_s in spans_s)
    gpus = max(sum(len(server.gpus) for server in attempt.detail) for attempt in job.attempts)
    name = job.jobid if job.jobid not in names else f"{job.jobid}.{place}"
    names.add(name)
    jobs.add(name, job.submitted_time, duration_s, gpus, line)


def _faults(error: ValidationError) -> list[tuple[str, str]]:
    """Place inside the job and description of each fault."""
    faults = []
    for each in error.errors():
        is_object = each["type"] != "model_type"
        what = each["msg"].removeprefix("Value error, ") if is_object else "expected an object in braces"
        faults.append((_path(each["loc"]), what))
    return faults


def _path(places: tuple[Any, ...]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in places)


def _column(text: str, at: int) -> int:
    """Column, from 1, of a position."""
    return at - text.rfind("\n", 0, at)


def _after_blanks(text: str, at: int) -> int:
    """Position of the first character from `at` on that is no white space."""
    while text[at : at + 1].isspace():
        at += 1
    return at
