"""A thread that writes lines, so that a reader which does not read blocks nothing else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue


class LineWriter:
    """Writes lines in a thread, those that have come meanwhile at once."""

    def __init__(self, write: Callable[[Sequence[bytes]], object], end: Callable[[], object] = lambda: None) -> None:
        """Start the thread.

        Args:
            write: Writes lines, in order. An `OSError` means that the reader has gone: nothing more is written then.
            end: Called in the thread when no more lines are written.
        """
        self._write, self._end = write, end
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()  # None at the end
        self._thread = threading.Thread(target=self._write_all, name="ecoshare-lines", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Write a line soon."""
        self._lines.put(line)

    def close(self) -> None:
        """Write nothing after the lines that were put."""
        self._lines.put(None)

    def join(self, within_s: float) -> None:
        """Wait until all is written after `close`, for at most this time (s)."""
        self._thread.join(within_s)

    def _write_all(self) -> None:
        with contextlib.suppress(OSError):
            try:
                is_over = False
                while not is_over:
                    found = [self._lines.get()]
                    while not self._lines.empty():
                        found.append(self._lines.get())
                    is_over = None in found
                    if lines := [line for line in found if line is not None]:
                        self._write(lines)
            finally:
                self._end()
