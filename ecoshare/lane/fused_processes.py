"""Processes of fused lanes, as their supervisor sees them."""

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
"""Time (s) for which a process without a job is kept: the next trial of a sweep comes at once, or after others end."""

Place = tuple[str, str]
"""Key that jobs of one process share: their script or module, and the path of their lane's table."""


def place_of(launch: LaunchAttempt) -> Place:
    """Key of the process in which a fused job belongs."""
    return launch.script or str(launch.module), launch.tables[0][0]


@dataclass(slots=True, eq=False)
class FusedProcessHandle:
    """One process of a fused lane.

    Attributes:
        place: Key of its jobs.
        channel: Socket to the process: launches go in, messages on their ends come out.
        attempts: Attempts that are in the process.
        retires: Whether the process gets no more attempts.
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
        """Tell the process to start an attempt. If the process is gone, the supervisor ends the attempt with it."""
        self.attempts.append(attempt)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.sendall(messages.encode(attempt.launch))

    def hear(self) -> list[Message] | None:
        """Receive messages of the process; None if no more will come."""
        try:
            received = self.channel.recv(1 << 16)
        except ConnectionResetError:
            received = b""
        if not received:
            return None
        *lines, self._pending = (self._pending + received).split(b"\n")
        return [messages.decode(line) for line in lines]

    def take_out(self, command: int) -> AttemptProcess:
        """Remove and return the attempt that a command started."""
        attempt = next(each for each in self.attempts if each.launch.command == command)
        self.attempts.remove(attempt)
        self._idle_since_s = time.monotonic()
        return attempt

    def culprit(self) -> AttemptProcess | None:
        """Attempt that caused the death of the process; None if there is none.

        It is the attempt that was killed on purpose, else the one with the turn.
        """
        for attempt in self.attempts:
            if attempt.killed:
                return attempt
        for attempt in self.attempts:
            if attempt.place.table.header.holder == attempt.place.slot:
                return attempt
        return None

    def dismiss_if_idle(self, now_s: float) -> None:
        """Let the process end if it has no job and is not worth keeping."""
        if not self.attempts and not self._is_dismissed and (self.retires or now_s - self._idle_since_s > _IDLE_S):
            self.retires = self._is_dismissed = True
            self.channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the descriptors of a process that is gone."""
        self.channel.close()
        os.close(self.pidfd)
