"""One look at a time, beside a process that has to watch a clock: Slurm, a lock or a model may take minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Looks:
    """Carries out looks in a thread, one after another. The thread does not keep the process alive."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Carry out no look yet.

        Args:
            say: Shows why a look has failed.
        """
        self._say = say
        self._thread: threading.Thread | None = None

    def start(self, act: Callable[[], object]) -> bool:
        """Start a look. Return False, without one, if the last one has not ended."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=quietly, args=(act, self._say), name="look", daemon=True)
        self._thread.start()
        return True

    def join(self, within_s: float) -> bool:
        """Wait for the end of the last look. Return whether it has ended.

        Args:
            within_s: Longest time (s) to wait.
        """
        if self._thread is not None:
            self._thread.join(within_s)
            return not self._thread.is_alive()
        return True


def quietly(act: Callable[[], object], say: Callable[[str], None]) -> None:
    """Do what may fail without harm to the jobs: Slurm, a disk or the memory may be busy for a while."""
    try:
        act()
    except Exception as error:  # whatever it is, jobs go on
        say(str(error) or type(error).__name__)
