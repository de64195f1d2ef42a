"""Pretends to use a GPU, for scripts that run as jobs. Standard library only.

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
    """Puts loads on one GPU of a fake driver."""

    def __init__(self, state_path: str | os.PathLike[str] | None = None, gpu: int = 0) -> None:
        """Loads for a GPU of the driver whose state is at `state_path`; by default the one of `FAKE_NVML_STATE`."""
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
        """Let a process use the GPU like this from now on, instead of however it did before.

        Args:
            pid: The process; this one by default.
            compute: Part of the GPU's arithmetic that it would use alone, 0 to 1.
            memory: Part of its memory bandwidth.
            real: Whether the load ends with the process, as soon as the driver is asked anything after that. A load
                of a process that does not exist would end at once: invented ones are not real.

        Raises:
            BufferError: There is no room for it.
            ProcessLookupError: It is to be a real process and there is none.
        """
        pid = os.getpid() if pid is None else pid
        if pid <= 0 or not (0.0 <= compute <= 1.0 and 0.0 <= memory <= 1.0):
            raise ValueError("a load has a process and parts from 0 to 1")
        started = _started_ticks(pid) if real else 0
        self._state.post(self._gpu, EVENT_LOAD, load=Load(compute, memory, used_bytes, started, pid))

    def end(self, pid: int | None = None) -> None:
        """Let a process leave the GPU, context and memory included."""
        self._state.post(self._gpu, EVENT_END, load=Load(pid=os.getpid() if pid is None else pid))


def _started_ticks(pid: int) -> int:
    """When a process was started, in clock ticks since the machine was."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None
    return int(text.rpartition(")")[2].split()[19])
