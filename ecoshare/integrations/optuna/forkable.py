"""Check that trials can be forked from this process: a child cannot use CUDA that its parent initialised."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from ecoshare.errors import UnfitEnvironment


def check_forkable(on_gpu: bool) -> None:
    """Check that a forked child of this process can use the device.

    Raises:
        UnfitEnvironment: A child cannot use it.
    """
    torch = sys.modules.get("torch")
    if on_gpu and ((torch is not None and torch.cuda.is_initialized()) or _driver_refuses()):
        raise UnfitEnvironment(
            "CUDA is in use in this process already, and trials are forked from it, which CUDA does not allow: "
            "touch the GPU in the objective only (torch.cuda.is_available() counts, too)"
        )
    if _has_backward_threads():
        raise UnfitEnvironment(
            "this process has run a backward pass where a GPU is visible, and torch allows none in a process forked "
            "from it: do that in the objective, or with CUDA_VISIBLE_DEVICES="
        )


def _driver_refuses() -> bool:
    """True if the driver is loaded here and a forked child fails to initialise it; forks a child to test this."""
    if "libcuda.so" not in Path("/proc/self/maps").read_text():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            os._exit(1 if ctypes.CDLL("libcuda.so.1").cuInit(0) else 0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _has_backward_threads() -> bool:
    """True if torch's autograd has started its device threads, which never end."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            if (task / "comm").read_text().startswith("pt_autograd"):
                return True
    return False
