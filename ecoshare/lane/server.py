"""The warm server: imports torch once, forks a process for each job, and supervises them all.

::

    controller ◄── Ready, Launched, Ended ──── server ──fork──► job   (script as __main__)
               ─── Launch, Move, Stop ───────►   │    ──fork──► job
                                                 │    ──fork, exec──► job in a fresh interpreter
                                                 │
                               pidfds: record the end, free the slots, grant the turn again
                               every 250 ms: memory, hang limits, graces

One thread, and no operation of torch ever runs here: a process that has started threads cannot be forked safely.
A forked job leaves the loop by an exception-free path, up to `main`, so that the script runs at the bottom of a clean
stack and the interpreter ends as ever.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ecoshare.lane import boot, leaving, messages, processes, records, runner, warmth
from ecoshare.lane.attempt import Attempt, Place
from ecoshare.lane.messages import Launch, Launched, Message, Move, NotLaunched, NotMoved, Ready, Stop, Trouble
from ecoshare.lane.table import LaneTable, lane_path

_TICK_S = 0.25
ADDED_ENVIRONMENT = "ECOSHARE_ADDED"
"""Names that the controller added to this process's environment, joined by commas.

They are for libraries that read them while they load. A forked job does not see them; a fresh interpreter needs them.
"""


def main(args: list[str]) -> None:
    """Serve the controller at the other end of the socket `args[0]`; in a forked child, run its job."""
    channel = socket.socket(fileno=int(args[0]))
    supervisor = Supervisor(channel)
    launch = supervisor.serve()
    if launch is not None:
        del supervisor
        _run(launch)


def _run(launch: Launch) -> None:
    """In a forked child: run its job, and end the process."""
    loaded = frozenset(sys.modules)
    try:
        runner.run(launch, forked=True)
        status = None
    except SystemExit as end:
        status = end.code
    if launch.device == "cpu":  # CUDA's own exit is not to be skipped
        leaving.leave(status, loaded)
    raise SystemExit(status)


@dataclass
class Supervisor:
    """Forks, watches and reaps the jobs of a run."""

    channel: socket.socket
    added: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    tables: dict[str, LaneTable] = field(default_factory=dict)

    def serve(self) -> Launch | None:
        """Work until the controller closes the channel: None then, or, in a forked child, what it must run."""
        self._warm_up()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.channel, selectors.EVENT_READ)
        pending = b""
        while True:
            for key, _ in self._selector.select(_TICK_S):
                if key.fileobj is not self.channel:
                    self._reap(self.attempts[key.data])
                    continue
                received = self._receive()
                if not received:
                    self._shut_down()
                    return None
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    launch = self._obey(messages.decode(line))
                    if launch is not None:
                        return launch
            now_s = time.monotonic()
            for attempt in self.attempts.values():
                attempt.watch(now_s)

    def _receive(self) -> bytes:
        """More of the controller's messages; nothing where it is gone."""
        try:
            return self.channel.recv(1 << 16)
        except ConnectionResetError:  # it died with messages of ours unread
            return b""

    def _warm_up(self) -> None:
        began_s = time.monotonic()
        import torch
        import torch._dynamo  # imported by the first optimizer otherwise, a second for every job
        import torch.utils.data

        # Only now: libraries have read them while they were loaded, and no job of the user's is to see them.
        names = filter(None, os.environ.pop(ADDED_ENVIRONMENT, "").split(","))
        self.added = {name: os.environ.pop(name) for name in names}
        gc.collect()
        gc.freeze()  # what is loaded now is never garbage: no collection in a child need touch, and so copy, it
        self._send(Ready(os.getpid(), torch.__version__, torch.get_num_threads(), time.monotonic() - began_s))

    def _obey(self, message: Message) -> Launch | None:
        if isinstance(message, Launch):
            return self._launch(message)
        if isinstance(message, Stop | Move):
            for attempt in self.attempts.values():
                if (attempt.launch.job, attempt.launch.attempt) == (message.job, message.attempt):
                    self._ask(attempt, message)
        return None

    def _ask(self, attempt: Attempt, message: Stop | Move) -> None:
        if isinstance(message, Stop):
            attempt.ask_to_end(message)
            return
        try:
            table = self._table(str(lane_path(Path(attempt.place.table.path).parent, message.lane)))
        except (OSError, ValueError) as error:
            self._send(NotMoved(message.command, str(error)))
            return
        attempt.go_on(table, message)

    def _launch(self, launch: Launch) -> Launch | None:
        """Start a job; returns only in the child, and what it must run."""
        why = warmth.why_fresh(launch)
        python = launch.python or sys.executable
        try:
            if why and not os.access(python, os.X_OK):
                raise FileNotFoundError(f"{python} is not an interpreter that can be run")
            places = [Place(self._table(path), slot, launch.command) for path, slot in launch.tables]
            outputs = _open_outputs(Path(launch.folder), launch.attempt)
            parent = os.getpid()
            pid = os.fork()
        except (OSError, ValueError) as error:
            self._send(NotLaunched(launch.command, str(error)))
            return None
        if pid == 0:
            processes.die_with_parent(parent)
            self._become_job(outputs)
            if why:
                _replace(launch, python, self.added)
            return launch
        for output in outputs:
            os.close(output)
        attempt = Attempt(launch, pid, os.pidfd_open(pid), places)
        self.attempts[pid] = attempt
        self._selector.register(attempt.pidfd, selectors.EVENT_READ, pid)
        self._send(Launched(launch.command, pid, why is None, why or ""))
        return None

    def _table(self, path: str) -> LaneTable:
        if path not in self.tables:
            self.tables[path] = LaneTable(path)
        return self.tables[path]

    def _become_job(self, outputs: tuple[int, int]) -> None:
        """In the child: drop what is the supervisor's, and be a session of its own."""
        os.setsid()
        self._selector.close()
        self.channel.close()
        for attempt in self.attempts.values():
            os.close(attempt.pidfd)
        for table in self.tables.values():
            table.close()
        for target, handle in zip((1, 2), outputs, strict=True):
            os.dup2(handle, target)
            os.close(handle)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _reap(self, attempt: Attempt) -> None:
        _, status, used = os.wait4(attempt.pid, 0)
        if os.WIFSIGNALED(status) and self._abandoned():
            return  # killed with the run by the guard: not an end of the job's own
        processes.kill_group(attempt.pid, reaped=True)  # DataLoader workers outlive their parent by seconds
        ended = attempt.ended(status, used)
        attempt.free()
        self._selector.unregister(attempt.pidfd)
        os.close(attempt.pidfd)
        del self.attempts[attempt.pid]
        try:
            records.write(Path(attempt.launch.folder), ended)
        except OSError as error:
            self._send(Trouble(f"the end of {ended.job} cannot be recorded: {error}"))
            return
        self._send(ended)

    def _abandoned(self) -> bool:
        """Whether the controller is gone."""
        poll = select.poll()
        poll.register(self.channel, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _shut_down(self) -> None:
        """The controller is gone: so is the run. Ends are not recorded, so that every job here runs again."""
        for attempt in self.attempts.values():
            processes.kill_group(attempt.pid, attempt.mps)

    def _send(self, message: Message) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone; the loop will see it
            self.channel.sendall(messages.encode(message))


def _open_outputs(folder: Path, attempt: int) -> tuple[int, int]:
    """Files that the job writes to directly; those of an earlier attempt are kept under its number."""
    handles = []
    for name in ("stdout", "stderr"):
        path = folder / f"{name}.log"
        if attempt > 1 and path.exists():
            path.replace(folder / f"{name}.attempt-{attempt - 1}.log")
        handles.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    return handles[0], handles[1]


def _replace(launch: Launch, python: str, added: dict[str, str]) -> None:
    """In the child: become a fresh interpreter that runs the job."""
    try:
        source = os.memfd_create("launch", 0)  # values of `env` must not reach a command line or a file
        os.write(source, messages.encode(launch))
        os.lseek(source, 0, os.SEEK_SET)
        environment = {**added, **os.environ}
        for name, value in launch.env.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        only_for_torch = [name for name in added if name not in launch.env]
        line = boot.command("ecoshare.lane.fresh", str(source), *only_for_torch, python=python)
        os.execve(python, line, environment)
    except OSError as error:
        os.write(2, f"ecoshare: {python} cannot be started: {error}\n".encode())
        os._exit(127)
