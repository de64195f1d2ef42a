"""Exit records: the durable word that an attempt of a job is over."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

from ecoshare.lane.messages import Ended

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""A terminal's control sequence (ECMA-48, CSI): colour, mostly."""


def write(folder: Path, ended: Ended) -> None:
    """Write the record of an attempt beside its logs, wholly or not at all, and on the disk when this returns.

    Raises:
        OSError: No room, or no permission.
    """
    target = folder / f"exit-{ended.attempt}.json"
    beside = target.with_suffix(".new")
    with beside.open("w") as file:
        json.dump(asdict(ended), file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(target)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(folder: Path) -> list[Ended]:
    """The records of a job's attempts, in the order of the attempts."""
    records = []
    for path in folder.glob("exit-*.json"):
        records.append(Ended(**json.loads(path.read_text())))
    return sorted(records, key=lambda ended: ended.attempt)


def last_line(path: Path, most: int = 300) -> str:
    """The last line of a log that is not empty, printable and cut to `most` characters; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    lines = [line for line in (_ESCAPE.sub("", line) for line in lines) if line.strip()]
    text = "".join(each if each.isprintable() else " " for each in lines[-1].strip()) if lines else ""
    return text if len(text) <= most else text[: most - 1] + "…"
