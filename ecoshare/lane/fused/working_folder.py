"""The working folder of a job that shares its process."""

from __future__ import annotations

import os


class WorkingFolder:
    """A working folder, kept open: the job can return to it even if it was renamed or deleted.

    Attributes:
        handle: File descriptor of the folder.
        which: Device and inode of the folder.
    """

    def __init__(self, which: tuple[int, int]) -> None:
        """Open the present working folder.

        Args:
            which: Device and inode of the present folder.

        Raises:
            OSError: If the process has no file descriptors left.
        """
        self.handle, self.which = -1, which
        self.handle = os.open(".", os.O_PATH | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)


def folder_now(known: WorkingFolder | None) -> WorkingFolder | None:
    """Present working folder; None if it cannot be kept open.

    Args:
        known: Folder that is returned if it is still the present one.
    """
    facts = os.stat(".")  # noqa: PTH116
    which = facts.st_dev, facts.st_ino
    if known is not None and known.which == which:
        return known
    try:
        return WorkingFolder(which)
    except OSError:
        return None
