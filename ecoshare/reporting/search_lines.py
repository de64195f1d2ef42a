"""Prints the measurements of a search on a device while it goes on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from ecoshare.profiling.tuning_store import KnobRange, MeasurementRecord
from ecoshare.reporting.search_text import TrialLines


class SearchLines:
    """Display of a search: one line for each measurement. The search goes on if its reader is gone."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: TrialLines | None = None

    def begins(self, knobs: Sequence[KnobRange]) -> None:
        """Note the knobs, which are the columns."""
        self._lines = TrialLines(knobs, self._console, achieved=True)

    def measured(self, record: MeasurementRecord) -> None:
        """Print a measurement, and the heading before the first one."""
        if self._lines is None:
            return
        try:
            if record.number == 1:
                self._lines.heading()
            self._lines.line(record)
            sys.stdout.flush()
        except (OSError, SystemExit):  # rich raises SystemExit if its reader is gone
            self._lines = None
