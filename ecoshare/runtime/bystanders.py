"""What other programs do to a device while a job is measured on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ecoshare.common.plural import counted
from ecoshare.devices.processor_load import LoadWatch
from ecoshare.lane import processes
from ecoshare.runtime import reaping


class Bystanders:
    """Tells what programs that are no part of a run did since a moment."""

    def __init__(self, token: str, on_gpu: Callable[[], Mapping[int, int]]) -> None:
        """Look beside the run with this token.

        Args:
            on_gpu: Memory on the run's GPU by process (bytes); empty on processors.
        """
        self._token, self._on_gpu = token, on_gpu

    def watch(self) -> LoadWatch:
        """A watch of the processors that begins now."""
        return LoadWatch.begin(lambda: processes.processor_s(self._own()))

    def disturbed(self, watch: LoadWatch) -> str:
        """What disturbed since a watch began, in words; empty where nothing did, or it cannot be told."""
        load = watch.disturbance()
        if load is not None:
            return f"other programs kept {load} busy"
        on_gpu = self._on_gpu()
        strangers = on_gpu.keys() - self._own() if on_gpu else set()
        # In a container the driver's numbers may be those of the host: then it knows none of ours.
        if strangers and strangers != on_gpu.keys():
            return f"{counted(len(strangers), 'other process', 'other processes')} used the GPU"
        return ""

    def _own(self) -> list[int]:
        return [os.getpid(), *reaping.members(self._token)]
