r"""Output of `sacct --parsable` or `--parsable2`, with the columns in any order.

::

    sacct --allusers --partition=gpu --starttime=now-60days --parsable2 \
          --format=JobID,User,Partition,Submit,Eligible,Start,End,Timelimit,State,AllocTRES,ReqTRES

A job waits from `Eligible` on if that column is there, since a job that waits for another one, or for a time, could not
have started before. Steps of jobs are left out. So are jobs that were cancelled before they started.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.own_jobs import GPU, duration_s, is_unknown, moment_s, resource_count
from ecoshare.knowledge.advisers.delimited import quoted
from ecoshare.simulation.traces.sheet import Row, Sheet

COLUMNS = ("JobID", "Submit", "Start", "End", "Timelimit", "State")
"""Columns that a log must have, beside one of `RESOURCES`."""

RESOURCES = ("AllocTRES", "ReqTRES")
"""Columns with the resources of a job: the first one that is there and not empty counts."""

OPTIONAL = ("Eligible", "User", "Partition")
"""Columns that are used if they are there."""

_WAITING = {"PENDING", "REQUEUED", "CONFIGURING"}


def read(file: str, lines: Sequence[str], resource: str = GPU) -> tuple[list[BatchJob], int]:
    """Jobs in the order of the file, and the number of jobs that are left out.

    A job that still runs has an endless `run_s`, so its limit ends it. A job that still waits has no `wait_s`.

    Args:
        file: Name of the file, for messages.
        lines: Lines of the file.
        resource: Trackable resource that counts as GPUs. A job without it is left out.

    Raises:
        InvalidJobFile: The file has faults; the error lists them with line and column.
    """
    sheet = Sheet(file, lines, "|")
    cells = dict(zip(COLUMNS, sheet.columns(COLUMNS, "an output of sacct"), strict=True))
    cells |= {name: sheet.names.index(name) for name in (*RESOURCES, *OPTIONAL) if name in sheet.names}
    resources = [cells[name] for name in RESOURCES if name in cells]
    if not resources:
        sheet.columns(RESOURCES[:1], "an output of sacct")
    jobs, left_out = [], 0
    lines_of_jobs = dict[str, int]()
    for row in sheet.rows():
        name = row[1][cells["JobID"]].strip()
        if "." in name:
            continue
        if (first := lines_of_jobs.setdefault(name, row[0])) != row[0]:
            sheet.wrong(row, cells["JobID"], f"the job {name} is also in line {first}: sacct without --duplicates?")
        gpus = next((found for cell in resources if (found := resource_count(row[1][cell], resource))), 0)
        job = _job(sheet, row, cells, name, gpus)
        if job is not None:
            jobs.append(job)
        else:
            left_out += 1
    sheet.finish()
    return jobs, left_out


def _job(sheet: Sheet, row: Row, cells: dict[str, int], name: str, gpus: int) -> BatchJob | None:
    """Job of a row; None if it never ran, lacks the resource, or has a mistake."""
    submit_s, start_s, end_s = (_moment_s(sheet, row, cells[each]) for each in ("Submit", "Start", "End"))
    eligible_s = _moment_s(sheet, row, cells["Eligible"]) if "Eligible" in cells else None
    limit_s = _limit_s(sheet, row, cells["Timelimit"])
    if submit_s is None:
        if is_unknown(row[1][cells["Submit"]].strip()):
            sheet.wrong(row, cells["Submit"], "expected the moment of the submission, got none")
        return None
    queued_s = max(submit_s, eligible_s or submit_s)
    states = row[1][cells["State"]].split()
    is_waiting = bool(states) and states[0] in _WAITING
    if gpus == 0 or limit_s is None or (start_s is None and not is_waiting):
        return None
    if start_s is not None and start_s < queued_s:
        queued_s = submit_s
        if start_s < submit_s:
            sheet.wrong(row, cells["Start"], "the start is before the submission")
            return None
    if start_s is not None and end_s is not None and end_s < start_s:
        sheet.wrong(row, cells["End"], "the end is before the start")
        return None
    user, partition = (row[1][cells[each]].strip() if each in cells else "" for each in ("User", "Partition"))
    wait_s = None if is_waiting or start_s is None else start_s - queued_s
    run_s = inf if start_s is None or end_s is None else end_s - start_s
    if run_s == 0.0 and states[:1] == ["CANCELLED"]:
        return None  # older versions give such a job its end as its start
    return BatchJob(name, queued_s, gpus, run_s, limit_s, user, partition, wait_s)


def _moment_s(sheet: Sheet, row: Row, cell: int) -> float | None:
    text = row[1][cell].strip()
    if is_unknown(text):
        return None
    moment = moment_s(text)
    if moment is None:
        sheet.wrong(row, cell, f"expected a moment such as 2026-01-31T12:00:00, got {quoted(text)}")
    return moment


def _limit_s(sheet: Sheet, row: Row, cell: int) -> float | None:
    text = row[1][cell].strip()
    if not text:
        return inf
    limit_s = duration_s(text)
    if not limit_s:
        sheet.wrong(row, cell, f"expected a time limit such as 1-00:00:00, got {quoted(text)}")
        return None
    return limit_s
