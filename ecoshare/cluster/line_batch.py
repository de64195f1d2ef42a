"""Batches of the lines of an agent: a call of Ray costs its run about a millisecond, and a run may have many nodes."""

from __future__ import annotations

import contextlib
import time
from queue import Empty, SimpleQueue

WAITS_S = 5.0
"""Longest time (s) of a call that waits for lines."""

LINGERS_S = 0.5
"""Longest time (s) for which lines that can wait are kept, to travel with later ones."""


def batch(lines: SimpleQueue[bytes | str], patient: tuple[bytes, ...]) -> list[bytes | str]:
    """Wait for lines of an agent. Empty if none came for some time.

    Args:
        lines: Gets the lines; text is the reason why no more come.
        patient: Beginnings of lines that can wait. Such lines come with the next one that cannot, or a little later.
    """
    found = list[bytes | str]()
    with contextlib.suppress(Empty):
        found.append(lines.get(timeout=WAITS_S))
        until_s = time.monotonic() + LINGERS_S
        while isinstance(last := found[-1], bytes) and last.startswith(patient):
            found.append(lines.get(timeout=max(0.0, until_s - time.monotonic())))
        while not lines.empty():
            found.append(lines.get())
    return found
