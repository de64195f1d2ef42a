"""Watches the calls of compiled functions and modules: a wrapper calls them, because Dynamo would trace a hook."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ecoshare.lane.after_import import after_import

Around = Callable[[nn.Module | None, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Function that calls a compiled function. It gets the compiled module (None for a function) first."""

_around: Around | None = None


def watch_compiled_calls(around: Around) -> None:
    """Let `around` make the calls of what `torch.compile` and `Module.compile` return. It is called once a process."""
    global _around
    is_first, _around = _around is None, around
    if is_first:
        after_import("torch._dynamo.eval_frame", _wrap_compile)


def _call(
    module: nn.Module | None, compiled: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    assert _around is not None, "the wrappers are made after it is set"
    return _around(module, compiled, args, options)


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
