"""Traces of other systems for `ecoshare simulate`: Gavel, Shockwave, Philly, Helios, Alibaba PAI, Tiresias."""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.base.plural import counted
from ecoshare.contrib.traces import gavel_trace, helios_trace, pai_trace, philly_trace, tiresias_trace
from ecoshare.simulation.traces.any_trace import TraceForm, TraceOptions
from ecoshare.simulation.traces.job_trace import Trace


def _with_speeds(columns: Sequence[str]) -> TraceForm:
    name = "Shockwave" if columns is gavel_trace.SHOCKWAVE else "Gavel"

    def read(file: str, lines: Sequence[str], options: TraceOptions) -> Trace:
        return gavel_trace.read(file, lines, columns, options.known_speeds(), options.schedules)

    what = f"{counted(len(columns), 'cell')} with tabs between ({name})"
    return TraceForm(name, read, what, begins=lambda line: line.count("\t") + 1 == len(columns), takes_speeds=True)


FORMS = (
    TraceForm("Tiresias", lambda file, lines, _: tiresias_trace.read(file, lines), columns=tiresias_trace.COLUMNS),
    TraceForm("Philly", lambda file, lines, _: philly_trace.read(file, lines), columns=philly_trace.COLUMNS),
    TraceForm("Helios", lambda file, lines, _: helios_trace.read(file, lines), columns=helios_trace.COLUMNS),
    TraceForm("Alibaba PAI", lambda file, lines, _: pai_trace.read(file, lines), columns=pai_trace.COLUMNS),
    TraceForm(
        "Alibaba PAI",
        lambda file, lines, _: pai_trace.read_tasks(file, lines),
        columns=pai_trace.TASK_COLUMNS,
    ),
    TraceForm(
        "Alibaba PAI",
        lambda file, lines, _: pai_trace.read_tasks(file, lines, pai_trace.TASK_TABLE),
        begins=lambda line: pai_trace.is_task([cell.strip().strip('"') for cell in line.split(",")]),
    ),
    TraceForm(
        "Philly",
        lambda file, lines, _: philly_trace.read_log(file, lines),
        "a list of jobs in JSON (Philly)",
        begins=lambda line: line.lstrip().startswith("["),
    ),
    _with_speeds(gavel_trace.GAVEL),
    _with_speeds(gavel_trace.SHOCKWAVE),
)
"""Forms that this part offers under the entry point `ecoshare.traces`."""
