"""Requests that wait for their answers: bounded, the one that is due first in front."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class QueueFull(Exception):
    """A request is refused, because the most requests wait already. Try again later.

    Attributes:
        waiting: Number of requests that wait.
    """

    def __init__(self, waiting: int) -> None:
        super().__init__(f"the queue is full: {waiting} requests wait")
        self.waiting = waiting


class ServiceClosed(RuntimeError):
    """The service was closed before it could answer this request."""


class Answer(Future[Any]):
    """Future of an answer. The queue is told of a cancelled one: its place is free."""

    on_cancel: Callable[[], None] | None = None

    def cancel(self) -> bool:
        """Cancel the request, unless its batch is in the handler. Return whether it is cancelled."""
        is_cancelled = super().cancel()
        if is_cancelled and self.on_cancel is not None:
            self.on_cancel()
        return is_cancelled


@dataclass(frozen=True, slots=True, order=True)
class ServiceRequest:
    """One request.

    Attributes:
        due_s: Time (s) at which its answer is due, on the clock of `time.monotonic`; infinity for no time.
        number: Number of the request; of two that are due at once, the lower one goes first.
        arrived_s: Time (s) of its arrival.
        value: Value that the handler gets.
        answer: Future of the answer.
    """

    due_s: float
    number: int
    arrived_s: float = field(compare=False)
    value: Any = field(compare=False)
    answer: Answer = field(compare=False)


class Waiting(NamedTuple):
    """Requests that wait: their number, and the time (s) at which the first of them is due."""

    number: int
    due_s: float


class RequestQueue:
    """Requests that wait, in the order in which they are due. Any thread may call any method."""

    def __init__(self, most: int) -> None:
        """Make an empty queue.

        Args:
            most: Most requests that wait at once.
        """
        self._most = most
        self._heap: list[ServiceRequest] = []
        self._changed = threading.Condition()
        self._number = 0
        self._cancelled = False
        self._removed = 0
        self._closed = ""

    @property
    def is_open(self) -> bool:
        """Whether the queue takes requests."""
        return not self._closed

    def put(self, value: Any, arrived_s: float, due_s: float) -> tuple[Answer, int]:
        """Add a request. Return its future and the number of requests that wait, this one included.

        Raises:
            QueueFull: The most requests wait already.
            ServiceClosed: The queue is closed.
        """
        answer = Answer()
        answer.on_cancel = self._note_cancelled
        with self._changed:
            if self._closed:
                raise ServiceClosed(self._closed)
            if len(self._heap) >= self._most:
                self._sweep()
            if len(self._heap) >= self._most:
                raise QueueFull(len(self._heap))
            self._number += 1
            heapq.heappush(self._heap, ServiceRequest(due_s, self._number, arrived_s, value, answer))
            self._changed.notify()
            return answer, len(self._heap)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until a request is there. Return whether the queue is open.

        Args:
            timeout_s: Longest wait (s); None for no end, in which no thread wakes up.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._heap or self._closed, timeout_s)
            return not self._closed

    def waiting(self) -> Waiting | None:
        """Requests that wait now; None if there are none. Cancelled ones do not count."""
        with self._changed:
            return self._waiting()

    def take(self, size: Callable[[Waiting], int]) -> list[ServiceRequest]:
        """Remove the requests of the next batch, those that are due first; none if none wait.

        Args:
            size: Function that returns how many of the waiting requests are taken.
        """
        with self._changed:
            waiting = self._waiting()
            batch = [heapq.heappop(self._heap) for _ in range(size(waiting) if waiting else 0)]
            return self._live(batch)

    def cancelled(self) -> int:
        """Number of cancelled requests that were removed since the last call."""
        with self._changed:
            removed, self._removed = self._removed, 0
            return removed

    def close(self, why: str) -> list[ServiceRequest]:
        """Close the queue: it takes no more requests. Return those that waited; none at a second call.

        Args:
            why: Message of the error with which later requests are refused.
        """
        with self._changed:
            self._closed = self._closed or why
            waiting, self._heap = self._heap, []
            self._changed.notify_all()
            return self._live(waiting)

    def _waiting(self) -> Waiting | None:
        self._sweep()
        return Waiting(len(self._heap), self._heap[0].due_s) if self._heap else None

    def _live(self, taken: list[ServiceRequest]) -> list[ServiceRequest]:
        """Those of the taken requests that are not cancelled. From now on, they cannot be."""
        live = [each for each in taken if _is_live(each.answer)]
        self._removed += len(taken) - len(live)
        return live

    def _note_cancelled(self) -> None:
        self._cancelled = True  # without the lock: a cancelling thread may hold it already, in a callback

    def _sweep(self) -> None:
        """Remove cancelled requests. The flag spares a full queue that refuses thousands the search for them."""
        if self._cancelled:
            self._cancelled = False
            heap, self._heap = self._heap, []
            for each in heap:
                if not each.answer.cancelled():
                    heapq.heappush(self._heap, each)
                else:
                    _is_live(each.answer)  # `concurrent.futures.wait` waits for this call
                    self._removed += 1


def _is_live(answer: Future[Any]) -> bool:
    """Whether a future waits for its answer. From now on, it cannot be cancelled."""
    try:
        return answer.running() or ((answer.cancelled() or not answer.done()) and answer.set_running_or_notify_cancel())
    except RuntimeError:  # the program has set its answer itself, or has told that it is cancelled
        return False
