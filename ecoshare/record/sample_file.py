"""The file that the samplers of all devices of a run write their lines to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from ecoshare.record.kept_file import KeptFile, lacks_room
from ecoshare.record.samples import Line, encode

_MOST_HELD_BYTES = 16 << 20
"""Most bytes of samples to keep in memory while the disk is full: many hours of them."""


class SampleFile:
    """`samples.jsonl` of a run that goes on. It is made with its first line: a run without any meter has none."""

    def __init__(self, path: Path, hear: Callable[[Line], None] = lambda _line: None) -> None:
        """Prepare to append to a file.

        Args:
            path: The file, which may exist.
            hear: Gets each line after it was written.
        """
        self._path, self._hear = path, hear
        self._file: KeptFile | None = None
        self._held = b""  # lines for which the disk has no room

    def write(self, line: Line) -> None:
        """Append a line. If the disk is full, it is written with a later one.

        Raises:
            OSError: The run folder cannot be made again, or the disk has been full for very long.
        """
        self._held += encode(line).encode()
        try:
            if self._file is None:
                self._file = KeptFile(self._path)
            self._file.append(self._held)
            self._held = b""
        except OSError as error:
            if not lacks_room(error) or len(self._held) > _MOST_HELD_BYTES:
                raise
        self._hear(line)

    def close(self) -> None:
        """Close the file. No more lines follow, and what the disk has no room for is lost."""
        if self._file is not None:
            if self._held:
                with contextlib.suppress(OSError):
                    self._file.append(self._held)
            self._file.close()
