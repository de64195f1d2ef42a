"""Options of commands that may run jobs on other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OnOption = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="ray|slurm", help="Run the jobs on the machines of a Ray cluster, or of the Slurm allocation."
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|auto", help="Ray cluster of --on ray. Default: one of this machine alone, for this run."
    ),
]
NodesOption = Annotated[int | None, typer.Option(help="Number of machines of the cluster. Default: all.")]
GpusPerNodeOption = Annotated[int | None, typer.Option(help="Number of GPUs of each machine. Default: all.")]
ShipOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with scripts and data to copy to each machine of --on ray."),
]
ReleaseIdleOption = Annotated[
    str | None,
    typer.Option("--release-idle", metavar="TIME", help="Give a machine back after this time without a job."),
]
NodeTimeoutOption = Annotated[
    float, typer.Option("--node-timeout", help="Seconds of silence after which a machine of the cluster is lost.")
]
