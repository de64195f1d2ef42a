"""Queues of services that run, as their slots in the tables of their lanes show them.

A service says in its slot when the request that it answers, or that waits first, is due. It wants the turn for as long
as there is such a request. A server that sleeps keeps its turn without a request, so its queue cannot be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ecoshare.common.clock import loop_s
from ecoshare.lane.table_layout import SlotState
from ecoshare.runtime.attempts import Attempts

_LOOK_S = 0.02

_RECORDED_S = 2.5
"""Time (s) after which a request is in the record of its service, and this was read: both happen once a second."""


class LiveQueues:
    """Queues of the services among some jobs.

    Attributes:
        targets_s: Target (s) of each service with a queue that can be seen.
    """

    def __init__(self, attempts: Attempts, jobs: Iterable[str]) -> None:
        """Queues of the attempts in progress.

        Args:
            attempts: Attempts in progress.
            jobs: Names of jobs. Those that are no services are left out.
        """
        self._attempts = attempts
        self._own = {name: attempts.live[name] for name in jobs if name in attempts.live}
        specs = {name: own.job.spec.service for name, own in self._own.items()}
        self.targets_s = {name: spec.p99_s for name, spec in specs.items() if spec is not None and not spec.sleep}

    def heads(self) -> dict[str, float | None]:
        """Time (s, monotonic) at which the first request of each service is due; None if there is none.

        A service that has ended is left out.
        """
        found: dict[str, float | None] = {}
        for name in self.targets_s:
            if self._attempts.live.get(name) is self._own[name]:
                slot = self._attempts.slot(name)
                is_busy = slot.seat in (SlotState.WAITING, SlotState.HOLDING) and slot.due_s > 0.0
                found[name] = slot.due_s if is_busy else None
        return found

    async def emptied(self, is_well: Callable[[], bool], most_s: float) -> bool:
        """Wait until each queue has been empty once, and the records are well. Return whether that came to be.

        Args:
            is_well: Returns whether the records of the services are well. It is called when they have all requests
                from before the wait.
            most_s: Longest wait (s).
        """
        began_s, waits = loop_s(), set(self.targets_s)
        while (waited_s := loop_s() - began_s) < most_s:
            heads = self.heads()
            waits = {name for name in waits if heads.get(name) is not None}
            if not waits and waited_s >= _RECORDED_S and is_well():
                return True
            await asyncio.sleep(_LOOK_S)
        return False
