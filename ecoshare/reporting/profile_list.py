"""Lists the profiles of a folder, one line each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.table import Table

from ecoshare.profiling.profile import Profile
from ecoshare.reporting.figures import UNKNOWN, Writer, share

_WIDE = 110
"""Terminal width from which on script, device and time of day are shown. The class also names the script."""


def print_profiles(profiles: Sequence[Profile], console: Console) -> None:
    """Print a table of profiles. Class names are never cut, since the user passes them to other commands."""
    say = Writer(console)
    wide = console.width >= _WIDE
    table = Table(box=None, pad_edge=False, header_style="bold")
    longest = max(len(profile.job_class) for profile in profiles)
    table.add_column("class", no_wrap=True, overflow="fold", min_width=min(longest, console.width))
    for name in ("script", "arguments", "made", "device") if wide else ("arguments", "made"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=10 if name == "made" else None)
    table.add_column("error", no_wrap=True, justify="right")
    table.add_column("settled", no_wrap=True)
    for profile in profiles:
        error = time_error(profile)
        cells = [
            profile.job_class,
            script_name(profile),
            shlex.join(profile.origin.args),
            profile.made_utc.replace("T", " ")[: 16 if wide else 10],
            f"{profile.machine.kind} {profile.origin.device_model}",
            UNKNOWN if error is None else f"± {share(error)}",
            "yes" if profile.steady else "no",
        ]
        table.add_row(*(say.text(cell) for number, cell in enumerate(cells) if wide or number not in (1, 4)))
    console.print(table)


def described(profile: Profile, file: str) -> dict[str, Any]:
    """One profile of a list as plain data for JSON.

    Args:
        file: Path of the profile.
    """
    energy = profile.energy
    return {
        "class": profile.job_class,
        "script": profile.origin.script,
        "args": list(profile.origin.args),
        "given": profile.origin.given,
        "made_utc": profile.made_utc,
        "device": profile.origin.device_model,
        "torch": profile.origin.torch,
        "iteration_s": None if (times := profile.train or profile.eval) is None else times.mean_s,
        "relative_error": time_error(profile),
        "energy_relative_error": None if energy is None else energy.relative_error,
        "settled": profile.steady,
        "file": file,
    }


def script_name(profile: Profile) -> str:
    """File name of the script, or name of the module."""
    script = profile.origin.script
    return PurePath(script).name if PurePath(script).is_absolute() else script


def time_error(profile: Profile) -> float | None:
    """Relative standard error of the mean iteration time; None if it is not known."""
    times = profile.train or profile.eval
    if times is None or times.standard_error_s is None or not times.mean_s:
        return None
    return times.standard_error_s / times.mean_s
