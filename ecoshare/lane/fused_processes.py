"""The processes of fused lanes, as their supervisor sees them."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field

from ecoshare.lane import messages
from ecoshare.lane.attempt_process import AttemptProcess
from ecoshare.lane.messages import LaunchAttempt, Message

_IDLE_S = 5.0
"""A process without a job is kept for so long: the next trial of a sweep comes at once, or after the others' ends."""

Place = tuple[str, str]
"""What jobs of one process have in common: their script or module, and the table of their lane."""


def place_of(launch: LaunchAttempt) -> Place:
    """Where a fused job belongs."""
    return launch.script or str(launch.module), launch.tables[0][0]


@dataclass(slots=True, eq=False)
class FusedProcessHandle:
    """One such process.

    Attributes:
        channel: To it: launches go in, words of their ends come out.
        attempts: Those in it.
        retires: It gets no more of them.
    """

    place: Place
    pid: int
    pidfd: int
    channel: socket.socket
    attempts: list[AttemptProcess] = field(default_factory=list)
    retires: bool = False
    _idle_since_s: float = field(default_factory=time.monotonic)
    _is_dismissed: bool = False
    _pending: bytes = b""

    def start(self, attempt: AttemptProcess) -> None:
        """Have it start an attempt. Where the process is gone, its end tells."""
        self.attempts.append(attempt)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.sendall(messages.encode(attempt.launch))

    def hear(self) -> list[Message] | None:
        """What it says; None where it will say nothing more."""
        try:
            received = self.channel.recv(1 << 16)
        except ConnectionResetError:
            received = b""
        if not received:
            return None
        *lines, self._pending = (self._pending + received).split(b"\n")
        return [messages.decode(line) for line in lines]

    def take_out(self, command: int) -> AttemptProcess:
        """The attempt that this command started, which is in it no longer."""
        attempt = next(each for each in self.attempts if each.launch.command == command)
        self.attempts.remove(attempt)
        self._idle_since_s = time.monotonic()
        return attempt

    def culprit(self) -> AttemptProcess | None:
        """Who it died of: one that was killed on purpose, else the one whose turn it was; None for nobody."""
        for attempt in self.attempts:
            if attempt.killed:
                return attempt
        for attempt in self.attempts:
            if attempt.place.table.header.holder == attempt.place.slot:
                return attempt
        return None

    def dismiss_if_idle(self, now_s: float) -> None:
        """Let it end where it is not worth keeping."""
        if not self.attempts and not self._is_dismissed and (self.retires or now_s - self._idle_since_s > _IDLE_S):
            self.retires = self._is_dismissed = True
            self.channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """The process is gone."""
        self.channel.close()
        os.close(self.pidfd)
