"""Parts that the requests share: displays that show nothing, and checks of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.base.disk import AnyPath
from ecoshare.errors import UsageError
from ecoshare.option_fields import request_class

if TYPE_CHECKING:
    from ecoshare.record.run_view import ProgressDisplay
    from ecoshare.runtime.signals import StopSignals


def silent(_words: str) -> None:
    """Drop a note."""


def no_progress() -> ProgressDisplay:
    """Display that shows nothing."""
    from ecoshare.reporting.progress import Silent

    return Silent()


@request_class
class Caller:
    """Fields of a request for what a run tells its caller.

    Attributes:
        note: Shows a note to the user.
        progress: Makes the display of the run's progress, when the run begins.
        signals: Handling of Ctrl-C, SIGTERM and a closed terminal; see `ecoshare.api.caller_process.drive`.
    """

    note: Callable[[str], None] = field(default=silent)
    progress: Callable[[], ProgressDisplay] = field(default=no_progress)
    signals: StopSignals | None = None


def check_least(name: str, value: float | None, least: float, most: float = math.inf) -> None:
    """Check that a number is in its range; None passes.

    Raises:
        UsageError: It is not in the range, or not a number.
    """
    if value is not None and not least <= value <= most:
        up_to = f"{least:g} to {most:g}" if math.isfinite(most) else f"at least {least:g}"
        raise UsageError(f"{name}={value}: expected {up_to}")


def path_or_none(path: AnyPath | None) -> Path | None:
    """The path as a `Path`; None for None."""
    return None if path is None else Path(path)
