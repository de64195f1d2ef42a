"""Lane of a real warm server, without a controller."""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.lane import messages
from ecoshare.lane.messages import Ended, LaunchAttempt, Launched, Message, NotLaunched, StopAttempt
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import ANY_SLOT, NO_SLOT, SLOTS, SlotState
from tests import warm

_LONGEST_S = 90.0


@dataclass
class ServedLane:
    """One lane: `start` jobs in it, and wait for the messages about them.

    Attributes:
        said: Messages of the server so far.
    """

    folder: Path
    said: list[Message] = field(default_factory=list)
    _pending: bytes = b""
    _commands: int = 0

    def __post_init__(self) -> None:
        self.table = LaneTable.create(self.folder / "lane0")
        self._channel, theirs = socket.socketpair()
        self.errors = self.folder / "server.log"
        with theirs:
            self.server = warm.fork_server(secrets.token_hex(8), self.errors, theirs)

    def hand_over_always(self) -> None:
        """Let each turn end at the next boundary if another job waits."""
        self.table.header.wait_per_job_s = 0.0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context in which started jobs get no turn until all of them wait for it."""
        before = self._seated()
        self.table.reserve(NO_SLOT)
        try:
            yield
            mine = self._seated() - before
            warm.wait_for(lambda: all(self.table.slots[slot].seat == SlotState.WAITING for slot in mine), _LONGEST_S)
        finally:  # the lane is that of other tests, too
            self.table.reserve(ANY_SLOT)

    def _seated(self) -> set[int]:
        return {index for index in range(SLOTS) if self.table.slots[index].seat != SlotState.EMPTY}

    def start(self, job: str, script: Path, *args: str, cwd: Path | None = None, **fields: Any) -> LaunchAttempt:
        """Launch a job, in a shared process unless `fused` is false."""
        self._commands += 1
        slot = next(index for index in range(SLOTS) if self.table.slots[index].seat == SlotState.EMPTY)
        self.table.seat(slot, self._commands)
        folder = self.folder / job
        folder.mkdir(exist_ok=True)
        given: dict[str, Any] = {
            "attempt": 1,
            "module": None,
            "env": {},
            "python": None,
            "fresh": False,
            "device": "cpu",
            "cap_bytes": 8 << 30,
            "timeout_s": None,
            "startup_timeout_s": None,
            "fused": True,
            "process_bytes": 16 << 30,
        }
        launch = LaunchAttempt(
            command=self._commands,
            job=job,
            tables=[(self.table.path, slot)],
            script=str(script),
            args=list(args),
            cwd=str(cwd or script.parent),
            folder=str(folder),
            opened_s=time.monotonic(),
            **{**given, **fields},
        )
        self._channel.sendall(messages.encode(launch))
        return launch

    def stop(self, job: str, at_once: bool = False, grace_s: float = 5.0, pruned: bool = False) -> None:
        """Ask a job to end."""
        self._channel.sendall(messages.encode(StopAttempt(job, 1, at_once, "asked to", grace_s, pruned)))

    def ended(self, job: str, attempt: int = 1) -> Ended:
        """Wait for the end of a job."""
        ended = self._until(lambda each: isinstance(each, Ended) and (each.job, each.attempt) == (job, attempt))
        assert isinstance(ended, Ended)
        return ended

    def pid(self, launch: LaunchAttempt) -> int:
        """Wait for the start of a job; returns its process number."""
        told = self._until(lambda each: isinstance(each, Launched | NotLaunched) and each.command == launch.command)
        assert isinstance(told, Launched), told
        return told.pid

    def printed(self, job: str, stream: str = "stdout") -> bytes:
        """Output of a job."""
        return (self.folder / job / f"{stream}.log").read_bytes()

    def _until(self, wanted: Any) -> Any:
        end_s = time.monotonic() + _LONGEST_S
        while True:
            for message in self.said:
                if wanted(message):
                    return message
            left_s = end_s - time.monotonic()
            if left_s < 0 or not select.select([self._channel], [], [], left_s)[0]:
                raise TimeoutError(f"{self.said}\n{self.errors.read_text()}")
            received = self._channel.recv(1 << 16)
            assert received, self.errors.read_text()
            *lines, self._pending = (self._pending + received).split(b"\n")
            self.said += [messages.decode(line) for line in lines]

    def close(self) -> None:
        """End the server and all processes that it has started."""
        self._channel.close()
        self.server.wait(10)
