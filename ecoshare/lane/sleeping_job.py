"""A server with a scheduler of its own inside its process: it has the turn while it is awake, and sleeps else.

::

    clients ──► front ──► server, in any threads and child processes of this one
                  │
                  └── keeper: takes the turn, wakes the server ... puts it to sleep, leaves the turn

Nothing of the server is watched: neither its calls of modules nor the child processes that it starts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.service_job import ServiceJob
from ecoshare.lane.serving.batch_worker import one_line
from ecoshare.lane.serving.front import Front
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.lane.serving.sleeping_server import SleepingServer
from ecoshare.lane.trace import Kind, Tracer
from ecoshare.lane.turn import LaneTurn


class AwakeTurn:
    """Turn of a server that sleeps without it. See `DeviceTurn`."""

    def __init__(self, turn: LaneTurn, trace: Tracer, drain: Callable[[], None], ended: Callable[[], None]) -> None:
        """The server has no turn yet.

        Args:
            turn: Claim of the service on the turn of its lane. Nothing else may use it.
            trace: Trace in which answers are marked.
            drain: Waits until the device has finished the work of this process.
            ended: Called after each answer.
        """
        self._turn, self._trace, self._drain, self._ended = turn, trace, drain, ended

    @property
    def is_due(self) -> bool:
        """Whether another job must have the turn."""
        return self._turn.is_due

    def take(self, due_s: float, answer_s: float) -> None:
        """Wait for the turn, see `DeviceTurn.take`."""
        self._turn.answer_by(due_s, answer_s)
        self._turn.take()

    def answered(self) -> None:
        """Count an answer."""
        # `LaneTurn.count` would learn its time, and the longest iteration shortens the quanta of the lane: beside
        # answers of seconds, the other jobs would get one iteration a turn.
        slot, now_s = self._turn.slot, time.monotonic()
        slot.eval_iterations += 1
        if not slot.last_s:
            slot.first_s, slot.waited_at_first_s = now_s, slot.waited_s
        slot.last_s, slot.waited_at_last_s = now_s, slot.waited_s
        self._trace.iteration(Kind.EVAL, now_s)
        self._ended()

    def leave(self) -> None:
        """Give up the turn. The server sleeps."""
        self._drain()
        self._turn.leave()


class SleepingJob(ServiceJob):
    """Server of this process, and of those that it starts."""

    def __init__(self, launch: LaunchAttempt) -> None:
        """Prepare the server.

        Args:
            launch: The attempt that runs.
        """
        super().__init__(launch)
        turn = self._turns[0]
        self._server = SleepingServer(
            AwakeTurn(turn, self._trace, self._drain, lambda: self._answer(turn)),
            self._spec.sleep,
            self._spec.wake,
            _say,
            self._give_up,
            lambda sleeps: self._write(whole=sleeps),
        )
        self._front: Front | None = None

    def start(self) -> None:
        """Listen for clients. No turn is taken before the server listens, too.

        Raises:
            SystemExit: The port cannot be used.
        """
        signal.signal(signal.SIGTERM, self._terminated)
        recorder = RequestRecorder(self._launch.requests_path, self._launch.opened_s)
        try:
            self._front = Front(self._spec.port, self._spec.p99_s, recorder)
        except OSError as error:
            refused = SystemExit(f"port {self._spec.port}: {error.strerror}")
            self.tell_end(refused)
            raise refused from None
        self._front.start(self._server)
        threading.Thread(target=self._keep, name="ecoshare-sleep", daemon=True).start()

    def end(self) -> None:
        """Write what is left. The supervisor passes the turn on when the process is gone."""
        if os.getpid() == self._pid:  # else a child that the server has forked
            self._write(whole=True)
            super().end()

    def watch_children(self) -> None:
        """Do nothing: child processes of the server sleep with it."""

    def _watch_calls(self) -> None:
        """Watch nothing of the server."""

    def _keep(self) -> None:
        try:
            self._server.keep()
        except Exception as error:  # the device has failed
            self._give_up(one_line(error))

    def _write(self, whole: bool) -> None:
        if self._front is not None:
            self._front.write(whole)

    def _give_up(self, why: str) -> NoReturn:
        """End the process, and with it all that the server has started. SIGTERM could let it end well."""
        self.end()
        self.tell_end(SystemExit(f"{why}; so it ends"))
        _say(f"{why}; so it ends")
        os._exit(1)


def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # the script has closed the stream
        print(line, file=sys.stderr, flush=True)
