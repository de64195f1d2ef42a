"""Processes that jobs leave behind: daemons, and children in sessions of their own.

::

    server ─┬─ job ─── child (setsid)         the job ends       server ─┬─ other job
            └─ other job                     ────────────►               └─ child: it ends now

The server is the nearest subreaper of all jobs (`PR_SET_CHILD_SUBREAPER`), so the kernel gives it every process that
has lost its parent. Such an orphan ends with the attempt that has started it. The environment tells which one that is,
or the name of a fork. An orphan that tells nothing ends when every attempt has ended that ran when it was first seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from ecoshare.lane import processes

_PR_SET_CHILD_SUBREAPER = 36

Owner = tuple[str, int]
"""Name of a job, and number of its attempt."""


class Orphans:
    """Orphans of a server. The process that makes this object becomes the subreaper."""

    def __init__(self) -> None:
        """Get all processes that lose their parent from now on."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._spared = set(processes.children())
        self._owners: dict[int, frozenset[Owner]] = {}

    def look(
        self, own: Iterable[int], running: Collection[Owner], ended: Collection[Owner] = (), mps: str | None = None
    ) -> None:
        """Wait for orphans that have ended, and end those of attempts that run no more.

        Args:
            own: Process ids of jobs and of other children that the server has started itself.
            running: Attempts that have not ended.
            ended: Attempts that have ended since the last look.
            mps: Pipe folder of the MPS daemon of which they may be clients; see `processes.kill_group`.
        """
        orphans = set(processes.children()) - self._spared - set(own)
        if not orphans:
            self._owners.clear()
            return
        left = {pid for pid in orphans if not _has_ended(pid)}
        self._owners = {pid: self._owners.get(pid) or _owners(pid, {*running, *ended}) for pid in left}
        for pid, owners in self._owners.items():
            if owners.isdisjoint(running) and not processes.cleans_up(pid):
                processes.kill_family(pid, mps)


def _has_ended(pid: int) -> bool:
    """Whether a child has ended. It is waited for then."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _owners(pid: int, running: Collection[Owner]) -> frozenset[Owner]:
    """Attempts that may have started an orphan."""
    with contextlib.suppress(OSError, ValueError):
        begun = dict(each.split(b"=", 1) for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if each)
        if (job := begun.get(b"ECOSHARE_JOB")) is not None:
            return frozenset({(job.decode(), int(begun[b"ECOSHARE_ATTEMPT"]))})
    with contextlib.suppress(OSError):
        shown = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
        named = shown.removeprefix("ecoshare: ").partition(":")[0].partition(" ")[0]
        if shown.startswith("ecoshare: ") and (found := frozenset(each for each in running if each[0] == named)):
            return found
    return frozenset(running)
