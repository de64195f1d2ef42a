"""Prints a list of runs, one line each."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ecoshare.jobs.quantities import format_energy
from ecoshare.record.past_runs import PastRun
from ecoshare.reporting.figures import UNKNOWN, Writer
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.text_table import TableColumn, print_columns


def print_runs(runs: Sequence[PastRun], console: Console) -> None:
    """Print a table of runs."""
    say = Writer(console)
    joules = [
        UNKNOWN if each.energy_j is None else f"{format_energy(each.energy_j)} {each.source}".rstrip() for each in runs
    ]
    columns = [
        TableColumn(Text("run"), [say.text(each.name) for each in runs], is_name=True),
        TableColumn(Text("opened (UTC)"), [Text(_time(each.opened_unix_s)) for each in runs], lesser=1),
        TableColumn(
            Text("jobs"), [Text(UNKNOWN if each.jobs is None else str(each.jobs)) for each in runs], right=True
        ),
        TableColumn(Text("energy"), [say.text(each) for each in joules], right=True),
        TableColumn(Text("state"), [Text(each.state, COLOURS.get(each.state, "")) for each in runs]),
    ]
    print_columns(columns, console)


def _time(unix_s: float | None) -> str:
    return UNKNOWN if unix_s is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(unix_s))
