"""`ecoshare slurm chain`, and the command that its batch scripts run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ecoshare.cli.classes import HelpfulCommand, WordsAfter, words_after
from ecoshare.cli.options import (
    AllocationCpusOption,
    AllocationGpusOption,
    AllocationNodesOption,
    JobFileArgument,
    JsonOption,
    PartitionOption,
    SbatchOption,
    SharedRunsOption,
    SlurmNameOption,
    StopBeforeOption,
    TimeOption,
)
from ecoshare.cli.output import note

app = typer.Typer()


@app.command(cls=WordsAfter)
def chain(
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
    until: Annotated[
        str,
        typer.Option(
            metavar="done|N|TIME|DATE",
            help="Submit allocations until the jobs are done, or at most N of them, or none after a time or a date.",
        ),
    ] = "done",
    overlap: Annotated[
        str,
        typer.Option(
            metavar="idle|take-over",
            help="A successor that comes early waits for the limit of its predecessor, or takes over at once.",
        ),
    ] = "take-over",
    predictor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Prediction of waits: reactive, average, planned, boosted or back-tested. Default: back-tested where "
            "sacct has a log, else planned.",
        ),
    ] = None,
    margin: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time that is added to each predicted wait.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; the allocations keep the chain going.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the next batch script and the decision, and submit nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Keep a run going through a chain of allocations. Words after `--` are options of `ecoshare run`.

    The same command goes on with a chain that is there, and submits nothing twice.
    """
    from rich.console import Console

    from ecoshare.contrib.chains import chain_jobs
    from ecoshare.contrib.chains.new_chain import ChainRequest
    from ecoshare.contrib.chains.report import decision_lines, print_chain

    request = ChainRequest(
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
        until=until,
        overlap=overlap,
        predictor=predictor,
        margin=margin,
        note=note,
        say=lambda words: print(words, file=sys.stderr, flush=True),
    )
    if dry_run:
        planned = chain_jobs.plan_chain(request)
        print(planned.script, end="")
        for line in decision_lines(planned.chain, planned.decision, planned.is_new, planned.predicted_wait_s):
            print(f"# {line}")
        return
    if detach:
        found = chain_jobs.begin(request)
        words, hint = chain_jobs.going_on_words(found.chain)
        if as_json:
            print(json.dumps(found.as_dict(), indent=2))
        else:
            print(f"{words}: {found.folder}; {hint}")
        return
    found = chain_jobs.chain(request)
    if as_json:
        print(json.dumps(found.as_dict(), indent=2), flush=True)
    else:
        print_chain(found.chain, found.account, Console(highlight=False))
        print(f"run: {found.run}", flush=True)
    found.check()


@app.command("chain-allocation", cls=HelpfulCommand, hidden=True)
def chain_allocation(
    folder: Annotated[Path, typer.Argument(help="Folder of the chain.")],
    number: Annotated[int, typer.Argument(help="Number of the allocation.")],
) -> None:
    """Run one allocation of a chain; batch scripts of `ecoshare slurm chain` start this themselves."""
    from ecoshare.contrib.chains.chain_allocation import work

    raise typer.Exit(work(folder, number))
