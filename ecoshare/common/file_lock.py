"""A lock of a file that other processes hold for a short time only."""

from __future__ import annotations

import fcntl
import time
from typing import Protocol


class HasDescriptor(Protocol):
    """An open file."""

    def fileno(self) -> int:
        """Descriptor of the file."""
        ...


def locked_alone(file: int | HasDescriptor, within_s: float, poll_s: float) -> bool:
    """Lock a file for this process alone (flock), and return whether that was possible in time.

    Args:
        file: The file.
        within_s: Longest time (s) to wait.
        poll_s: Time (s) between two tries.

    Raises:
        OSError: The file system has no locks.
    """
    until_s = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until_s:
                return False
            time.sleep(poll_s)
