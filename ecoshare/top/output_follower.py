"""Follows the output of a job in a thread, and keeps its last lines."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from ecoshare.common.printable import OutputLines
from ecoshare.errors import EcoshareError
from ecoshare.top.queue_watch import in_background

KEPT = 2_000
"""Number of last lines that are kept."""


class OutputFollower:
    """The last lines of an output that may go on.

    A thread that waits for output of a silent job cannot be ended. `pause` therefore lets it end with the next output,
    and `begin` takes it up again if it still waits.
    """

    def __init__(self, source: Callable[[], Iterator[bytes]]) -> None:
        """Follower that has not begun.

        Args:
            source: Returns the bytes of the output as they come; raises `EcoshareError`.
        """
        self._source = source
        self._lock = threading.Lock()
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._count = 0
        self._unfinished = ""
        self._is_wanted = self._is_alive = self._is_over = False
        self._error = ""

    def begin(self) -> None:
        """Follow the output, from its last lines on if it is not followed yet."""
        with self._lock:
            self._is_wanted = True
            if self._is_alive:
                return
            self._is_alive, self._is_over, self._error = True, False, ""
            self._lines.clear()
            self._count, self._unfinished = 0, ""
        in_background(self._run)

    def pause(self) -> None:
        """Do not follow the output any more."""
        with self._lock:
            self._is_wanted = False

    def since(self, count: int) -> tuple[list[str], int]:
        """Lines after so many of all lines, as far as they are kept, and the number of all lines now."""
        with self._lock:
            new = self._count - count
            return ([] if new <= 0 else list(self._lines)[-new:]), self._count

    @property
    def unfinished(self) -> str:
        """Last line, if it has no end yet."""
        with self._lock:
            return self._unfinished

    @property
    def state(self) -> str:
        """Words about the end of the output; empty while it is followed."""
        with self._lock:
            return self._error or ("the end" if self._is_over else "")

    def _run(self) -> None:
        lines, error = OutputLines(), ""
        try:
            for chunk in self._source():
                found = lines.take(chunk)
                with self._lock:
                    self._lines.extend(found)
                    self._count += len(found)
                    self._unfinished = lines.unfinished
                    if not self._is_wanted:
                        self._is_alive = False
                        return
        except EcoshareError as problem:
            error = str(problem)
        except Exception as problem:  # said in the view, which would wait for ever otherwise
            error = f"{type(problem).__name__}: {problem}"
        with self._lock:
            self._is_alive, self._is_over, self._error = False, True, error
