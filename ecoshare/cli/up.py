"""`ecoshare up`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ecoshare.api.queue_up import check_end, resumed
from ecoshare.api.queue_up import up as serve
from ecoshare.base.device import NODE_TIMEOUT_S
from ecoshare.base.measurement import TUNING_LIMIT
from ecoshare.base.plural import counted
from ecoshare.cli.options import (
    AddressOption,
    ControlOption,
    DeviceCountOption,
    GpusPerNodeOption,
    HostMemoryOption,
    JobsPerLaneOption,
    LanesOption,
    MemoryOption,
    NodesOption,
    NodeTimeoutOption,
    NoProfilesOption,
    ObjectiveOption,
    OnOption,
    PolicyOption,
    PolicyParameters,
    PowerBudgetByOption,
    PowerBudgetOption,
    ProfilesOption,
    QueueOption,
    ReleaseIdleOption,
    RunDeviceOption,
    ShareOption,
    ShipOption,
    TuningLimitOption,
    WaitOption,
    age_s,
    waits,
)
from ecoshare.cli.output import note, progress
from ecoshare.errors import UsageError
from ecoshare.queue.queue_folder import DEFAULT_NAME, QueueFolder

_OF_THE_COMMAND = ("name", "resume", "wait", "detach", "print_unit")
"""Parameters that are no options of the queue."""

_FIELDS = {"option": "options", "keep": "keep_s", "node_timeout": "node_timeout_s", "no_profiles": "use_profiles"}
"""Fields of the request that have other names than the parameters."""


def up(
    context: typer.Context,
    name: QueueOption = DEFAULT_NAME,
    objective: ObjectiveOption = "energy",
    policy: PolicyOption = None,
    option: PolicyParameters = None,
    device: RunDeviceOption = None,
    devices: DeviceCountOption = None,
    lanes: LanesOption = None,
    jobs_per_lane: JobsPerLaneOption = None,
    memory: MemoryOption = None,
    host_memory: HostMemoryOption = None,
    power_budget: PowerBudgetOption = None,
    power_budget_by: PowerBudgetByOption = "limits",
    control: ControlOption = "auto",
    tuning_limit: TuningLimitOption = TUNING_LIMIT,
    wait: WaitOption = None,
    share_device: ShareOption = False,
    profiles: ProfilesOption = None,
    no_profiles: NoProfilesOption = False,
    on: OnOption = None,
    address: AddressOption = None,
    nodes: NodesOption = None,
    gpus_per_node: GpusPerNodeOption = None,
    node_timeout: NodeTimeoutOption = NODE_TIMEOUT_S,
    ship: ShipOption = None,
    release_idle: ReleaseIdleOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the jobs that an earlier session has left, if there are any.")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="AGE", help="Remove the data of jobs that ended longer ago, such as 30d, once a day."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Serve the queue at a loopback address, too, with a page; port 0 for any free one. Prints a token.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Serve the queue in the background; return when it takes jobs.")
    ] = False,
    print_unit: Annotated[
        bool,
        typer.Option("--print-unit", help="Print a systemd user unit that serves the queue with these options."),
    ] = False,
) -> None:
    """Open a queue: `ecoshare submit` gives it jobs, which share devices, until `ecoshare down` ends it."""
    from ecoshare.cli.background import command_line, detached, is_given, unit
    from ecoshare.policy_names import parse_options
    from ecoshare.queue.client import left_in
    from ecoshare.queue.tcp_entry import ListenAddress
    from ecoshare.runtime.signals import CommandSignals

    folder = QueueFolder.of(name)
    if detach and print_unit:
        raise UsageError("--detach and --print-unit: give one of them")
    # A unit or a process in the background would tell a mistake late.
    keep_s = None if keep is None else age_s(keep, "--keep")
    if listen is not None:
        ListenAddress.parse(listen)
    if print_unit:
        print(unit(context), end="")
        return
    # All options are taken in one way, so that `--resume` knows of each one whether it was given.
    values = {
        **context.params,
        "options": parse_options(option or ()),
        "keep_s": keep_s,
        "use_profiles": not no_profiles,
    }
    fields = {each: _FIELDS.get(each, each) for each in context.params if each not in _OF_THE_COMMAND}
    given = {field: values.get(field, values[each]) for each, field in fields.items() if is_given(context, each)}
    given |= {"name": name, "resume": resume, "wait": waits(wait, share_device, on)}
    if detach:
        for line in resumed(None, given)[1]:  # the process in the background tells them in its log
            note(line)
        print(detached(command_line(context, wait=bool(wait)), folder))
        return
    errors = Console(stderr=True, highlight=False)
    errors.print(
        f"the queue {name!r}: `ecoshare submit{folder.option} train.py` gives it a job, Ctrl-C ends it", markup=False
    )
    result = serve(**given, note=note, progress=partial(progress, errors), signals=CommandSignals())
    for line in result.notes:
        note(line)
    left = len(left_in(folder))
    waiting = f"{counted(left, 'job')} {'waits' if left == 1 else 'wait'} for `ecoshare up --resume{folder.option}`"
    note(f"the queue {name!r} is down; {f'{waiting}; ' if left else ''}its run is {result.folder}")
    check_end(result, name)


def open_for(context: typer.Context, queue: str, jobs: Sequence[Path], args: Sequence[str]) -> str:
    """Open a queue in the background for jobs of `ecoshare run`, with the options of that, if it is not up.

    Args:
        context: Context of the command.
        queue: Name of the queue.
        jobs: The jobs, which are checked before a queue is opened for them.
        args: Arguments of scripts.

    Returns:
        Lines for the user; empty if the queue was up.

    Raises:
        UsageError: The queue is up, and options are given that it could not take any more.
        EcoshareError: The jobs have mistakes, or the queue cannot be opened.
    """
    from ecoshare.cli.background import command_line, detached, is_given
    from ecoshare.jobs.from_values import given_jobs

    folder = QueueFolder.of(queue)
    own = set(inspect.signature(up).parameters) - {"context", "name", "resume", "detach"}
    given_jobs(jobs, args)
    if not folder.is_up():
        line = command_line(context, "up", own, wait=bool(context.params.get("wait")))
        return detached([*line, "--queue", queue], folder)
    if given := [f"--{name.replace('_', '-')}" for name in sorted(own) if is_given(context, name)]:
        raise UsageError(
            f"the queue {queue!r} is up with options of its own: {', '.join(given)} cannot be given now",
            f"leave them out, or end it with `ecoshare down{folder.option}`",
        )
    return ""
