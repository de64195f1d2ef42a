"""A service inside its process: it has the turn for root calls and for the batches of `ecoshare.serve` only.

It starts, loads its model and waits for requests without the turn.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

import ecoshare
from ecoshare.base.service import service_of
from ecoshare.lane.hooked_job import HookedJob
from ecoshare.lane.hooks import watch_compiled_calls
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.lane.turn import LaneTurn

_JOINS_WITHIN_S = 0.05
"""Longest wait (s) of a thread for the others to end if another job must have the turn: one of them may wait for it."""


class ServiceTurn:
    """Turn of a service. Any of its threads may use it.

    ::

        requests    ▼        ▼ ▼                       ▼
        thread 1     ▉▉▉▉     ▉▉▉▉                      ▉▉▉▉
        thread 2               ▉▉▉▉
        turn         ════     ═════                     ════      other jobs have the turn in between

    A service tells when its answer is due before it waits for the turn, so `core/turns.py` can give it the turn in
    time. Threads that work at the same time have one turn. A thread that would join them waits first if another job
    must have the turn: else the turn of a busy server would never end.
    """

    def __init__(
        self,
        turn: LaneTurn,
        target_s: float,
        drain: Callable[[], None],
        ended: Callable[[], None] = lambda: None,
        within: Callable[[Callable[[], None]], None] = lambda use: use(),
    ) -> None:
        """The service has no turn yet.

        Args:
            turn: Claim of the service on the turn of its lane. Nothing else may use it.
            target_s: Time (s) within which an answer is due, for callers that name none.
            drain: Waits until the device has finished the work of the service.
            ended: Called at each boundary of the service, while it has the turn: when its work has ended.
            within: Calls a function that takes, offers or leaves the turn.
        """
        self._within = within
        self._turn, self._target_s = turn, target_s
        self._drain, self._ended = drain, ended
        self._changed = threading.Condition()
        self._inside = 0
        self._is_busy = False  # one thread takes, offers or leaves the turn
        self._is_kept = False

    def begin(self, due_s: float | None = None, answer_s: float | None = None) -> None:
        """Wait for the turn.

        Args:
            due_s: Time (s) on the monotonic clock at which the answer is due.
            answer_s: Time (s) that the answer takes at most; by default the longest of late.
        """
        due_s = time.monotonic() + self._target_s if due_s is None else due_s
        with self._changed:
            if self._inside and self._turn.is_due and not self._is_kept:
                self._changed.wait_for(lambda: not self._inside, _JOINS_WITHIN_S)
            self._changed.wait_for(lambda: not self._is_busy)
            if self._inside:
                self._inside += 1
                return
            self._is_busy = True
        is_there = False
        try:
            self._claim(due_s, answer_s)
            self._within(self._turn.take)
            is_there = True
        finally:
            if not is_there:  # a signal handler of the program has raised
                self._turn.leave()
            with self._changed:
                self._inside += is_there
                self._is_busy = False
                self._changed.notify_all()

    def keep(self) -> None:
        """Wait for the turn, and keep it to the end of the job."""
        self._is_kept = True
        self.begin()

    def end(self, next_due_s: float = math.inf, next_answer_s: float | None = None) -> None:
        """Leave the turn if no other thread works, or offer it if the service has more to answer.

        Args:
            next_due_s: Time (s) at which the next answer is due; infinity if no request waits.
            next_answer_s: Time (s) that it takes at most, as in `begin`.
        """
        with self._changed:
            self._inside -= 1
            if self._inside:
                self._changed.notify_all()
                return
            self._is_busy = True
        try:
            self._drain()
            self._turn.count(evaluating=True)
            self._ended()
            if math.isinf(next_due_s):
                self._within(self._turn.leave)
            else:
                self._claim(next_due_s, next_answer_s)
                self._within(lambda: self._turn.offer(lambda: None))
        finally:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _claim(self, due_s: float, answer_s: float | None) -> None:
        self._turn.answer_by(due_s, self._turn.longest_iteration_s if answer_s is None else answer_s)


class RecordedCalls:
    """Turn of a service for its root calls, with a record of them. Any thread may use it.

    From outside nothing shows when a request came. So the time of a call begins when the call wants the turn. A program
    that uses `ecoshare.serve` has a record of its own requests instead.
    """

    def __init__(self, turn: ServiceTurn, target_s: float, path: str, opened_s: float) -> None:
        """No call so far.

        Args:
            turn: Turn of the service.
            target_s: Time (s) within which an answer is due.
            path: Path for the record.
            opened_s: Time (s) on the monotonic clock from which the times in the record count.
        """
        self._turn, self._target_s, self._path, self._opened_s = turn, target_s, path, opened_s
        self._recorder: RequestRecorder | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._began = threading.local()
        self._is_off = False

    def begin(self) -> None:
        """Wait for the turn."""
        self._began.at_s = time.monotonic()
        self._turn.begin(self._began.at_s + self._target_s)
        self._began.turn_s = time.monotonic()

    def end(self) -> None:
        """Give up the turn, and record the call."""
        self._turn.end()
        began_s, now_s = self._began.at_s, time.monotonic()
        with self._lock:
            if self._is_off:
                return
            recorder = self._recorder = self._recorder or RequestRecorder(self._path, self._opened_s)
            recorder.arrived(1)
            recorder.called(1)
            recorder.took(1, now_s - self._began.turn_s)
            recorder.answered(began_s, began_s + self._target_s, now_s)
            if recorder.left_s() <= 0.0:
                recorder.write()
            elif self._timer is None or not self._timer.is_alive():  # no thread outlives a fork
                # No call may come for long, and the displays would lack the last second until then.
                self._timer = threading.Timer(recorder.left_s(), self._write_in_time)
                self._timer.daemon = True
                self._timer.start()

    def _write_in_time(self) -> None:
        with self._lock:
            self._timer = None
            if self._recorder is not None and not self._is_off:
                self._recorder.write()

    def switch_off(self) -> None:
        """Record no more: the program records its requests itself. A call that is not written yet was a warm-up."""
        with self._lock:
            self._is_off, self._recorder = True, None

    def flush(self) -> None:
        """Write what is left."""
        with self._lock:
            if self._recorder is not None:
                self._recorder.write()


class Answering(Protocol):
    """Turn of a service, as `lane.service_turn` has it."""

    def begin(self) -> None:
        """Wait for the turn."""
        ...

    def end(self) -> None:
        """Give up the turn."""
        ...


class _Thread(threading.local):
    """State of one thread.

    Attributes:
        depth: Number of calls of modules and compiled functions that the thread is inside of.
        is_plain: Whether the hooks may not be removed, because the thread is inside of a plain call.
        has_turn: Whether the turn is given up at the end of the outermost call.
    """

    depth = 0
    is_plain = False
    has_turn = False


class ServiceHooks:
    """Hooks of the service of this process.

    Two global hooks see a root call begin and end. They may not be there while a compiled function runs, because Dynamo
    would trace them, and no thread may leave a root call while they are not there. So root calls and compiled calls of
    different threads exclude each other:

    ::

        thread 1   ▉▉▉▉▉▉▉▉ forward             ▉▉▉▉▉▉▉
        thread 2      ▉▉▉▉▉▉ forward                 compiled call inside of a forward: ▒▒▒▒
        hooks      ═══════════          ═════════════                                  ═    ═
        thread 3              ▒▒▒▒▒▒▒▒▒▒ compiled call
    """

    def __init__(self, turn: Answering) -> None:
        """Hooks that are not installed yet.

        Args:
            turn: Turn of the service.
        """
        self._turn = turn
        self._here = _Thread()
        self._changed = threading.Condition()
        self._plain = self._compiled = 0  # threads inside of plain and of compiled calls
        self._handles: list[Any] = []

    def install(self) -> None:
        """Begin to watch."""
        self._register()
        watch_compiled_calls(self.around)

    def hold(self) -> None:
        """Let the calling thread call modules without taking the turn, which it has, until `release`."""
        self._enter(takes=False)

    def release(self) -> None:
        """End `hold`."""
        self._leave()

    def around(self, _module: nn.Module | None, compiled: Callable[..., Any], args: Any, arguments: Any) -> Any:
        """Call a compiled function with no hook in place."""
        here = self._here
        if torch.compiler.is_compiling() or _is_capturing():
            return compiled(*args, **arguments)
        is_root, was_plain = here.depth == 0, here.is_plain
        if is_root:
            self._turn.begin()
        here.depth += 1
        if was_plain:
            self._leave_plain()
        self._enter_compiled()
        try:
            return compiled(*args, **arguments)
        finally:
            self._leave_compiled()
            if was_plain:
                self._enter_plain()
            here.depth -= 1
            if is_root:
                self._turn.end()

    def _called(self, module: nn.Module, _inputs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._here.depth:
            self._here.depth += 1
        else:
            has_parameters = next(module.parameters(), None) is not None  # else it is a transform or a metric
            self._enter(takes=has_parameters and not _is_capturing())

    def _returned(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if not torch.compiler.is_compiling() and self._here.depth:
            self._leave()

    def _enter(self, takes: bool) -> None:
        if takes:
            self._turn.begin()
        if not self._here.depth:
            self._here.has_turn = takes
            self._enter_plain()
        self._here.depth += 1

    def _leave(self) -> None:
        self._here.depth -= 1
        if not self._here.depth:
            self._leave_plain()
            if self._here.has_turn:
                self._turn.end()

    # Plain calls and compiled calls exclude each other

    def _enter_plain(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._compiled)
            self._plain += 1
        self._here.is_plain = True

    def _leave_plain(self) -> None:
        self._here.is_plain = False
        with self._changed:
            self._plain -= 1
            self._changed.notify_all()

    def _enter_compiled(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._plain)
            self._compiled += 1
            if self._compiled == 1:
                for each in self._handles:
                    each.remove()

    def _leave_compiled(self) -> None:
        with self._changed:
            self._compiled -= 1
            if not self._compiled:
                self._register()
            self._changed.notify_all()

    def _register(self) -> None:
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._called),
            module_hooks.register_module_forward_hook(self._returned, always_call=True),
        ]


def _is_capturing() -> bool:
    """Whether a graph is being captured: a synchronisation would break it."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


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
        ecoshare._most_batch = lambda: self._turns[0].slot.most_batch
        ecoshare._requests_path, ecoshare._opened_s = self._launch.requests_path, self._launch.opened_s

    @contextmanager
    def answering(self, due_s: float, answer_s: float) -> Iterator[Callable[[float, float], None]]:
        """Context manager as `base.service.Answering` describes it."""
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
