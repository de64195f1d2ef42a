"""The guard: a small process that outlives the controller and clears up after it.

::

    controller ──stdin pipe──► guard
        ends well: "done"        exits
        dies:      end of file   puts the device's settings back, ends every process of the run,
                                 removes its shared memory

The pipe's other end is held by the controller alone, so the kernel itself tells of its death. The controller
(`runtime/guard_client.py`) starts a new guard when this one dies; each needs the other only while nothing goes wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import signal
import sys

from ecoshare.runtime import reaping

DONE = b"done"
_LOCK_S = 5.0
"""The device's lock ends with the controller, whose last thread may still be in the driver."""


def main(args: list[str]) -> None:
    """Wait for the end of the controller that started this.

    `args` are the run's token, its shared-memory folder and the device that it may set, or nothing for that.
    """
    token, shared, device = args
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if device:
        _be_ready()
    if sys.stdin.buffer.read() == DONE:
        return
    if device:
        _put_back(device)
    reaping.end_all(token)
    shutil.rmtree(shared, ignore_errors=True)


def _be_ready() -> None:
    """Load now what will be needed at once then."""
    for name in ("httpx", "pynvml", "zeus.device.gpu.nvidia", "zeus.utils.zeusd", "ecoshare.devices.restore"):
        importlib.import_module(name)


def _put_back(device: str) -> None:
    """What the controller has set. Whatever goes wrong, the journal stays for the next start."""
    from ecoshare.devices import restore
    from ecoshare.devices.state_folder import StateFolder

    state = StateFolder.of_this_user()
    with contextlib.suppress(Exception):  # processes are still to be ended
        restore.mend(state.journal(device), state, wait_s=_LOCK_S, foreign=restore.Foreign.ASK)
