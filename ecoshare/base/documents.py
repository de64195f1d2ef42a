"""Reads untrusted documents: files that a user names, or that a kill, a full disk or another program may have changed.

Every layer may import this module. It uses the standard library only.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

LONGEST_S = 1e10
"""Longest time (s, about 300 years) in a document that ecoshare writes. Readers refuse longer times."""

_MOST = 10**19
"""Bound of all numbers in a document. Byte and nanosecond counts are smaller; a float holds their sums and squares."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: The file does not exist, is not readable or is not a regular file. Opening a pipe would wait for its
            other end.
    """
    return _opened(path, 0)


def open_own(path: Path) -> BufferedReader:
    """Open a file that a job can change, as `open_regular` does; a link in its place is refused."""
    return _opened(path, os.O_NOFOLLOW)


def read_own(path: Path, most_bytes: int) -> bytes:
    """Content of a file that a job can change.

    Args:
        path: File to read.
        most_bytes: Limit. A longer file is refused.

    Raises:
        OSError: The file does not exist, is not readable, is a link or no regular file, or is too long.
    """
    with open_own(path) as file:
        if len(data := file.read(most_bytes + 1)) > most_bytes:
            raise OSError(errno.EFBIG, f"longer than {most_bytes} bytes", str(path))
        return data


def _opened(path: Path, flags: int) -> BufferedReader:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_begin(path: Path, most_bytes: int, is_text: bool = False) -> bytes:
    """Read the first bytes of a file that a user has named. The file may be a pipe, or have no end.

    Args:
        path: File to read.
        most_bytes: Limit. One byte more is read, so the caller can tell a file that exceeds the limit.
        is_text: Whether to read no further than a chunk with a NUL, which no text has.

    Raises:
        OSError: The file cannot be read.
        ValueError: The path cannot be the name of a file.
    """
    data = bytearray()
    with path.open("rb") as file:
        # The file is read in chunks, because `read` first allocates memory for the whole size that it is asked for.
        while len(data) <= most_bytes and (chunk := file.read(min(1 << 16, most_bytes + 1 - len(data)))):
            data += chunk
            if is_text and b"\0" in chunk:
                break
    return bytes(data)


def parse(text: str | bytes, any_number: bool = False) -> Any:
    """Value of a JSON text. All numbers must be finite and smaller than `1e19`.

    Args:
        text: JSON text.
        any_number: Whether any float is allowed, including NaN and infinity.

    Raises:
        ValueError: The text is not JSON, is nested too deeply, or has a number that is not allowed.
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


@contextmanager
def collector_paused() -> Iterator[None]:
    """Context manager that runs its body without the cycle collector.

    A job file of ten thousand jobs becomes a million objects. All stay in use until the end, and none is in a
    cycle. The collector would scan them again and again and find nothing, which takes half the loading time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
