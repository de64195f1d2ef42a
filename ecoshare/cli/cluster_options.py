"""Options of commands that may run jobs on other machines."""

from __future__ import annotations

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
NodeTimeoutOption = Annotated[
    float, typer.Option("--node-timeout", help="Seconds of silence after which a machine of the cluster is lost.")
]
