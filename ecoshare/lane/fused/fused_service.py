"""A service in a thread of a shared process: it has the turn whenever its program runs, and sleeps without it.

::

    turn       ══ back ═ script: load, run() ═ out ══        ══ back ═ batch ═ out ══        ══ back ═ script ends
    requests                                        ▼
    thread                                    asleep │ asks                         asleep │ asked to end

The thread sleeps on the word of its slot on which a job waits for its turn. So a request of the controller to end the
service wakes it up, and nothing else but the next request does.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn, Protocol

import ecoshare
from ecoshare.base.service import service_of
from ecoshare.lane import hooks
from ecoshare.lane.hooked_job import HookedJob
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.turn import ThreadState

_LONGEST_SLEEP_S = 86_400.0
"""Longest sleep (s): a time that every system call takes."""


class ServedThread(ThreadState, Protocol):
    """Thread of a shared process, as its service sees it: `fused_process.FusedThread`."""

    def boundary(self) -> None:
        """Look between two iterations whether the job may stay in the process."""
        ...

    @abstractmethod
    def move_out(self, why: str, unfit: bool = False) -> NoReturn:
        """End the job here, by an exception. It begins again in a process of its own."""
        ...


class FusedService(HookedJob):
    """Service of one thread. See `base.service.ServiceThread`."""

    def __init__(self, launch: LaunchAttempt, tables: Mapping[str, LaneTable], thread: ServedThread) -> None:
        """Prepare the service.

        Args:
            launch: The attempt that runs.
            tables: Tables of the lanes of the process, by path.
            thread: Thread of the service.
        """
        super().__init__(launch, tables, thread)
        path, self._index = launch.tables[0]
        self._table, self._thread = tables[path], thread
        self._slot = self._table.slots[self._index]  # for good: such a job never moves to another lane
        self._turn = self._turns[0]
        self._has_answered = False  # the turn is kept after the last answer, until the service rests

    def hear(self) -> None:
        """Let the program find the service."""
        super().hear()
        assert self._launch.service is not None, "the job is a service"
        ecoshare._service, ecoshare._answering, ecoshare._thread = (
            service_of(self._launch.service),
            self.answering,
            self,
        )
        ecoshare._most_batch = lambda: self._slot.most_batch
        ecoshare._requests_path, ecoshare._opened_s = self._launch.requests_path, self._launch.opened_s

    def watch_torch(self) -> None:
        """Watch nothing: the calls of `ecoshare.serve` tell where the work of a service ends."""
        self.go_on()
        if self._launch.device == "cuda":
            self._limit_cuda()

    def go_on(self) -> None:
        """Let the hooks of the process report to no other job."""
        hooks.forget()

    @contextmanager
    def answering(self, due_s: float, answer_s: float) -> Iterator[Callable[[float, float], None]]:
        """Context manager as `base.service.Answering` describes it.

        After an error the service keeps its turn, with which its program goes on or is unwound.
        """
        following: list[tuple[float, float]] = []
        if self._has_answered:  # the handler failed for a batch: each request is tried alone, in a turn of its own
            self._turn.leave()
        self._turn.answer_by(due_s, answer_s)
        self._turn.take()
        yield lambda next_due_s, next_answer_s: following.append((next_due_s, next_answer_s))
        self._drain()
        self._turn.count(evaluating=True)
        self._thread.boundary()
        self._answer(self._turn)
        self._has_answered = not following
        if following:
            self._turn.answer_by(*following[-1])
            self._turn.offer(lambda: None)

    @property
    def goes_on(self) -> bool:
        return not self._slot.stop

    @contextmanager
    def serving(self) -> Iterator[None]:
        self._thread.boundary()
        self.ends_itself = True
        try:
            yield
        finally:
            self._turn.take()
            self._turn.stop_if_asked(lambda: None)  # the request has been heard
            self.ends_itself = False

    def rest(self, until_s: float) -> None:
        self._has_answered = False
        if self._turn.holding:
            self._leave_all()  # last: another thread needs the interpreter, which this one then releases
        while True:
            seen, left_s = self._slot.grant, until_s - time.monotonic()
            if left_s <= 0.0 or not self.goes_on:
                return
            self._table.sleep(self._index, seen, min(left_s, _LONGEST_SLEEP_S))

    def move_out(self, what: str) -> NoReturn:
        self._thread.move_out(f"it {what}", unfit=True)
