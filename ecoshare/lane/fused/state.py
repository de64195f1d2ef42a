"""What a script finds, and leaves behind, in its process: put aside when its turn ends, brought back when it comes.

::

    job A ════ out: read all of it ═╗                        ╔═ back: write what differs ════
                                    ║ turn                   ║
    job B                           ╚═ back ════════════ out ╝

Each job begins with what the process had before the first of them, as a job in a process of its own does. Most of it is
the same for all jobs most of the time, so what is equal is not written again.

Not kept apart: what libraries keep in modules of their own (`site-packages`), the umask, the locale, resource limits.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import logging
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from types import ModuleType
from typing import Any

import torch
from torch.nn.modules import module as torch_modules
from torch.optim import optimizer as torch_optimizer

import ecoshare
from ecoshare.lane.fused.seeds import Seeds

_HOOKS: tuple[tuple[Any, str], ...] = tuple(
    (owner, name)
    for owner in (torch_modules, torch_optimizer)
    for name, value in vars(owner).items()
    if name.startswith("_global_") and isinstance(value, dict)
)
"""Hooks on all modules and optimizers."""

_ATTRIBUTES: tuple[tuple[Any, str], ...] = (
    *((sys, name) for name in ("argv", "path", "stdin", "stdout", "stderr", "__stdout__", "__stderr__")),
    *((sys, name) for name in ("excepthook", "displayhook", "unraisablehook")),
    (threading, "excepthook"),
    (warnings, "filters"),
    (warnings, "showwarning"),
    *((logging.root, name) for name in ("handlers", "filters", "level")),
    *((logging.Logger.manager, name) for name in ("loggerDict", "disable")),
    *((logging, name) for name in ("raiseExceptions", "lastResort")),
    (ecoshare, "_declare"),
    (ecoshare, "_report"),
    *_HOOKS,
)

_GETTERS = tuple(
    (owner, attrgetter(*names, names[0]))  # one more, since of a single name it gives no tuple
    for owner, names in (
        (owner, [name for each, name in _ATTRIBUTES if each is owner])
        for owner in {id(owner): owner for owner, _ in _ATTRIBUTES}.values()
    )
)

_LISTS = (sys, "path"), (warnings, "filters"), (logging.root, "handlers"), (logging.root, "filters")

_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (os.getcwd, os.chdir),
    (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    (gc.get_threshold, lambda threshold: gc.set_threshold(*threshold)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda on: torch.use_deterministic_algorithms(on[0], warn_only=on[1]),
    ),
    (torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark),
    (torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic),
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    (torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
)

_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))


@dataclass(slots=True)
class ProcessState:
    """One job's.

    Attributes:
        settings: None before its first turn, in which it begins with the process's own.
        modules: By name, those that are this job's alone: its script as `__main__`, and what it has imported from
            elsewhere than the libraries.
        handles: What file descriptors 1 and 2 are for it; None for what the process began with.
    """

    attributes: list[Any]
    settings: list[Any] | None
    environment: dict[bytes, bytes]
    seeds: list[Any]
    modules: dict[str, ModuleType]
    handles: tuple[int, int]


@dataclass(slots=True)
class Process:
    """The process whose state changes hands.

    Attributes:
        first: What it was before any job.
        here: Whose state it has now.
    """

    seeds: Seeds = field(default_factory=Seeds)
    first: ProcessState = field(init=False)
    here: ProcessState = field(init=False)
    _shared: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._shared = sys.modules.keys() - {"__main__"}
        handles = os.dup(1), os.dup(2)
        self.first = ProcessState(
            _attributes(),
            [get() for get, _ in _SETTINGS],
            dict(os.environ._data),  # type: ignore[attr-defined]
            self.seeds.get(),
            {"__main__": sys.modules["__main__"]},
            handles,
        )
        self.here = self.first

    def new(self, handles: tuple[int, int]) -> ProcessState:
        """The state that a job begins with, which prints to these file descriptors."""
        attributes = dict(zip(_ATTRIBUTES, self.first.attributes, strict=True))
        loggers = logging.Logger.manager, "loggerDict"
        for key in (*_LISTS, *_HOOKS, loggers):
            attributes[key] = copy(attributes[key])
        for number, name in ((1, "stdout"), (2, "stderr")):
            first = attributes[sys, name]
            file = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
            stream = io.TextIOWrapper(
                file, encoding=first.encoding, errors=first.errors, line_buffering=first.line_buffering
            )
            attributes[sys, name] = attributes[sys, f"__{name}__"] = stream
        return ProcessState(
            [attributes[key] for key in _ATTRIBUTES],
            None,
            dict(self.first.environment),
            list(self.first.seeds),
            {"__main__": self.first.modules["__main__"]},
            handles,
        )

    def read(self, state: ProcessState) -> None:
        """Put aside what the process is now, as this job's."""
        state.attributes = _attributes()
        state.settings = [_read(get) for get, _ in _SETTINGS]
        if os.environ._data != state.environment:  # type: ignore[attr-defined]
            state.environment = dict(os.environ._data)  # type: ignore[attr-defined]
        state.seeds = self.seeds.get()
        self._own(state)
        _libc.fflush(None)  # what libraries have printed goes where it belongs

    def write(self, state: ProcessState) -> None:
        """Make the process what this job has put aside."""
        before, self.here = self.here, state
        if before is state:
            return
        for (owner, name), value, old in zip(_ATTRIBUTES, state.attributes, before.attributes, strict=True):
            if value is not old:
                setattr(owner, name, value)
        # A thread has its own number of threads at first, whatever was the process's.
        present = before.settings if state.settings is not None else [_read(get) for get, _ in _SETTINGS]
        wanted = state.settings if state.settings is not None else self.first.settings
        if present != wanted:
            _set(present, wanted)
        if os.environ._data != state.environment:  # type: ignore[attr-defined]
            _write_environment(state.environment)
        self.seeds.set(state.seeds)
        for name in before.modules:
            sys.modules.pop(name, None)
        sys.modules.update(state.modules)
        for number, handle in zip((1, 2), state.handles, strict=True):
            os.dup2(handle, number)
        if state.attributes[_FILTERS] != before.attributes[_FILTERS]:
            warnings._filters_mutated()  # type: ignore[attr-defined]
        if (logging.root.level, logging.root.manager.disable) != tuple(before.attributes[each] for each in _LEVELS):
            logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]

    def clear(self, state: ProcessState) -> None:
        """Let go of what the script of the job here has made, which may still print while it goes.

        Not by force: where it has put a function of its own into a library, other jobs call it.
        """
        self._own(state)
        sys.last_type = sys.last_value = sys.last_traceback = None
        for name in state.modules:
            del sys.modules[name]
        state.modules.clear()
        gc.collect()

    def end(self, state: ProcessState) -> None:
        """The job here is over: the process is again what it was before any."""
        self.read(state)
        self.write(self.first)
        for handle in state.handles:
            os.close(handle)
        state.modules.clear()
        state.attributes.clear()

    def _own(self, state: ProcessState) -> None:
        """Know which modules are this job's."""
        state.modules = {name: sys.modules[name] for name in state.modules if name in sys.modules}
        if len(sys.modules) == len(self._shared) + len(state.modules):
            return
        news = sys.modules.keys() - self._shared - state.modules.keys()
        state.modules.update({name: sys.modules[name] for name in news if not _is_of_library(sys.modules[name])})
        self._shared = sys.modules.keys() - state.modules.keys()


_libc = ctypes.CDLL(None)
_FILTERS = _ATTRIBUTES.index((warnings, "filters"))
_LEVELS = _ATTRIBUTES.index((logging.root, "level")), _ATTRIBUTES.index((logging.Logger.manager, "disable"))


def _attributes() -> list[Any]:
    return [value for owner, get in _GETTERS for value in get(owner)[:-1]]


def _set(present: list[Any] | None, wanted: list[Any] | None) -> None:
    for (_, set_), value, old in zip(_SETTINGS, wanted or (), present or (), strict=True):
        if value is not None and value != old:
            with contextlib.suppress(OSError):  # a working folder that is gone
                set_(value)


def _read(get: Callable[[], Any]) -> Any:
    """A setting; None where it cannot be told: the working folder is gone."""
    try:
        return get()
    except OSError:
        return None


def _write_environment(wanted: dict[bytes, bytes]) -> None:
    present = os.environ._data  # type: ignore[attr-defined]
    for key in [key for key in present if key not in wanted]:
        os.unsetenv(key)
        del present[key]
    for key, value in wanted.items():
        if present.get(key) != value:
            os.putenv(key, value)
            present[key] = value


def _is_of_library(module: object) -> bool:
    """Whether a module is installed, and so the same for all jobs."""
    if not isinstance(module, ModuleType):
        return True
    place = vars(module).get("__file__")
    if place is None:  # built in; or a package without a file, whose folders tell
        place = next(iter(vars(module).get("__path__", ())), None)
    if not isinstance(place, str):
        return True
    return place.startswith(_LIBRARIES) or "site-packages" in place or "dist-packages" in place
