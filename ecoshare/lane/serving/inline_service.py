"""Serves in the thread that calls `run`: that of a service which shares its process with other jobs.

No code of a program runs there without the turn of its lane, and other threads would wake up in turns of other jobs.
So this one thread makes the requests and answers them. It sleeps until the next request comes:

::

    requests         ▼       ▼ ▼
    thread    asleep ▏███████████▏ asleep          the samples are made, and the handler is called, with the turn
    turn             ▏═══════════▏

A request counts from its scheduled time, and is refused if the queue was full then, as with threads.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ecoshare.base.service import RequestSource, ServiceThread
from ecoshare.lane.serving.batch_worker import BatchWorker, Handler
from ecoshare.lane.serving.request_queue import QueueFull, RequestQueue, ServiceClosed
from ecoshare.lane.serving.request_source import Accept, arrival_times


class NumberedRequest:
    """Request with a number from 0 on. The program makes its value later, when the service has the turn."""

    __slots__ = ("number", "value")

    def __init__(self, number: int) -> None:
        self.number = number
        self.value: Any = None


class DueRequests:
    """Requests of a source, taken in when they are due."""

    def __init__(self, source: RequestSource, accept: Accept, sample: Callable[[int], Any] | None) -> None:
        """The first request is due from now on.

        Args:
            source: Source of the requests.
            accept: Function that takes a `NumberedRequest`.
            sample: Function that makes the request with a number; None for the number itself.

        Raises:
            ValueError: The source describes no requests, or its file is wrong.
            OSError: The file of arrivals cannot be read.
        """
        self._accept, self._sample = accept, sample or (lambda number: number)
        self._clients = source.clients
        numbers = range(source.count) if source.count else itertools.count()
        times = (0.0 for _ in numbers) if source.clients else arrival_times(source)
        self._from_s, self._times = time.monotonic(), enumerate(times)
        self._next = next(self._times, None)
        self._open = 0  # requests without an answer yet
        self._most_open = source.clients
        self._unmade: deque[NumberedRequest] = deque()

    @property
    def next_s(self) -> float:
        """Time (s) on the monotonic clock at which the next request comes; infinity if none is known to come."""
        return math.inf if self._next is None or self._clients else self._from_s + self._next[1]

    def take_in(self) -> bool:
        """Take in the requests that have come. Return whether any is open or will come."""
        try:
            while self._next is not None and self._is_due():
                number, after_s = self._next
                arrived_s = time.monotonic() if self._clients else self._from_s + after_s
                self._next = next(self._times, None)
                self._send(NumberedRequest(number), arrived_s)
        except ServiceClosed:  # the handler has closed its service
            return False
        return self._open > 0 or self._next is not None

    def make(self) -> None:
        """Let the program make the requests that were taken in, refused ones too, in their order."""
        while self._unmade:
            request = self._unmade[0]
            request.value = self._sample(request.number)
            self._unmade.popleft()

    def _is_due(self) -> bool:
        return self._open < self._most_open if self._clients else self.next_s <= time.monotonic()

    def _send(self, request: NumberedRequest, arrived_s: float) -> None:
        self._unmade.append(request)
        try:
            answer = self._accept(request, arrived_s)
        except QueueFull:  # more clients than places: the client goes on when another one has its answer
            self._most_open = min(self._open, self._clients)
            return
        self._open += 1
        answer.add_done_callback(self._answered)

    def _answered(self, _: Future[Any]) -> None:
        self._open -= 1
        self._most_open = self._clients


def of_values(handler: Handler) -> Handler:
    """Handler that takes numbered requests for their values."""

    def handle(requests: list[Any]) -> Sequence[Any]:
        return handler([each.value for each in requests])

    return handle


def serve_inline(requests: DueRequests, queue: RequestQueue, worker: BatchWorker, thread: ServiceThread) -> None:
    """Answer the requests until the last one is answered, or the service is asked to end.

    Args:
        requests: Requests to come.
        queue: Queue that they are put into.
        worker: Answers the requests of the queue.
        thread: The calling thread.
    """

    def collect() -> None:
        requests.take_in()
        requests.make()

    with thread.serving():
        while thread.goes_on and requests.take_in():
            if queue.waiting() is None:
                thread.rest(min(requests.next_s, time.monotonic() + worker.record_left_s()))
                worker.record()
            else:
                worker.record()
                worker.answer_next(collect)
