"""What other programs do to a device while a job is measured on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ecoshare.lane import processes
from ecoshare.measure.processor_load import ProcessorTimes
from ecoshare.runtime import reaping


@dataclass(frozen=True, slots=True)
class Moment:
    """Totals at one moment.

    Attributes:
        times: Time of the processors; None where it is not known.
        own_s: Processor time of the run's own processes.
    """

    times: ProcessorTimes | None
    own_s: float


class Bystanders:
    """Tells what programs that are no part of a run did between two moments."""

    def __init__(self, token: str, on_gpu: Callable[[], Mapping[int, int]]) -> None:
        """Look beside the run with this token.

        Args:
            on_gpu: Memory on the run's GPU by process (bytes); empty on processors.
        """
        self._token, self._on_gpu = token, on_gpu

    def look(self) -> Moment:
        """Totals as of now."""
        return Moment(ProcessorTimes.now(), processes.processor_s(self._own()))

    def since(self, before: Moment) -> str:
        """What disturbed since then, in words; empty where nothing did, or it cannot be told."""
        now = self.look()
        if before.times is not None and now.times is not None:
            load = now.times.others_since(before.times, now.own_s - before.own_s)
            if load is not None and load.disturbs:
                return f"other programs kept {load} busy"
        on_gpu = self._on_gpu()
        own = set(self._own())
        strangers = on_gpu.keys() - own
        # In a container the driver's numbers may be those of the host: then it knows none of ours.
        if strangers and strangers != on_gpu.keys():
            count = len(strangers)
            return f"{count} other process{'' if count == 1 else 'es'} used the GPU"
        return ""

    def _own(self) -> list[int]:
        return [os.getpid(), *reaping.members(self._token)]
