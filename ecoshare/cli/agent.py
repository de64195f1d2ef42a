"""`ecoshare agent`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def agent(
    name: Annotated[str, typer.Argument(help="Name of this node in its run.")],
    device: Annotated[str | None, typer.Option(help="Devices, as for `ecoshare run`.")] = None,
    devices: Annotated[int | None, typer.Option(help="Number of devices.")] = None,
    share_device: Annotated[bool, typer.Option("--share-device", help="Run beside a run that uses a device.")] = False,
    shares_processors: Annotated[
        bool, typer.Option("--shares-processors", help="Other work may use the processors, which are never set then.")
    ] = False,
    unpacked: Annotated[Path | None, typer.Option(help="Folder with the shipped files of the run.")] = None,
    lingers: Annotated[float, typer.Option(help="Longest time (s) for which lines that can wait are kept.")] = 0.0,
) -> None:
    """Carry out the commands of a run on this machine; runs on several machines start this themselves."""
    from ecoshare.cluster.agent_program import run_agent
    from ecoshare.devices.occupancy import DeviceAdmission

    admission = DeviceAdmission.of(share_device=share_device)
    raise typer.Exit(run_agent(name, device, devices, admission, shares_processors, unpacked, lingers))
