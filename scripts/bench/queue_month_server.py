"""`ecoshare`, with a stand-in for the server of the lanes: each attempt ends as soon as it has begun.

The scheduler, the log, the database and the HTTP interface are the real ones. A job has no process, so a month of jobs
passes in minutes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from ecoshare.cli import main
from ecoshare.lane.messages import Ended, LaunchAttempt, Launched, Message, Ready, StopAttempt
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.runtime.nodes import run_host

WAITS = "waits"
"""Beginning of the names of jobs that go on until they are stopped."""


class _Server:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._tables: dict[str, LaneTable] = {}
        self._launches: dict[str, LaunchAttempt] = {}
        self._said.put_nowait(Ready(process.pid, "none", 1, 0.0))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        if isinstance(message, LaunchAttempt):
            self._launches[message.job] = message
            self._said.put_nowait(Launched(message.command, self.pid, True, ""))
            if not message.job.startswith(WAITS):
                self._end(message.job, message.attempt, "completed")
        elif isinstance(message, StopAttempt):
            self._end(message.job, message.attempt, "stopped")

    def _end(self, job: str, attempt: int, outcome: str) -> None:
        launch = self._launches.pop(job)
        for path, slot in launch.tables:
            if path not in self._tables:
                self._tables[path] = LaneTable(Path(path))
            self._tables[path].free(slot, launch.command)
        self._said.put_nowait(Ended(job, attempt, outcome, 0, ""))

    async def messages(self) -> AsyncIterator[Message]:
        while True:
            yield await self._said.get()

    async def close(self) -> int:
        self._process.kill()
        return self._process.wait()


class _Spawned:
    def __init__(self, token: str, log: Path) -> None:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # ends with us

    async def connect(self) -> _Server:
        return _Server(self._process)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    run_host.Spawned = _Spawned  # type: ignore[assignment, attr-defined]
    sys.exit(main())
