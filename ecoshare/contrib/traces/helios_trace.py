"""SenseTime's Helios traces, a `cluster_log.csv` for each cluster, from Slurm.

::

    job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
    1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0

Half of the jobs have no GPU. `duration` is from start to end, in seconds, whatever the end was. The virtual clusters
are not told apart.

Source: Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021;
S-Lab-System-Group/HeliosData.
"""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.simulation.traces.cluster_jobs import UNFINISHED, WITHOUT_GPU, ClusterJobs
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.traces.sheet import Sheet

COLUMNS = ("job_id", "gpu_num", "state", "submit_time", "duration")
"""Columns in use."""

_GO_ON = ("PENDING", "RUNNING", "SUSPENDED")
"""States of the jobs that had not ended when the log was taken."""


def read(file: str, lines: Sequence[str]) -> Trace:
    """Jobs of a trace of Helios.

    Raises:
        InvalidJobFile: The file has faults; the error lists them.
    """
    sheet = Sheet(file, lines, ",")
    job_id, gpu_num, state, submit_time, duration = sheet.columns(COLUMNS, "a trace of Helios")
    jobs = ClusterJobs(file, "Helios")
    for row in sheet.rows():
        gpus = sheet.whole(row, gpu_num, least=0)
        if not gpus:
            jobs.leave_out(WITHOUT_GPU)
        elif row[1][state].strip() in _GO_ON:
            jobs.leave_out(UNFINISHED)
        else:
            at_s, duration_s = sheet.timestamp_s(row, submit_time), sheet.number(row, duration)
            jobs.add(sheet.name(row, job_id), at_s, duration_s, gpus, row[0])
    sheet.finish()
    return jobs.trace()
