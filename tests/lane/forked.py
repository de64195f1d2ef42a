"""Jobs in forked processes, for tests of what several processes do to one table."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_RANK
from tests.warm import wait_for


class ForkedJobs:
    """Processes that were forked from the test."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def start(self, body: Callable[[], None]) -> int:
        """Call `body` in a process of its own; the result is the number of the process."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                body()
                code = 0
            finally:
                os._exit(code)
        self._pids.append(pid)
        return pid

    def end(self) -> None:
        """Kill the processes that are left. The number of one that was waited for may be another process's by now."""
        for pid in self._pids:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def meet(table: LaneTable) -> None:
    """Let the first process with the turn of a lane wait until another one waits for it."""
    if table.header.handovers <= 1:
        wait_for(lambda: table.header.waiting_rank != NO_RANK)


def succeed(*pids: int) -> None:
    """Wait for processes, which must end well."""
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
