"""Lists the classes of a folder of profiles, one line each, and the iterations of completed jobs of one class."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecoshare.jobs.quantities import format_energy
from ecoshare.knowledge.iteration_store import ArgumentCounts
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.stored_profiles import StoredClass
from ecoshare.record.past_runs import PastRun
from ecoshare.reporting.figures import UNKNOWN, Writer, share
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

_WIDE = 110
"""Terminal width from which on all columns are shown, and the time of day. The class also names the script."""

_COLUMNS = ("script", "arguments", "made", "device", "error", "settled", "iterations")
_NARROW = ("arguments", "made", "error", "settled")
_RIGHT = ("error", "iterations")


def print_profiles(classes: Sequence[StoredClass], console: Console) -> None:
    """Print a table of classes. Their names are never cut, since the user passes them to other commands."""
    say = Writer(console)
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, header_style="bold")
    longest = max(len(each.job_class) for each in classes)
    table.add_column("class", no_wrap=True, overflow="fold", min_width=min(longest, console.width))
    names = _COLUMNS if wide else _NARROW
    for name in names:
        justify: Literal["left", "right"] = "right" if name in _RIGHT else "left"
        least = 10 if name == "made" else None
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least, justify=justify)
    for each in classes:
        cells = _cells(each, wide)
        table.add_row(say.text(each.job_class), *(say.text(cells[name]) for name in names))
    console.print(table)


def _cells(one: StoredClass, wide: bool) -> dict[str, str]:
    """Cell of each column after the first. A class without a profile has the arguments of its completed jobs."""
    profile = one.profile
    cells = {"script": script_name(one.script), "iterations": _iterations(one.counts)}
    if profile is None:
        arguments = shlex.join(one.counts[-1].arguments.args) if len(one.counts) == 1 else UNKNOWN
        return {**cells, "arguments": arguments, "settled": "no profile"} | dict.fromkeys(
            ("made", "device", "error"), UNKNOWN
        )
    error = time_error(profile)
    return {
        **cells,
        "arguments": shlex.join(profile.origin.args),
        "made": profile.made_utc.replace("T", " ")[: 16 if wide else 10],
        "device": f"{profile.machine.kind} {profile.origin.device_model}",
        "error": UNKNOWN if error is None else f"± {share(error)}",
        "settled": "yes" if profile.steady else "no",
    }


def _iterations(counts: Sequence[ArgumentCounts]) -> str:
    """Learned numbers of iterations of a class: one number, or the range over all arguments."""
    numbers = [each.learned.iterations for each in counts]
    if not numbers:
        return UNKNOWN
    lowest, highest = min(numbers), max(numbers)
    return f"{lowest:,}" if lowest == highest else f"{lowest:,} to {highest:,}"


def print_counts(one: StoredClass, console: Console) -> None:
    """Print how many iterations completed jobs of a class took, a line for each set of arguments, the newest first."""
    if not one.counts:
        return
    say = Writer(console)
    if one.profile is None:
        say.line(f"no profile of {one.job_class}", "bold")
    console.print()
    say.line("iterations of completed jobs", "bold")
    newest = one.counts[::-1]
    learned = [each.learned for each in newest]
    print_columns(
        [
            TableColumn(None, [say.text(f"  {_ran(each)}") for each in newest], is_name=True),
            TableColumn(None, [Text(f"{each.iterations:,}") for each in learned], right=True),
            TableColumn(None, [Text(each.source, style="dim") for each in learned], is_prose=True),
        ],
        console,
    )


def _ran(each: ArgumentCounts) -> str:
    """Script and arguments of jobs; a digest stands for environment variables of their own."""
    own = each.arguments
    words = shlex.join([own.script, *own.args])
    return f"{words} (`env:` {own.environment})" if own.environment else words


def described(one: StoredClass, file: str) -> dict[str, Any]:
    """One class of a list as plain data for JSON. The fields of a profile are null if the class has none.

    Args:
        one: The class.
        file: Path of its profile.
    """
    profile = one.profile
    origin, energy = (profile.origin, profile.energy) if profile is not None else (None, None)
    times = None if profile is None else profile.train or profile.eval
    return {
        "class": one.job_class,
        "script": one.script,
        "args": list(origin.args) if origin is not None else None,
        "given": one.given,
        "made_utc": profile.made_utc if profile is not None else None,
        "device": origin.device_model if origin is not None else None,
        "torch": origin.torch if origin is not None else None,
        "iteration_s": times.mean_s if times is not None else None,
        "relative_error": time_error(profile) if profile is not None else None,
        "energy_relative_error": energy.relative_error if energy is not None else None,
        "settled": profile.steady if profile is not None else None,
        "file": file if profile is not None else None,
        "iterations": [{**each.arguments.model_dump(), **asdict(each.learned)} for each in one.counts],
    }


def script_name(script: str) -> str:
    """File name of a script, or name of a module."""
    return PurePath(script).name if PurePath(script).is_absolute() else script


def time_error(profile: Profile) -> float | None:
    """Relative standard error of the mean iteration time, or of a service's worst known one; None if it is unknown."""
    if profile.batches:
        return max((each.relative_error for each in profile.batches if each.relative_error is not None), default=None)
    times = profile.train or profile.eval
    if times is None or times.standard_error_s is None or not times.mean_s:
        return None
    return times.standard_error_s / times.mean_s


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
