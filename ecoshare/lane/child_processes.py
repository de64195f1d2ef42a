"""Child processes of a job: the commands that launch them, and the lane that a job on a GPU keeps for them.

Whether a command is a launcher, a program that starts other processes for its work on the device, is decided here
alone. So ranks that take turns themselves can replace it later.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from ecoshare.lane import exit_records, processes
from ecoshare.lane.after_import import after_import
from ecoshare.lane.files import of_attempt, open_to_append

_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
    "horovod.runner.launch": "horovodrun",
}
"""Names of launchers by the module that `python -m` runs."""

_PROGRAMS = frozenset({"torchrun", "accelerate", "deepspeed", "horovodrun"})
"""File names of launchers. A script such as `deepspeed.py` is the user's own."""

_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables that give a process its number among those that train together."""

_BEFORE = frozenset({"env", "exec", "nice", "nohup", "stdbuf", "time"})
"""Programs that run the command after them."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_WITH_VALUE = frozenset({"-W", "-X"})
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&"})


def launcher_of(script: str | None, module: str | None, args: Sequence[str]) -> str:
    """Name of the launcher that a Python program is, such as `torchrun`; empty if it is none that is known.

    Args:
        script: Path of the script; None if `module` names a module to run as `python -m` would.
        module: Name of the module; None for a script.
        args: Arguments of the program.
    """
    if script is None:
        name = _MODULES.get(module or "", "")
    else:
        name = PurePath(script).name
        name = name if name in _PROGRAMS else ""
    has_commands = name == "accelerate" and module != "accelerate.commands.launch"
    return "" if has_commands and list(args[:1]) != ["launch"] else name


def launcher_in(command: str | Sequence[str]) -> str:
    """Name of the launcher that a command line starts; empty if it starts none that is known.

    Args:
        command: Words, or one text for a shell.
    """
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            return ""
        return next(filter(None, map(_launcher, _commands(words))), "")
    return _launcher(list(command))


def rank_in(environment: Mapping[str, str] | None) -> str:
    """Variable that makes a child process a rank; empty if there is none.

    Args:
        environment: Environment of the child; None for that of this process, which makes no rank.
    """
    given = environment or {}
    return next((name for name in _RANK_VARIABLES if name in given and given[name] != os.environ.get(name)), "")


def _commands(words: Sequence[str]) -> list[list[str]]:
    """Commands of a shell's text, each without what separates it from the next one."""
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _SEPARATORS:
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _launcher(words: list[str]) -> str:
    while words and (PurePath(words[0]).name in _BEFORE or "=" in words[0] or words[0].startswith("-")):
        words = words[1:]
    if not words:
        return ""
    program, rest = PurePath(words[0]).name, words[1:]
    if program in _SHELLS:
        return launcher_in(rest[1]) if len(rest) > 1 and rest[0].endswith("c") and rest[0].startswith("-") else ""
    if not _PYTHON.fullmatch(program):
        return launcher_of(words[0], None, rest)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[2:] if rest[0] in _WITH_VALUE else rest[1:]
    if rest[:1] == ["-m"]:
        return launcher_of(None, rest[1], rest[2:]) if len(rest) > 1 else ""
    return launcher_of(rest[0], None, rest[1:]) if rest else ""


_HELPERS = ("torch.utils.data.", "torchdata.", "multiprocessing.managers")
"""Beginnings of the names of modules with functions that run in child processes and leave the device alone."""


def watch_child_starts(before_start: Callable[[str], None]) -> None:
    """Watch the starts of child processes from now on.

    ::

        multiprocessing, by spawn or forkserver   each process, but no worker of a `DataLoader` or server of a manager
        subprocess                                a launcher, and a rank: its environment gives it a number

    A child that multiprocessing forks is not seen here. Such a child can use the device only if its parent does not,
    and runs the calls that wait for the first use of CUDA in its parent's place. Other programs show only on the device
    itself.

    Args:
        before_start: Called before the start of a child that will use the device, with the reason in words.
    """
    after_import("multiprocessing.process", functools.partial(_wrap_multiprocessing, before_start))
    after_import("subprocess", functools.partial(_wrap_subprocess, before_start))


def _wrap_multiprocessing(before_start: Callable[[str], None]) -> None:
    from multiprocessing.process import BaseProcess

    start = BaseProcess.start

    @functools.wraps(start)
    def start_watched(process: BaseProcess) -> None:
        if (method := _start_method(process)) in ("spawn", "forkserver") and not _helps(process):
            before_start(f"it starts processes with multiprocessing ({method})")
        start(process)

    BaseProcess.start = start_watched  # type: ignore[method-assign, assignment]


def _start_method(process: Any) -> str:
    """How `multiprocessing` starts a process: by its class, else as the script or the system has chosen for all."""
    own = getattr(process, "_start_method", None)
    if own is not None:
        return str(own)
    import multiprocessing

    return multiprocessing.get_start_method()


def _helps(process: Any) -> bool:
    """Whether a process of `multiprocessing` loads data or keeps values for other processes."""
    module = getattr(getattr(process, "_target", None), "__module__", None) or ""
    return str(module).startswith(_HELPERS)


def _wrap_subprocess(before_start: Callable[[str], None]) -> None:
    from subprocess import Popen

    start = Popen.__init__

    @functools.wraps(start)
    def start_watched(process: Any, args: Any, *more: Any, **options: Any) -> None:
        if launcher := launcher_in(_words(args)):
            before_start(f"it starts {launcher}")
        elif variable := rank_in(options.get("env")):
            before_start(f"it starts processes with {variable} in their environment")
        start(process, args, *more, **options)

    Popen.__init__ = start_watched  # type: ignore[method-assign, assignment]


def _words(args: Any) -> str | Sequence[str]:
    """Arguments of `Popen` as text; empty if `Popen` will refuse them."""
    try:
        if isinstance(args, str | bytes | os.PathLike):
            return os.fsdecode(args)
        return [os.fsdecode(word) for word in args] if isinstance(args, Sequence) else ""
    except TypeError:
        return ""


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

    The children have no hooks, so nothing between their iterations could hand the turn over. The process of the job
    takes the turn for them, and offers it no more:

    ::

        launcher                        ──────────────────► begin          before the script
        spawn, subprocess of a rank     ──child_starts────► begin          before the child starts
        forked child, or another thread ──KEEP_LANE───────► the main thread begins; the child waits meanwhile
        child that was seen on the GPU  ──KEEP_LANE───────► the main thread begins; the child has run for a second

    No two threads or processes may use the turn at once, so all other threads ask the main thread. A note in the folder
    of the job tells the controller.

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


def kept_lane_reason(folder: Path, attempt: int) -> str:
    """Reason, in words, why an attempt keeps its lane; empty if it does not."""
    return exit_records.last_line(note_path(folder, attempt))
