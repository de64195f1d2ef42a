"""The guard: a small process that outlives the controller and cleans up after it.

::

    controller ──stdin pipe──► guard
        ends well: "done"        exits
        dies:      end of file   ends every process of the run, restores the settings of its devices,
                                 removes its shared memory
        hangs:     silence       the same, after it has killed the controller. Only agents of a run on several
                                 machines have such a lease: the run begins their jobs elsewhere

Only the controller holds the other end of the pipe, so the kernel itself reports its death. The controller
(`nodes/guard_client.py`) starts a new guard when this one dies. So the clean-up fails only if both die at once; the
next run then does it (`runtime/nodes/cleanup.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import shutil
import signal
import sys

from ecoshare.lane import processes
from ecoshare.runtime.nodes import cleanup

DONE, BEAT = b"done", b"."
"""Words of the controller: it has ended well, and it goes on."""

_LOCK_S = 5.0
"""Longest time (s) to wait for the device's lock.

The lock ends with the controller, but the last thread of the controller may still be in the driver.
"""


def main(args: list[str]) -> None:
    """Wait for the end of the controller that started this process, and clean up unless it ended well.

    Args:
        args: Token of the run, its shared-memory folder, the time (s) of silence after which the controller counts as
            hung (0: never), and the vendor and key of each device that it may set.
    """
    processes.show_as("guard")
    controller = os.getppid()
    token, shared, lease_s, *words = args
    devices = list(zip(words[::2], words[1::2], strict=True))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for vendor, _ in devices:
        _be_ready(vendor)
    if _ends_well(controller, float(lease_s)):
        return
    try:
        cleanup.end_all(token)
    finally:
        for _, device in devices:  # after the jobs: the limits that were found may exceed the power budget
            _put_back(device)
    shutil.rmtree(shared, ignore_errors=True)


def _ends_well(controller: int, lease_s: float) -> bool:
    """Wait for the end of the controller. Return whether it has ended well. The lease begins with its first beat."""
    said = b""
    while True:
        while lease_s and said and not select.select([sys.stdin.fileno()], [], [], lease_s)[0]:
            os.kill(controller, signal.SIGKILL)  # it is there: the kernel would tell of its end
        data = os.read(sys.stdin.fileno(), 1024)
        if not data:
            return said == DONE
        said = (said + data)[-len(DONE) :]


def _be_ready(vendor: str) -> None:
    """Import now the modules that the clean-up will need at once."""
    from ecoshare.devices import registry
    from ecoshare.devices.control import restore

    assert restore, "it is imported for the clean-up"
    with contextlib.suppress(Exception):  # the processes of the run must still be ended
        for name in registry.vendor(vendor).modules:
            importlib.import_module(name)


def _put_back(device: str) -> None:
    """Restore the settings of the device. If this fails, or takes too long, the journal stays for the next start."""
    from ecoshare.devices.control.restore import Foreign, mend_in_time
    from ecoshare.devices.control.state_folder import StateFolder

    state = StateFolder.of_this_user()
    with contextlib.suppress(Exception):  # the processes of the run must still be ended
        mend_in_time(state.journal(device), state, wait_s=_LOCK_S, foreign=Foreign.ASK)
