"""Settings that torch, numpy and Python keep for each thread, for a thread in which ecoshare runs code of the user.

A new thread has the defaults, whatever the program has set before: gradients are on, and oneDNN and MKL use as many
threads as there are processors. Code of the user expects what it would find in the thread that handed it over:

::

    thread of the user   set_num_threads(1), no_grad(), ...  ThreadSettings()
                                                                  │
    new thread                                                    └──► run(work): the same settings

Settings of the whole process are the same in each thread anyway: the default dtype, deterministic algorithms, cuDNN's.
torch is not imported here: a program that has not loaded it has set nothing.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeVar

Work = TypeVar("Work")

Setting = tuple[Callable[[], Any], Callable[[Any], object]]
"""Functions that read a setting of the calling thread, and that set it."""

_THREADS, _INFERENCE, _FLUSHES = "number of threads", "inference mode", "flushes denormal numbers"

_FLAGS = (
    ("_is_fwd_grad_enabled", "_set_fwd_grad_enabled"),
    ("_is_multithreading_enabled", "_set_multithreading_enabled"),
    ("_is_view_replay_enabled", "_set_view_replay_enabled"),
    ("_is_grad_layout_enforcement_enabled", "_set_grad_layout_enforcement_enabled"),
    ("_get_dtensor_allow_implicit_replication", "_set_dtensor_allow_implicit_replication"),
    ("_get_graph_executor_optimize", "_set_graph_executor_optimize"),
)
"""Functions of `torch._C` for settings that torch's context managers make. Not every torch has all of them."""

_DEVICE_TYPES = ("cpu", "cuda")
"""Types of devices that a job may have."""


class ThreadSettings:
    """Settings in which the thread that makes this object differs from a new one."""

    def __init__(self) -> None:
        self._own: dict[str, Any] = {}
        self.add_here()

    def add_here(self) -> None:
        """Add the settings in which the calling thread differs from a new one by now."""
        self._context = contextvars.copy_context()
        of_new: dict[str, Any] = {}
        new = threading.Thread(target=lambda: of_new.update(_read()))
        new.start()
        new.join()
        of_new[_FLUSHES] = False  # the processor's own state, which a thread has from the one that started it
        self._own |= {name: value for name, value in _read().items() if value != of_new.get(name, value)}

    def run(self, work: Callable[[], Work]) -> Work:
        """Call `work` in this thread with the settings. The thread is a new one, and does nothing else."""
        settings = _settings()
        if _THREADS in settings:
            # The number that was set for the process becomes that of a new thread when torch is first asked for it. A
            # product of matrices does not ask.
            settings[_THREADS][0]()
        with ExitStack() as inner:
            if _INFERENCE in self._own:
                inner.enter_context(sys.modules["torch"].inference_mode())
            for name, value in self._own.items():
                if name != _INFERENCE:
                    with suppress(RuntimeError):  # a device that has failed
                        settings[name][1](value)
            return self._context.copy().run(work)


def _read() -> dict[str, Any]:
    """Settings of the calling thread, by name."""
    return {name: get() for name, (get, _) in _settings().items()}


def _settings() -> dict[str, Setting]:
    """Settings that can be read and set in this process, by name."""
    found: dict[str, Setting] = {}
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if hasattr(numpy, "seterr"):
        found["numpy's errors"] = numpy.geterr, lambda kinds: numpy.seterr(**kinds)
    if hasattr(torch, "get_default_device"):  # else it is not there, or another thread is still loading it
        found |= _of_torch(torch)
        if torch.cuda.is_initialized():
            found["CUDA's device and streams"] = partial(_cuda_place, torch.cuda), partial(_set_cuda_place, torch.cuda)
    return found


def _of_torch(torch: Any) -> dict[str, Setting]:
    found: dict[str, Setting] = {
        _THREADS: (torch.get_num_threads, torch.set_num_threads),  # which sets that of threads to come, too
        _INFERENCE: (torch.is_inference_mode_enabled, lambda _: None),
        _FLUSHES: (lambda: sys.float_info.min / 2 == 0.0, torch.set_flush_denormal),
        "gradients": (torch.is_grad_enabled, torch._C._set_grad_enabled),
        "default device": (torch.get_default_device, torch.set_default_device),
        "autocast's cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    }
    for kind in _DEVICE_TYPES:
        found |= {
            f"autocast on {kind}": (
                partial(torch.is_autocast_enabled, kind),
                partial(torch.set_autocast_enabled, kind),
            ),
            f"autocast's dtype on {kind}": (
                partial(torch.get_autocast_dtype, kind),
                partial(torch.set_autocast_dtype, kind),
            ),
        }
    for get, set_ in _FLAGS:
        if hasattr(torch._C, get) and hasattr(torch._C, set_):
            found[set_] = getattr(torch._C, get), getattr(torch._C, set_)
    return found


def _cuda_place(cuda: Any) -> tuple[int, list[Any]]:
    """Current device of CUDA, and the current stream of each device."""
    return cuda.current_device(), [cuda.current_stream(device) for device in range(cuda.device_count())]


def _set_cuda_place(cuda: Any, place: tuple[int, list[Any]]) -> None:
    for stream in place[1]:
        cuda.set_stream(stream)  # which makes its device the current one
    cuda.set_device(place[0])
