"""Exit records: files that say that an attempt of a job is over. They survive the death of the controller.

Records outlive processes, not the machine: to wait until a record is on the disk would take milliseconds. After a power
cut the controller's log counts, which is on the disk before an end is acted on. An end that is in neither was never
acted on, so the job runs again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ecoshare.common.atomic_write import atomic_write
from ecoshare.lane.files import make_folder
from ecoshare.lane.messages import Ended, fields_of

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Control sequence of a terminal (ECMA-48, CSI), mostly colour."""


def exit_path(folder: Path, attempt: int) -> Path:
    """Path of the record of an attempt, in the folder of its job."""
    return folder / f"exit-{attempt}.json"


def exit_paths(folder: Path) -> list[Path]:
    """Paths of all records in the folder of a job, in no order."""
    return list(folder.glob("exit-*.json"))


def write(folder: Path, ended: Ended) -> None:
    """Write the record of an attempt beside its logs, atomically.

    Raises:
        OSError: If there is no room or no permission.
    """
    make_folder(folder)  # made again if the job has removed it
    atomic_write(exit_path(folder, ended.attempt), json.dumps(fields_of(ended)))


def last_line(path: Path, most: int = 300) -> str:
    """Last line of a log that is not empty, made printable and cut to `most` characters; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    lines = [line for line in (_ESCAPE.sub("", line) for line in lines) if line.strip()]
    text = "".join(each if each.isprintable() else " " for each in lines[-1].strip()) if lines else ""
    return text if len(text) <= most else text[: most - 1] + "…"
