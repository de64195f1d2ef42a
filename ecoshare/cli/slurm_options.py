"""Options of the commands that ask Slurm for allocations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JobFileArgument = Annotated[Path, typer.Argument(metavar="JOBS.YAML", help="A job file.")]
AllocationNodesOption = Annotated[int, typer.Option("--nodes", help="Number of machines.")]
AllocationGpusOption = Annotated[
    int | None,
    typer.Option("--gpus-per-node", help="Number of GPUs of each machine. Default: none, the jobs use the processors."),
]
AllocationCpusOption = Annotated[
    int | None,
    typer.Option("--cpus-per-node", help="Number of processors of each machine. Default: what the partition gives."),
]
TimeOption = Annotated[
    str | None,
    typer.Option("--time", metavar="TIME", help="Time limit, such as 4h or 4:00:00. Default: of the partition."),
]
PartitionOption = Annotated[str | None, typer.Option("--partition", help="Partition. Default: that of the cluster.")]
StopBeforeOption = Annotated[
    str, typer.Option("--stop-before", metavar="TIME", help="Time before the limit at which jobs are asked to stop.")
]
SlurmNameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the Slurm job. Default: that of the job file.")
]
SharedRunsOption = Annotated[
    Path | None, typer.Option("--runs", metavar="DIR", help="Folder for the run, which all machines share.")
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option("--sbatch", metavar="OPTION", help="Option of sbatch, such as --account=lab; may be repeated."),
]
