"""`ecoshare restore`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ecoshare.cli.options import JsonOption
from ecoshare.errors import NotRestored

if TYPE_CHECKING:
    from ecoshare.devices.control.state_folder import StateFolder


def restore(
    force: Annotated[
        bool, typer.Option("--force", help="Put back also what another program has set since the run died.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Put back clocks and power that a run has left on this machine, where both it and its guard were killed.

    Processes that such a run has left are ended first.
    """
    from ecoshare.devices.control.journal import UntrustedJournal
    from ecoshare.devices.control.restore import Busy, Foreign, KnobOutcome, mend_in_time
    from ecoshare.devices.control.state_folder import StateFolder
    from ecoshare.reporting.tables.device_table import print_restored
    from ecoshare.runtime.nodes import cleanup

    cleanup.clear_dead()  # the limits that were found may exceed a power budget of the dead run
    state = StateFolder.of_this_user()
    foreign = Foreign.OVERWRITE if force else Foreign.ASK
    done, troubles = [], []
    for path in _journals(state):
        try:
            done += mend_in_time(path, state, foreign=foreign, of_any_machine=True)
        except UntrustedJournal as error:
            troubles.append(str(error))
        except Busy as error:
            troubles.append(f"{path.stem}: {error} is still at work, and will put it back itself")
    if as_json:
        print(json.dumps([each.as_dict() for each in done], indent=2))
    elif done:
        print_restored(done, Console(highlight=False))
    elif not troubles:
        print(f"nothing to restore: no run has left anything in {state.journals}")
    others = [each for each in done if each.outcome is KnobOutcome.FOREIGN]
    failed = [each.words for each in done if each.outcome is KnobOutcome.FAILED] + troubles
    if failed:
        raise NotRestored(failed[0] + (f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""))
    if others:
        raise NotRestored(
            "another program has set it since: nothing was overwritten",
            "`ecoshare restore --force` puts back what was before ecoshare",
        )


def _journals(state: StateFolder) -> list[Path]:
    try:
        return list(state.all_journals())
    except OSError as error:
        raise NotRestored(f"{state.journals} cannot be read: {error.strerror}: what was left is unknown") from error
