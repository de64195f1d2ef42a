"""The thread that answers requests, a batch at a time."""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from ecoshare.base.service import Answering
from ecoshare.errors import exit_code
from ecoshare.lane.serving.request_queue import RequestQueue, ServiceClosed, ServiceRequest, Waiting
from ecoshare.lane.serving.request_record import RequestRecorder

_MEAN_OVER = 16
"""Batches of a size after which the running mean forgets at a constant rate."""

_HALF_LIFE = 128
"""Batches after which the excess of the longest batch over the mean is halved. A target for the 99th percentile needs
an estimate that remembers about 100 batches."""


def batch_size(allowed: Sequence[int], waiting: int, left_s: float, upper_s: Callable[[int], float]) -> int:
    """Number of requests in the next batch.

    It is the largest allowed size that is filled by the waiting requests and answers the request that is due first in
    time. If no size does, the request is late anyway, and the largest size that is filled gives the most answers a
    second. If fewer requests wait than the smallest size has, the batch has those that wait: it is smaller than any
    allowed size.

    Args:
        allowed: Batch sizes that may be used, in ascending order.
        waiting: Number of requests that wait, at least 1.
        left_s: Time (s) until the first of them is due; infinity if none has a time.
        upper_s: Upper estimate of the time (s) that a batch of a size takes.
    """
    filled = [size for size in allowed if size <= waiting] or [waiting]
    return next((size for size in reversed(filled) if upper_s(size) <= left_s), filled[-1])


def limited(allowed: Sequence[int], most: int) -> Sequence[int]:
    """Batch sizes up to `most`, 0 for all of them; the smallest one if that is larger still."""
    return [size for size in allowed if size <= most] or allowed[:1] if most else allowed


@dataclass(slots=True)
class _SizeTimes:
    """Times of the batches of one size.

    Attributes:
        mean_s: Running mean (s).
        excess_s: Excess (s) of the longest batch over the mean, as it was at `at_batch`.
        count: Number of batches of this size.
        at_batch: Number of all batches at the last one of this size.
    """

    mean_s: float
    excess_s: float
    count: int
    at_batch: int


class AnswerTimes:
    """Upper estimates of the time that a batch takes, by its size, learned from each batch.

    A larger batch answers more requests a second, and each of them later. So a batch is as large as the request that is
    due first allows. It never waits to be filled: the requests that come meanwhile wait for the next one.

    ::

        waiting 5, sizes 1 2 4 8        size 1 ─┤          answered at
                                        size 2 ──┤
                                        size 4 ────┤       ◄── chosen: 8 are not there
                                        due first ───↓

    The estimate of a known size is the running mean of its times plus the excess of the longest time over that mean.
    The excess is halved with every 128 batches of any size, so one slow batch is forgotten even if its size is then
    avoided. The first batch of a size often loads code: a shorter second one replaces it.

    The estimate of another size is a straight line between the two known neighbours. Above the largest known size, the
    line through the two largest goes on, but never falls. With one known size, the time grows in proportion. Below the
    smallest known size, the estimate is that of the smallest. Before the first batch, every estimate is 0.
    """

    def __init__(self) -> None:
        self._known: dict[int, _SizeTimes] = {}
        self._sizes: list[int] = []
        self._batches = 0

    def learn(self, size: int, took_s: float) -> None:
        """Learn that a batch of `size` requests took `took_s` (s)."""
        self._batches += 1
        known = self._known.get(size)
        if known is None:
            self._sizes.insert(bisect_left(self._sizes, size), size)
            self._known[size] = _SizeTimes(took_s, 0.0, 1, self._batches)
            return
        longest_s = max(took_s, self._of_known_s(size))
        known.count += 1
        if known.count == 2 and took_s < known.mean_s:
            known.mean_s = longest_s = took_s
        known.mean_s += (took_s - known.mean_s) / min(known.count, _MEAN_OVER)
        known.excess_s = max(0.0, longest_s - known.mean_s)
        known.at_batch = self._batches

    def upper_s(self, size: int) -> float:
        """Upper estimate of the time (s) that a batch of `size` requests takes."""
        if size in self._known:
            return self._of_known_s(size)
        if not self._sizes:
            return 0.0
        place = bisect_left(self._sizes, size)
        if place == 0:
            return self._of_known_s(self._sizes[0])
        if place < len(self._sizes):
            return self._on_line_s(self._sizes[place - 1], self._sizes[place], size)
        last = self._sizes[-1]
        if len(self._sizes) == 1:
            return self._of_known_s(last) * size / last
        return max(self._of_known_s(last), self._on_line_s(self._sizes[-2], last, size))

    def _of_known_s(self, size: int) -> float:
        known = self._known[size]
        return known.mean_s + known.excess_s * math.exp2((known.at_batch - self._batches) / _HALF_LIFE)

    def _on_line_s(self, lower: int, upper: int, size: int) -> float:
        from_s, to_s = self._of_known_s(lower), self._of_known_s(upper)
        return from_s + (to_s - from_s) * (size - lower) / (upper - lower)


Handler = Callable[[list[Any]], Sequence[Any]]
"""Function of the user: a list of requests to as many answers, in the same order."""


class WrongAnswers(Exception):
    """The handler did not return one answer for each request."""


class BatchWorker:
    """Answers the requests of a queue until it is closed. One thread calls `run`.

    While no request waits, the thread sleeps without a timeout.
    """

    def __init__(
        self,
        handler: Handler,
        sizes: Sequence[int],
        queue: RequestQueue,
        answering: Answering,
        recorder: RequestRecorder | None,
        most: Callable[[], int] = lambda: 0,
    ) -> None:
        """Make a worker.

        Args:
            handler: Function that answers.
            sizes: Batch sizes that may be used, in ascending order.
            queue: Queue of the requests.
            answering: Context around each call of the handler.
            recorder: Recorder of counts and latencies; None outside a run.
            most: Returns the largest batch that may be used now; 0 for any of the sizes.
        """
        self._most = most
        self._handler = handler
        self._sizes = sizes
        self._queue = queue
        self._answering = answering
        self._recorder = recorder
        self._times = AnswerTimes()
        self._free_s = 0.0  # time at which the last answer was ready

    def run(self) -> None:
        """Answer requests until the queue is closed. Then write the last interval of the record."""
        try:
            while self._queue.wait(self._until_record_s()):
                self.answer_next()
        except BaseException as error:  # a fault of the context: no request may wait for ever
            self.fail_waiting(f"the service failed: {one_line(error)}")
            raise
        finally:
            if self._recorder is not None:
                self._recorder.cancelled(self._queue.cancelled())
                self._recorder.write()

    def fail_waiting(self, why: str) -> None:
        """Close the queue. Requests that wait fail with `ServiceClosed`."""
        self._fail(self._queue.close(why), lambda: ServiceClosed(why))

    def record_left_s(self) -> float:
        """Time (s) until the present interval must be written; infinity if nothing has happened in it."""
        if self._recorder is None:
            return math.inf
        self._recorder.cancelled(self._queue.cancelled())
        return self._recorder.left_s()

    def record(self) -> None:
        """Write the present interval if it is time."""
        if self._recorder is not None and self.record_left_s() <= 0.0:
            self._recorder.write()

    def _until_record_s(self) -> float | None:
        self.record()
        left_s = self.record_left_s()
        return left_s if left_s < math.inf else None

    def answer_next(self, collect: Callable[[], object] = lambda: None) -> None:
        """Answer the next batch, if requests wait.

        Args:
            collect: Puts requests that have come meanwhile into the queue. It is called with the turn.
        """
        waiting = self._queue.waiting()
        if waiting is None:
            return
        alone: list[ServiceRequest] = []
        asked_s = time.monotonic()
        try:
            with self._answering(waiting.due_s, self._times.upper_s(self._size(waiting))) as tell_next:
                # The requests are chosen now, not before: the wait for the turn may have been long.
                collect()
                alone = self._answer(self._woken(self._queue.take(self._size), asked_s))
                collect()
                if not alone and (following := self._queue.waiting()) is not None:
                    tell_next(following.due_s, self._times.upper_s(self._size(following)))
            while alone:
                with self._answering(alone[0].due_s, self._times.upper_s(1)):
                    self._answer([alone.pop(0)])
        finally:
            self._fail(alone, lambda: ServiceClosed("the service failed"))  # none, unless the context has a fault

    def _woken(self, batch: list[ServiceRequest], asked_s: float) -> list[ServiceRequest]:
        """Note how long it took to ask for the turn (at `asked_s`) if the first request came to an idle service."""
        if batch and self._recorder is not None and self._free_s < batch[0].arrived_s <= asked_s:
            self._recorder.woke(asked_s - batch[0].arrived_s)
        return batch

    def _size(self, waiting: Waiting) -> int:
        sizes = limited(self._sizes, self._most())
        return batch_size(sizes, waiting.number, waiting.due_s - time.monotonic(), self._times.upper_s)

    def _answer(self, batch: list[ServiceRequest]) -> list[ServiceRequest]:
        """Answer a batch. Return the requests that must be tried alone, because the handler failed for all of them."""
        if not batch:
            return []
        if self._recorder is not None:
            self._recorder.called(len(batch))
        from_s = time.monotonic()
        try:
            answers = checked_answers(self._handled([each.value for each in batch]), len(batch))
        except WrongAnswers as error:
            message = str(error)
            self._fail(batch, lambda: ValueError(message))
            return []
        except BaseException as error:
            if len(batch) > 1:
                return batch
            cause = _for_future(error)
            self._fail(batch, lambda: cause)
            return []
        self._free_s = time.monotonic()
        took_s = self._free_s - from_s
        self._times.learn(len(batch), took_s)
        if self._recorder is not None:
            self._recorder.took(len(batch), took_s)
        for each, answer in zip(batch, answers, strict=True):
            with suppress(InvalidStateError):  # the program has set the future itself
                each.answer.set_result(answer)
            if self._recorder is not None:
                self._recorder.answered(each.arrived_s, each.due_s, time.monotonic())
        return []

    def _handled(self, values: list[Any]) -> Any:
        """Answers of the handler. A child that it has forked ends here: it must not go on as a second server."""
        own = os.getpid()
        try:
            return self._handler(values)
        finally:
            if os.getpid() != own:
                _end_child(sys.exc_info()[1])

    def _fail(self, requests: list[ServiceRequest], error: Callable[[], BaseException]) -> None:
        """Fail requests, each with its own exception: every thread that raises one adds to its traceback."""
        for each in requests:
            with suppress(InvalidStateError):
                each.answer.set_exception(error())
        if self._recorder is not None:
            self._recorder.failed(len(requests))


def _end_child(error: BaseException | None) -> NoReturn:
    """End a forked process as its interpreter would, without the locks and the record that are its parent's."""
    if isinstance(error, SystemExit):
        code = exit_code(error.code)
    else:
        code = int(error is not None)
        traceback.print_exception(error)  # nothing for None
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def checked_answers(answers: Any, count: int) -> list[Any]:
    """The answers as a list.

    Raises:
        WrongAnswers: They are not a sequence of `count` values.
    """
    kind = type(answers).__name__
    if isinstance(answers, str | bytes | dict | set) or not hasattr(answers, "__len__"):
        raise WrongAnswers(f"the handler returned {kind}, not a sequence of {count} answers")
    if len(answers) != count:
        raise WrongAnswers(f"the handler returned {len(answers)} answers for {count} requests")
    return list(answers)


def _for_future(error: BaseException) -> BaseException:
    """Error that a future can carry: `SystemExit` would end the reader of the answer, `StopIteration` a loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    wrapped = RuntimeError(f"the handler raised {one_line(error)}")
    wrapped.__cause__ = error
    return wrapped


def one_line(error: BaseException) -> str:
    """Type and first line of an error."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
