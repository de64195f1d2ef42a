"""Detection of other programs that disturb a device while a job is measured on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ecoshare.common.plural import counted
from ecoshare.devices import mps
from ecoshare.devices.processor_load import LoadWatch
from ecoshare.lane import processes
from ecoshare.runtime import reaping


class Bystanders:
    """Detects disturbance of a measurement by programs outside the run."""

    def __init__(self, token: str, on_gpu: Callable[[], Mapping[int, int]]) -> None:
        """Detect programs outside the run with this token.

        Args:
            on_gpu: Memory (bytes) of each process on the GPU of the run; empty on processors.
        """
        self._token, self._on_gpu = token, on_gpu

    def watch(self) -> LoadWatch:
        """Start to watch the processors now."""
        return LoadWatch.begin(lambda: processes.processor_s(self._own()))

    def disturbed(self, watch: LoadWatch) -> str:
        """Describe the disturbance, in words; empty if there was none, or if it is unknown.

        The load of the processors counts from the start of the watch. Processes on the GPU count if they are there now.
        """
        load = watch.disturbance()
        if load is not None:
            return f"other programs kept {load} busy"
        on_gpu = self._on_gpu()
        strangers = {pid for pid in on_gpu.keys() - self._own() if not mps.is_server(pid)} if on_gpu else set()
        # In a container, the driver may report the process IDs of the host. Then none of them is ours.
        if strangers and strangers != on_gpu.keys():
            return f"{counted(len(strangers), 'other process', 'other processes')} used the GPU"
        return ""

    def _own(self) -> list[int]:
        return [os.getpid(), *reaping.members(self._token)]
