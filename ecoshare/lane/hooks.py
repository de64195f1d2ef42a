"""Sees a script's iterations from outside, and yields the turn between them.

What is hooked, all of it in this process alone:

* every optimizer's step (`register_optimizer_step_post_hook`);
* the next root forward after a boundary: a global forward pre-hook that removes itself when it fires, so that it is
  never there while a module's children run, nor when Dynamo traces a model;
* `torch.compile` and `Module.compile`, whose results are called through a wrapper instead of a hook (Dynamo would trace
  a hook, or warn of it);
* the fetch of a batch: `DataLoader`'s iterator.

No device work of the script is changed, only when it happens; so results are the same to the bit.

What is hooked is hooked once in a process, and tells the hooks of the job that has it: there the jobs of a fused lane
come and go, each with hooks of its own.

::

    optimizer step, forward, compiled call, fetch ──► _here ──► Hooks of job A │ B │ C
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from ecoshare.lane import first_calls
from ecoshare.lane.after_import import after_import
from ecoshare.lane.iterations import Boundary, IterationPhase, IterationTracker

_WORTH_LEAVING_S = 0.002
"""A fetch shorter than this is not worth two hand-overs."""


class Yielder(Protocol):
    """What is told about boundaries: the job's side of its lane, or a test's recorder."""

    def boundary(self, kind: Boundary) -> None:
        """An iteration has ended; returns when the job may go on."""
        ...

    def count(self, kind: Boundary) -> None:
        """The script's last iteration has ended; nothing follows."""
        ...

    def leave(self) -> None:
        """The job waits for something other than the device."""
        ...

    def take(self) -> None:
        """The job wants the device again; returns when it may have it."""
        ...


class Hooks:
    """What is seen of one job."""

    def __init__(self, yielder: Yielder, accelerator: bool, stays: bool = False) -> None:
        """Hooks that tell `yielder`.

        Args:
            accelerator: Whether the device is other than the processor.
            stays: The job keeps its turn while it waits for data: none of it may run without.
        """
        self._yielder = yielder
        self._accelerator = accelerator
        self._stays = stays
        self._tracker = IterationTracker()
        self._armed: Any = None
        self._root: nn.Module | None = None
        self._root_watch: Any = None
        self._inside = False
        self._thread = threading.get_ident() if stays else threading.main_thread().ident
        # Means of what fetches took: of those whose batch seemed to be there, and of the others.
        self._fetch_s: weakref.WeakKeyDictionary[Any, dict[bool, float]] = weakref.WeakKeyDictionary()
        self._alive = True

    def install(self) -> None:
        """Begin to watch. Children forked later (`DataLoader` workers) are not watched."""
        install()
        self.go_on()
        self._arm()

    def go_on(self) -> None:
        """The process is this job's."""
        global _here
        _here = self

    def follow(self) -> None:
        """The script runs in the thread that calls."""
        self._thread = threading.get_ident()

    def settle(self) -> None:
        """Something else than an iteration follows: count the one that has ended, and do not yield for it."""
        if self._alive and (ended := self._tracker.fetch()) is not None:
            self._yielder.count(ended)

    def finish(self) -> None:
        """The script is over: count what is left, and yield no more."""
        self.settle()
        self.switch_off()

    def declare(self) -> None:
        """`ecoshare.iteration()`: the script says that an iteration is over."""
        if self._alive and not self._busy():
            self._boundary(self._tracker.declare())
            self._arm()

    def switch_off(self) -> None:
        """Yield no more."""
        self._alive = False
        self._disarm()

    # Forward

    def _arm(self) -> None:
        if self._armed is None and self._alive:
            self._armed = module_hooks.register_module_forward_pre_hook(self._called)

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.remove()
            self._armed = None

    def _called(self, module: nn.Module, _inputs: Any) -> None:
        """The armed hook: the first module called since it was armed is a root."""
        if torch.compiler.is_compiling() or self._busy() or not self._enters(module, id(module)):
            return
        if self._tracker.watches_forward:
            # Inference: look again when this root is done. Its children must not count as roots.
            self._root = module
            self._root_watch = module_hooks.register_module_forward_hook(self._returned, always_call=True)

    def _returned(self, module: nn.Module, _inputs: Any, _output: Any) -> None:
        if module is self._root:
            self._root = None
            self._root_watch.remove()
            self._arm()

    def _enters(self, module: nn.Module | None, identity: int) -> bool:
        """A root call begins: yield if an iteration ended before it. False where the call means nothing."""
        gradients = torch.is_grad_enabled()
        if not gradients and module is not None and next(module.parameters(), None) is None:
            return False  # a transform or a metric
        self._disarm()
        ended = self._tracker.forward(gradients, identity)
        if ended is not None:
            self._boundary(ended)
        return True

    def _busy(self) -> bool:
        """Whether this is no place for a boundary: inside a backward pass, a root or a fetch, or another thread.

        The thread that counts is the main one, until another is seen to step an optimizer.
        """
        return (
            self._inside
            or self._root is not None
            or threading.get_ident() != self._thread
            or torch._C._current_graph_task_id() != -1
        )

    # Compiled callables

    def around(
        self,
        module: nn.Module | None,
        compiled: Callable[..., Any],
        args: tuple[Any, ...],
        arguments: dict[str, Any],
    ) -> Any:
        """Call something compiled with no hook in place, as a root call."""
        if torch.compiler.is_compiling() or not self._alive or self._busy():
            return compiled(*args, **arguments)
        if self._tracker.watches_forward:
            self._enters(module, id(compiled if module is None else module))
        self._disarm()
        self._inside = True
        try:
            return compiled(*args, **arguments)
        finally:
            self._inside = False
            if self._tracker.watches_forward:
                self._arm()

    # Steps and batches

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped."""
        if not self._alive:
            return
        if torch._C._current_graph_task_id() == -1:  # backward passes of a GPU run in threads of their own
            self._thread = threading.get_ident()
        # Inside a backward pass or a compiled step it is too early to yield; several steps there are one iteration.
        nested = self._busy()
        ended = self._tracker.step(id(optimizer), nested)
        if ended is not None:
            self._boundary(ended)
        if not self._inside:  # else a hook would be traced, and the end of the enclosing call arms it
            self._arm()

    def fetch(self, fetch: Callable[[Any], Any], batches: Any) -> Any:
        """Fetch a batch, without the turn where that takes long enough."""
        if not self._alive or self._busy():
            return fetch(batches)
        ended = self._tracker.fetch()
        if ended is not None:
            self._boundary(ended)
            self._arm()
        there = _is_there(batches)
        away = self._tracker.phase is IterationPhase.BETWEEN and self._worth_leaving(batches, there)
        if away:
            self._yielder.leave()
        self._inside = True
        began_s = time.monotonic()
        try:
            return fetch(batches)
        finally:
            self._inside = False
            took_s = time.monotonic() - began_s
            known_s = self._fetch_s.setdefault(batches, {})
            known_s[there] = 0.8 * known_s.get(there, took_s) + 0.2 * took_s
            if away:
                self._yielder.take()

    def _worth_leaving(self, batches: Any, there: bool) -> bool:
        """Whether the device would stand idle during the next fetch for long enough to hand it over.

        Without worker processes the fetch is this process's own work: on the CPU that is device work.
        """
        workers: int = getattr(batches, "_num_workers", 0)
        if self._stays or (workers == 0 and not self._accelerator):
            return False
        known_s = self._fetch_s.get(batches, {}).get(there)
        return workers > 0 and not there if known_s is None else known_s > _WORTH_LEAVING_S

    def _boundary(self, kind: Boundary) -> None:
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return  # a graph is being captured: a synchronisation would break it
        self._yielder.boundary(kind)


_here: Hooks | None = None
"""Those of the job that has this process."""

_is_installed = False


def install() -> None:
    """Hook what all jobs of this process have in common, and make the first calls that must not be theirs, once."""
    global _is_installed
    if not _is_installed:
        _is_installed = True
        first_calls.call_once()
        register_optimizer_step_post_hook(_stepped)
        after_import("torch._dynamo.eval_frame", _wrap_compile)
        _wrap_fetch()
        os.register_at_fork(after_in_child=_switch_off)


def _stepped(optimizer: torch.optim.Optimizer, _args: Any, _options: Any) -> None:
    if _here is not None:
        _here.stepped(optimizer)


def _switch_off() -> None:
    if _here is not None:
        _here.switch_off()


def _wrap_compile() -> None:
    from torch._dynamo.eval_frame import OptimizedModule

    compile_any = torch.compile
    call_module = OptimizedModule.__call__

    @functools.wraps(compile_any)
    def compile_and_watch(model: Any = None, **options: Any) -> Any:
        if model is None:  # a decorator with options
            return lambda actual: compile_and_watch(actual, **options)
        compiled = compile_any(model, **options)
        if isinstance(compiled, nn.Module):
            return compiled  # called through its class, below

        @functools.wraps(compiled)
        def call_watched(*args: Any, **arguments: Any) -> Any:
            return _around(None, compiled, args, arguments)

        return call_watched

    @functools.wraps(call_module)
    def call_module_watched(module: nn.Module, *args: Any, **arguments: Any) -> Any:
        return _around(module, call_module, (module, *args), arguments)

    torch.compile = compile_and_watch  # `Module.compile` goes through it too
    OptimizedModule.__call__ = call_module_watched


def _around(
    module: nn.Module | None, compiled: Callable[..., Any], args: tuple[Any, ...], arguments: dict[str, Any]
) -> Any:
    return compiled(*args, **arguments) if _here is None else _here.around(module, compiled, args, arguments)


def _wrap_fetch() -> None:
    fetch = dataloader._BaseDataLoaderIter.__next__

    @functools.wraps(fetch)
    def fetch_and_yield(batches: Any) -> Any:
        return fetch(batches) if _here is None else _here.fetch(fetch, batches)

    dataloader._BaseDataLoaderIter.__next__ = fetch_and_yield  # type: ignore[method-assign, assignment]


def _is_there(batches: Any) -> bool:
    """Whether the workers have made the next batch of a `DataLoader`'s iterator, as far as can be seen from outside.

    A batch out of order counts too. Looked at in torch's own fields, for there is nothing else that tells without
    fetching; where they are not as known, no batch is there, and only the time of fetches counts.
    """
    try:
        if batches._rcvd_idx >= batches._send_idx:
            return True  # the end, which is told at once
        return len(batches._task_info.get(batches._rcvd_idx, ())) == 2 or not batches._data_queue.empty()
    except (AttributeError, OSError):
        return False
