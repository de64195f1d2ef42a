"""The text of a job file, with the line and column of each character.

This module refuses bytes that are not UTF-8 and control characters, and gives their place. A YAML parser would
report them less clearly. A character such as U+2028 would make YAML count lines differently from every editor.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

from ecoshare.common import documents
from ecoshare.errors import Mistake, UsageError

MAX_FILE_BYTES: Final = 32 * 2**20  # ten thousand jobs with every key set take 4 MB

_BYTE_ORDER_MARK: Final = "\ufeff"
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_FOREIGN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class Source:
    """Text of a job file that knows the line and column of each character.

    Attributes:
        text: The text without its byte order mark.
    """

    def __init__(self, text: str) -> None:
        self.text = text.removeprefix(_BYTE_ORDER_MARK)

    def mistake(self, index: int, where: str, what: str) -> Mistake:
        """A mistake at the character with this index; an index past the end stands for the end."""
        index = min(max(index, 0), len(self.text))
        line = bisect_right(self._line_starts, index)
        return Mistake(line, index - self._line_starts[line - 1] + 1, where, what)

    def line(self, index: int) -> int:
        """Line of the character with this index, counted from 1."""
        return self.mistake(index, "", "").line

    @cached_property
    def _line_starts(self) -> array[int]:
        # Computed only for a file with a mistake. An array saves memory: a file of empty lines has millions of lines.
        return array("L", chain((0,), (match.end() for match in _LINE_BREAK.finditer(self.text))))


def read_bytes(path: Path) -> bytes:
    """Bytes of a job file; for a file that is too large, a beginning longer than `MAX_FILE_BYTES`.

    Raises:
        UsageError: The file is missing, is a folder, or cannot be read; or its name is not valid.
    """
    try:
        return documents.read_begin(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise UsageError(f"no job file at {path}", "`ecoshare init` writes one to start from") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a job file", "name the file in it") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(f"the job file {path} cannot be read: {reason.lower()}") from None
    except ValueError:
        raise UsageError(f"{str(path)!r} cannot be the name of a file") from None


def decode(data: bytes) -> Source | Mistake:
    """Text of the bytes, or the first mistake that makes them invalid as a job file."""
    if len(data) > MAX_FILE_BYTES:
        return Mistake(1, 1, "", f"the file is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        source = Source(data.decode())
    except UnicodeDecodeError as error:
        before = Source(data[: error.start].decode())
        hint = "; it looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        return before.mistake(len(before.text), "", f"the file is not UTF-8 text from here on{hint}; save it as UTF-8")
    foreign = _FOREIGN.search(source.text)
    if foreign is None:
        return source
    return source.mistake(foreign.start(), "", f"the character U+{ord(foreign[0]):04X} has no place in a job file")
