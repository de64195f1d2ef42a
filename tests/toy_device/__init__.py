"""Small accelerator for tests that is not CUDA: torch's device type `toy`, with two devices that work asynchronously.

It shows what processors cannot: backward passes in the device threads of autograd, a current device and current
streams of each thread, a lazy start, and work that goes on when the call that asked for it has returned. The kernels
are those of the CPU, so results are the same to the bit. `toy_device.cpp` says how; it is compiled once for each
version of torch. A process can have the device once, and keeps it, so tests load it in a child process::

    from tests import toy_device

    toy_device.load()
    x = torch.ones(3, device="toy:1")
    toy_device.work(0.2, device=1)  # the device is busy for 0.2 s; the call returns at once
    assert not toy_device.is_idle(1)
    torch.accelerator.synchronize(1)

This module is `torch.toy`, too, with the functions that torch expects of the module of a device.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("toy_device.cpp")
NAME = "toy"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")

_lock = threading.Lock()
_pid: int | None = None
"""Process that has started the device: a child forked later cannot use it, as with CUDA."""


@functools.cache
def library() -> Path:
    """Path of the compiled library, kept below `.pytest_cache` for this source and this version of torch."""
    if COMPILER is None:
        raise FileNotFoundError("there is no C++ compiler on the path")
    home = Path(torch.__file__).parent
    line = [COMPILER, "-std=c++20", "-O1", "-Wall", "-shared", "-fPIC", "-isystem", str(home / "include")]
    line += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    libraries = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu"]
    digest = hashlib.sha256(repr((line, torch.__version__)).encode() + SOURCE.read_bytes())
    built = ROOT / ".pytest_cache" / "toy_device" / f"{digest.hexdigest()[:32]}.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        beside = built.with_suffix(f".{os.getpid()}")  # another worker may build it, too
        done = subprocess.run([*line, str(SOURCE), *libraries, "-o", str(beside)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        beside.replace(built)
    return built


def load() -> None:
    """Register the device with torch in this process, once. It starts with its first use."""
    if hasattr(torch, NAME):
        return
    torch.ops.load_library(str(library()))  # type: ignore[no-untyped-call]
    rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, sys.modules[__name__])  # type: ignore[no-untyped-call]


# For tests


def work(seconds: float, device: int = 0) -> None:
    """Let the current stream of a device be busy for this time (s), after all that it has to do before."""
    torch.empty(0, device=NAME)  # torch starts the device, and knows of it
    torch.ops.toy_device.work(device, seconds)


def take_per_kernel(seconds: float) -> None:
    """Let each kernel occupy the current stream of its device for this time (s). At first it takes none."""
    torch.ops.toy_device.take_per_kernel(seconds)


def is_idle(device: int = 0) -> bool:
    """Whether all streams of a device have done their work."""
    return bool(torch.ops.toy_device.is_idle(device))


def busy(device: int = 0) -> list[tuple[float, float]]:
    """Times between which a stream of a device was or will be busy: from, to; in s of `time.monotonic`."""
    return [(begin_s, end_s) for begin_s, end_s in torch.ops.toy_device.busy(device).tolist()]


# For torch


def _lazy_init() -> None:
    global _pid
    with _lock:
        if _pid is None:
            torch.ops.toy_device.start()
            _pid = os.getpid()
    if _is_in_bad_fork():
        raise RuntimeError("the toy device was started before this process was forked")


def _is_in_bad_fork() -> bool:
    return _pid is not None and _pid != os.getpid()


def is_initialized() -> bool:
    """Whether this process uses the device."""
    return _pid == os.getpid()


def is_available() -> bool:
    """Whether there is such a device."""
    return True


def device_count() -> int:
    """Number of the devices."""
    return 2


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types of autocast, which checkpointed modules ask for."""
    return [torch.float16, torch.bfloat16]


def manual_seed_all(seed: int) -> None:
    """Do nothing: random numbers are drawn by the CPU."""


def synchronize(device: Any = None) -> None:
    """Wait until all streams of a device have done their work."""
    torch.accelerator.synchronize(device)
