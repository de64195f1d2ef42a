"""Options of `run` and `up`, the commands that share devices between jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from ecoshare.cli import completion

ObjectiveOption = Annotated[
    str, typer.Option(help="energy, jct, makespan or edp.", autocompletion=completion.objectives)
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        help="fair, fifo, pack, priority, srtf, tiresias, ...; by default the objective chooses it.",
        autocompletion=completion.policies,
    ),
]
PolicyParameters = Annotated[
    list[str] | None,
    typer.Option(help="A parameter of the policy named by --policy, such as limit_1=3600; may be repeated."),
]
DeviceCountOption = Annotated[
    int | None, typer.Option(help="Number of devices: the first of those that --device names. Default: all.")
]
LanesOption = Annotated[
    int | None,
    typer.Option(
        help="Lanes of each device: jobs of one lane take turns, lanes run side by side. Default: 6 if the policy "
        "chooses which jobs run beside each other, else 1."
    ),
]
JobsPerLaneOption = Annotated[
    int | None, typer.Option(help="Largest number of jobs that hold memory in one lane at once.")
]
MemoryOption = Annotated[str | None, typer.Option(help="Memory limit for all jobs of a device, such as '8 GiB'.")]
HostMemoryOption = Annotated[
    str | None,
    typer.Option(
        help="Host memory of a machine for parked jobs, such as '16 GiB': a running job waits with its memory there "
        "while a job that the policy puts before it has its place. Default: no job is parked."
    ),
]
PowerBudgetOption = Annotated[
    str | None,
    typer.Option(
        help="Power that all devices together may draw, such as '1200 W'. Watts go where they buy most of the "
        "objective. Default: no budget."
    ),
]
PowerBudgetByOption = Annotated[
    str,
    typer.Option(
        metavar="limits|placement",
        help="Way to keep the power budget: limits sets power limits of the devices, placement sets nothing, and "
        "starts a job only if the modelled power stays within the budget.",
    ),
]
ControlOption = Annotated[
    str,
    typer.Option(
        metavar="auto|known|off",
        autocompletion=completion.controls,
        help="Control of clocks and power: auto searches the best setting of each packing and uses it, known uses "
        "settings from earlier searches only, off sets nothing.",
    ),
]
TuningLimitOption = Annotated[
    float,
    typer.Option(help="Limit on the time of an iteration at a setting, relative to the default setting."),
]
NoProfilesOption = Annotated[
    bool, typer.Option("--no-profiles", help="Use no profiles of job classes, and measure none.")
]
