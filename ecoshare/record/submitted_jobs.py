"""Jobs that were submitted to a run that stays open. A file beside `plan.json` has one line for each job or sweep.

The last line of a name counts: a resumed run plans the jobs that are left again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from ecoshare.common import documents
from ecoshare.common.atomic_write import atomic_write
from ecoshare.lane.files import open_to_append
from ecoshare.record.run_folder import unwritable

SWEEP = "by"
"""Key that only a sweep has."""


def append(path: Path, jobs: Iterable[dict[str, Any]]) -> None:
    """Append jobs and sweeps, each as `plan.json` has them, and synchronize the file to disk.

    A cut last line, which a crash may leave, is removed first: the next line would be lost with it.

    Raises:
        UnfitEnvironment: The disk is full, or permission is missing. Then nothing is appended.
    """
    lines = b"".join(json.dumps(job).encode() + b"\n" for job in jobs)
    try:
        file = open_to_append(path, read=True)
        try:
            begin = _end_of_lines(file)
            os.ftruncate(file, begin)
            if os.write(file, lines) < len(lines):  # a disk that is nearly full takes a part
                os.ftruncate(file, begin)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise unwritable(path, error) from error


def _end_of_lines(file: int) -> int:
    """Place (bytes) behind the last whole line."""
    end = os.fstat(file).st_size
    if end == 0 or os.pread(file, 1, end - 1) == b"\n":
        return end
    return os.pread(file, end, 0).rfind(b"\n") + 1


def drop(path: Path, names: Collection[str]) -> None:
    """Remove the lines of some jobs and sweeps. Nothing is appended meanwhile.

    Raises:
        OSError: The file cannot be read or written.
        ValueError: A line is no JSON object with a name.
    """
    with contextlib.suppress(FileNotFoundError):
        left = [job for job in read(path) if job["name"] not in names]
        atomic_write(path, b"".join(json.dumps(job).encode() + b"\n" for job in left), sync=True)


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
