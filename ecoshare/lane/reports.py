"""What a script reports with `ecoshare.report()`: `reports.jsonl` in its job's folder, a line a call.

Written by the job itself, without a buffer: the controller reads it while the job runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ecoshare.lane.files import of_attempt


class Reporter:
    """Writes what is reported. What cannot be written is given up: no job fails for its reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._file: int | None = None

    def report(self, values: dict[str, float]) -> None:
        """Write one line; nothing in a child that the script has forked."""
        if self._pid != os.getpid():
            return
        line = json.dumps(values).encode() + b"\n"
        with contextlib.suppress(OSError):
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
            os.write(self._file, line)

    def close(self) -> None:
        """Report no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def reports_path(folder: Path, attempt: int) -> Path:
    """The reports of an attempt, in its job's folder."""
    return of_attempt(folder, "reports.jsonl", attempt)
