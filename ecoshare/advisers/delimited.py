"""Text files of cells with a delimiter between them, read so that a wrong cell can be named by file, line and column.

Measured tables and traces are such files, written by other people's programs. What the cells must hold is known to who
reads them; here is what these readers have in common.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from ecoshare.common import documents
from ecoshare.errors import UsageError

_LONGEST = 1 << 30, "is it the right file?"
"""Bytes of a file; the largest that we know has four million."""

MOST_MISTAKES = 20
"""That are told of one file: more of them are of one kind."""


def bytes_of(path: Path, limit: tuple[int, str] = _LONGEST) -> bytes:
    """The bytes of a file.

    Args:
        limit: Bytes that it may have at most, and a hint for who names a longer one.

    Raises:
        UsageError: It cannot be read, or is too long.
    """
    most_bytes, hint = limit
    try:
        data = documents.read_begin(path, most_bytes)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > most_bytes:
        raise UsageError(f"{path} has more than {most_bytes >> 20} MiB", hint)
    return data


def lines_of(path: Path, form: str, limit: tuple[int, str] = _LONGEST) -> list[str]:
    """The lines of a text file, with their ends.

    Args:
        form: What the file should be, as a hint for who names one that is no text.
        limit: As `bytes_of` takes it.

    Raises:
        UsageError: It cannot be read, is too long, or is no text.
    """
    data = io.BytesIO(bytes_of(path, limit))
    try:
        text = io.TextIOWrapper(data, encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text (UTF-8): byte {error.start + 1}", form) from error
    return list(io.StringIO(text))


def begin_of(lines: Iterable[str], cell: int, delimiter: str, quotes: bool = True) -> tuple[int, int]:
    """Where a cell begins: how many lines below the first, and the column, from 1.

    Args:
        lines: From the first of the cell's record on; a record in quotation marks may have several.
        cell: Its number, from 0; where the lines have no such cell, the record's begin is told.
        quotes: Whether a delimiter between quotation marks parts nothing.
    """
    inside = False
    if cell:
        for below, line in enumerate(lines):
            for column, char in enumerate(line, 2):
                inside ^= quotes and char == '"'
                cell -= char == delimiter and not inside
                if not cell:
                    return below, column
    return 0, 1


def quoted(text: str) -> str:
    """What a cell holds, as a message shows it."""
    return "nothing" if not text.strip() else repr(text if len(text) <= 60 else text[:57] + "...")
