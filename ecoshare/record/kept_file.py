"""Append-only file of the run folder, which survives the removal of the folder."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from ecoshare.lane.files import make_folder, open_to_append


class KeptFile:
    """File open for appending. If its path no longer leads to it, its whole content is written to the path again.

    A job's script that cleans up may remove or rename the folder of its own run.

    Attributes:
        on_gone: Callback that runs after the file has been written again.
    """

    def __init__(self, path: Path, on_open: Callable[[FileIO], object] = lambda _file: None) -> None:
        """Open the file at `path`, which may exist, and drop a last line that a kill has cut.

        Args:
            on_open: Callback that gets the open file, now and whenever the file is written again.

        Raises:
            OSError: The file cannot be written, or `on_open` raised the error.
        """
        self._path = path.absolute()
        self._on_open = on_open
        self.on_gone: Callable[[], None] = lambda: None
        self._file = _opened(path)
        try:
            on_open(self._file)
        except OSError:
            self._file.close()
            raise
        self._file.truncate(self._content().rfind(b"\n") + 1)

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end, or nothing.

        Raises:
            OSError: The disk is full, or the folder cannot be created again.
        """
        if not self._is_there():
            self._write_again()
            self.on_gone()
        _write(self._file, data)

    def begin_anew(self, data: bytes, earlier: Path) -> None:
        """Go on in a new file that begins with `data`, synchronized to disk. The present file becomes `earlier`.

        A kill at any moment leaves a whole file at the path: the present one, or the new one.

        Raises:
            OSError: The disk is full, `earlier` exists, or the folder has no hard links. The present file goes on.
        """
        self.append(b"")  # makes the path lead to the file
        beside = self._path.with_name(f"{self._path.name}.next")
        beside.unlink(missing_ok=True)
        file = _opened(beside)
        try:
            self._on_open(file)
            _write(file, data)
            os.fsync(file.fileno())
            self.sync()
            os.link(self._path, earlier)
            try:
                beside.replace(self._path)
            except OSError:
                earlier.unlink()
                raise
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        self._file.close()
        self._file = file

    def sync(self) -> None:
        """Synchronize the file to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _content(self) -> bytes:
        self._file.seek(0)
        return self._file.readall()

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def _write_again(self) -> None:
        make_folder(self._path.parent)
        file = FileIO(self._path, "xb+", opener=lambda path, flags: os.open(path, flags | os.O_APPEND, 0o600))
        try:
            _write(file, self._content())
            self._on_open(file)
        except OSError:
            file.close()
            self._path.unlink(missing_ok=True)  # a later call tries again
            raise
        self._file.close()
        self._file = file


def lacks_room(error: OSError) -> bool:
    """Whether a write failed because the disk, or what the user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _opened(path: Path) -> FileIO:
    return FileIO(open_to_append(path, read=True), "ab+")  # not buffered: nothing of a line that failed may follow


def _write(file: FileIO, data: bytes) -> None:
    """Write all of `data`, or nothing: no later line may follow a part of this one."""
    before, left = os.fstat(file.fileno()).st_size, memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(before)
        raise
