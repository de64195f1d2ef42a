"""`ecoshare profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ecoshare.cli import completion
from ecoshare.cli.options import DeviceOption, JsonOption, ProfilesOption, RunsOption, WaitOption
from ecoshare.cli.output import note
from ecoshare.common.folders import RUNS
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
    wait: WaitOption = False,
    profiles: ProfilesOption = None,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Measure what a script needs: memory phases, time and joules an iteration."""
    from ecoshare.devices.occupancy import DeviceAdmission, occupied
    from ecoshare.profiling.profile_store import ProfileStore, default_folder
    from ecoshare.record.run_folder import write_text
    from ecoshare.reporting.memory_timeline import svg
    from ecoshare.reporting.profile_text import print_comparison, print_profile
    from ecoshare.reporting.progress import Expendable, MeasuringProgress
    from ecoshare.runtime.profile_run import profile_script, saved_profile

    store = ProfileStore(profiles or default_folder())
    other = saved_profile(compare, store) if compare is not None else None
    saved = script.suffix == ".json"
    if saved and args:
        raise UsageError(f"{script} is a saved profile, and takes no arguments")
    if saved:
        made = saved_profile(str(script), store)
    else:
        store.make()
        errors = Console(stderr=True, highlight=False)
        with occupied(device, DeviceAdmission.of(wait), note) as occupancy:
            made, result = profile_script(
                script, args or [], occupancy, store, runs, Expendable(MeasuringProgress(errors)), note, iterations
            )
        for line in result.notes:
            note(line)
    console = Console(highlight=False)
    if as_json:
        print(made.model_dump_json(indent=2))
    elif other is not None:
        print_comparison(other, made, console)
    else:
        print_profile(made, console)
    if not saved:
        drawing = store.folder / f"{made.job_class}.svg"
        write_text(drawing, svg(made))
        if not as_json:
            print(f"\nprofile: {store.folder / made.job_class}.json\ndrawing: {drawing}")
            print(f"run folder: {result.data.summary['run']}", flush=True)
