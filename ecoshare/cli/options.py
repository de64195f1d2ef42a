"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecoshare.cli import completion

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="cpu, cuda or cuda:N; the first GPU, else the processors.", autocompletion=completion.devices),
]
RunDeviceOption = Annotated[
    str | None,
    typer.Option(
        help="Devices: names such as cuda:0,cuda:2; all; cpu, or cpu/N for N partitions of the processors. Default: "
        "all GPUs of one model, else the processors.",
        autocompletion=completion.run_devices,
    ),
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
ShareOption = Annotated[
    bool, typer.Option("--share-device", help="Run beside a run that uses a device of this one, with its free memory.")
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder that holds run folders.")]


def waits(wait: bool | None, share_device: bool = False, on: str | None = None) -> bool:
    """Whether a command waits for the end of a run that uses its device: by default where it could not begin."""
    return not (share_device or on) if wait is None else wait
