"""A job on a GPU keeps its lane to its end because its child processes use the device, too.

The children have no hooks, so nothing between their iterations could hand the turn over. The process of the job takes
the turn for them, and offers it no more:

::

    launcher                        ──────────────────► begin          before the script
    spawn, subprocess of a rank     ──child_starts────► begin          before the child starts
    forked child, or another thread ──KEEP_LANE───────► the main thread begins; the child waits meanwhile
    child that was seen on the GPU  ──KEEP_LANE───────► the main thread begins; the child has run for a second or more

No two threads or processes may use the turn at once, so all other threads ask the main thread. A note in the folder of
the job tells the controller.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ecoshare.lane import exit_records, processes
from ecoshare.lane.files import of_attempt, open_to_append

KEEP_LANE = signal.SIGRTMIN + 11
"""Signal that asks the process of a job to keep its lane. Scripts and libraries rarely use real-time signals."""

_STARTED = "a process that it has started uses the device"
_LOOK_S = 0.005
_AGAIN_S = 0.05
"""Time (s) after which an unheard request is repeated. A signal that comes when the main thread is about to wait for a
lock, but does not wait yet, does not wake it."""
_HEARS_WITHIN_S = 5.0
"""Longest time (s) for the main thread to hear a signal. Without this limit, a child would wait for ever for a main
thread that waits for the child inside of a library."""

_ASKED, _HEARD, _KEPT = 0, 1, 2
"""Places of flags in the memory that the process shares with children that it forks."""


class KeptLane:
    """Whether the job of this process keeps its lane, and the way to it.

    Attributes:
        is_asked: Whether the job must keep its lane. It offers its turn no more, and has it now or waits for it.
        is_kept: Whether the job has its turn and will have it to its end.
    """

    def __init__(self, note: Path, take: Callable[[], None]) -> None:
        """The job does not keep its lane yet.

        Args:
            note: Path for the note.
            take: Waits for the turn of every lane of the job.
        """
        self._note, self._take = note, take
        self._pid = os.getpid()
        self._flags = mmap.mmap(-1, mmap.PAGESIZE)  # anonymous: it needs no descriptor, and forked children share it
        self._why = _STARTED
        self._is_busy = False

    @property
    def is_asked(self) -> bool:
        """See the class."""
        return bool(self._flags[_ASKED])

    @property
    def is_kept(self) -> bool:
        """See the class."""
        return bool(self._flags[_KEPT])

    def listen(self) -> None:
        """Let other processes ask this one to keep its lane. Call this in the main thread."""
        signal.signal(KEEP_LANE, self._hear)

    def begin(self, why: str = _STARTED) -> None:
        """Take the turn for good. Return when the job has it.

        Args:
            why: Reason in words. The reason of the first call counts.
        """
        if self.is_kept:
            return
        if os.getpid() != self._pid:
            self._ask_process()
            return
        if not self.is_asked:
            self._why = why
        if threading.current_thread() is threading.main_thread():
            self._flags[_ASKED] = 1
            self._meet()
        else:
            self._ask_process()

    def during(self, use: Callable[[], None]) -> None:
        """Call `use`, which takes, offers or leaves the turn. A request that comes meanwhile is met right after it."""
        self._is_busy = True
        try:
            use()
        finally:
            self._is_busy = False
        if self._flags[_ASKED]:
            self._meet()

    def _hear(self, _number: int, _frame: object) -> None:
        if os.getpid() == self._pid:
            self._flags[_ASKED] = self._flags[_HEARD] = 1
            self._meet()

    def _meet(self) -> None:
        """Take the turn, unless the main thread is at it: then this call has interrupted it, and it comes back here."""
        if self._is_busy or self.is_kept:
            return
        self._is_busy = True
        try:
            self._take()
        finally:
            self._is_busy = False
        self._flags[_KEPT] = 1
        write_note(self._note, self._why)

    def _ask_process(self) -> None:
        """Ask the main thread of the job's process, and wait for it.

        Return without the turn if that thread hears nothing: its process is gone or has become another program, its
        script has set another handler, or it waits inside of a library. It then takes the turn when it can.
        """
        self._flags[_ASKED] = 1
        if not self._hears() or signal.getsignal(KEEP_LANE) != self._hear:
            return
        next_s = time.monotonic()
        until_s = next_s + _HEARS_WITHIN_S
        while not self.is_kept and self._hears() and (self._flags[_HEARD] or time.monotonic() < until_s):
            if not self._flags[_HEARD] and time.monotonic() >= next_s:
                os.kill(self._pid, KEEP_LANE)
                next_s += _AGAIN_S
            time.sleep(_LOOK_S)

    def _hears(self) -> bool:
        return processes.catches(self._pid, KEEP_LANE)


def note_path(folder: Path, attempt: int) -> Path:
    """Path of the note of an attempt, in the folder of its job. It exists as soon as the attempt keeps its lane."""
    return of_attempt(folder, "keeps-lane.txt", attempt)


def write_note(path: Path, why: str) -> None:
    """Write the note of an attempt with the reason in words. No job fails because of its note."""
    with contextlib.suppress(OSError):
        note = open_to_append(path)
        os.write(note, why.encode() + b"\n")
        os.close(note)


def reason(folder: Path, attempt: int) -> str:
    """Reason, in words, why an attempt keeps its lane; empty if it does not."""
    return exit_records.last_line(note_path(folder, attempt))
