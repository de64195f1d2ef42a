"""The file that the samplers of all devices of a run write their lines to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ecoshare.record.kept_file import KeptFile
from ecoshare.record.samples import Line, encode


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

    def write(self, line: Line) -> None:
        """Append a line.

        Raises:
            OSError: The disk is full, or the run folder cannot be made again.
        """
        if self._file is None:
            self._file = KeptFile(self._path)
        self._file.append(encode(line).encode())
        self._hear(line)

    def close(self) -> None:
        """Close the file. No more lines follow."""
        if self._file is not None:
            self._file.close()
