"""End of a process that has used gloo.

A thread of gloo drops the tensors of the last collective when the collective is over for the script already. If the
interpreter ends at this moment, PyTorch aborts the process (pull request 179291 of PyTorch, seen with 2.13). A rank
would end with SIGABRT after its work is done.
"""

from __future__ import annotations

import time
from pathlib import Path

_THREAD = "pt_gloo_runloop"
"""Name of the threads that carry out collectives, as the kernel shows it."""

_DROP_S = 0.05
"""Time (s) that a thread is given to drop the last tensors. It takes less than a millisecond of a processor."""


def let_threads_drop() -> None:
    """Wait a moment if this process has threads of gloo."""
    for thread in Path("/proc/self/task").glob("*/comm"):
        try:
            is_gloo = thread.read_text().strip() == _THREAD
        except OSError:  # it has ended meanwhile
            continue
        if is_gloo:
            time.sleep(_DROP_S)
            return
