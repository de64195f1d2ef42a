"""Remembers which notes this user was told on this machine, so that a lasting one does not follow every run.

The notes lie in a folder of the user's state folder, as one JSON object: subject and words.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from ecoshare.common.atomic_write import atomic_write
from ecoshare.devices.state_folder import StateFolder


def is_news(subject: str, words: str) -> bool:
    """Whether the words differ from the last ones told of the subject; they count as told from now on.

    True where nothing can be remembered: a note told twice is better than one that is never told.
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
    # In a folder of its own: each JSON file of the state folder itself counts as a journal.
    return StateFolder.of_this_user().journals / "notes" / "told.json"


def _told(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
