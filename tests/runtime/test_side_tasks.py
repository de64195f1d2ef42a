"""Tasks that end with the loop beside which they run, and tasks that are waited for."""

from __future__ import annotations

import asyncio

from ecoshare.base.clock import SideTasks


def test_begun_tasks_are_cancelled_at_the_end_and_others_awaited() -> None:
    said: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            said.append("cancelled")

    async def short() -> None:
        said.append("begins")
        await asyncio.sleep(0.05)
        said.append("over")

    async def run() -> None:
        async with SideTasks() as tasks:
            tasks.begin(endless())
            tasks.create_task(short())
            await asyncio.sleep(0.01)
        said.append("out")

    asyncio.run(asyncio.wait_for(run(), 10.0))
    assert said == ["begins", "cancelled", "over", "out"]
