"""Cuts: a job hands its turn over inside an iteration, between two bytecodes of its script.

::

    waiter   sleeps ──► it is time: a word in the holder's slot, and a signal ──► sleeps ──────► has the turn
    holder   forward ─── op ─── op ─┤ Python's handler: drain, hand over, wait ├─── op ─── ...

Python runs a handler in the main thread alone, between two bytecodes: so never inside an operation of torch. A backward
pass is one such operation on processors, unless it calls Python. Hooks of the parameters do that, so the handler runs
between the layers.

The signal is SIGURG, as in Go, which preempts its goroutines with it: a process without a handler ignores it, so one
that comes late, or after an `exec`, does no harm. A script that has a handler of its own for it is never cut.

No cut is made inside of ecoshare's own code, a compiled function, the capture of a graph, or another signal handler of
the script. The waiter asks again until the holder has come to a safe place, or to a boundary.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

CUT = signal.SIGURG
"""Signal that asks the main thread of a job to hand its turn over."""

_RUNNER = "ecoshare.lane.runner"
_passing: set[CodeType] = set()


def passes_on(function: Any) -> None:
    """Let code of the script that is called by this function of ecoshare be cut."""
    _passing.add(function.__code__)


def place(_parameter: object) -> None:
    """Do nothing, as the hook of a parameter: Python's handler runs when a backward pass calls this."""


passes_on(place)


def tell(pid: int) -> None:
    """Tell a process that its turn is to be cut. If it is gone, or another user's by now, nothing happens."""
    with contextlib.suppress(OSError):
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
    handlers = _handlers()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == _RUNNER:
            break
        if frame.f_code in handlers or (module.startswith("ecoshare") and frame.f_code not in _passing):
            return False
        frame = frame.f_back
    return not _is_capturing()


def _handlers() -> set[CodeType]:
    """Code of the signal handlers that are functions of Python."""
    found = set()
    for number in signal.valid_signals():
        handler = getattr(signal.getsignal(number), "__func__", signal.getsignal(number))
        if (code := getattr(handler, "__code__", None)) is not None:
            found.add(code)
    return found


def _is_capturing() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
