"""Finds and ends every process of a run, whoever its parent is by now.

The supervisor is started with the run's token in its environment. What it forks keeps that environment as the kernel
shows it, and what is executed inherits it; so the token marks jobs, `DataLoader` workers and daemons alike, also those
that have left their session or lost their parent. Only a program that empties its environment on purpose escapes.

`psutil` is not used: it takes twice as long, and it ends an environment at the first empty entry, such as those that
`lane.processes.mark` leaves.
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
"""Name of the variable that marks those of them that outlive a supervisor: the run's MPS daemon."""


def members(token: str, spare: bool = False) -> list[int]:
    """Processes of the run with this token, oldest first, without this process; with `spare` without those spared."""
    mark = f"{TOKEN}={token}".encode()
    spared = f"{SPARED}=1".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue  # gone, or somebody else's
        names = environment.split(b"\0")
        if mark in names and not (spare and spared in names):
            found.append(int(entry.name))
    return sorted(found)


def end_all(token: str, limit_s: float = 5.0, spare: bool = False) -> list[int]:
    """SIGKILL the run's processes until none is found twice in a row; those left after `limit_s`, normally none.

    A process may fork between the look and the kill, hence the second look. Those that remove the shared memory of the
    others have a second to do so, and end by themselves.
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
