"""Options that several commands share, and those that are made from a class of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from ecoshare.cli import completion
from ecoshare.option_fields import default_of, flag_of, form_of, options_of
from ecoshare.run_options import RunOptions

Command = Callable[..., None]


def takes(kind: type[Any]) -> Callable[[Command], Command]:
    """Decorator: a command gets an option for each field of a class, and their values by name as its `asked`."""
    fields, hints = options_of(kind), get_type_hints(kind)

    def taking(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters = [each for each in own.parameters.values() if each.name != "asked"]
        place = list(own.parameters).index("asked")
        parameters[place:place] = [_parameter(each, hints[name]) for name, each in fields.items()]

        @wraps(command)
        def taken(**given: Any) -> None:
            asked = {name: _value(each, given.pop(name)) for name, each in fields.items()}
            command(**given, asked=asked)

        taken.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        taken.__annotations__ = {each.name: each.annotation for each in parameters}
        return taken

    return taking


def _parameter(each: Field[Any], hint: Any) -> inspect.Parameter:
    """Parameter of a command for a field, as typer reads it."""
    form, default = form_of(each), default_of(each)
    types = get_args(hint) or (hint,)
    word: Any = str
    if get_origin(hint) is Mapping:
        word, default = list[str], None
    elif form.is_path:
        word = Path
    elif bool in types:
        word, default = bool, None if form.given_none else False
    elif form.parse is None and str not in types:
        word = next((each for each in (int, float) if each in types), str)
    completed = getattr(completion, form.choices) if form.choices else None
    asked = typer.Option(flag_of(each), help=form.help, metavar=form.form or None, autocompletion=completed)
    annotation = Annotated[word | None if default is None else word, asked]  # type: ignore[valid-type]
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _value(each: Field[Any], given: Any) -> Any:
    """Value of a field from what typer gives."""
    form = form_of(each)
    if form.given_none:
        return given
    if each.default is True:  # the option takes away what the default gives
        return not given
    if given is None or given == []:
        return default_of(each)
    return given if form.parse is None else form.parse(given)


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the user has given a parameter, be it with its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def waits(wait: bool | None) -> bool:
    """Whether a command that needs its device alone waits for the end of a run that uses it: by default."""
    return wait is None or wait


JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="cpu, cuda or cuda:N; the first GPU, else the processors.", autocompletion=completion.devices),
]
RunDeviceOption = Annotated[
    str | None,
    typer.Option(help=form_of(options_of(RunOptions)["device"]).help, autocompletion=completion.run_devices),
]
ProfilesOption = Annotated[
    Path | None, typer.Option("--profiles", help="Folder that holds profiles; else that of the user's data.")
]
WaitOption = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Wait for the end of a run that uses a device of this one, as it is the default; or be refused.",
    ),
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder that holds run folders.")]


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


QueueOption = Annotated[
    str,
    typer.Option(
        "--name", "--queue", help="Name of the queue.", autocompletion=completion.queues, envvar="ECOSHARE_QUEUE"
    ),
]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Job of the queue.", autocompletion=completion.queued_jobs)
]
SomeJobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="Jobs of the queue.", autocompletion=completion.queued_jobs),
]
EndedJobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Jobs of the queue.", autocompletion=completion.ended_jobs)
]
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Jobs of the queue.", autocompletion=completion.queued_jobs)
]
