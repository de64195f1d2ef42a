"""State of a script in its process: put aside when its turn ends, restored when its turn begins.

::

    job A ════ out: read the state ═╗                        ╔═ back: write what differs ════
                                    ║ turn                   ║
    job B                           ╚═ back ════════════ out ╝

Each job begins with the state that the process had before the first job, as in a process of its own. Most of the state
is the same for all jobs most of the time, so equal values are not written again.

Jobs share the state that libraries keep in their own modules (`site-packages`), the umask, the locale and the resource
limits.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import io
import logging
import os
import random
import struct
import sys
import sysconfig
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from os import dup2
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import numpy
import torch
from torch.nn.modules import module as torch_modules
from torch.nn.utils import parametrize
from torch.optim import optimizer as torch_optimizer

import ecoshare


class WorkingFolder:
    """A working folder, kept open: the job can return to it even if it was renamed or deleted.

    Attributes:
        handle: File descriptor of the folder.
        which: Device and inode of the folder.
    """

    def __init__(self, which: tuple[int, int]) -> None:
        """Open the present working folder.

        Args:
            which: Device and inode of the present folder.

        Raises:
            OSError: If the process has no file descriptors left.
        """
        self.handle, self.which = -1, which
        self.handle = os.open(".", os.O_PATH | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)


def folder_now(known: WorkingFolder | None) -> WorkingFolder | None:
    """Present working folder; None if it cannot be kept open.

    Args:
        known: Folder that is returned if it is still the present one.
    """
    facts = os.stat(".")  # noqa: PTH116
    which = facts.st_dev, facts.st_ino
    if known is not None and known.which == which:
        return known
    try:
        return WorkingFolder(which)
    except OSError:
        return None


_WORDS = 624
_TWISTER_BYTES = 4 * _WORDS + 4  # the words, and the position in them


class PythonState:
    """State of the generator behind the functions of `random`."""

    def __init__(self) -> None:
        """Find the state in memory.

        Raises:
            ValueError: If the state is not found.
        """
        self._random: Any = random._inst
        words = self._random.getstate()[1]
        # struct { int index; uint32_t state[624]; }
        sought = struct.pack(f"={_WORDS + 1}I", words[-1], *words[:-1])
        offset = ctypes.string_at(id(self._random), type(self._random).__basicsize__).find(sought)
        if offset < 0:
            raise ValueError("the state of Python's random numbers was not found")
        self._address = id(self._random) + offset

    def get(self) -> tuple[bytes, float | None]:
        """Present state."""
        return ctypes.string_at(self._address, _TWISTER_BYTES), self._random.gauss_next

    def set(self, state: tuple[bytes, float | None]) -> None:
        ctypes.memmove(self._address, state[0], _TWISTER_BYTES)
        self._random.gauss_next = state[1]


class NumpyState:
    """State of the generator behind the functions of `numpy.random`.

    The states of Python and numpy are read and written as memory: their own functions take 9 and 60 us per hand-over.
    Both have a Mersenne twister of 624 words. Both make two normal deviates at a time and keep one for the next call.
    The addresses are searched once, and checked.
    """

    def __init__(self) -> None:
        """Find the state in memory.

        Raises:
            ValueError: If the state is not found, or numpy has another global generator.
        """
        self._random = numpy.random.mtrand._rand
        generator = self._random._bit_generator
        if type(generator).__name__ != "MT19937":
            raise ValueError("numpy's global generator is not the one that it comes with")
        self._address = generator.ctypes.state_address  # struct { uint32_t key[624]; int pos; }
        self._spare = self._find_spare()

    def get(self) -> bytes:
        """Present state."""
        return ctypes.string_at(self._address, _TWISTER_BYTES) + ctypes.string_at(self._spare, 16)

    def set(self, state: bytes) -> None:
        ctypes.memmove(self._address, state, _TWISTER_BYTES)
        ctypes.memmove(self._spare, state[_TWISTER_BYTES:], 16)

    def _find_spare(self) -> int:
        """Address of `int has_gauss; double gauss` inside the generator object."""
        before = self._random.get_state(legacy=False)
        try:
            sought = 1.2345678901234567e-67
            self._random.set_state({**before, "has_gauss": 1, "gauss": sought})
            here = id(self._random)
            offset = ctypes.string_at(here, type(self._random).__basicsize__).find(struct.pack("d", sought))
            if offset < 8 or ctypes.c_int.from_address(here + offset - 8).value != 1:
                raise ValueError("the normal deviate that numpy keeps was not found")
            return here + offset - 8
        finally:
            self._random.set_state(before)


class Seeds:
    """States of all generators: Python's, numpy's, torch's, and those of CUDA devices once CUDA is initialised."""

    def __init__(self) -> None:
        self._python, self._numpy = PythonState(), NumpyState()

    def get(self) -> list[Any]:
        """Present states."""
        states: list[Any] = [self._python.get(), self._numpy.get(), torch.default_generator.get_state()]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states += [each.get_state() for each in torch.cuda.default_generators]
        return states

    def set(self, states: list[Any]) -> None:
        """Set the states. A device that was not initialised at `get` stays as it is."""
        self._python.set(states[0])
        self._numpy.set(states[1])
        torch.default_generator.set_state(states[2])
        for each, state in zip(torch.cuda.default_generators, states[3:], strict=False):
            each.set_state(state)


_HOOKS: tuple[tuple[Any, tuple[str, ...]], ...] = tuple(
    (owner, tuple(name for name in vars(owner) if name.startswith("_global_")))
    for owner in (torch_modules, torch_optimizer)
)
"""Global hooks on all modules and optimizers: the module that holds them, and their names."""

_OWNERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (sys, ("argv", "path", "stdin", "stdout", "stderr", "__stdout__", "__stderr__")),
    (sys, ("excepthook", "displayhook", "unraisablehook")),
    (builtins, ("print", "open", "input")),
    (threading, ("excepthook",)),
    (tempfile, ("tempdir",)),
    (warnings, ("filters", "showwarning", "_showwarnmsg_impl", "defaultaction", "onceregistry")),
    (logging.root, ("handlers", "filters", "level")),
    (logging.Logger.manager, ("loggerDict", "disable")),
    (logging, ("raiseExceptions", "lastResort", "_handlers", "_handlerList")),
    (logging, ("_warnings_showwarning", "_logRecordFactory", "_loggerClass")),
    (parametrize, ("_cache_enabled", "_cache")),
    (torch._tensor_str, ("PRINT_OPTS",)),
    (ecoshare, ("_declare", "_report", "_service", "_answering", "_most_batch", "_thread")),
    (ecoshare, ("_requests_path", "_opened_s")),
    *_HOOKS,
)

_ATTRIBUTES = tuple((owner, name) for owner, names in _OWNERS for name in names)

_GETTERS = tuple((owner, attrgetter(*names, names[0])) for owner, names in _OWNERS)
"""Getter of all names of an owner. It repeats the first name: a getter of one name would return no tuple."""

_COPIED = (
    *((sys, "path"), (warnings, "filters"), (warnings, "onceregistry"), (logging.root, "handlers")),
    *((logging.root, "filters"), (logging, "_handlerList"), (logging.Logger.manager, "loggerDict")),
    *((parametrize, "_cache"), (torch._tensor_str, "PRINT_OPTS")),
    *((owner, name) for owner, names in _HOOKS for name in names),
)
"""Attributes of which each job has a copy, because they are changed in place."""

_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    (gc.get_threshold, lambda threshold: gc.set_threshold(*threshold)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda on: torch.set_anomaly_enabled(*on),
    ),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda on: torch.use_deterministic_algorithms(on[0], warn_only=on[1]),
    ),
    *(
        (getattr(torch._C, get), getattr(torch._C, set_))
        for get, set_ in (
            ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
            ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
            ("_get_cudnn_enabled", "_set_cudnn_enabled"),
            ("_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32"),
            ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
            ("_get_mkldnn_deterministic", "_set_mkldnn_deterministic"),
            ("_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory"),
            ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
            ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
            ("_get_math_sdp_enabled", "_set_sdp_use_math"),
            ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
        )
        if hasattr(torch._C, get) and hasattr(torch._C, set_)  # not every torch has all of them
    ),
)

_SETTING_GETTERS = tuple(get for get, _ in _SETTINGS)

_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))


@dataclass(slots=True)
class ProcessState:
    """State of one job.

    Attributes:
        folder: Working folder; None if it could not be kept open.
        attributes: Values of `_ATTRIBUTES`, in that order.
        settings: Values of `_SETTINGS`, in that order; None before the first turn, which begins with
            those of `Process.first`.
        environment: Environment variables, encoded.
        seeds: States of the random generators, from `Seeds.get`.
        modules: Modules of this job alone, by name: its script as `__main__`, and imports from outside the libraries.
        handles: Files that descriptors 1 and 2 refer to during the job's turns.
        streams: First standard output and error streams of the job, even if the script has replaced them.
        figures: Open figures of pyplot; None until a job has loaded pyplot.
    """

    folder: WorkingFolder | None
    attributes: list[Any]
    settings: list[Any] | None
    environment: dict[bytes, bytes]
    seeds: list[Any]
    modules: dict[str, ModuleType]
    handles: tuple[int, int]
    streams: tuple[Any, ...] = ()
    figures: Any = None


@dataclass(slots=True)
class Process:
    """The process, which has the state of one job at a time.

    Attributes:
        seeds: Access to the random generators.
        first: State before any job.
        here: State that the process has now.
    """

    seeds: Seeds = field(default_factory=Seeds)
    first: ProcessState = field(init=False)
    here: ProcessState = field(init=False)
    _shared: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._shared = sys.modules.keys() - {"__main__"}
        handles = os.dup(1), os.dup(2)
        self.first = ProcessState(
            folder_now(None),
            _attributes(),
            _settings(),
            dict(os.environ._data),  # type: ignore[attr-defined]
            self.seeds.get(),
            {"__main__": sys.modules["__main__"]},
            handles,
        )
        self.here = self.first

    def new(self, handles: tuple[int, int]) -> ProcessState:
        """First state of a job that prints to the file descriptors `handles`."""
        attributes = dict(zip(_ATTRIBUTES, self.first.attributes, strict=True))
        streams: list[Any] = []
        for key in _COPIED:
            attributes[key] = copy(attributes[key])
        attributes[logging, "_handlers"] = WeakValueDictionary(attributes[logging, "_handlers"])
        attributes[sys, "stdin"] = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
        for number, name in ((1, "stdout"), (2, "stderr")):
            first = attributes[sys, name]
            raw: Any = io.FileIO(number, "w", closefd=False)
            raw.name = f"<{name}>"
            stream: Any = io.TextIOWrapper(
                io.BufferedWriter(raw),
                encoding=first.encoding,
                errors=first.errors,
                line_buffering=first.line_buffering,
            )
            stream.mode = "w"
            attributes[sys, name] = attributes[sys, f"__{name}__"] = stream
            streams.append(stream)
        return ProcessState(
            self.first.folder,
            [attributes[key] for key in _ATTRIBUTES],
            None,
            dict(self.first.environment),
            list(self.first.seeds),
            {"__main__": self.first.modules["__main__"]},
            handles,
            tuple(streams),
        )

    def read(self, state: ProcessState) -> None:
        """Put the present state of the process aside in `state`."""
        state.folder = folder_now(state.folder)
        state.attributes = _attributes()
        state.settings = _settings()
        if os.environ._data != state.environment:  # type: ignore[attr-defined]
            state.environment = dict(os.environ._data)  # type: ignore[attr-defined]
        state.seeds = self.seeds.get()
        self._own(state)
        if (pyplot := _pyplot()) is not None:
            state.figures = pyplot.figs
        _libc.fflush(None)  # output of C libraries goes to this job's files

    def write(self, state: ProcessState) -> None:
        """Restore the state that a job has put aside.

        Raises:
            OSError: If the job's working folder could not be kept. Everything else is restored.
        """
        before, self.here = self.here, state
        if before is state:
            return
        if state.folder is not before.folder and state.folder is not None:
            os.fchdir(state.folder.handle)
        for (owner, name), value, old in zip(_ATTRIBUTES, state.attributes, before.attributes, strict=True):
            if value is not old:
                setattr(owner, name, value)
        # A new thread starts with its own number of torch threads, so the first turn reads the present settings.
        present = before.settings if state.settings is not None else _settings()
        wanted = state.settings if state.settings is not None else self.first.settings
        if present != wanted:
            _set(present, wanted)
        if os.environ._data != state.environment:  # type: ignore[attr-defined]
            _write_environment(state.environment)
        self.seeds.set(state.seeds)
        if (pyplot := _pyplot()) is not None:
            pyplot.figs = state.figures if state.figures is not None else OrderedDict()
        for name in before.modules:
            sys.modules.pop(name, None)
        sys.modules.update(state.modules)
        for number, handle in zip((1, 2), state.handles, strict=True):
            dup2(handle, number)
        if state.attributes[_FILTERS] != before.attributes[_FILTERS]:
            warnings._filters_mutated()  # type: ignore[attr-defined]
        if (logging.root.level, logging.root.manager.disable) != tuple(before.attributes[each] for each in _LEVELS):
            logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]
        if state.folder is None:
            raise OSError("its working folder could not be kept: no handles are left")

    def clear(self, state: ProcessState) -> None:
        """Drop the objects of the present job's script. Their finalisers may still print."""
        # Modules are dropped, not emptied: other jobs may call a function that the script has put into a library.
        logging.shutdown()  # this job's handlers only: the lists hold no others now
        self._own(state)
        sys.last_type = sys.last_value = sys.last_traceback = None
        for name in state.modules:
            del sys.modules[name]
        state.modules.clear()
        gc.collect()

    def end(self, state: ProcessState) -> None:
        """End the present job: restore the state from before any job, and close the job's files."""
        self.read(state)
        self.write(self.first)
        for handle in state.handles:
            os.close(handle)
        state.modules.clear()
        state.attributes.clear()

    def _own(self, state: ProcessState) -> None:
        """Find the modules that are this job's alone."""
        state.modules = {name: sys.modules[name] for name in state.modules if name in sys.modules}
        if len(sys.modules) == len(self._shared) + len(state.modules):
            return
        news = sys.modules.keys() - self._shared
        state.modules = {name: sys.modules[name] for name in news if not self._is_of_library(name)}
        self._shared = sys.modules.keys() - state.modules.keys()

    def _is_of_library(self, name: str) -> bool:
        """Whether a module is known to be installed, and so is the same for all jobs.

        The top-level package decides for its modules: some have no file, or put another object in their place.
        """
        if name == "__main__":
            return False
        top = name.partition(".")[0]
        if top in self._shared:
            return True
        module = sys.modules.get(top)
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None) or getattr(module, "__file__", None)
        if origin in ("built-in", "frozen"):
            return True
        places = [origin] if origin is not None else list(getattr(module, "__path__", ()))
        return bool(places) and all(
            str(each).startswith(_LIBRARIES) or "site-packages" in str(each) or "dist-packages" in str(each)
            for each in places
        )


_libc = ctypes.CDLL(None)
_FILTERS = _ATTRIBUTES.index((warnings, "filters"))
_LEVELS = _ATTRIBUTES.index((logging.root, "level")), _ATTRIBUTES.index((logging.Logger.manager, "disable"))


def _pyplot() -> Any:
    """Registry of all open figures; None if pyplot is not loaded."""
    module: Any = sys.modules.get("matplotlib._pylab_helpers")
    return getattr(module, "Gcf", None)


def _attributes() -> list[Any]:
    return [value for owner, get in _GETTERS for value in get(owner)[:-1]]


def _set(present: list[Any] | None, wanted: list[Any] | None) -> None:
    for (_, set_), value, old in zip(_SETTINGS, wanted or (), present or (), strict=True):
        if value is not None and value != old:
            with contextlib.suppress(OSError, RuntimeError):
                set_(value)


def _settings() -> list[Any]:
    """Same values as `_read`, in one pass if every setting can be read."""
    try:
        return [get() for get in _SETTING_GETTERS]
    except (OSError, RuntimeError):
        return [_read(get) for get in _SETTING_GETTERS]


def _read(get: Callable[[], Any]) -> Any:
    """Value of a setting; None if it cannot be read, for example by a name that torch has replaced."""
    try:
        return get()
    except (OSError, RuntimeError):
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
