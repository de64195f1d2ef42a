"""What a script reports with `ecoshare.report()`: `reports.jsonl` in its job's folder, a line a call.

Written by the job itself, without a buffer: the controller reads it while the job runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ecoshare.lane.files import of_attempt
from ecoshare.lane.own_file import OwnFile


class Reporter:
    """Writes what is reported. What cannot be written is given up: no job fails for its reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._file: OwnFile | None = None

    def report(self, values: dict[str, float]) -> None:
        """Write one line; nothing in a child that the script has forked."""
        if self._pid != os.getpid():
            return
        line = json.dumps(values).encode() + b"\n"
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = OwnFile(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(self._file.number(), line)

    def close(self) -> None:
        """Report no more."""
        if self._file is not None:
            self._file.close()
            self._file = None


def reports_path(folder: Path, attempt: int) -> Path:
    """The reports of an attempt, in its job's folder."""
    return of_attempt(folder, "reports.jsonl", attempt)
