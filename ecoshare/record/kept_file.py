"""A file of the run folder that grows while the run goes on, and that outlives the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ecoshare.lane.files import make_folder, open_to_append


class KeptFile:
    """An open file to append to. Where its path leads to it no more, it is written there again, with all that it held.

    A script that cleans up may remove or rename the folder of the run that it is part of.

    Attributes:
        on_gone: Is called when the file has been written again.
    """

    def __init__(self, path: Path, on_open: Callable[[BinaryIO], object] = lambda _file: None) -> None:
        """Open the file at `path`, which may exist; a last line that a kill has cut is dropped.

        Args:
            on_open: Is called with the open file, now and whenever it has been written again.

        Raises:
            OSError: It cannot be written, or `on_open` has raised it.
        """
        self._path = path.absolute()
        self._on_open = on_open
        self.on_gone: Callable[[], None] = lambda: None
        self._file: BinaryIO = os.fdopen(open_to_append(path, read=True), "ab+")
        try:
            on_open(self._file)
        except OSError:
            self._file.close()
            raise
        self._file.truncate(self._content().rfind(b"\n") + 1)

    def append(self, data: bytes) -> None:
        """Write `data` at the end.

        Raises:
            OSError: No room, or the folder cannot be made again.
        """
        if not self._is_there():
            self._write_again()
            self.on_gone()
        self._file.write(data)
        self._file.flush()

    def sync(self) -> None:
        """Return when all of it is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more is to come."""
        self._file.close()

    def _content(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def _write_again(self) -> None:
        make_folder(self._path.parent)
        file: BinaryIO = self._path.open("xb+")
        file.write(self._content())
        self._on_open(file)
        self._file.close()
        self._file = file
