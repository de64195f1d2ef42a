"""Pretended load on a GPU, for scripts that run as jobs. Standard library only.

In a script that runs anywhere::

    import sys; sys.path.insert(0, ROOT)  # the repository's
    from tests.driver.pretend import Pretend
    Pretend().load(compute=0.8, memory=0.3, used_bytes=2**30)

From the command line it is `python -m tests.driver`.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.driver.state import EVENT_END, EVENT_LOAD, Load, State


class Pretend:
    """Loads on one GPU of a fake driver."""

    def __init__(self, state_path: str | os.PathLike[str] | None = None, gpu: int = 0) -> None:
        """Open the driver with its state at `state_path`; by default the path in `FAKE_NVML_STATE`."""
        self._state = State(os.environ["FAKE_NVML_STATE"] if state_path is None else state_path)
        self._gpu = gpu

    def load(
        self,
        pid: int | None = None,
        compute: float = 0.0,
        memory: float = 0.0,
        used_bytes: int = 0,
        *,
        real: bool = True,
    ) -> None:
        """Set the load of a process on the GPU; it replaces its earlier load.

        Args:
            pid: Process number; by default this process.
            compute: Part of the GPU's arithmetic that the process would use alone, 0 to 1.
            memory: Part of the memory bandwidth that the process would use alone, 0 to 1.
            real: Whether the load ends with the process, at the first call to the driver after its end. A load
                of a process that does not exist would end at once: invented ones are not real.

        Raises:
            BufferError: The GPU has no room for another process.
            ProcessLookupError: The load is real, and there is no such process.
        """
        pid = os.getpid() if pid is None else pid
        if pid <= 0 or not (0.0 <= compute <= 1.0 and 0.0 <= memory <= 1.0):
            raise ValueError("a load has a process and parts from 0 to 1")
        started = _started_ticks(pid) if real else 0
        self._state.post(self._gpu, EVENT_LOAD, load=Load(compute, memory, used_bytes, started, pid))

    def end(self, pid: int | None = None) -> None:
        """Remove a process from the GPU, with its context and memory."""
        self._state.post(self._gpu, EVENT_END, load=Load(pid=os.getpid() if pid is None else pid))


def _started_ticks(pid: int) -> int:
    """Start of a process, in clock ticks since the start of the machine."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None
    return int(text.rpartition(")")[2].split()[19])
