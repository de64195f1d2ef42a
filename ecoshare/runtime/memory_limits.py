"""Memory limits of running jobs on a GPU: what their allocators may take, and how a limit is lowered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.core.commands import LimitMemory
from ecoshare.core.events import Done, Event, Refused
from ecoshare.lane.table_layout import BoundaryRequest
from ecoshare.runtime.attempts import Attempts

_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Carries out `LimitMemory` commands.

    Attributes:
        context_bytes: Returns the memory (bytes) outside the allocator of a process of a job class.
        attempts: Attempts in progress.
        tell: Reports an event to the core.
        begin: Begins a task that ends with the run.
    """

    context_bytes: Callable[[str], int]
    attempts: Attempts
    tell: Callable[[Callable[..., Event]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]

    def limit_memory(self, command: LimitMemory) -> None:
        """Start to lower the limit of a job. The answer to the core comes when the job has answered."""
        self.begin(self._limit(command))

    async def _limit(self, command: LimitMemory) -> None:
        own = self.attempts.live.get(command.job)
        if own is None:
            return  # the end of the attempt is already on its way to the core
        allocator_bytes = max(0, command.cap_bytes - self.context_bytes(own.job.spec.job_class))
        while (answer := self.attempts.limit(command, allocator_bytes)) is BoundaryRequest.LIMIT:
            await asyncio.sleep(_LOOK_S)
        if answer is BoundaryRequest.UNFIT:
            self.tell(partial(Refused, command=command.id, error="the job keeps more memory than that"))
        elif answer is not None:
            self.tell(partial(Done, command=command.id))
