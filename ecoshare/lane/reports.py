"""Values that a script reports with `ecoshare.report()`: `reports.jsonl` in its job's folder, one line per call.

The job itself writes the file, without a buffer: the controller reads it while the job runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ecoshare.lane.files import of_attempt
from ecoshare.lane.own_file import OwnFile


class Reporter:
    """Writes reported values. A line that cannot be written is lost: no job fails because of its reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._file: OwnFile | None = None

    def report(self, values: dict[str, float]) -> None:
        """Write one line. Do nothing in a child that the script has forked."""
        if self._pid != os.getpid():
            return
        line = json.dumps(values).encode() + b"\n"
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = OwnFile(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(self._file.number(), line)

    def close(self) -> None:
        """Close the file. Reports end here."""
        if self._file is not None:
            self._file.close()
            self._file = None


def reports_path(folder: Path, attempt: int) -> Path:
    """Path of an attempt's reports, in the folder of its job."""
    return of_attempt(folder, "reports.jsonl", attempt)
