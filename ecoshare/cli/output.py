"""What commands say beside their result, on stderr."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from rich.console import Console


def note(words: str) -> None:
    """Print a note on stderr; nothing happens where stderr is closed."""
    from ecoshare.reporting.prose import filled

    # Not by rich, which ends the program where stderr is closed.
    with contextlib.suppress(OSError):
        print(filled(f"note: {words}", Console(stderr=True)), file=sys.stderr, flush=True)


def progress(console: Console) -> Any:
    """The display of a run: a live table on a terminal, else lines."""
    from ecoshare.reporting.progress import Expendable, LiveProgress, PlainProgress

    return Expendable(LiveProgress(console) if console.is_terminal else PlainProgress(console))
