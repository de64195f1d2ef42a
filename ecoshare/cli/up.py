"""`ecoshare up`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, cast

import typer
from rich.console import Console

from ecoshare.api.queue_up import UpRequest, check_end
from ecoshare.api.queue_up import up as serve
from ecoshare.api.request_values import Control
from ecoshare.cli.ages import age_s
from ecoshare.cli.cluster_options import (
    AddressOption,
    GpusPerNodeOption,
    NodesOption,
    NodeTimeoutOption,
    OnOption,
    ReleaseIdleOption,
    ShipOption,
)
from ecoshare.cli.options import ProfilesOption, RunDeviceOption, ShareOption, WaitOption
from ecoshare.cli.output import note, progress
from ecoshare.cli.queue_options import QueueOption
from ecoshare.cli.sharing_options import (
    ControlOption,
    DeviceCountOption,
    HostMemoryOption,
    JobsPerLaneOption,
    LanesOption,
    MemoryOption,
    NoProfilesOption,
    ObjectiveOption,
    PolicyOption,
    PolicyParameters,
    PowerBudgetByOption,
    PowerBudgetOption,
    TuningLimitOption,
)
from ecoshare.errors import UsageError
from ecoshare.queue.queue_folder import DEFAULT_NAME
from ecoshare.values.device import NODE_TIMEOUT_S
from ecoshare.values.goal import TUNING_LIMIT


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
    wait: WaitOption = False,
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
    from ecoshare.cli.background import detached, unit
    from ecoshare.policy_names import parse_options
    from ecoshare.queue.queue_folder import QueueFolder
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
    if detach:
        print(detached(context, folder))
        return
    errors = Console(stderr=True, highlight=False)
    errors.print(
        f"the queue {name!r}: `ecoshare submit{folder.option} train.py` gives it a job, Ctrl-C ends it", markup=False
    )
    result = serve(
        UpRequest(
            name=name,
            resume=resume,
            keep_s=keep_s,
            listen=listen,
            objective=objective,
            policy=policy,
            options=parse_options(option or ()),
            device=device,
            devices=devices,
            lanes=lanes,
            jobs_per_lane=jobs_per_lane,
            memory=memory,
            host_memory=host_memory,
            power_budget=power_budget,
            power_budget_by=power_budget_by,
            control=cast(Control, control),
            tuning_limit=tuning_limit,
            wait=wait,
            share_device=share_device,
            profiles=profiles,
            use_profiles=not no_profiles,
            on=on,
            address=address,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            node_timeout_s=node_timeout,
            ship=ship,
            release_idle=release_idle,
            note=note,
            progress=partial(progress, errors),
            signals=CommandSignals(),
        )
    )
    for line in result.notes:
        note(line)
    note(f"the queue {name!r} is down; its run is {result.folder}")
    check_end(result, name)
