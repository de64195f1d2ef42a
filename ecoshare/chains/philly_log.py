"""Microsoft's Philly trace as jobs of batch queues: `timestamp,duration,num_gpus,gpu_time,cluster`.

`simulation/traces/philly_trace.py` reads the same file for `ecoshare simulate`, which has one cluster. Here each
cluster is a partition. The trace has no limits, so `requested_limits.py` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ecoshare.chains.batch_job import BatchJob
from ecoshare.simulation.traces.cluster_jobs import cell_timestamp_s
from ecoshare.simulation.traces.philly_trace import COLUMNS
from ecoshare.simulation.traces.sheet import Sheet


def read(file: str, lines: Sequence[str]) -> list[BatchJob]:
    """Jobs in the order of the file, without limits. A job of no duration never ran, and is left out.

    Raises:
        InvalidJobFile: The file has faults; the error lists them with line and column.
    """
    sheet = Sheet(file, lines, ",")
    timestamp, duration, num_gpus, cluster = sheet.columns((*COLUMNS, "cluster"), "a Philly trace")
    jobs = []
    for place, row in enumerate(sheet.rows()):
        at_s, run_s = cell_timestamp_s(sheet, row, timestamp), sheet.number(row, duration)
        gpus, partition = sheet.whole(row, num_gpus), sheet.text(row, cluster)
        if run_s > 0.0 and not sheet.mistakes:
            jobs.append(BatchJob(str(place), at_s, gpus, run_s, inf, partition=partition))
    sheet.finish()
    return jobs
