"""Requests of a service in virtual time: they arrive, wait, and are answered a batch at a time.

Queue, batch sizes, estimates of their times, arrivals and record are those of a live service (`serving/`). Only the
handler is replaced: a batch takes the time that the trace says. A request is seen after the time that the service needs
to wake up. A busy service sees it at its next batch, so the time then costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from ecoshare.serving.batch_worker import AnswerTimes, batch_size
from ecoshare.serving.request_intervals import RequestInterval, interval
from ecoshare.serving.request_queue import QueueFull, RequestQueue, ServiceRequest, Waiting
from ecoshare.serving.request_record import RequestRecorder
from ecoshare.serving.request_source import arrival_times
from ecoshare.simulation.traces.job_trace import AnswerTime, TraceJob, drawn_ratio
from ecoshare.values.service import RequestSource


class Claim(NamedTuple):
    """Times with which a service contends for the turn.

    Attributes:
        due_s: Time (s) at which the first of the waiting requests is due.
        needs_s: Time (s) that its batch takes at most.
    """

    due_s: float
    needs_s: float


class SimulatedRequests:
    """Requests of one attempt of a service. Times that are passed to the methods never decrease.

    Attributes:
        intervals: Record of the requests, as a live service writes it.
        batches: Number of batches that were answered.
        longest_s: Longest batch (s) of late, which decays as that of a job in a lane does.
    """

    def __init__(self, job: TraceJob, seed: str) -> None:
        """No request has come; `open` is called when the service has started.

        Args:
            job: The service, with the time of its batches.
            seed: Seed of the spread of these times.
        """
        assert job.service is not None, "it is a service"
        service = job.service
        self.intervals: list[RequestInterval] = []
        self.batches, self.longest_s = 0, 0.0
        self._service, self._spread = service, job.spread
        self._answer = job.answer or AnswerTime(job.phases[0].iteration_s)
        self._source = service.requests or RequestSource()
        self._sizes = service.batch_sizes or (1,)
        self._draws = Random(seed)
        self._queue = RequestQueue(service.queue)
        self._known = AnswerTimes()
        self._clock_s = 0.0
        self._record = RequestRecorder("", clock=lambda: self._clock_s, append=self._keep)
        self._scheduled: Iterator[float] = iter(())
        self._opened_s = math.inf
        self._wake_up_s = self._answer.wake_up_s
        self._batch: list[ServiceRequest] = []
        self._began_s = 0.0
        self._sent = 0  # requests of the clients of a closed loop
        self.next_s = math.inf
        """Time (s) at which the next request is seen; infinite if none is scheduled."""

    @property
    def is_open(self) -> bool:
        """Whether requests may come."""
        return self._opened_s < math.inf

    @property
    def is_over(self) -> bool:
        """Whether the last request has its answer."""
        clients_are_done = self._sent >= self._source.count if self._source.clients else True
        ends = self._source.ends and clients_are_done
        return self.is_open and ends and self.next_s == math.inf and not self._batch and self._queue.waiting() is None

    def open(self, now_s: float) -> None:
        """Let the first requests come: the service has started."""
        self._opened_s = now_s
        if self._source.clients:
            self._send(now_s)
        elif self._service.requests is not None:
            self._scheduled = arrival_times(self._source)
            self._schedule()

    def claim(self, now_s: float) -> Claim | None:
        """Claim of the service on the turn; None if no request waits."""
        self._arrive(now_s)
        if self._batch:  # it was cut when the service was parked
            return Claim(self._batch[0].due_s, self._known.upper_s(len(self._batch)))
        waiting = self._queue.waiting()
        return None if waiting is None else Claim(waiting.due_s, self._known.upper_s(self._size(waiting, now_s)))

    def begin(self, now_s: float) -> float:
        """Begin the next batch; return the time (s) that it takes at speed 1. A request waits.

        A batch that was cut begins again.
        """
        self._arrive(now_s)
        self._note(now_s)
        if not self._batch:
            self._batch = self._queue.take(lambda waiting: self._size(waiting, now_s))
            self._record.called(len(self._batch))
        self._began_s = now_s
        return self._answer.mean_s(len(self._batch)) * drawn_ratio(self._spread, self._draws)

    def answered(self, now_s: float) -> Claim | None:
        """End the batch. Return the claim for the next one; None if no request waits at this moment.

        Clients of a closed loop see their answers and send again after that.
        """
        self._arrive(now_s)
        self._note(now_s)
        size, took_s = len(self._batch), now_s - self._began_s
        self._known.learn(size, took_s)
        self._record.took(size, took_s)
        for each in self._batch:
            self._record.answered(each.arrived_s, each.due_s, now_s)
        self._batch = []
        self.batches += 1
        self.longest_s = max(took_s, 0.95 * self.longest_s)
        claim = self.claim(now_s)
        self._send(now_s)
        return claim

    def close(self, now_s: float) -> None:
        """Fail the requests that wait and those of the batch, and write the record."""
        self._note(now_s)
        self._record.failed(len(self._queue.close("the service has ended")) + len(self._batch))
        self._batch, self.next_s = [], math.inf
        self._record.write()

    def _size(self, waiting: Waiting, now_s: float) -> int:
        return batch_size(self._sizes, waiting.number, waiting.due_s - now_s, self._known.upper_s)

    def _arrive(self, now_s: float) -> None:
        """Take in the scheduled requests up to now."""
        while self.next_s <= now_s:
            self._put(self.next_s, self.next_s - self._wake_up_s)
            self._schedule()

    def _schedule(self) -> None:
        self.next_s = self._opened_s + next(self._scheduled, math.inf) + self._wake_up_s

    def _send(self, now_s: float) -> None:
        """Let each client of a closed loop without an open request send one. A refused one waits for an answer."""
        while self._sent < (self._source.count or math.inf) and self._open() < self._source.clients:
            self._sent += 1
            if not self._put(now_s, now_s):
                return

    def _open(self) -> int:
        waiting = self._queue.waiting()
        return len(self._batch) + (waiting.number if waiting else 0)

    def _put(self, at_s: float, arrived_s: float) -> bool:
        """Add a request that has come before. Return whether it was accepted."""
        self._note(at_s)
        try:
            _, waiting = self._queue.put(None, arrived_s, arrived_s + self._service.p99_s)
        except QueueFull as full:
            self._record.refused(full.waiting)
            return False
        self._record.arrived(waiting)
        return True

    def _note(self, at_s: float) -> None:
        """Move the clock of the record; write an interval that is over."""
        if (left_s := self._record.left_s()) <= at_s - self._clock_s:
            self._clock_s += max(0.0, left_s)
            self._record.write()
        self._clock_s = max(self._clock_s, at_s)

    def _keep(self, _path: Path, line: bytes) -> None:
        found = interval(line)
        assert found is not None, "the recorder writes what the reader reads"
        self.intervals.append(found)
