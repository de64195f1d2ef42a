"""`ecoshare profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ecoshare.api import profile_script
from ecoshare.api.profile_script import ProfileRequest, saved_profile
from ecoshare.base.disk import RUNS
from ecoshare.cli import completion
from ecoshare.cli.options import DeviceOption, JsonOption, ProfilesOption, RunsOption, WaitOption, waits
from ecoshare.cli.output import note
from ecoshare.errors import UsageError


def profile(
    script: Annotated[Path, typer.Argument(metavar="MODEL.PY", help="A script; or a saved profile, to show it.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script.")] = None,
    iterations: Annotated[
        int | None,
        typer.Option(min=1, help="Measure at least so many after the warm-up, instead of until it is steady."),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="PROFILE", help="Another one to show beside it.", autocompletion=completion.classes),
    ] = None,
    device: DeviceOption = None,
    wait: WaitOption = None,
    profiles: ProfilesOption = None,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Measure what a script needs: memory phases, time and joules an iteration, or a request of a service."""
    from ecoshare.reporting.profile_text import print_comparison, print_profile
    from ecoshare.reporting.progress import Expendable, MeasuringProgress
    from ecoshare.runtime.signals import CommandSignals

    other = saved_profile(compare, profiles) if compare is not None else None
    result = None
    if script.suffix == ".json":
        if args:
            raise UsageError(f"{script} is a saved profile, and takes no arguments")
        made = saved_profile(str(script), profiles)
    else:
        errors = Console(stderr=True, highlight=False)
        result = profile_script.profile(
            ProfileRequest(
                script=script,
                args=args or (),
                iterations=iterations,
                device=device,
                wait=waits(wait),
                profiles=profiles,
                runs=runs,
                note=note,
                progress=lambda: Expendable(MeasuringProgress(errors)),
                signals=CommandSignals(),
            )
        )
        made = result.profile
        for line in result.run.notes:
            note(line)
    console = Console(highlight=False)
    if as_json:
        print(made.model_dump_json(indent=2))
    elif other is not None:
        print_comparison(other, made, console)
    else:
        print_profile(made, console)
    if result is not None:
        drawing = result.draw()
        if not as_json:
            print(f"\nprofile: {result.file}\ndrawing: {drawing}")
            print(f"run folder: {result.run.summary.run}", flush=True)
