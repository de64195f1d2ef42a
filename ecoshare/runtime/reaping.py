"""Finds and ends every process of a run, even after its parent has changed.

The supervisor starts with the token of the run in its environment. The kernel shows this environment for its forks,
too, and executed programs inherit it. So the token marks jobs, `DataLoader` workers and daemons alike, even those that
have left their session or lost their parent. Only a program that empties its environment on purpose escapes.

`psutil` is not used: it takes twice as long. It also cuts off an environment at the first empty entry, and
`lane.processes.mark` leaves such entries.
"""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

from ecoshare.lane import processes

TOKEN = "ECOSHARE_RUN"
"""Name of the environment variable that marks the processes of a run."""


SPARED = "ECOSHARE_SPARED"
"""Name of the variable that also marks the processes that outlive a supervisor: the MPS daemon of the run."""


def members(token: str, spare: bool = False) -> list[int]:
    """IDs of the processes of a run, ascending, without this process.

    Args:
        token: Token that marks the processes of the run.
        spare: Whether to leave out the processes that outlive a supervisor.
    """
    mark = f"{TOKEN}={token}".encode()
    spared = f"{SPARED}=1".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue  # gone, or of another user
        names = environment.split(b"\0")
        if mark in names and not (spare and spared in names):
            found.append(int(entry.name))
    return sorted(found)


def end_all(token: str, limit_s: float = 5.0, spare: bool = False) -> list[int]:
    """SIGKILL the processes of a run until two looks in a row find none.

    A process may fork between a look and the kill, hence the second look. Processes that remove the shared memory of
    other processes have a second to do so, and end by themselves.

    Args:
        token: Token that marks the processes of the run.
        limit_s: Longest time (s) to try.
        spare: Whether to leave the processes that outlive a supervisor alone.

    Returns:
        IDs of the processes that are left after `limit_s`, normally none.
    """
    until_s = time.monotonic() + limit_s
    clean_looks, cleaned_by_s = 0, math.inf
    while True:
        found = members(token, spare)
        clean_looks = 0 if found else clean_looks + 1
        now_s = time.monotonic()
        if clean_looks == 2 or now_s > until_s:
            return found
        to_end = [pid for pid in found if now_s > cleaned_by_s or not processes.cleans_up(pid)]
        if not to_end:
            cleaned_by_s = min(cleaned_by_s, now_s + processes.CLEANERS_WITHIN_S)
        for pid in to_end:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
