"""Reader of traces in any form. The first line of a file decides the form, never the name of the file."""

from __future__ import annotations

from pathlib import Path

from ecoshare.advisers.delimited import quoted
from ecoshare.common.documents import collector_paused
from ecoshare.errors import InvalidJobFile, Mistake, UsageError
from ecoshare.record.run_folder import RunFolder
from ecoshare.simulation.traces import (
    gavel_trace,
    helios_trace,
    own,
    pai_trace,
    philly_trace,
    recorded,
    tiresias_trace,
)
from ecoshare.simulation.traces import measured_speeds as measured
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.traces.sheet import lines_of

DEFAULT_GPU_MODEL = "v100"

LONGEST_S = 1e8
"""Longest duration or arrival (s). Some policies look at every job in each quantum or round, so an endless job would
make an endless simulation."""

_HEADED = {
    own.COLUMNS: own.read,
    tiresias_trace.COLUMNS: tiresias_trace.read,
    philly_trace.COLUMNS: philly_trace.read,
    helios_trace.COLUMNS: helios_trace.read,
    pai_trace.COLUMNS: pai_trace.read,
    pai_trace.TASK_COLUMNS: pai_trace.read_tasks,
}
"""Readers of the forms with a line of names, keyed by the columns that they need."""

_EXPECTED = (
    "expected a table of Tiresias, Philly, Helios, Alibaba PAI or ecoshare, a list of jobs in JSON (Philly), 10 or 12"
    " cells with tabs between (Gavel, Shockwave), or a run's folder; docs/simulating.md has the columns of each"
)


def read(
    path: Path,
    *,
    speeds: Path | None = None,
    schedules: Path | None = None,
    gpu_model: str = DEFAULT_GPU_MODEL,
) -> Trace:
    """Trace at `path`: a file, or the folder of a run.

    Args:
        speeds: Measured speeds of the jobs of a Gavel or Shockwave trace (`measured_speeds.py`).
        schedules: Batch sizes over time of the jobs of a Shockwave trace (`batch_schedules.py`).
        gpu_model: GPU model for which `speeds` are read.

    Raises:
        UsageError: A file cannot be read, is empty, or does not fit this trace.
        InvalidJobFile: The trace has faults; the error lists them with line and column.
    """
    if path.is_dir():
        if not RunFolder(path).events.is_file():
            raise UsageError(f"{path} is a folder without events.jsonl", "a run's folder has one; else name a file")
        trace = recorded.read(path)
    else:
        with collector_paused():
            trace = _read_file(path, speeds, schedules, gpu_model)
    if not trace.jobs:
        raise UsageError(f"{path} has no jobs to simulate", trace.note)
    for job in trace.jobs:
        if max(job.service_s, job.arrival_s) > LONGEST_S:
            where = f"{path}:{job.line}" if job.line else str(path)
            raise UsageError(
                f"{where}: the job {job.name!r} takes {job.service_s:.3g} s and comes after {job.arrival_s:.3g} s",
                f"times beyond {LONGEST_S:.0e} s, three years, are not simulated: are they in seconds?",
            )
    return trace


def _read_file(path: Path, speeds: Path | None, schedules: Path | None, gpu_model: str) -> Trace:
    file, lines = str(path), lines_of(path)
    number, first = next((place, line) for place, line in enumerate(lines, 1) if line.strip())
    cells = [cell.strip() for cell in first.split("\t")]
    for names in (gavel_trace.GAVEL, gavel_trace.SHOCKWAVE):
        if len(cells) == len(names):
            table = None if speeds is None else measured.read(speeds, gpu_model)
            return gavel_trace.read(file, lines, names, table, schedules)
    for option, value in (("--speeds", speeds), ("--schedules", schedules)):
        if value is not None:
            raise UsageError(f"{option}: {path} is no trace of Gavel's or Shockwave's", f"leave {option} out")
    if first.lstrip().startswith("["):
        return philly_trace.read_log(file, lines)
    header = [cell.strip().strip('"') for cell in first.split(",")]
    if pai_trace.is_task(header):
        return pai_trace.read_tasks(file, lines, pai_trace.TASK_TABLE)
    columns = max(_HEADED, key=lambda columns: len(set(header).intersection(columns)))
    lacks = set(columns).difference(header)
    if len(lacks) <= 1 or not set(header).difference(columns):
        return _HEADED[columns](file, lines)
    what = f"no trace begins with {quoted(first.strip())}"
    raise InvalidJobFile(file, [Mistake(number, 1, "", what)], _EXPECTED)
