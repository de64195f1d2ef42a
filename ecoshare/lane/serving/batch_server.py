"""`serve`: a handler that answers lists of requests becomes a server with a queue, batches and deadlines."""

from __future__ import annotations

import atexit
import json
import math
import operator
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import ecoshare
from ecoshare.base.service import QUEUE, AnswerMeasurement, RequestSource, ServiceThread
from ecoshare.base.thread_settings import ThreadSettings
from ecoshare.lane.serving.batch_worker import BatchWorker, Handler
from ecoshare.lane.serving.inline_service import DueRequests, of_values, serve_inline
from ecoshare.lane.serving.request_queue import QueueFull, RequestQueue
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.lane.serving.request_source import RequestDriver

if TYPE_CHECKING:
    from ecoshare.lane.serving.asgi import Application


def checked_batch(batch: int | Iterable[int]) -> tuple[int, ...]:
    """Batch sizes in ascending order.

    Raises:
        TypeError: It is neither a whole number nor several of them.
        ValueError: A size is below 1 or given twice, or there is none.
    """
    if isinstance(batch, str | bytes) or not isinstance(batch, int | Iterable):
        raise TypeError(f"batch: expected whole numbers such as (1, 2, 4, 8), got {batch!r}")
    sizes = [_count(size, "batch") for size in ([batch] if isinstance(batch, int) else batch)]
    if not sizes:
        raise ValueError("batch: expected at least one size, got none")
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"batch: expected each size once, got {tuple(sizes)}")
    return tuple(sorted(sizes))


def checked_queue(queue: int) -> int:
    """Most requests that wait.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is below 1.
    """
    return _count(queue, "queue")


def checked_target_s(p99: str | float | None) -> float:
    """Target in seconds; infinity for none.

    Raises:
        TypeError: It is neither a number nor text.
        ValueError: It is not above 0, or the text is no duration.
    """
    if p99 is None:
        return math.inf
    if isinstance(p99, str):
        from ecoshare.jobs.quantities import parse_duration_s

        try:
            target_s = parse_duration_s(p99)
        except ValueError as error:
            raise ValueError(f"p99: {error}") from None
        return _above_zero(target_s, "p99", p99)
    return _above_zero(p99, "p99", p99)


def checked_within_s(within_s: float) -> float:
    """Time (s) in which one request is due.

    Raises:
        TypeError: It is no number.
        ValueError: It is not above 0.
    """
    return _above_zero(within_s, "within_s", within_s)


def _above_zero(value_s: float, name: str, given: object) -> float:
    if isinstance(value_s, bool) or not isinstance(value_s, int | float):
        raise TypeError(f"{name}: expected a number of seconds, got {given!r}")
    if not 0.0 < value_s < math.inf:
        raise ValueError(f"{name}: expected a time above 0, got {given!r}")
    return float(value_s)


def _count(value: Any, name: str) -> int:
    """Whole number of at least 1, also of numpy."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if (count := operator.index(value)) < 1:
        raise ValueError(f"{name}: expected a whole number of at least 1, got {count}")
    return count


_CLOSED = "the service is closed"


def serve(
    handler: Handler,
    batch: int | Iterable[int] = (1, 2, 4, 8),
    p99: str | float | None = "50 ms",
    queue: int = QUEUE,
    sample: Callable[[int], Any] | None = None,
) -> Server:
    """Serve requests with a function that answers several at once.

    One thread calls the handler, with as many of the waiting requests as the target allows. It never waits for more
    requests to come. Requests go in the order in which they are due. The answers must be ready values: a tensor of
    kernels that still run on a device would count as answered too early.

    The handler finds the settings that torch and numpy keep for each thread (number of threads, gradients, autocast,
    default device, ...) as the thread that calls `serve` has them at the call, or as it has set them before
    `Server.run`.

    If the handler raises for a batch of several requests, each is tried again alone, so that only those at fault fail.
    So a handler must not have effects that may not happen twice.

    In a job of `ecoshare run` that is a service, the target, the batch sizes, the length of the queue and the source of
    requests of the job file replace the ones given here. The handler then runs in turns with the other jobs of the
    lane.

    Args:
        handler: Function from a list of requests to a sequence of as many answers, in the same order.
        batch: Batch sizes that may be used. If fewer requests wait than the smallest, they are a batch of their own.
        p99: Target: time from the arrival of a request to its answer, in seconds or as text such as `"50 ms"`; None for
            no target.
        queue: Most requests that wait at once. Further ones are refused.
        sample: Function that makes a request of its number, from 0 on, where ecoshare itself makes the requests.
            Without it, the request is the number.

    Raises:
        TypeError: A value has a wrong type.
        ValueError: A value is wrong: a size below 1 or given twice, no size, a target or a queue that is not above 0.
    """
    if not callable(handler):
        raise TypeError(f"the handler must be a function of a list of requests, not {type(handler).__name__}")
    if sample is not None and not callable(sample):
        raise TypeError(f"sample must be a function of a number, not {type(sample).__name__}")
    sizes, target_s, most = checked_batch(batch), checked_target_s(p99), checked_queue(queue)
    source = None
    if (service := ecoshare._service) is not None:
        sizes, target_s, most = service.batch_sizes or sizes, service.p99_s, service.queue
        source = service.requests
    path = ecoshare._requests_path
    recorder = RequestRecorder(path, ecoshare._opened_s) if path else None
    waiting, measuring = RequestQueue(most), partial(_measure, handler, sizes, sample)
    thread = ecoshare._thread
    if thread is not None:
        handler = of_values(handler)
    # Other jobs of the process have other values of these names, so they are read now.
    answering, most_batch = ecoshare._answering or _no_turn, ecoshare._most_batch or _any_batch
    worker = BatchWorker(handler, sizes, waiting, answering, recorder, most_batch)
    return Server(waiting, worker, recorder, target_s, source, sample, measuring, thread)


class Server:
    """Server of requests: what `ecoshare.serve` returns.

    The thread that answers starts with the first request, so a server may be made before a process forks. The end of
    the program closes the server.
    """

    def __init__(
        self,
        queue: RequestQueue,
        worker: BatchWorker,
        recorder: RequestRecorder | None,
        target_s: float,
        source: RequestSource | None,
        sample: Callable[[int], Any] | None,
        measure: Callable[[AnswerMeasurement], None],
        only_thread: ServiceThread | None,
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._recorder = recorder
        self._target_s = target_s
        self._source = source
        self._sample = sample
        self._measure = measure
        self._only_thread = only_thread
        # A service that shares its process has its own thread, and may start no other.
        self._settings = ThreadSettings() if only_thread is None else None
        self._made_in = threading.current_thread()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._ended = threading.Event()
        self._failure: BaseException | None = None

    def submit(self, request: Any, within_s: float | None = None) -> Future[Any]:
        """Submit a request. Return the future of its answer.

        If the future is cancelled before its batch, the request leaves the queue. Functions that are added to the
        future run in the thread that answers, and should be short.

        Args:
            request: Value that the handler gets.
            within_s: Time (s) from now in which this request is due; None for the target of the service. A request that
                is due earlier goes first.

        Raises:
            QueueFull: The queue holds no more requests.
            ServiceClosed: The server is closed.
            ValueError: `within_s` is not above 0.
        """
        if self._only_thread is not None:
            self._only_thread.move_out("submits requests itself")
        return self._accept(request, time.monotonic(), within_s)

    async def answer(self, request: Any, within_s: float | None = None) -> Any:
        """Answer to a request, awaited. The errors are those of `submit` and of the handler."""
        import asyncio

        return await asyncio.wrap_future(self.submit(request, within_s))

    def app(
        self,
        decode: Callable[[bytes], Any] = json.loads,
        encode: Callable[[Any], bytes | str] = json.dumps,
        content_type: str = "application/json",
    ) -> Application:
        """ASGI application of this server, for uvicorn and the like, or to be mounted in Starlette.

        A POST on any path is a request. The status is 400 if the body cannot be decoded, 500 if the handler failed for
        this request, 503 with `Retry-After` if the queue is full or the server closed. GET says `ok`.

        Args:
            decode: Function from the bytes of a body to a request.
            encode: Function from an answer to the bytes or the text of a body.
            content_type: Type of the answers.
        """
        if self._only_thread is not None:
            self._only_thread.move_out("answers over HTTP")
        from ecoshare.lane.serving import asgi

        return asgi.application(self.submit, lambda: self._queue.is_open, decode, encode, content_type)

    def run(self) -> None:
        """Serve until the end, and then close the server.

        If the job file names a source of requests, make these requests, and return after the last answer. Otherwise
        serve the requests of other threads until `close`, SIGTERM or Ctrl-C. In the latter cases, the batch in the
        handler is finished, and the requests that wait fail.

        In a run of `ecoshare profile`, measure the time of the handler by batch size, until the run stops the program.

        Raises:
            RuntimeError: The handler failed while it was measured.
            ValueError: The source of requests is wrong.
            OSError: The file of arrivals cannot be read.
        """
        if ecoshare._measurement is not None:
            self._measure(ecoshare._measurement)
        try:
            if self._only_thread is None:
                self._run_in_threads()
            elif self._source is None:
                self._only_thread.move_out("waits for requests from outside")
            else:
                requests = DueRequests(self._source, self._accept, self._sample)
                serve_inline(requests, self._queue, self._worker, self._only_thread)
        finally:
            self.close()
        if self._failure is not None:
            raise self._failure

    def _run_in_threads(self) -> None:
        driver = None
        if self._settings is not None and threading.current_thread() is self._made_in:
            self._settings.add_here()
        if self._source is not None:
            driver = RequestDriver(self._source, self._accept, self._sample)
            self._in_thread(driver.run, "ecoshare requests")
        try:
            _wait(self._ended)
        finally:
            if driver is not None:
                driver.stop()

    def close(self) -> None:
        """Close the server. Requests that wait fail with `ServiceClosed`; the batch in the handler is finished.

        A second call does nothing.
        """
        atexit.unregister(self.close)
        self._worker.fail_waiting(_CLOSED)
        self._ended.set()
        with self._starting:
            thread = self._thread
        if thread is not threading.current_thread():  # a handler may close its server
            if thread is not None:
                thread.join()
            if self._recorder is not None:
                self._recorder.write()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self, request: Any, arrived_s: float, within_s: float | None = None) -> Future[Any]:
        due_s = arrived_s + (self._target_s if within_s is None else checked_within_s(within_s))
        try:
            answer, waiting = self._queue.put(request, arrived_s, due_s)
        except QueueFull as full:
            if self._recorder is not None:
                self._recorder.refused(full.waiting)
            raise
        if self._recorder is not None:
            self._recorder.arrived(waiting)
        if self._thread is None and self._only_thread is None:
            self._start()
        return answer

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._ended.is_set():
                atexit.register(self.close)
                self._thread = self._in_thread(self._worker.run, "ecoshare service")

    def _in_thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Start a thread that calls functions of the user, with the settings of the thread that called `serve`."""
        thread = threading.Thread(target=self._watched, args=(work,), name=name, daemon=True)
        thread.start()
        return thread

    def _watched(self, work: Callable[[], None]) -> None:
        """Do the work of a thread. The server ends with it, and `run` raises the error of it."""
        assert self._settings is not None, "a service without threads has none to watch"
        try:
            self._settings.run(work)
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()


def _measure(
    handler: Handler, sizes: Sequence[int], sample: Callable[[int], Any] | None, measurement: AnswerMeasurement
) -> None:
    from ecoshare.lane.serving.batch_measurement import measure  # no service needs it

    measure(handler, sizes, sample, measurement)


class _Terminated(SystemExit):
    """SIGTERM came. If it comes outside of the wait, it ends the program as SIGTERM would."""


def _wait(ended: threading.Event) -> None:
    """Wait for the event, SIGTERM or Ctrl-C. Another thread than the main one waits for the event alone."""
    if threading.current_thread() is not threading.main_thread():
        ended.wait()
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, _terminate)
        ended.wait()
    except (KeyboardInterrupt, _Terminated):
        return
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated(128 + number)


def _no_turn(_due_s: float, _answer_s: float) -> AbstractContextManager[Callable[[float, float], None]]:
    """Context around a call of the handler outside a run: there is no turn."""
    return nullcontext(_alone)


def _any_batch() -> int:
    """Largest batch outside a run: any."""
    return 0


def _alone(_due_s: float, _answer_s: float) -> None:
    """Do nothing: no other job has to know of the next call."""
