"""Traces of Tiresias' simulator: `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019.
"""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.simulation.traces.generate import skew
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulation.traces.sheet import Sheet

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")
"""Columns in use. The unused interval is the time since the previous job."""

_NOTE = (
    "a job's iterations are taken to be alike, and its duration, in seconds, to be that of all of them together on the"
    " GPUs that it asks for"
)


def read(file: str, lines: Sequence[str]) -> Trace:
    """Jobs of a trace of Tiresias.

    Raises:
        InvalidJobFile: The file has faults; the error lists them.
    """
    sheet = Sheet(file, lines, ",")
    job_id, num_gpu, submit_time, iterations, model_name, duration = sheet.columns(COLUMNS, "a trace of Tiresias'")
    jobs = []
    for row in sheet.rows():
        name, model = sheet.name(row, job_id), sheet.text(row, model_name)
        gpus, count = sheet.whole(row, num_gpu), sheet.whole(row, iterations)
        arrival_s, duration_s = sheet.number(row, submit_time), sheet.positive(row, duration)
        if not sheet.mistakes:
            phases = (Phase(count, duration_s / count),)
            jobs.append(TraceJob(name, model, arrival_s, phases, gpus, skew=skew(model), line=row[0]))
    sheet.finish()
    return Trace(file, "Tiresias", in_order(jobs), _NOTE)
