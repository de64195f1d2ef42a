"""A service inside its process: it has the turn for root calls and for the batches of `ecoshare.serve` only.

It starts, loads its model and waits for requests without the turn.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ecoshare
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.recorded_calls import RecordedCalls
from ecoshare.lane.runner import HookedJob
from ecoshare.lane.service_turn import ServiceTurn
from ecoshare.values.service import service_of

_WRITES_WITHIN_S = 1.0
"""Longest time (s) to write what is left when the service is told to end."""


class ServiceJob(HookedJob):
    """Service of this process."""

    def __init__(self, launch: LaunchAttempt) -> None:
        """Prepare the service.

        Args:
            launch: The attempt that runs.
        """
        super().__init__(launch)
        assert launch.service is not None, "the job is a service"
        self._spec = service_of(launch.service)
        turn = self._turns[0]
        self._turn = ServiceTurn(turn, self._spec.p99_s, self._drain, lambda: self._answer(turn), self._within)
        self._calls: Any = None  # hooks, once torch is imported
        self._recorded = RecordedCalls(self._turn, self._spec.p99_s, launch.requests_path, launch.opened_s)

    def start(self) -> None:
        """Let the program find the service. No turn is taken."""
        signal.signal(signal.SIGTERM, self._terminated)
        ecoshare._service, ecoshare._answering = self._spec, self.answering
        ecoshare._most_batch = lambda: self._turns[0].answers.slot().most_batch
        ecoshare._requests_path, ecoshare._opened_s = self._launch.requests_path, self._launch.opened_s

    @contextmanager
    def answering(self, due_s: float, answer_s: float) -> Iterator[Callable[[float, float], None]]:
        """Context manager as `values.service.Answering` describes it."""
        following: list[tuple[float, float]] = []
        self._recorded.switch_off()
        self._turn.begin(due_s, answer_s)
        if (calls := self._calls) is not None:
            calls.hold()
        try:
            yield lambda next_due_s, next_answer_s: following.append((next_due_s, next_answer_s))
        finally:
            if calls is not None:
                calls.release()
            self._turn.end(*(following[-1] if following else (math.inf, None)))

    def _terminated(self, number: int, _frame: object) -> None:
        """End as the program would without a handler, but write what is left first.

        The main thread may be inside of a lock that the writer needs. So another thread writes, for a moment.
        """
        writer = threading.Thread(target=self.end, daemon=True)
        writer.start()
        writer.join(_WRITES_WITHIN_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def finish(self) -> None:
        """Do nothing: no iteration is left to count."""

    def end(self) -> None:
        """Write what is left. Threads may still have the turn: the supervisor passes it on when the process is gone."""
        self._recorded.flush()
        self._trace.flush()

    def watch_torch(self) -> None:
        """Install the hooks. torch must be imported."""
        self._watch_calls()
        if self._launch.device == "cuda":
            self._watch_cuda()

    def _watch_calls(self) -> None:
        from ecoshare.lane.service_hooks import ServiceHooks

        self._calls = ServiceHooks(self._recorded)
        self._calls.install()

    def _take_all(self) -> None:
        self._turn.keep()

    def _begin_device_work(self) -> None:
        """Do nothing: the service loads its model without the turn."""

    def _within(self, use: Callable[[], None]) -> None:
        """Call a function that uses the turn. A request to keep the lane interrupts the main thread only."""
        if threading.current_thread() is threading.main_thread():
            self._use_turn(use)
        else:
            use()
