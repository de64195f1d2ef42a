"""Text files of cells with a delimiter, read so that a wrong cell can be named by file, line and column.

Measured tables and traces are such files, written by other programs. Their readers know what the cells must hold. This
module has what the readers share.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from ecoshare.base import documents
from ecoshare.errors import UsageError

_LONGEST = 1 << 30, "is it the right file?"
"""Most bytes of a file, and a hint. The largest public trace that we know has 120 MB."""

MOST_MISTAKES = 20
"""Most mistakes that are reported for one file: more of them are of one kind."""


def bytes_of(path: Path, limit: tuple[int, str] = _LONGEST, is_text: bool = False) -> bytes:
    """Bytes of a file.

    Args:
        path: The file.
        limit: Most bytes of the file, and a hint for the user if it has more.
        is_text: Whether a NUL ends the reading.

    Raises:
        UsageError: The file cannot be read, or is too long.
    """
    most_bytes, hint = limit
    try:
        data = documents.read_begin(path, most_bytes, is_text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > most_bytes:
        raise UsageError(f"{path} has more than {most_bytes >> 20} MiB", hint)
    return data


def lines_of(path: Path, form: str, limit: tuple[int, str] = _LONGEST) -> list[str]:
    """Lines of a text file, with their line ends.

    Args:
        path: The file.
        form: Expected form of the file, as a hint for the user if it is no text.
        limit: Most bytes of the file, and a hint, as for `bytes_of`.

    Raises:
        UsageError: The file cannot be read, is too long, or is no text.
    """
    data = bytes_of(path, limit, is_text=True)
    if (place := data.find(b"\0")) >= 0:
        raise UsageError(f"{path} is no text (UTF-8): byte {place + 1}", form)
    try:
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text (UTF-8): byte {error.start + 1}", form) from error
    return list(io.StringIO(text))


def begin_of(lines: Iterable[str], cell: int, delimiter: str, quotes: bool = True) -> tuple[int, int]:
    """Position at which a cell begins: number of lines below the first, and column from 1.

    Args:
        lines: Lines from the first one of the cell's record on. A record with quoted cells may have several.
        cell: Number of the cell, from 0. If there is no such cell, the result is the begin of the record.
        delimiter: Character between two cells.
        quotes: Whether a delimiter between quotation marks belongs to a cell.
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
    """Content of a cell as a message shows it."""
    return "nothing" if not text.strip() else repr(text if len(text) <= 60 else text[:57] + "...")
