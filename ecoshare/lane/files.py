"""Files that each attempt of a job has of its own, in its job's folder."""

from __future__ import annotations

from pathlib import Path


def of_attempt(folder: Path, name: str, attempt: int) -> Path:
    """The file of an attempt: the first one's by its plain name, later ones' with their number before the suffix."""
    if attempt == 1:
        return folder / name
    stem, _, suffix = name.rpartition(".")
    return folder / f"{stem}.attempt-{attempt}.{suffix}"
