"""Cuts: a job hands its turn over inside an iteration, between two bytecodes of its script.

::

    waiter   sleeps ──► it is time: a word in the holder's slot, and a signal ──► sleeps ──────► has the turn
    holder   forward ─── op ─── op ─┤ Python's handler: drain, hand over, wait ├─── op ─── ...
    or       queue.get(), process.wait(): the waiter takes the turn ──┤ the handler: wait for the turn ├─── op ─── ...

Python runs a handler in the main thread alone, between two bytecodes: so never inside an operation of torch. A backward
pass is one such operation, unless it calls Python. Hooks of the parameters do that, so the handler runs between the
layers. A pass on a GPU runs in a thread of torch, while the main thread waits: there the hooks themselves look whether
the turn is to be cut.

The signal is SIGURG, as in Go, which preempts its goroutines with it: a process without a handler ignores it, so one
that comes late, or after an `exec`, does no harm. A script that has a handler of its own for it is never cut.

No cut is made inside of ecoshare's own code, a compiled function, the fetch of a batch, the capture of a graph or
another signal handler of the script. The waiter asks again until the holder has come to a safe place, or to a boundary.

In a wait for a thread, a socket or a process the handler does not stay: the wait may be for a limited time, and would
run out; or the system goes on with the wait, and the handler runs after it. There, on processors, the waiter takes the
turn from the holder, once that has slept for a while. When the wait is over, the handler has the script wait for its
turn before the next bytecode. If it may not, a thread looks when the script has come on, and sends the signal again.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ecoshare.lane.after_import import is_importing

CUT = signal.SIGURG
"""Signal that asks the main thread of a job to hand its turn over."""

_RUNNER = "ecoshare.lane.runner"

_WAITS = {"asyncio.base_events", "queue", "selectors", "socket", "ssl", "threading"}
"""Modules in which a script waits, perhaps for a limited time."""

_BESIDE = {"multiprocessing", "subprocess"}
"""Packages in which a script waits for other processes."""

_LOOK_S = 0.002
"""Time (s) between two looks at a script that waits without the turn."""

_BACKWARD = "_engine_run_backward"
"""Function of torch that runs a backward pass."""

_passing: set[CodeType] = set()


def passes_on(function: Any) -> None:
    """Let code of the script that is called by this function of ecoshare be cut."""
    _passing.add(function.__code__)


def tell(pid: int) -> None:
    """Tell a process that its turn is to be cut. If it is gone, or another user's by now, nothing happens."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, CUT)


def listen(hear: Callable[[int, FrameType | None], None], end: Callable[[], None] = lambda: None) -> bool:
    """Let the main thread, which calls this, hear the signal. Return False if the script hears it itself.

    Args:
        hear: Handler.
        end: Called before the script sets a handler of its own: no signal may come any more.
    """
    if signal.getsignal(CUT) is not signal.SIG_DFL:
        return False
    set_handler = signal.signal
    set_handler(CUT, hear)
    signal.siginterrupt(CUT, False)  # else libraries would see their calls of the system fail

    @functools.wraps(set_handler)
    def set_another(number: int, handler: Any) -> Any:
        if number == CUT:
            signal.signal = set_handler
            end()
        return set_handler(number, handler)

    signal.signal = set_another  # type: ignore[assignment]
    return True


def is_safe(frame: FrameType | None) -> bool:
    """Whether a job may be cut where the main thread is, in the script's own code.

    Args:
        frame: Innermost frame.
    """
    if frame is None or _module(frame) in _WAITS or is_importing("torch"):
        return False
    handlers = _handlers()
    while frame is not None and (module := _module(frame)) != _RUNNER:
        package = module.partition(".")[0]
        is_ours = package == "ecoshare" and frame.f_code not in _passing
        if is_ours or package in _BESIDE or frame.f_code in handlers:
            return False
        frame = frame.f_back
    return not is_capturing()


def tell_when_moved(frame: FrameType, is_over: Callable[[], bool]) -> None:
    """Tell this process, by the signal, whenever its main thread has come on from where it is.

    Called in a signal handler, so that no lock of `threading` may be taken.

    Args:
        frame: Innermost frame of the main thread without the handler.
        is_over: Whether nothing is to be told any more.
    """
    main, before = threading.main_thread().ident or 0, (frame, frame.f_lasti)

    def watch(before: tuple[FrameType, int]) -> None:
        while not is_over():
            time.sleep(_LOOK_S)
            now = sys._current_frames().get(main)
            if now is not None and (now, now.f_lasti) != before:
                before = now, now.f_lasti
                tell(os.getpid())

    _thread.start_new_thread(watch, (before,))


def is_safe_in_backward() -> bool:
    """Whether a job may be cut where a thread of torch is, in a backward pass for which the main thread waits."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame is not None and frame.f_code.co_name == _BACKWARD and is_safe(frame)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _handlers() -> set[Any]:
    """Code of the signal handlers that are written in Python."""
    found = set[Any]()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for place, name in ((handler, "__code__"), (handler, "__func__"), (type(handler), "__call__")):
            each = getattr(place, name, None)
            found.add(getattr(each, "__code__", each))
    return found


def is_capturing() -> bool:
    """Whether the calling thread captures a CUDA graph."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
