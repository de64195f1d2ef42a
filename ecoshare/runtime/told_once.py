"""Remembers the notes that this user has seen on this machine, so that a lasting note does not follow every run.

The notes are one JSON object (subject: words), in a subfolder of the user's state folder.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from ecoshare.base.disk import atomic_write
from ecoshare.devices.control.state_folder import StateFolder


def is_news(subject: str, words: str) -> bool:
    """Whether the words differ from the last words on the subject. They count as told from now on.

    True if nothing can be stored: a note that is told twice is better than one that is never told.
    """
    path = _path()
    told = _told(path)
    if told.get(subject) == words:
        return False
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps({**told, subject: words}, indent=1), concurrent=True)
    return True


def _path() -> Path:
    # A subfolder, since each JSON file in the state folder itself counts as a journal.
    return StateFolder.of_this_user().journals / "notes" / "told.json"


def _told(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
