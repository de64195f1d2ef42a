"""Many clients of a queue in one process: they submit, list and follow, and print the times of the answers as JSON.

The jobs that they submit wait for the one that trains: no other job takes processor time from it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from ecoshare.api.queue_client import made_submission
from ecoshare.queue.queue_folder import QueueFolder, socket_address

PERIOD_S = 1.0
"""Mean time (s) between two requests of a client."""


def submission(folder: Path) -> dict[str, Any]:
    """Submission of a job that waits."""
    return made_submission([folder / "once.py"], ["0"], "none", (), {"after": ["train"]}).model_dump()


async def client(http: httpx.AsyncClient, number: int, until_s: float, folder: Path, times_s: list[float]) -> None:
    """Ask until the time is over, at random moments."""
    dice = random.Random(number)
    await asyncio.sleep(dice.uniform(0.0, PERIOD_S))
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        match dice.randrange(20):
            case 0:
                body = submission(folder)
                began_s = time.monotonic()  # to make it is the client's work, not the queue's
                answer = await http.post("/api/v1/jobs", json=body)
            case kind if kind < 8:
                answer = await http.get("/api/v1/jobs")
            case kind if kind < 14:
                answer = await http.get("/api/v1/jobs/train")
            case _:
                answer = await http.get("/api/v1/jobs/train/output", params={"lines": 5})
        answer.raise_for_status()
        times_s.append(time.monotonic() - began_s)
        await asyncio.sleep(dice.expovariate(1.0 / PERIOD_S))


async def main(count: int, lasts_s: float, folder: Path) -> None:
    """Run the clients and print the times (s) of all answers."""
    times_s: list[float] = []
    submission(folder)  # which imports much, while no client waits for an answer
    with socket_address(QueueFolder.of("test").socket) as address:
        transport = httpx.AsyncHTTPTransport(uds=address, limits=httpx.Limits(max_connections=count))
        async with httpx.AsyncClient(transport=transport, base_url="http://queue", timeout=60.0) as http:
            until_s = time.monotonic() + lasts_s
            await asyncio.gather(*(client(http, number, until_s, folder, times_s) for number in range(count)))
    print(json.dumps({"times_s": times_s}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])))
