"""Tasks beside a loop: some end with it, others are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class SideTasks(asyncio.TaskGroup):
    """Group of tasks. Those of `begin` are cancelled when the body of the group has ended, and others are awaited."""

    def __init__(self) -> None:
        super().__init__()
        self._endless: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that ends with the body of the group, at the latest."""
        task = self.create_task(work)
        self._endless.add(task)
        task.add_done_callback(self._endless.discard)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._endless:
            task.cancel()
        await super().__aexit__(kind, error, trace)
