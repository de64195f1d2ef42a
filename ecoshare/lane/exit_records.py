"""Exit records: the word that an attempt of a job is over, which outlives whoever was to hear it.

They outlive processes, not the machine: nobody waits until they are on the disk, which takes milliseconds each. What
survives a power cut is the controller's log, which is there before an end is acted on; so an end that is in neither was
told to nobody, and the job runs again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ecoshare.common.atomic_write import atomic_write
from ecoshare.lane.files import make_folder
from ecoshare.lane.messages import Ended, fields_of

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""A terminal's control sequence (ECMA-48, CSI): colour, mostly."""


def write(folder: Path, ended: Ended) -> None:
    """Write the record of an attempt beside its logs, wholly or not at all.

    Raises:
        OSError: No room, or no permission.
    """
    make_folder(folder)  # again, if the job has removed it
    atomic_write(folder / f"exit-{ended.attempt}.json", json.dumps(fields_of(ended)))


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
