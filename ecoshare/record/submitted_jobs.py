"""Jobs that were submitted to a run that stays open. A file beside `plan.json` has one line for each job or sweep.

The last line of a name counts: a resumed run plans the jobs that are left again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ecoshare.common import documents
from ecoshare.lane.files import open_to_append
from ecoshare.record.run_folder import unwritable

SWEEP = "by"
"""Key that only a sweep has."""


def append(path: Path, jobs: Iterable[dict[str, Any]]) -> None:
    """Append jobs and sweeps, each as `plan.json` has them, and synchronize the file to disk.

    Raises:
        UnfitEnvironment: The disk is full, or permission is missing.
    """
    lines = b"".join(json.dumps(job).encode() + b"\n" for job in jobs)
    try:
        file = open_to_append(path)
        try:
            os.write(file, lines)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise unwritable(path, error) from error


def read(path: Path) -> list[dict[str, Any]]:
    """Jobs and sweeps, in the order in which their names were first submitted; a cut last line is ignored.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is no JSON object with a name.
    """
    found: dict[str, dict[str, Any]] = {}
    with documents.open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            job = documents.parse(line)
            if not isinstance(job, dict) or not isinstance(job.get("name"), str):
                raise ValueError(f"line {number} holds no job")
            found[job["name"]] = job
    return list(found.values())
