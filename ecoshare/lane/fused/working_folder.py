"""The working folder of a job that shares its process."""

from __future__ import annotations

import os


class WorkingFolder:
    """A working folder, kept open: it is to be come back to whatever its name is by then, and if it has none.

    Attributes:
        handle: Open on it.
        which: Its device and inode.
    """

    def __init__(self, which: tuple[int, int]) -> None:
        """The present one, which is known to be `which`.

        Raises:
            OSError: The process has no handles left.
        """
        self.handle, self.which = -1, which
        self.handle = os.open(".", os.O_PATH | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)


def folder_now(known: WorkingFolder | None) -> WorkingFolder | None:
    """The present one, which may be the one that is known; None where it cannot be kept."""
    facts = os.stat(".")  # noqa: PTH116
    which = facts.st_dev, facts.st_ino
    if known is not None and known.which == which:
        return known
    try:
        return WorkingFolder(which)
    except OSError:
        return None
