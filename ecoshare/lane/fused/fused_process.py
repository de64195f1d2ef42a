"""The process of a fused lane: a thread for each job, of which the one with the turn runs.

::

    supervisor ──Launch──► main thread ──► Trial(job A)   waits for the turn ─ back ─ script ─ out ─ waits ─ ...
               ◄──Left──────────────────── Trial(job B)   waits .............................. back ─ script ─ ...

The main thread sleeps in a read and runs nothing of a script's. A job without the turn sleeps in the lane's table. So
one thread at a time runs Python, and what scripts expect of a process of their own can change hands with the turn
(`state.py`); what cannot is refused (`refusals.py`), and the job moved out to a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from os import _exit, sched_setaffinity
from pathlib import Path

import torch

from ecoshare.lane import hooks, messages, runner
from ecoshare.lane.files import open_outputs
from ecoshare.lane.fused.exits import Exits
from ecoshare.lane.fused.memory_growth import Growth
from ecoshare.lane.fused.process_state import Process, ProcessState
from ecoshare.lane.fused.refusals import refuse
from ecoshare.lane.lane_table import LaneTable
from ecoshare.lane.messages import LaunchAttempt, Left, NotLaunched
from ecoshare.lane.process_exit import exit_code
from ecoshare.lane.turn import Leaving

_LOOK_S = 0.05
"""Between two looks at what a job has of memory."""

_getcpu = ctypes.CDLL(None).sched_getcpu

_TERMINATED = 143
"""Exit code of one that was asked to end: as of a process that SIGTERM ends."""


class FusedProcess:
    """The process, seen from inside."""

    def __init__(self, channel: socket.socket) -> None:
        """A process in which nothing of a script has run, at the supervisor's channel."""
        hooks.install()  # before any job has hooks of its own
        self._channel = channel
        self._sending = threading.Lock()
        self._tables: dict[str, LaneTable] = {}
        self._trials: dict[int, FusedThread] = {}  # by thread
        self._places: dict[tuple[str, int], FusedThread] = {}  # by table and slot
        self.process = Process()
        self.growth = Growth()
        self.processors = os.sched_getaffinity(0)
        self.exits = Exits(self._here)
        refuse(self._move_out)

    def serve(self) -> None:
        """Start what is asked for, until the supervisor closes the channel."""
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
                if (
                    path not in self._tables
                ):  # one for all threads: a lock on a file is the process's, its own a thread's
                    self._tables[path] = LaneTable(path)
            handles = open_outputs(Path(launch.folder), launch.attempt)
            trial = FusedThread(self, launch, self._tables, self.process.new(handles))
            threading.Thread(target=self._run, args=(trial,), name="MainThread", daemon=True).start()
        except Exception as error:
            self.say(NotLaunched(launch.command, str(error)))

    def _use_cuda(self, launch: LaunchAttempt) -> None:
        """Before any job: seeds that are set earlier would be kept for the process, whoever's they are."""
        os.environ.update({name: value for name, value in launch.env.items() if name.startswith("CUDA") and value})
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self.process = Process()

    def _run(self, trial: FusedThread) -> None:
        here = threading.get_ident()
        trial.thread = threading.get_native_id()
        self._trials[here] = self._places[trial.place] = trial
        try:
            left = trial.run()
        except BaseException:  # of ours: the supervisor mends what a dead process leaves, and none that stands still
            traceback.print_exc(file=sys.__stderr__)
            _exit(70)
        del self._trials[here], self._places[trial.place]
        self.say(left)

    def say(self, message: messages.Message) -> None:
        """Tell the supervisor."""
        with self._sending, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.sendall(messages.encode(message))

    def at(self, table: str, slot: int | None) -> FusedThread | None:
        """The trial in a slot of a table, if it is one of this process."""
        return None if slot is None else self._places.get((table, slot))

    def _here(self) -> FusedThread | None:
        return self._trials.get(threading.get_ident())

    def _move_out(self, what: str) -> None:
        trial = self._here()
        if trial is not None:
            trial.move_out(f"it {what}", unfit=True)


class FusedThread:
    """A job in its thread, which puts its state aside when the turn goes (`turn.Swap`).

    Attributes:
        place: Its lane's table and its slot there.
        thread: As the kernel numbers it.
    """

    def __init__(
        self, host: FusedProcess, launch: LaunchAttempt, tables: Mapping[str, LaneTable], state: ProcessState
    ) -> None:
        self._host, self._launch, self._state = host, launch, state
        self._job = runner.HookedJob(launch, tables, self)
        self.place = launch.tables[0][0], launch.tables[0][1]
        self._moved_out = ""
        self._is_leaving = self._unfit = False
        self._spent_s = self._since_s = 0.0
        self._looked_s = 0.0
        self.thread = 0
        self._is_drawn = False  # to wake up on the processor of another
        host.growth.enter(self)

    def run(self) -> Left:
        """From the wait for the first turn to the end of the last."""
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
        """Run the script; its exit code."""
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
            except Exception:  # its own stderr, or what it wants printed
                return 1
        except Leaving:
            raise
        except BaseException:  # of its own `sys.excepthook`, say
            traceback.print_exc(file=sys.__stderr__)
            return 1
        return 0

    def _close(self, code: int) -> int:
        """What an interpreter does at its end, with the turn; the exit code after that."""
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
            except Exception:  # a full disk; closed, or made something else, by the script
                code = code or 120
        self._host.process.end(self._state)
        self._host.growth.settle(self)
        self._job.leave()
        self._job.close()
        return code

    def out(self) -> None:
        """The turn goes."""
        self._spent_s += time.process_time() - self._since_s
        self._host.growth.look(self)
        self._host.process.read(self._state)

    def before_wake(self, slot: int | None) -> None:
        """Have the next thread wake up on this processor, which this one is about to leave.

        It would be woken on another one, which sleeps and knows nothing of the process: that takes 90 us more (tried).
        """
        other = self._host.at(self.place[0], slot)
        if other is not None:
            other.wake_here()

    def wake_here(self) -> None:
        """Wake up on the processor that the caller has."""
        self._is_drawn = True
        with contextlib.suppress(OSError):  # it may not have it
            sched_setaffinity(self.thread, (_getcpu(),))

    def back(self) -> None:
        """The turn is here."""
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
        """Processor time of the process during its turns."""
        return self._spent_s + time.process_time() - self._since_s

    def boundary(self) -> None:
        """Between two iterations: look whether it may stay."""
        if self._is_leaving:  # the script has caught the exception
            raise Leaving
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            why = self._host.growth.too_large(self, self._launch.cap_bytes, self._launch.lane_bytes)
            if why:
                self.move_out(why)

    def stop(self) -> None:
        """It was asked to end."""
        self._is_leaving = True
        raise Leaving

    def move_out(self, why: str, unfit: bool = False) -> None:
        """End here, to begin again in a process of its own.

        Args:
            unfit: Any job of its script would have to.
        """
        self._is_leaving, self._unfit = True, self._unfit or unfit
        self._moved_out = self._moved_out or why
        raise Leaving


def serve(channel: socket.socket) -> None:
    """In a forked child: be the process of a fused lane, to its end."""
    gc.freeze()
    FusedProcess(channel).serve()
