"""Watches the forward calls of an unmodified server, in any of its threads: the turn is held during root calls.

Two global hooks see a root call begin and end. They may not be there while a compiled function runs, because Dynamo
would trace them, and no thread may leave a root call while they are not there. So root calls and compiled calls of
different threads exclude each other:

::

    thread 1   ▉▉▉▉▉▉▉▉ forward             ▉▉▉▉▉▉▉
    thread 2      ▉▉▉▉▉▉ forward                 compiled call inside of a forward: ▒▒▒▒
    hooks      ═══════════          ═════════════                                  ═    ═
    thread 3              ▒▒▒▒▒▒▒▒▒▒ compiled call
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from ecoshare.lane.compiled_calls import watch_compiled_calls


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
    """Hooks of the service of this process."""

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
