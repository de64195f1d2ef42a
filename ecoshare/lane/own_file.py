"""Files that ecoshare holds open in a process of the user's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

_FIRST = 768
"""Descriptors from here on are ours: scripts that close what they have inherited often go up to 256, and a table of
1,024 descriptors is what a process has anyway."""


class OwnFile:
    """An open file, in a process whose script may close any descriptor and open other files in its place.

    So a number alone says nothing: what it stands for is looked at before each use. Where it is another file, or none,
    the file is opened again.
    """

    def __init__(self, path: str | Path, flags: int) -> None:
        """Open a file.

        Args:
            flags: For open(2). With `O_CREAT` a file that is gone is made again; without, another one is none of ours.

        Raises:
            OSError: It cannot be opened.
        """
        self._path = Path(path).absolute()  # the script may go to another folder
        self._flags = flags | os.O_CLOEXEC | os.O_NOFOLLOW
        self._number = self._open()
        self._file = _identity(self._number)

    def number(self) -> int:
        """The descriptor, which is this file's now.

        Raises:
            OSError: The script has closed it, and it cannot be opened again.
        """
        if not self._is_open():
            number = self._open()
            if _identity(number) != self._file and not self._flags & os.O_CREAT:
                os.close(number)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._path))
            self._number, self._file = number, _identity(number)
        return self._number

    def close(self) -> None:
        """Close it, unless that was done."""
        if self._is_open():
            os.close(self._number)

    def _is_open(self) -> bool:
        try:
            return _identity(self._number) == self._file
        except OSError:
            return False

    def _open(self) -> int:
        number = os.open(self._path, self._flags, 0o600)
        with contextlib.suppress(OSError):  # where fewer may be open
            high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FIRST)
            os.close(number)
            return high
        return number


def _identity(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino
