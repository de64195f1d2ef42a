"""Output of a job, as a stream that follows the file while the job goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

from ecoshare.base import documents

_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.2
_MOST_TAIL_BYTES = 1 << 20


async def output(path: Path, lines: int | None, is_over: Callable[[], bool] | None) -> AsyncIterator[bytes]:
    """Content of a growing file, in chunks. The next attempt begins a new file, which is read from its beginning.

    Args:
        path: The file, which may not exist yet.
        lines: Number of last lines to begin with, from at most the last megabyte; None for the whole file.
        is_over: Whether the job has ended, so that nothing is added any more; None to read what there is now.
    """
    file: BinaryIO | None = None
    try:
        while True:
            over = is_over is None or is_over()  # asked before the file is read to its end
            if file is None and (file := _opened(path)) is not None and lines is not None:
                file.seek(_begin_of_tail(file, lines))
                lines = None
            while file is not None and (chunk := file.read(_CHUNK_BYTES)):
                yield chunk
                await asyncio.sleep(0)
            if over:
                return
            if file is not None and _is_replaced(file, path):
                file.close()
                file = None
                continue
            await asyncio.sleep(_LOOK_S)
    finally:
        if file is not None:
            file.close()


def _opened(path: Path) -> BinaryIO | None:
    try:
        return documents.open_regular(path)
    except OSError:
        return None


def _is_replaced(file: BinaryIO, path: Path) -> bool:
    try:
        return os.fstat(file.fileno()).st_ino != path.stat().st_ino
    except OSError:
        return False  # the next attempt has not begun its file


def _begin_of_tail(file: BinaryIO, lines: int) -> int:
    end = file.seek(0, os.SEEK_END)
    if not lines:
        return end
    begin = max(0, end - _MOST_TAIL_BYTES)
    file.seek(begin)
    tail = file.read(end - begin)
    place = len(tail) - tail.endswith(b"\n")
    for _ in range(lines):
        place = tail.rfind(b"\n", 0, place)
        if place < 0:
            return begin
    return begin + place + 1
