"""Reads what jobs have put out, for a report: the ends of the logs of those that failed, and curves of their metrics.

A run may have thousands of jobs, and a job may write gigabytes. So jobs, metrics, lines and points are bounded, and
the result says how many are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ecoshare.base import documents
from ecoshare.base.printable import OutputLines
from ecoshare.jobs.sweep import read_metric
from ecoshare.lane.files import outputs
from ecoshare.lane.supervisor.gang import folder_of, rank_in
from ecoshare.lane.trace import reports_path
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.results.sweep_summary import ranked
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import RunHistory

MOST_FAILURES = 20
MOST_METRICS = 12
MOST_CURVES = 12
"""Most jobs of one metric: more lines in one chart cannot be told apart."""

_MOST_LINES = 20
_MOST_CHARACTERS = 400
"""Most characters that are kept of a line of a log."""
_TAIL_BYTES = 1 << 16
_MOST_POINTS = 200
"""Most points of a curve, apart from the last one."""
_NAMES_BYTES = 1 << 12
"""Part of a file of reports, at its beginning and at its end, in which names of metrics are looked for."""
_REPORTS_BYTES = 1 << 26
"""Bytes of reports that are read in all, in equal parts of each file."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Last lines of a log, safe to show.

    Attributes:
        file: Name of the log in the folder of the job.
        is_whole: Whether the log has no lines before them.
    """

    file: str
    lines: tuple[str, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class JobCurve:
    """Values of a metric of one job. If they are very many, each n-th and the last are kept.

    Attributes:
        steps: Numbers of the values that are kept, from 1.
        count: Number of values in all.
        is_cut: Whether later values are not read, since the job has reported very much.
    """

    job: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    count: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class MetricCurves:
    """Curves of one metric.

    Attributes:
        name: Name that jobs report, or pattern of the lines that trials print.
        left_out: Number of jobs that have the metric and no curve here.
    """

    name: str
    curves: tuple[JobCurve, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Output of the jobs of a run.

    Attributes:
        log_ends: Ends of the logs of each of the first `MOST_FAILURES` failures, by job; without logs that are empty.
        metrics: Metrics that most jobs have.
        more_metrics: Number of other metrics.
    """

    log_ends: dict[str, list[LogEnd]] = field(default_factory=dict)
    metrics: tuple[MetricCurves, ...] = ()
    more_metrics: int = 0


def failures(summary: RunSummary) -> list[JobSummary]:
    """Jobs that did not complete and have a reason: failed ones first, and of those one for each reason."""
    found = [job for job in summary.jobs if job.error and job.state not in ("completed", "pruned")]
    reasons: set[str | None] = set()
    places = {}
    for job in found:
        places[job.name] = (job.state != "failed", job.error in reasons)
        reasons.add(job.error)
    return sorted(found, key=lambda job: places[job.name])


def read_output(summary: RunSummary, history: RunHistory, folder: RunFolder) -> JobOutput:
    """Read the output of the jobs of a run."""
    logs = {
        job.name: [end for path in reversed(_logs(job, folder)) if (end := _log_end(path)) is not None]
        for job in failures(summary)[:MOST_FAILURES]
        if job.state == "failed" and job.attempts
    }
    metrics, more = _metrics(summary, history, folder)
    return JobOutput(logs, metrics, more)


def _logs(job: JobSummary, folder: RunFolder) -> tuple[Path, Path]:
    """Logs of a job, or of the rank that ended it."""
    own, rank = folder.job(job.name), rank_in(job.error or "")
    return outputs(folder_of(own, rank) if rank else own)


def _log_end(path: Path) -> LogEnd | None:
    """Last lines of a log; None if there are none."""
    try:
        with documents.open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            begin = file.seek(max(0, size - _TAIL_BYTES))
            content = file.read(_TAIL_BYTES)
    except OSError:
        return None
    decoder = OutputLines()
    lines = [line.rstrip() for line in (*decoder.take(content), decoder.unfinished)]
    while lines and not lines[-1]:
        lines.pop()
    cut = begin > 0 or len(lines) > _MOST_LINES
    kept = lines[-_MOST_LINES:]
    while kept and not kept[0]:
        kept.pop(0)
    short = (line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…" for line in kept)
    return LogEnd(path.name, tuple(short), not cut) if kept else None


def _metrics(summary: RunSummary, history: RunHistory, folder: RunFolder) -> tuple[tuple[MetricCurves, ...], int]:
    """Curves of the metrics that most jobs have, and the number of other metrics."""
    printed = {sweep.name: sweep.metric for sweep in summary.sweeps if _is_printed(sweep.metric)}
    files = {job.name: _report_files(job, history, folder) for job in summary.jobs if job.attempts}
    jobs_of: dict[str, list[str]] = {}
    for job in _in_order(summary):
        names = dict.fromkeys(name for path in files.get(job.name, ()) for name in _names(path))
        if (told := printed.get(job.sweep or "")) is not None and history.of(job.name).reports:
            names[told] = None
        for name in names:
            jobs_of.setdefault(name, []).append(job.name)
    chosen = sorted(jobs_of, key=lambda name: -len(jobs_of[name]))[:MOST_METRICS]
    shown = {name: jobs_of[name][:MOST_CURVES] for name in chosen}
    read = {job: files.get(job, ()) for jobs in shown.values() for job in jobs}
    most_bytes = _REPORTS_BYTES // max(1, sum(map(len, read.values())))
    reported = {job: _curves(job, paths, most_bytes) for job, paths in read.items()}
    metrics = []
    for name in chosen:
        values = (
            _printed(job, history) if name in printed.values() else reported[job].get(name) for job in shown[name]
        )
        curves = tuple(curve for curve in values if curve is not None)
        metrics.append(MetricCurves(name, curves, len(jobs_of[name]) - len(curves)))
    return tuple(metrics), len(jobs_of) - len(chosen)


def _is_printed(text: str | None) -> bool:
    return text is not None and read_metric(text).is_printed


def _in_order(summary: RunSummary) -> Iterator[JobSummary]:
    """Jobs without a sweep, then the best trials of each sweep, then its other ones."""
    yield from (job for job in summary.jobs if job.sweep is None)
    for sweep in summary.sweeps:
        trials = [job for job in summary.jobs if job.sweep == sweep.name]
        best = ranked(trials, sweep.goal)
        names = {job.name for job in best}
        yield from (*best, *(job for job in trials if job.name not in names))


def _report_files(job: JobSummary, history: RunHistory, folder: RunFolder) -> list[Path]:
    """Files of the reports of a job, in order: of its last attempt, and of those from which that goes on."""
    spec = history.of(job.name).spec
    first = 1 if spec is not None and spec.movable else job.attempts
    return [reports_path(folder.job(job.name), attempt) for attempt in range(first, job.attempts + 1)]


def _names(path: Path) -> dict[str, None]:
    """Names of the metrics at the beginning and at the end of a file of reports, in order."""
    try:
        with documents.open_regular(path) as file:
            content = file.read(_NAMES_BYTES)
            if (size := file.seek(0, os.SEEK_END)) > _NAMES_BYTES:
                file.seek(max(_NAMES_BYTES, size - _NAMES_BYTES))
                content += b"\n" + file.read(_NAMES_BYTES)
    except OSError:  # the job has reported nothing
        return {}
    return dict.fromkeys(name for line in content.split(b"\n") for name in _reported(line))


def _reported(line: bytes) -> dict[str, float]:
    """Values in a line of reports by name; empty if it was cut off or is damaged."""
    try:
        found = json.loads(line)
        return {str(name): float(value) for name, value in found.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def _curves(job: str, paths: Sequence[Path], most_bytes: int) -> dict[str, JobCurve]:
    """Curves of a job by the name of the metric."""
    found: dict[str, _Thinned] = {}
    is_cut = False
    for path in paths:
        try:
            with documents.open_regular(path) as file:
                for line in file.readlines(most_bytes):
                    for name, value in _reported(line).items():
                        found.setdefault(name, _Thinned()).add(value)
                is_cut = is_cut or bool(file.read(1))
        except OSError:
            continue
    return {name: values.curve(job, is_cut) for name, values in found.items()}


def _printed(job: str, history: RunHistory) -> JobCurve:
    """JobCurve of the metric that a trial prints. The log of the run has its values."""
    values = _Thinned()
    for _, value in history.of(job).reports:
        values.add(value)
    return values.curve(job)


@dataclass(slots=True)
class _Thinned:
    """Values of which each n-th is kept. The n doubles when there are too many."""

    kept: list[tuple[int, float]] = field(default_factory=list)
    count: int = 0
    _every: int = 1
    _last: float = 0.0

    def add(self, value: float) -> None:
        if self.count % self._every == 0:
            self.kept.append((self.count + 1, value))
            if len(self.kept) > _MOST_POINTS:
                self.kept, self._every = self.kept[::2], 2 * self._every
        self.count, self._last = self.count + 1, value

    def curve(self, job: str, is_cut: bool = False) -> JobCurve:
        """The curve, with the last value."""
        points: Iterable[tuple[int, float]] = self.kept
        if self.kept and self.kept[-1][0] != self.count:
            points = (*self.kept, (self.count, self._last))
        steps, values = zip(*points, strict=True)
        return JobCurve(job, steps, values, self.count, is_cut)
