"""Reader of traces in any form. The first line of a file decides the form, never the name of the file.

ecoshare has a form of its own. Packages offer others under the entry point `ecoshare.traces`: a tuple of `TraceForm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from ecoshare.base.documents import collector_paused
from ecoshare.errors import InvalidJobFile, Mistake, UsageError
from ecoshare.knowledge.advisers.delimited import quoted
from ecoshare.record.run_folder import RunFolder
from ecoshare.simulation.traces import measured_speeds, own, recorded
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.traces.sheet import lines_of

DEFAULT_GPU_MODEL = "v100"

LONGEST_S = 1e8
"""Longest duration or arrival (s). Some policies look at every job in each quantum or round, so an endless job would
make an endless simulation."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options of the user beside the file.

    Attributes:
        speeds: Measured speeds of the jobs; None for none.
        schedules: Batch sizes over time; None for none.
        gpu_model: GPU model for which `speeds` are read.
    """

    speeds: Path | None
    schedules: Path | None
    gpu_model: str

    def known_speeds(self) -> measured_speeds.Speeds | None:
        """Content of the file of speeds; None for none.

        Raises:
            UsageError: The file cannot be read, or is no table of speeds.
        """
        return None if self.speeds is None else measured_speeds.read(self.speeds, self.gpu_model)


@dataclass(frozen=True, slots=True)
class TraceForm:
    """Form of traces of one system: a table with a line of names, or a file that its first line gives away.

    Attributes:
        name: Name of the system.
        read: Makes a trace from the name of the file, its lines and the options of the user.
        what: Words for a file without names, such as `a list of jobs in JSON (Philly)`; empty for a table.
        columns: Names of the columns that a table needs; empty without names.
        begins: Whether a first line is one of a file without names.
        takes_speeds: Whether `--speeds` and `--schedules` belong to it.
    """

    name: str
    read: Callable[[str, Sequence[str], TraceOptions], Trace]
    what: str = ""
    columns: tuple[str, ...] = ()
    begins: Callable[[str], bool] = lambda _: False
    takes_speeds: bool = False


_OWN = TraceForm("ecoshare", lambda file, lines, _: own.read(file, lines), columns=own.COLUMNS)


@cache
def _offered() -> tuple[TraceForm, ...]:
    return tuple(form for entry in entry_points(group="ecoshare.traces") for form in entry.load())


def _expected() -> str:
    tables = list(dict.fromkeys(form.name for form in _offered() if form.columns))
    forms = ["a table of " + " or ".join([*([", ".join(tables)] if tables else []), _OWN.name])]
    forms += [form.what for form in _offered() if form.what]
    return f"expected {', '.join(forms)}, or a run's folder; docs/simulating.md has the columns of each"


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
        schedules: Batch sizes over time of the jobs of a Shockwave trace.
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
            trace = _read_file(path, TraceOptions(speeds, schedules, gpu_model))
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


def _read_file(path: Path, options: TraceOptions) -> Trace:
    file, lines = str(path), lines_of(path)
    number, first = next((place, line) for place, line in enumerate(lines, 1) if line.strip())
    form = next((each for each in _offered() if each.begins(first)), None)
    if form is None or not form.takes_speeds:
        for option, value in (("--speeds", options.speeds), ("--schedules", options.schedules)):
            if value is not None:
                with_speeds = " or ".join(f"{each.name}'s" for each in _offered() if each.takes_speeds)
                raise UsageError(f"{option}: {path} is no trace of {with_speeds}", f"leave {option} out")
    if form is not None:
        return form.read(file, lines, options)
    header = [cell.strip().strip('"') for cell in first.split(",")]
    tables = [_OWN, *(each for each in _offered() if each.columns)]
    table = max(tables, key=lambda each: len(set(header).intersection(each.columns)))
    lacks = set(table.columns).difference(header)
    if len(lacks) <= 1 or not set(header).difference(table.columns):
        return table.read(file, lines, options)
    what = f"no trace begins with {quoted(first.strip())}"
    raise InvalidJobFile(file, [Mistake(number, 1, "", what)], _expected())
