"""The process of a fused lane: one thread for each job. Only the job with the turn runs.

::

    supervisor ──LaunchAttempt──► main thread ──► FusedThread(job A)   waits ─ back ─ script ─ out ─ waits ─ ...
               ◄──Left─────────────────────────── FusedThread(job B)   waits .................. back ─ script ─ ...

The main thread sleeps in a read and runs no code of a script. A job without the turn sleeps in the lane's table, and so
does a service without requests (`fused_service.py`). One thread at a time runs code of a script. State that a script
expects to own alone changes hands with the turn (`process_state.py`). Calls that need a process of their own are
refused, and the job is moved out to such a process.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import functools
import gc
import locale
import multiprocessing
import multiprocessing.process
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from os import _exit, sched_setaffinity
from pathlib import Path
from typing import Any, NoReturn

import numpy
import torch
import torch.distributed

from ecoshare.errors import exit_code
from ecoshare.lane import hooks, messages, processes, runner
from ecoshare.lane.device_sync import empty_cache
from ecoshare.lane.files import open_outputs
from ecoshare.lane.fused.fused_service import FusedService
from ecoshare.lane.fused.process_state import Process, ProcessState
from ecoshare.lane.hooked_job import HookedJob
from ecoshare.lane.messages import LaunchAttempt, Left, NotLaunched
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.turn import Leaving

_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Exits:
    """The `atexit` functions of each job, kept apart."""

    def __init__(self, current_job: Callable[[], object | None]) -> None:
        """Replace `atexit.register` and `atexit.unregister`.

        Args:
            current_job: Returns the job of the calling thread; None for a thread of no job.
        """
        self._current_job = current_job
        self._calls: dict[object, list[_Call]] = {}
        self._register, self._unregister = atexit.register, atexit.unregister
        atexit.register = self._keep  # type: ignore[assignment]
        atexit.unregister = self._drop

    def run(self, job: object) -> None:
        """Call the functions of a job, the last registered first. Print each exception and go on with the next.

        Raises:
            Leaving: If the job must leave the process. The remaining functions are not called.
        """
        calls = self._calls.pop(job, [])
        while calls:
            function, args, arguments = calls.pop()
            try:
                function(*args, **arguments)
            except Leaving:
                raise
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
            calls += self._calls.pop(job, [])

    def forget(self, job: object) -> None:
        """Drop the functions of a job that were not called."""
        self._calls.pop(job, None)

    def _keep(self, function: Callable[..., Any], *args: Any, **arguments: Any) -> Callable[..., Any]:
        job = self._current_job()
        if job is None:
            return self._register(function, *args, **arguments)
        self._calls.setdefault(job, []).append((function, args, arguments))
        return function

    def _drop(self, function: Callable[..., Any]) -> None:
        job = self._current_job()
        if job is None:
            self._unregister(function)
        elif job in self._calls:
            self._calls[job] = [call for call in self._calls[job] if call[0] != function]


_REFUSED: tuple[tuple[Any, str, str], ...] = (
    *((signal, name, "handles signals") for name in ("signal", "setitimer", "alarm", "set_wakeup_fd")),
    *((os, name, "forks its process") for name in ("fork", "forkpty")),
    (multiprocessing.process.BaseProcess, "start", "starts processes (of a DataLoader, say)"),
    (threading.Thread, "start", "starts a thread"),
    (_thread, "start_new_thread", "starts a thread"),
    (torch, "compile", "compiles a model"),
    (torch, "set_num_interop_threads", "sets the threads between operators"),
    (torch.distributed, "init_process_group", "trains together with other processes"),
    (os, "umask", "sets the umask"),
    (os, "closerange", "closes files that it has not opened"),
    (numpy.random, "set_bit_generator", "gives numpy another generator"),
    (os, "_exit", "ends its process at once"),
    *((os, name, "becomes another program") for name in ("execv", "execve")),
    (multiprocessing, "set_start_method", "says how processes start"),
    (time, "tzset", "sets the time zone"),
    (os, "sched_setaffinity", "chooses its processors"),
    (resource, "setrlimit", "sets limits of its process"),
)
"""Owner and name of each function, and what a script does that calls it."""


def refuse(move_out: Callable[[str], None]) -> None:
    """Replace the refused functions: each one first calls `move_out` with what the script does.

    Args:
        move_out: Takes a text such as "starts a thread". It raises in the thread of a job, and returns in any other.
    """
    for owner, name, what in _REFUSED:
        if hasattr(owner, name):
            setattr(owner, name, _refusing(getattr(owner, name), what, move_out))
    locale.setlocale = _unless_only_asked(locale.setlocale, move_out)
    os.close = _but_for_streams(os.close, 0, move_out)
    os.dup2 = _but_for_streams(os.dup2, 1, move_out)


def _refusing(function: Callable[..., Any], what: str, move_out: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def refusing(*args: Any, **arguments: Any) -> Any:
        move_out(what)
        return function(*args, **arguments)

    return refusing


def _but_for_streams(function: Callable[..., Any], place: int, move_out: Callable[[str], None]) -> Callable[..., Any]:
    """Refuse calls of `function` in which the argument at `place` is the descriptor of a standard stream."""

    @functools.wraps(function)
    def refusing(*args: Any, **arguments: Any) -> Any:
        if len(args) > place and args[place] in (0, 1, 2):
            move_out("gives its standard streams away")
        return function(*args, **arguments)

    return refusing


def _unless_only_asked(setlocale: Callable[..., str], move_out: Callable[[str], None]) -> Callable[..., str]:
    @functools.wraps(setlocale)
    def refusing(category: int, wanted: Any = None) -> str:
        if wanted is not None:
            move_out("sets the locale")
        return setlocale(category, wanted)

    return refusing


_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_GIB = 1 << 30
_WORTH_TRIMMING_BYTES = 32 << 20
_MOST_LEFT_SHARE, _MOST_LEFT_BYTES = 0.25, 256 << 20
"""Limit of the memory that finished jobs leave behind: a share of the memory that all jobs have in common, or bytes,
whichever is more. Above it the process takes no more jobs."""


_MOST_HANDLES, _HANDLES_OF_A_JOB = 64, 16


class Growth:
    """Memory of the process: its resident set; from the first use of CUDA on, the memory of tensors there.

    One job runs at a time, so the growth of the process during a turn belongs to that turn's job. Another job may use
    memory that the first has freed before the process gives it back. So the figures are accurate to some ten megabytes.
    """

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._on_device = False
        self._common_bytes = self._now_bytes = self._bytes()
        self._jobs: dict[object, _Job] = {}
        self._left_bytes = 0
        self._ended = 0
        self._handles = _handles()

    def enter(self, job: object) -> None:
        """Add a job, which has no memory yet."""
        self._jobs[job] = _Job()

    def look(self, job: object) -> None:
        """Add the growth of the process since the last look to the job that runs."""
        if not self._on_device and _uses_device():
            self._on_device = True
            self._common_bytes = self._left_bytes = self._now_bytes = 0
            for each in self._jobs.values():
                each.has_bytes = each.peak_bytes = 0
        here, now_bytes = self._jobs[job], self._bytes()
        here.has_bytes += now_bytes - self._now_bytes
        here.peak_bytes = max(here.peak_bytes, here.has_bytes)
        self._now_bytes = now_bytes

    def too_large(self, job: object, process_bytes: int) -> str:
        """Reason why the job with the turn may not stay in the process; empty if it may.

        Args:
            job: The job with the turn.
            process_bytes: Most memory of the process. Above it the largest job must go.
        """
        self.look(job)
        here = self._jobs[job]
        if self._now_bytes > process_bytes and here is max([*self._jobs.values()], key=lambda each: each.has_bytes):
            total, most = self._now_bytes / _GIB, process_bytes / _GIB
            return f"it is the largest of a process that has {total:.2f} GiB of memory and may have {most:.2f} GiB"
        return ""

    def on_device_bytes(self, job: object) -> tuple[int, int]:
        """Peak and present device memory (bytes) of a job, with what all jobs have in common; 0 on processors."""
        if not self._on_device:
            return 0, 0
        return self.peak_bytes(job), self._common_bytes + self._jobs[job].has_bytes

    def peak_bytes(self, job: object) -> int:
        """Peak memory (bytes) of a job, with the memory that all jobs have in common."""
        return self._common_bytes + self._jobs[job].peak_bytes

    def settle(self, job: object) -> None:
        """Let the process give back freed memory. The job is over and has its last turn."""
        self.look(job)
        if self._on_device:  # the slot of the job is about to be free, and with it the memory of its cache
            empty_cache("cuda")
        if self._jobs[job].has_bytes > _WORTH_TRIMMING_BYTES:
            empty_cache("cpu")
        self.look(job)

    def leave(self, job: object) -> bool:
        """Remove a finished job. Return whether it left too much memory or too many open files for another to come."""
        left_bytes = self._jobs.pop(job).has_bytes
        if not self._ended:  # the first job has loaded what all jobs use
            self._common_bytes += max(0, left_bytes)
        else:
            self._left_bytes += left_bytes
        self._ended += 1
        if _handles() - self._handles > _MOST_HANDLES + _HANDLES_OF_A_JOB * len(self._jobs):
            return True
        return self._left_bytes > max(_MOST_LEFT_BYTES, int(_MOST_LEFT_SHARE * self._common_bytes))

    def _bytes(self) -> int:
        if self._on_device:
            return int(sys.modules["torch"].cuda.memory_allocated())
        return int(os.pread(self._statm, 100, 0).split()[1]) * _PAGE_BYTES


def _handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _uses_device() -> bool:
    return bool(sys.modules["torch"].cuda.is_initialized())


class _Job:
    """Present and peak memory of one job."""

    __slots__ = ("has_bytes", "peak_bytes")

    def __init__(self) -> None:
        self.has_bytes = self.peak_bytes = 0


_LOOK_S = 0.05
"""Shortest time (s) between two looks at the memory of a job."""

_getcpu = ctypes.CDLL(None).sched_getcpu

_TERMINATED = 143
"""Exit code of a job that was asked to end: the code of a process that SIGTERM ended."""


class FusedProcess:
    """The process of a fused lane, seen from inside."""

    def __init__(self, channel: socket.socket) -> None:
        """Prepare this process, in which no script has run yet.

        Args:
            channel: Socket to the supervisor.
        """
        hooks.install()  # before any job has hooks of its own
        self._channel = channel
        self._sending = threading.Lock()
        self._tables: dict[str, LaneTable] = {}
        self._trials: dict[int, FusedThread] = {}  # key: thread identifier
        self._places: dict[tuple[str, int], FusedThread] = {}  # key: path of the table, slot
        self.process = Process()
        self.growth = Growth()
        self.processors = os.sched_getaffinity(0)
        self.exits = Exits(self._here)
        refuse(self._move_out)

    def serve(self) -> None:
        """Start the jobs that the supervisor sends. Exit when it closes the channel."""
        pending = b""
        while received := self._channel.recv(1 << 16):
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                launch = messages.decode(line)
                assert isinstance(launch, LaunchAttempt)
                self._start(launch)
        _exit(0)

    def _start(self, launch: LaunchAttempt) -> None:
        try:
            if launch.device == "cuda" and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                self._use_cuda(launch)
            for path, _ in launch.tables:
                # One table for all threads: a file lock belongs to the process, the lock inside the table to a thread.
                if path not in self._tables:
                    self._tables[path] = LaneTable(path)
            handles = open_outputs(Path(launch.folder), launch.attempt)
            trial = FusedThread(self, launch, self._tables, self.process.new(handles))
            threading.Thread(target=self._run, args=(trial,), name="MainThread", daemon=True).start()
        except Exception as error:
            self.say(NotLaunched(launch.command, str(error)))

    def _use_cuda(self, launch: LaunchAttempt) -> None:
        """Initialise CUDA before the first job. torch would keep a seed set earlier, and apply it to every job."""
        os.environ.update({name: value for name, value in launch.env.items() if name.startswith("CUDA") and value})
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self.process = Process()

    def _run(self, trial: FusedThread) -> None:
        here = threading.get_ident()
        trial.thread = threading.get_native_id()
        processes.name_thread(trial.name)
        self._trials[here] = self._places[trial.place] = trial
        try:
            left = trial.run()
        except BaseException:
            # An error of ecoshare. The supervisor can repair what a dead process leaves, but not a process that hangs.
            traceback.print_exc(file=sys.__stderr__)
            _exit(70)
        del self._trials[here], self._places[trial.place]
        self.say(left)

    def say(self, message: messages.Message) -> None:
        """Send a message to the supervisor. Do nothing if the supervisor is gone."""
        with self._sending, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.sendall(messages.encode(message))

    def at(self, table: str, slot: int | None) -> FusedThread | None:
        """Thread of the job in a slot of a table; None if that job is not in this process."""
        return None if slot is None else self._places.get((table, slot))

    def _here(self) -> FusedThread | None:
        return self._trials.get(threading.get_ident())

    def _move_out(self, what: str) -> None:
        trial = self._here()
        if trial is not None:
            trial.move_out(f"it {what}", unfit=True)


class FusedThread:
    """A job in its thread. It puts its state aside when the turn goes (`lane/turn.py`).

    Attributes:
        name: Name of the job.
        place: Path of the lane's table, and the job's slot there.
        thread: Thread id of the kernel; 0 before the thread runs.
    """

    def __init__(
        self, host: FusedProcess, launch: LaunchAttempt, tables: Mapping[str, LaneTable], state: ProcessState
    ) -> None:
        self._host, self._launch, self._state = host, launch, state
        job = HookedJob if launch.service is None else FusedService
        self._job: HookedJob = job(launch, tables, self)
        self.name = launch.job
        self.place = launch.tables[0][0], launch.tables[0][1]
        self._moved_out = ""
        self._is_leaving = self._unfit = self._is_over = False
        self._spent_s = self._since_s = 0.0
        self._looked_s = 0.0
        self.thread = 0
        self._is_drawn = False  # whether it must wake up on another thread's processor
        host.growth.enter(self)

    def run(self) -> Left:
        """Run the job, from the wait for its first turn to the end of its last. Return the message of its end."""
        launch, growth = self._launch, self._host.growth
        try:
            self._job.take()
            code = self._script()
        except Leaving:
            code = _TERMINATED
        code = self._close(code)
        peak_bytes, retires = growth.peak_bytes(self), growth.leave(self)
        return Left(launch.command, code, self._moved_out, self._unfit, peak_bytes, retires)

    def _script(self) -> int:
        """Run the script and return its exit code."""
        try:
            self._job.hear()
            runner.dress(self._launch)
            runner.reseed()
            random.seed()
            self._job.watch_torch()
            runner.execute(self._launch, self._job)
        except SystemExit as end:
            try:
                return exit_code(end.code)
            except Exception:  # the script's own stderr, or the object to print, raises
                return 1
        except Leaving:
            raise
        except BaseException:  # an error in the script's own `sys.excepthook`, for example
            traceback.print_exc(file=sys.__stderr__)
            return 1
        return 0

    def _close(self, code: int) -> int:
        """Do what an interpreter does at its end, while the job has the turn. Return the final exit code."""
        self._job.finish()
        try:
            if not self._is_leaving:
                self._host.exits.run(self)
        except Leaving:
            code = _TERMINATED
        self._host.exits.forget(self)
        self._host.process.clear(self._state)
        for stream in (sys.stdout, sys.stderr, *self._state.streams):
            try:
                stream.flush()
            except Exception:  # a full disk, or the script has closed or replaced the stream
                code = code or 120
        self._host.process.end(self._state)
        self._host.growth.settle(self)
        self._is_over = True
        self._job.leave()
        self._job.close()
        return code

    def out(self) -> None:
        """Put the job's state aside: the turn is about to go."""
        if self._is_over:  # the process has its first state already
            return
        self._spent_s += time.process_time() - self._since_s
        self._host.growth.look(self)
        self._host.process.read(self._state)

    def before_wake(self, slot: int | None) -> None:
        """Let the next thread wake up on this processor, which this thread is about to leave.

        Otherwise it would wake up 90 us later (measured), on a processor that sleeps and has not run this process.
        """
        other = self._host.at(self.place[0], slot)
        if other is not None:
            other.wake_here()

    def wake_here(self) -> None:
        """Let this thread wake up on the processor of the calling thread."""
        self._is_drawn = True
        with contextlib.suppress(OSError):  # the thread may not be allowed on it
            sched_setaffinity(self.thread, (_getcpu(),))

    def back(self) -> None:
        """Restore the job's state: the job has the turn."""
        if self._is_drawn:
            self._is_drawn = False
            with contextlib.suppress(OSError):
                sched_setaffinity(0, self._host.processors)
        self._since_s = time.process_time()
        why = ""
        try:
            self._host.process.write(self._state)
        except OSError as error:
            why = str(error)
        self._job.go_on()
        if why:
            self.move_out(why)

    def processor_s(self) -> float:
        """Processor time (s) of the process during the turns of this job."""
        return self._spent_s + time.process_time() - self._since_s

    def boundary(self) -> None:
        """Look between two iterations whether the job may stay in the process.

        Raises:
            Leaving: If the job may not stay, or is leaving already.
        """
        if self._is_leaving:  # the script has caught an earlier `Leaving`
            raise Leaving
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            why = self._host.growth.too_large(self, self._launch.process_bytes)
            self._job.tell_memory(*self._host.growth.on_device_bytes(self))
            if why:
                self.move_out(why)

    def stop(self) -> None:
        """End the job, which was asked to end, unless it ends by itself.

        Raises:
            Leaving: If it does not.
        """
        if self._job.ends_itself:
            return
        self._is_leaving = True
        raise Leaving

    def move_out(self, why: str, unfit: bool = False) -> NoReturn:
        """End the job here. It begins again in a process of its own.

        Args:
            why: Reason, as the user reads it.
            unfit: Whether every job of the script needs a process of its own.

        Raises:
            Leaving: Always.
        """
        self._is_leaving, self._unfit = True, self._unfit or unfit
        self._moved_out = self._moved_out or why
        raise Leaving


def serve(channel: socket.socket) -> None:
    """Turn a forked child into the process of a fused lane, to its end."""
    gc.freeze()
    FusedProcess(channel).serve()
