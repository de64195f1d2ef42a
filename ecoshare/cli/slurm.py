"""`ecoshare slurm submit`, and the group of commands that it belongs to."""

from __future__ import annotations

from typing import Annotated

import typer

from ecoshare.cli.classes import OfferedCommands, WordsAfter, words_after
from ecoshare.cli.options import (
    AllocationCpusOption,
    AllocationGpusOption,
    AllocationNodesOption,
    JobFileArgument,
    PartitionOption,
    SbatchOption,
    SharedRunsOption,
    SlurmNameOption,
    StopBeforeOption,
    TimeOption,
)
from ecoshare.cli.output import note

app = typer.Typer(
    name="slurm", cls=OfferedCommands, help="Run job files in allocations of Slurm.", no_args_is_help=True
)


@app.command(cls=WordsAfter)
def submit(
    context: typer.Context,
    jobs: JobFileArgument,
    nodes: AllocationNodesOption = 1,
    gpus_per_node: AllocationGpusOption = None,
    cpus_per_node: AllocationCpusOption = None,
    time: TimeOption = None,
    partition: PartitionOption = None,
    stop_before: StopBeforeOption = "2min",
    name: SlurmNameOption = None,
    runs: SharedRunsOption = None,
    sbatch: SbatchOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")] = False,
) -> None:
    """Ask Slurm for machines, and run a job file there. Words after `--` are options of `ecoshare run`."""
    from ecoshare.api.slurm_submit import SubmitRequest, batch_script
    from ecoshare.api.slurm_submit import submit as submitted

    request = SubmitRequest(
        jobs=jobs,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        time=time,
        partition=partition,
        stop_before=stop_before,
        name=name,
        runs=runs,
        options=words_after(context),
        sbatch=sbatch or [],
    )
    if dry_run:
        print(batch_script(request), end="")
        return
    done = submitted(request)
    for each in done.notes:
        note(each)
    print(f"Slurm job {done.job}: {done.runs}; `scancel {done.job}` ends it")
