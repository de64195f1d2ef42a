"""Watches a script's iterations from outside, and yields the turn between them.

The hooks, all of them in this process alone, are on:

* every optimizer's step (`register_optimizer_step_post_hook`), and the making of an optimizer;
* backward passes: a wrapper around the call of torch's engine looks, after the pass, whether it has reached a parameter
  (`reaches_parameter`). It looks only until the script has made an optimizer, and never yields: the boundary is at the
  next forward or fetch;
* the next root forward after a boundary: a global forward pre-hook that removes itself when it fires, so that it is
  never there while a module's children run, nor when Dynamo traces a model;
* `torch.compile` and `Module.compile`: a wrapper calls their results, because Dynamo would trace a hook or warn of it;
* the parameters of a root, if its turn may have to be cut inside a backward pass (`cuts.py`);
* replays of a CUDA graph, which are steps where nothing else is seen;
* the fetch of a batch: `DataLoader`'s iterator.

The hooks change only the time of the script's device work, so results are the same to the bit.

Each hook is installed once in a process, and tells the `Hooks` of the job that has the process. The jobs of a fused
lane come and go there, each with `Hooks` of its own.

::

    optimizer step, backward pass, forward, compiled call, fetch ──► _here ──► Hooks of job A │ B │ C
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Protocol

import torch
from torch import nn
from torch._C._dynamo.eval_frame import set_eval_frame
from torch.nn.modules import module as module_hooks
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import dataloader

from ecoshare.lane import cuts
from ecoshare.lane.after_import import after_import
from ecoshare.lane.iterations import Boundary, IterationPhase, IterationTracker

_MOST_NODES = 1000
"""Most nodes that one walk visits. Only a walk through large frozen models needs more."""


def reaches_parameter(outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether a backward pass from `outputs` has computed the gradient of a parameter.

    ::

        loss ──► SmoothL1LossBackward ──► AddmmBackward ──► AccumulateGrad: a parameter, found
                                              │
                                              └──► ... the rest of the graph is not visited

    The walk follows the edges of the graph, which stay when a pass has freed the tensors that the graph saved. It
    begins at the loss, and the last layer of a model is a few nodes away. It leaves nothing behind: no hook, no node,
    no reference. Gradients are not looked at, because scripts set, zero and replace them at any time.

    Args:
        outputs: Tensors, or edges of the graph, at which the pass began.
        inputs: Tensors, or edges, for which alone gradients were computed; empty for all leaves of the graph.

    Returns:
        True if a `torch.nn.Parameter` was among those. A parameter behind `_MOST_NODES` other nodes is not found.
    """
    if inputs:
        return any(isinstance(each, nn.Parameter) or _holds_parameter(getattr(each, "node", None)) for each in inputs)
    # Modes that the script has entered, and functions that tensors override, would see each `grad_fn` that is read.
    with torch._C.DisableTorchFunction():
        nodes = [each.grad_fn if isinstance(each, torch.Tensor) else each.node for each in outputs]
    seen: set[int] = set()
    for node in nodes:  # grows while it is read: nearer nodes come first, and none is freed, so no id is used again
        if node is None or id(node) in seen:
            continue
        if len(seen) == _MOST_NODES:
            break
        seen.add(id(node))
        edges = node.next_functions
        if not edges and _holds_parameter(node):
            return True
        nodes.extend([edge[0] for edge in edges])
    return False


def _holds_parameter(node: Any) -> bool:
    """Whether a node accumulates the gradient of a parameter. Only such nodes have a `variable`."""
    variable = getattr(node, "variable", None)
    return type(variable) is nn.Parameter or isinstance(variable, nn.Parameter)  # the latter runs Python code


FUNCTIONS = (
    *("abs", "acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "exp", "expm1", "log", "log10", "log1p", "log2"),
    *("logit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
"""Names in `torch` of the functions that torch hands to MKL's vector mathematics (`aten/src/ATen/cpu/vml.h`)."""


def call_once() -> None:
    """Let MKL choose the kernels, in this thread alone.

    MKL chooses the kernel of a function at its first call in a process. In MKL 2024.2, which torch's wheels have, that
    is not safe if two threads make this call at once: one of them may compute its half of the tensor with a kernel of
    11 bits (https://github.com/pytorch/pytorch/issues/188792). If the first `sqrt` of a script, which is Adam's, is
    large enough for two threads, the script prints other losses about once in a hundred runs, alone as well as shared
    (docs/decisions/0007).

    Each call has one element, so it starts no thread and draws no random number. All calls take 1.6 ms in a process
    that was just forked.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.full((1,), 0.5, dtype=dtype, device="cpu")
        for name in FUNCTIONS:
            getattr(torch, name)(one)


Around = Callable[[nn.Module | None, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Function that calls a compiled function. It gets the compiled module (None for a function) first."""

_around_compiled: Around | None = None


def watch_compiled_calls(around: Around) -> None:
    """Let `around` make the calls of what `torch.compile` and `Module.compile` return. It is called once a process."""
    global _around_compiled
    is_first, _around_compiled = _around_compiled is None, around
    if is_first:
        after_import("torch._dynamo.eval_frame", _wrap_compile)


def _call(
    module: nn.Module | None, compiled: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    assert _around_compiled is not None, "the wrappers are made after it is set"
    return _around_compiled(module, compiled, args, options)


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
            return _call(None, compiled, args, arguments)

        return call_watched

    @functools.wraps(call_module)
    def call_module_watched(module: nn.Module, *args: Any, **arguments: Any) -> Any:
        return _call(module, call_module, (module, *args), arguments)

    torch.compile = compile_and_watch  # `Module.compile` goes through it too
    OptimizedModule.__call__ = call_module_watched


_WORTH_LEAVING_S = 0.002
"""Shortest fetch (s) that is worth two hand-overs."""


class Yielder(Protocol):
    """Receiver of boundaries: the job's side of its lane, or a test's recorder."""

    def boundary(self, kind: Boundary) -> None:
        """Count an iteration that has ended. Return when the job may go on."""
        ...

    def count(self, kind: Boundary) -> None:
        """Count an iteration that has ended, without yielding: no iteration follows it directly."""
        ...

    def leave(self) -> None:
        """Give up the device: the job waits for something else."""
        ...

    def take(self) -> None:
        """Ask for the device again. Return when the job may have it."""
        ...

    @property
    def absence_cost_s(self) -> float:
        """Time (s) that the job loses if it leaves the device and takes it again, beyond two hand-overs."""
        ...

    @property
    def is_waited_for(self) -> bool:
        """Whether another job waits for the device."""
        ...

    @property
    def cut_hook(self) -> Callable[[object], None] | None:
        """Hook of parameters that lets the turn be cut in a backward pass; None if it need not be, as things are."""
        ...


class Hooks:
    """Hooks of one job: they turn what its script does into boundaries."""

    def __init__(self, yielder: Yielder, accelerator: bool, stays: bool = False) -> None:
        """Hooks that report to `yielder`.

        Args:
            yielder: Receiver of the boundaries.
            accelerator: Whether the device is another than the CPU.
            stays: Whether the job keeps its turn while it waits for data, because it may not run without the turn.
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
        # Mean time of fetches for each iterator: of those with a batch that seemed ready (True), and of the others.
        self._fetch_s: weakref.WeakKeyDictionary[Any, dict[bool, float]] = weakref.WeakKeyDictionary()
        self._places: weakref.WeakKeyDictionary[nn.Module, list[Any]] = (
            weakref.WeakKeyDictionary()
        )  # hooks of parameters
        self._alive = True

    @property
    def by_steps(self) -> bool:
        """Whether iterations are steps of optimizers that step by turns, such as those of a GAN."""
        return self._tracker.by_steps

    @property
    def is_in_main_thread(self) -> bool:
        """Whether the script works in the main thread, as far as was seen."""
        return self._thread == threading.main_thread().ident

    def install(self) -> None:
        """Begin to watch. Children forked later (`DataLoader` workers) are not watched."""
        install()
        self.go_on()
        self._arm()

    def go_on(self) -> None:
        """Let the hooks of the process report to this job."""
        global _here
        _here = self

    def follow(self) -> None:
        """Take the calling thread as the one in which the script runs."""
        self._thread = threading.get_ident()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Context manager: nothing that the calling thread does inside marks the end of an iteration."""
        self.settle()
        self.follow()
        self._disarm()
        was_inside, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = was_inside
            if self._tracker.watches_forward:
                self._arm()

    def settle(self) -> None:
        """Count the iteration that has ended, without yielding. Something other than an iteration follows."""
        if self._alive and (ended := self._tracker.fetch()) is not None:
            self._yielder.count(ended)

    def finish(self) -> None:
        """Count the last iteration and yield no more: the script is over."""
        self.settle()
        self.switch_off()

    def declare(self) -> None:
        """End an iteration because the script calls `ecoshare.iteration()`."""
        if self._alive and not self._busy():
            self._boundary(self._tracker.declare())
            self._arm()

    def switch_off(self) -> None:
        """Yield no more."""
        self._alive = False
        self._disarm()
        self._close_backward()

    # Forward

    def _arm(self) -> None:
        if self._armed is None and self._alive:
            self._armed = module_hooks.register_module_forward_pre_hook(self._called)

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.remove()
            self._armed = None

    def _called(self, module: nn.Module, _inputs: Any) -> None:
        """Run as the armed hook: the first module called since it was armed is a root."""
        if torch.compiler.is_compiling() or self._busy() or not self._enters(module, id(module)):
            return
        self._open_backward(module)
        if self._tracker.watches_forward:
            # Inference: arm the hook again when this root returns. The root's children must not count as roots.
            self._root = module
            self._root_watch = module_hooks.register_module_forward_hook(self._returned, always_call=True)

    def _open_backward(self, root: nn.Module) -> None:
        """Make places in the backward passes of a root at which the turn may be cut, or take them away."""
        if (hook := self._yielder.cut_hook) is None:
            self._close_backward()
        elif root not in self._places:
            with torch._C.DisableTorchFunction():  # modes that the script has entered would see the calls
                leaves = [
                    each for each in root.parameters() if each.requires_grad and each.is_leaf and not is_lazy(each)
                ]
                register: Any = torch.Tensor.register_post_accumulate_grad_hook
                self._places[root] = [register(each, hook) for each in leaves]

    def _close_backward(self) -> None:
        for each in chain.from_iterable(self._places.values()):
            each.remove()
        self._places.clear()

    def _returned(self, module: nn.Module, _inputs: Any, _output: Any) -> None:
        if module is self._root:
            self._root = None
            self._root_watch.remove()
            self._arm()

    def _enters(self, module: nn.Module | None, identity: int) -> bool:
        """Note that a root call begins. Yield if an iteration ended before it. Return False if the call is ignored."""
        gradients = torch.is_grad_enabled()
        if not gradients and module is not None and next(module.parameters(), None) is None:
            return False  # a transform or a metric
        self._disarm()
        ended = self._tracker.forward(gradients, identity)
        if ended is not None:
            self._boundary(ended)
        return True

    def _busy(self) -> bool:
        """Whether no boundary can be here: inside a backward pass, a root or a fetch, or in another thread.

        The main thread counts, until another one steps an optimizer.
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
        """Call a compiled function as a root call, with no hook in place."""
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

    # Backward passes

    def differentiated(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Note that a backward pass is over.

        Args:
            outputs: Tensors, or edges of the graph, at which the pass began.
            inputs: Tensors, or edges, for which alone gradients were computed; empty for all leaves.
        """
        if not self._alive:
            return
        # A pass inside another one may run in a thread of the engine. It belongs to the pass around it.
        if torch._C._current_graph_task_id() == -1 and threading.get_ident() != self._thread:
            return
        if self._tracker.phase is IterationPhase.TRAINING and reaches_parameter(outputs, inputs):
            self._tracker.differentiate()
        if self._tracker.watches_forward and not self._busy():  # else the end of the enclosing pass or call arms it
            self._arm()

    def made_optimizer(self) -> None:
        """Note that the script has made an optimizer, so that only steps mark iterations from now on."""
        self._tracker.make_optimizer()
        if not self._tracker.watches_forward:
            self._disarm()

    # Steps and batches

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has stepped."""
        if not self._alive:
            return
        if torch._C._current_graph_task_id() == -1:  # backward passes of a GPU run in threads of their own
            self._thread = threading.get_ident()
        # Inside a backward pass or a compiled step it is too early to yield; several steps there are one iteration.
        nested = self._busy()
        ended = self._tracker.step(id(optimizer), nested)
        if ended is not None:
            self._boundary(ended)
        if not self._inside:  # inside, a hook would be traced; the end of the enclosing call arms it
            self._arm()

    def replayed(self, graph: object) -> None:
        """Note that a CUDA graph has been replayed."""
        if self._alive and (ended := self._tracker.replay(id(graph), self._busy())) is not None:
            self._boundary(ended)

    def fetch(self, fetch: Callable[[Any], Any], batches: Any) -> Any:
        """Fetch a batch. Give up the turn meanwhile if the fetch takes long enough."""
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

        Without worker processes this process does the work of the fetch. On the CPU that is device work. An accelerator
        works on while the CPU fetches, and must be waited for before the job leaves it: while no other job waits, that
        would make the job slower and nothing faster. The first fetches start worker processes, which takes long.
        """
        workers: int = getattr(batches, "_num_workers", 0)
        if self._stays or (workers == 0 and not self._accelerator):
            return False
        known_s = self._fetch_s.get(batches, {}).get(there)
        if known_s is None:
            return workers > 0 and not there
        if self._accelerator and not self._yielder.is_waited_for:
            return False
        return known_s > _WORTH_LEAVING_S + self._yielder.absence_cost_s

    def _boundary(self, kind: Boundary) -> None:
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return  # a graph is being captured: a synchronisation would break it
        self._yielder.boundary(kind)


_here: Hooks | None = None
"""Hooks of the job that has this process; None if there is none."""

_is_installed = False


def install() -> None:
    """Install the hooks that all jobs of this process share, and make the first calls for them; once a process."""
    global _is_installed
    if not _is_installed:
        _is_installed = True
        call_once()
        register_optimizer_step_post_hook(_stepped)
        _wrap_optimizers()
        _wrap_backward()
        watch_compiled_calls(_around)
        _wrap_replay()
        _wrap_fetch()
        os.register_at_fork(after_in_child=_switch_off)


def forget() -> None:
    """Let the hooks of the process report to no job."""
    global _here
    _here = None


def _stepped(optimizer: torch.optim.Optimizer, _args: Any, _options: Any) -> None:
    if _here is not None:
        _here.stepped(optimizer)


def _wrap_optimizers() -> None:
    """Wrap the two methods through which an optimizer is made: `__init__`, and `__setstate__` for copies."""

    def noting(method: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(method)
        def make_and_note(optimizer: Optimizer, *args: Any, **options: Any) -> None:
            method(optimizer, *args, **options)
            if _here is not None:
                _here.made_optimizer()

        _hide_from_dynamo(make_and_note)
        return make_and_note

    Optimizer.__init__ = noting(Optimizer.__init__)  # type: ignore[method-assign]
    Optimizer.__setstate__ = noting(Optimizer.__setstate__)  # type: ignore[method-assign]


def _wrap_backward() -> None:
    """Wrap the function through which `backward` and `torch.autograd.grad` call the engine.

    The public functions stay as they are: TorchScript and Dynamo know them by identity, and some warn with the line of
    their caller. If torch has another function, backward passes mark no iterations.
    """
    run = getattr(torch.autograd, "_engine_run_backward", None)
    if run is None:
        return

    @functools.wraps(run)
    def run_and_note(outputs: Sequence[Any], *args: Any, **options: Any) -> Any:
        result = run(outputs, *args, **options)
        if _here is None:
            return result
        _here._tracker.has_passed = True
        if _here._tracker.counts_backward:
            # A compiled step may call `backward` outside its graphs. Dynamo would trace our functions there.
            callback = set_eval_frame(None)
            try:
                _here.differentiated(outputs, inputs=args[3] if len(args) > 3 else ())
            finally:
                set_eval_frame(callback)
        return result

    _hide_from_dynamo(run_and_note)
    cuts.passes_on(run_and_note)
    torch.autograd._engine_run_backward = run_and_note  # type: ignore[attr-defined, assignment]


def _hide_from_dynamo(function: Callable[..., Any]) -> None:
    """Let Dynamo not trace the body of a function. Functions that the body calls are traced as without it."""

    def hide() -> None:
        from torch._dynamo.eval_frame import skip_code

        skip_code(function.__code__)

    after_import("torch._dynamo.eval_frame", hide)


def _switch_off() -> None:
    if _here is not None:
        _here.switch_off()


def _around(
    module: nn.Module | None, compiled: Callable[..., Any], args: tuple[Any, ...], arguments: dict[str, Any]
) -> Any:
    return compiled(*args, **arguments) if _here is None else _here.around(module, compiled, args, arguments)


def _wrap_replay() -> None:
    replay = torch.cuda.CUDAGraph.replay

    @functools.wraps(replay)
    def replay_and_note(graph: torch.cuda.CUDAGraph) -> None:
        replay(graph)
        if _here is not None:
            _here.replayed(graph)

    torch.cuda.CUDAGraph.replay = replay_and_note  # type: ignore[method-assign, assignment]


def _wrap_fetch() -> None:
    fetch = dataloader._BaseDataLoaderIter.__next__

    @functools.wraps(fetch)
    def fetch_and_yield(batches: Any) -> Any:
        return fetch(batches) if _here is None else _here.fetch(fetch, batches)

    dataloader._BaseDataLoaderIter.__next__ = fetch_and_yield  # type: ignore[method-assign, assignment]


def _is_there(batches: Any) -> bool:
    """Whether the workers have made the next batch of a `DataLoader`'s iterator, as far as can be seen from outside.

    A batch out of order counts too. The answer comes from torch's own fields: nothing else tells without fetching. If
    torch has other fields, no batch counts as ready, and only the time of fetches decides.
    """
    try:
        if batches._rcvd_idx >= batches._send_idx:
            return True  # the end of the data, which is reported at once
        return len(batches._task_info.get(batches._rcvd_idx, ())) == 2 or not batches._data_queue.empty()
    except (AttributeError, OSError):
        return False
