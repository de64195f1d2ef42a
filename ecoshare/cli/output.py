"""Notes and progress that commands print on stderr, beside their result."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from ecoshare.record.results.run_summary import RunSummary


def note(words: str) -> None:
    """Print a note on stderr. If stderr is closed, nothing happens."""
    from ecoshare.reporting.figures import filled

    # Not printed by rich, which ends the program if stderr is closed.
    with contextlib.suppress(OSError):
        print(filled(f"note: {words}", Console(stderr=True)), file=sys.stderr, flush=True)


@contextlib.contextmanager
def while_read() -> Iterator[None]:
    """Print results until their reader has enough, as in `ecoshare run jobs.yaml | head -1`. The command goes on."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except SystemExit:  # rich ends the program for the same reason, and has let stdout go nowhere
        pass


def progress(console: Console, verbose: bool = False, quiet: bool = False) -> Any:
    """Display of a run: a live table on a terminal, else plain lines, also if `verbose`; nothing if `quiet`."""
    from ecoshare.reporting.progress import Expendable, LiveProgress, PlainProgress, Silent

    if quiet:
        return Silent()
    return Expendable(LiveProgress(console) if console.is_terminal and not verbose else PlainProgress(console))


def meter_is_news(summary: RunSummary) -> bool:
    """Whether this user has not seen yet what gives the joules of these devices. It counts as seen from now on."""
    from ecoshare.runtime.told_once import is_news

    devices = ", ".join(each.name for each in summary.devices)
    return summary.energy is not None and is_news(f"energy of {devices}", summary.energy.about)
