"""Reads documents that a kill, a full disk or another program may have changed, or of which nothing is known yet.

Every layer may import this module. It uses the standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

LONGEST_S = 1e10
"""A time in a document that is longer, 300 years, is none that ecoshare has written."""

_MOST = 10**19
"""Counts of bytes and of nanoseconds are less, and so is whatever is added up or squared of them in a float."""


def open_regular(path: Path) -> BinaryIO:
    """A file to read from.

    Raises:
        OSError: There is none, no permission, or it is no regular file: to open a pipe would wait for its other end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_begin(path: Path, most_bytes: int) -> bytes:
    """The bytes of a file that a user has named, which may be a pipe or have no end; one beyond the limit at most.

    Raises:
        OSError: It cannot be read.
        ValueError: This cannot be the name of a file.
    """
    data = bytearray()
    with path.open("rb") as file:
        # Not all at once: `read` takes the memory for what it is asked first.
        while len(data) <= most_bytes and (chunk := file.read(min(1 << 16, most_bytes + 1 - len(data)))):
            data += chunk
    return bytes(data)


def parse(text: str | bytes, any_number: bool = False) -> Any:
    """The value of a JSON text, whose numbers are finite and of a sensible size.

    Args:
        any_number: Whether it may have others, NaN and infinity among them.

    Raises:
        ValueError: It has another form.
    """
    try:
        if any_number:
            return json.loads(text, parse_int=_integer)
        return json.loads(text, parse_float=_finite, parse_int=_integer, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(text: str) -> float:
    value = float(text)
    return value if abs(value) < _MOST else _refuse(text)


def _integer(text: str) -> int:
    return value if len(text) < 25 and abs(value := int(text)) < _MOST else _refuse(text[:30])


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number that ecoshare writes")
