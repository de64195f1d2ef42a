"""Trace files: small ones that tests write, and the public ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.simulation.traces.any_trace import read

TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
PAI = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user,wait_time,user_dur,group_dur,group_gpu_dur\n"
PAI_TASKS = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"

needs_data = pytest.mark.skipif(
    "ECOSHARE_DATA" not in os.environ, reason="ECOSHARE_DATA names no folder with the public traces"
)


def data(*parts: str) -> Path:
    """File of a public trace."""
    return Path(os.environ["ECOSHARE_DATA"], *parts)


def written(folder: Path, text: str, name: str = "trace.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def mistakes(path: Path) -> tuple[Mistake, ...]:
    """Mistakes in a trace."""
    with pytest.raises(InvalidJobFile) as caught:
        read(path)
    return caught.value.mistakes
