"""Notes and progress that commands print on stderr, beside their result."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from rich.console import Console


def note(words: str) -> None:
    """Print a note on stderr. If stderr is closed, nothing happens."""
    from ecoshare.reporting.prose import filled

    # Not printed by rich, which ends the program if stderr is closed.
    with contextlib.suppress(OSError):
        print(filled(f"note: {words}", Console(stderr=True)), file=sys.stderr, flush=True)


def progress(console: Console) -> Any:
    """Display of a run: a live table on a terminal, else plain lines."""
    from ecoshare.reporting.progress import Expendable, LiveProgress, PlainProgress

    return Expendable(LiveProgress(console) if console.is_terminal else PlainProgress(console))
