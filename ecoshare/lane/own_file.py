"""Files that ecoshare holds open in a user's process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

_FIRST = 768
"""Lowest descriptor that ecoshare uses. Scripts that close inherited descriptors often go up to 256, and a process has
a table of 1,024 descriptors anyway."""


class OwnFile:
    """An open file, in a process in which the script may close any descriptor and open another file in its place.

    So a number alone proves nothing: the file behind it is checked before each use. If it is another file, or none, the
    file is opened again.
    """

    def __init__(self, path: str | Path, flags: int) -> None:
        """Open a file.

        Args:
            flags: Flags for open(2). With `O_CREAT` a file that is gone is made again. Without it, another file at the
                path is refused.

        Raises:
            OSError: If the file cannot be opened.
        """
        self._path = Path(path).absolute()  # the script may change its working folder
        self._flags = flags | os.O_CLOEXEC | os.O_NOFOLLOW
        self._number = self._open()
        self._file = _identity(self._number)

    def number(self) -> int:
        """Descriptor of the file, checked now.

        Raises:
            OSError: If the script has closed the file and it cannot be opened again.
        """
        if not self._is_open():
            number = self._open()
            if _identity(number) != self._file and not self._flags & os.O_CREAT:
                os.close(number)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self._path))
            self._number, self._file = number, _identity(number)
        return self._number

    def close(self) -> None:
        """Close the file, unless it is closed already."""
        if self._is_open():
            os.close(self._number)

    def _is_open(self) -> bool:
        try:
            return _identity(self._number) == self._file
        except OSError:
            return False

    def _open(self) -> int:
        number = os.open(self._path, self._flags, 0o600)
        with contextlib.suppress(OSError):  # the limit of open files may be lower
            high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FIRST)
            os.close(number)
            return high
        return number


def _identity(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino
