"""Microsoft's Philly trace as jobs of batch queues: `timestamp,duration,num_gpus,gpu_time,cluster`.

`ecoshare simulate` reads the same file, for one cluster. Here each
cluster is a partition. The trace has no limits, so `batch_job.py` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.simulation.traces.sheet import Sheet

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
"""Columns that the file must have."""


def read(file: str, lines: Sequence[str]) -> list[BatchJob]:
    """Jobs in the order of the file, without limits. A job of no duration never ran, and is left out.

    Raises:
        InvalidJobFile: The file has faults; the error lists them with line and column.
    """
    sheet = Sheet(file, lines, ",")
    timestamp, duration, num_gpus, cluster = sheet.columns(COLUMNS, "a Philly trace")
    jobs = []
    for place, row in enumerate(sheet.rows()):
        at_s, run_s = sheet.timestamp_s(row, timestamp), sheet.number(row, duration)
        gpus, partition = sheet.whole(row, num_gpus), sheet.text(row, cluster)
        if run_s > 0.0 and not sheet.mistakes:
            jobs.append(BatchJob(str(place), at_s, gpus, run_s, inf, partition=partition))
    sheet.finish()
    return jobs
