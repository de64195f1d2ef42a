"""Columns of the jobs in `ecoshare top`; the layout drops the lesser ones if the terminal is narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from ecoshare.common.plural import counted, listed
from ecoshare.jobs.quantities import format_duration
from ecoshare.queue.queue_documents import JobStatus
from ecoshare.reporting.figures import UNKNOWN, printable, small_energy, turn_wait, with_steps
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.text_table import TableColumn
from ecoshare.top.top_view import TopView, holders

HOLDS = "▶"
"""Mark of the job that has the turn."""


def job_columns(view: TopView) -> list[TableColumn]:
    """Columns with a cell for each job of the view."""
    return list(_columns(view))


def _columns(view: TopView) -> Iterator[TableColumn]:
    jobs, holding = view.jobs, holders(view.devices)
    names = [Text(printable(job.name), style=_dim(job)) for job in jobs]
    states = [_state(job, job.name in holding) for job in jobs]
    yield TableColumn(Text("job"), names, is_name=True)
    yield TableColumn(Text("  state"), states, is_name=True)
    place = [printable(_place(job)) for job in jobs]
    for name, lesser, cells in (
        ("device" if len(view.devices) > 1 else "lane", 4, place),
        ("iterations", 0, [_iterations(job) for job in jobs]),
        ("it/s", 0, [_rate(job) for job in jobs]),
        ("joules", 0, ["" if job.energy_j is None else small_energy(job.energy_j) for job in jobs]),
        ("ends in", 0, [_left(job, view.now_s) for job in jobs]),
        ("ran", 2, [_ran(job, view.now_s) for job in jobs]),
        ("waited", 3, [_waited(job, view.now_s) for job in jobs]),
        ("priority", 5, [str(job.priority) for job in jobs]),
        ("slowdown", 6, ["" if job.slowdown is None else f"{job.slowdown:.2f}" for job in jobs]),
        ("attempt", 7, ["" if not job.attempts else str(job.attempts) for job in jobs]),
    ):
        if any(cells):
            styled = [Text(cell, style=_dim(job)) for cell, job in zip(cells, jobs, strict=True)]
            yield TableColumn(Text(name), styled, right=True, lesser=lesser)
    if any(job.service is not None for job in jobs):
        yield from _service_columns(jobs)


def _service_columns(jobs: Sequence[JobStatus]) -> Iterator[TableColumn]:
    services = [job.service for job in jobs]
    late = [Text("" if each is None else str(each.late)) for each in services]
    yield TableColumn(Text("late"), late, right=True, lesser=2)
    yield TableColumn(Text("p99 now"), [_p99(job) for job in jobs], right=True, lesser=1)


def _p99(job: JobStatus) -> Text:
    """The percentile of the last seconds and the target; red if it is above."""
    service = job.service
    if service is None or job.state != "running":
        return Text()
    now = UNKNOWN if service.p99_s is None else format_duration(service.p99_s)
    is_late = service.p99_s is not None and service.p99_s > service.target_s
    return Text(f"{now} of {format_duration(service.target_s)}", style="red" if is_late else "")


def _state(job: JobStatus, holds: bool) -> Text:
    words = job.state
    if job.state == "arriving" and job.waits_for:
        words = f"after {listed([printable(name) for name in job.waits_for])}"
    elif job.turn_wait_s:
        words = turn_wait(job.turn_wait_s, [printable(name) for name in job.behind])
    elif job.state == "failed" and job.exit_code:
        words = f"failed ({job.exit_code})"
    return Text(f"{HOLDS if holds else ' '} {words}", style=COLOURS.get(job.state, ""))


def _place(job: JobStatus) -> str:
    return ",".join(job.devices) or ",".join(map(str, job.lanes))


def _iterations(job: JobStatus) -> str:
    if job.service is not None:
        return counted(job.service.arrived, "request")
    if job.trials is not None:
        return f"{sum(job.ended_trials.values())}/{counted(job.trials, 'trial')}"
    if not job.iterations and not job.of_iterations:
        return ""
    count = f"{job.iterations}/{job.of_iterations}" if job.of_iterations else str(job.iterations)
    return with_steps(count, job.by_steps)


def _rate(job: JobStatus) -> str:
    return "" if job.iterations_per_s is None else f"{job.iterations_per_s:.1f}"


def _left(job: JobStatus, now_s: float) -> str:
    if job.expected_end_unix_s is None:
        return ""
    return coarse(job.expected_end_unix_s - now_s)


def _ran(job: JobStatus, now_s: float) -> str:
    if job.started_unix_s is None:
        return ""
    return coarse((now_s if job.ended_unix_s is None else job.ended_unix_s) - job.started_unix_s)


def _waited(job: JobStatus, now_s: float) -> str:
    ends = (job.started_unix_s, job.ended_unix_s, now_s)
    return coarse(next(each for each in ends if each is not None) - job.submitted_unix_s)


def _dim(job: JobStatus) -> str:
    """Style of a job that has ended, so that those that go on stand out."""
    return "bright_black" if job.ended_unix_s is not None else ""


def coarse(duration_s: float) -> str:
    """Duration for a figure that is drawn anew each second: without digits that change all the time."""
    shown_s = max(0.0, duration_s)
    return format_duration(round(shown_s)) if shown_s >= 10.0 else f"{round(shown_s, 1):g} s"
