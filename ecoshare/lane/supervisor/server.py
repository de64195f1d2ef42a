"""The warm server: imports torch once, forks a process for each job, and supervises them all.

::

    controller ◄── Ready, Launched, Ended ──────────── server ──fork──► job   (script as __main__)
               ─── LaunchAttempt, MoveAttempt, ──────►   │    ──fork──► job
                   KeepLane, StopAttempt, PrepareForks   │    ──fork, exec──► job in a fresh interpreter
                                                         │    ──fork──► process of a fused lane: a thread for each job
                                                         │
                                       pidfds: record the end, free the slots, grant the turn again
                                       every 250 ms: memory, hang limits, grace periods

The server has one thread and never runs an operation of torch: a process that has started threads cannot be forked
safely. A forked job leaves the loop up to `main` without an exception. So the script runs at the bottom of a clean
stack, and the interpreter ends as usual.
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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ecoshare.lane import exit_records, interpreter, messages, own_memory, processes, runner
from ecoshare.lane.confinement import confine, match_threads
from ecoshare.lane.files import open_outputs
from ecoshare.lane.messages import (
    Ended,
    KeepLane,
    LaunchAttempt,
    Launched,
    Left,
    Message,
    MoveAttempt,
    NotLaunched,
    NotMoved,
    PrepareForks,
    Ready,
    StopAttempt,
)
from ecoshare.lane.processes import Orphans, Owner
from ecoshare.lane.supervisor import warm_start
from ecoshare.lane.supervisor.attempt_process import AttemptProcess, FusedProcessHandle, Gang, PreparedSlot, place_of
from ecoshare.lane.supervisor.gang import count_of, has_first, keep_outputs_beyond, launches
from ecoshare.lane.tables.gang_table import GangTable
from ecoshare.lane.tables.lane_table import LaneTable, lane_path
from ecoshare.lane.tables.table_layout import SlotState

_TICK_S = 0.25
_GIB = 1 << 30


def main(args: list[str]) -> None:
    """Serve the controller with process id `args[1]` over the socket `args[0]`; in a forked child, run its job."""
    processes.show_as("server")
    processes.die_with_parent(int(args[1]))  # while the server loads, it cannot hear that the controller is gone
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm sends it to every process of a job: the run ends its own
    supervisor = JobSupervisor(socket.socket(fileno=int(args[0])))
    supervisor.warm_up()
    processes.outlive_parent()
    task = supervisor.serve()
    if task is None:
        os._exit(0)  # there is nothing to write, and to unload torch takes 0.2 s
    del supervisor
    if isinstance(task, LaunchAttempt):
        _run(task)
    else:
        from ecoshare.lane.fused import fused_process

        fused_process.serve(task)


def _run(launch: LaunchAttempt) -> None:
    """Run the job of a forked child, and end the process."""
    last = next(reversed(sys.modules))
    try:
        runner.run(launch, forked=True)
        status = None
    except SystemExit as end:
        status = end.code
    if launch.device == "cpu":  # CUDA's own exit must not be skipped
        interpreter.leave(status, last)
    raise SystemExit(status)


@dataclass
class JobSupervisor:
    """Forks, watches and reaps the jobs of a run.

    Attributes:
        channel: Socket to the controller.
        is_forked: Whether this process shares the memory of the one that it was forked from.
        added: Variables for libraries that load in a fresh interpreter; forked jobs do not see them.
        attempts: Attempts that run, in processes of their own or in shared ones.
        hosts: Processes of fused lanes.
        unfit: Scripts that cannot share a process, with the reason.
        tables: Tables of lanes, by path.
    """

    channel: socket.socket
    is_forked: bool = False
    added: dict[str, str] = field(default_factory=dict)
    attempts: list[AttemptProcess] = field(default_factory=list)
    hosts: list[FusedProcessHandle] = field(default_factory=list)
    unfit: dict[str, str] = field(default_factory=dict)
    tables: dict[str, LaneTable] = field(default_factory=dict)
    _memory: processes.TotalMemory = field(default_factory=processes.TotalMemory)
    _hung: set[int] = field(default_factory=set)
    _cleaned_by_s: dict[int, float] = field(default_factory=dict)

    def serve(self) -> LaunchAttempt | socket.socket | None:
        """Serve the controller until it closes the channel. Call `warm_up` first.

        Returns:
            None at the end. In a forked child, its task: a job, or a channel over which its jobs come.
        """
        self._orphans = Orphans()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.channel, selectors.EVENT_READ)
        pending, look_at_s = b"", 0.0
        while True:
            for key, _ in self._selector.select(_TICK_S):
                if key.fileobj is not self.channel:
                    key.data()
                    continue
                received = self._receive()
                if not received:
                    self._shut_down()
                    return None
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    task = self._obey(messages.decode(line))
                    if task is not None:
                        return task
            now_s = time.monotonic()
            if now_s < look_at_s:
                continue
            look_at_s = now_s + _TICK_S
            for attempt in self.attempts:
                attempt.watch(now_s)
            self._look_at_memory()
            for host in self.hosts:
                host.dismiss_if_idle(now_s)
            self._look_for_hung()
            self._look_for_orphans()
            for leader in [each for each, by_s in self._cleaned_by_s.items() if by_s < now_s]:
                del self._cleaned_by_s[leader]
                processes.kill_cleaners(leader)

    def _receive(self) -> bytes:
        """More bytes from the controller; empty if it is gone."""
        try:
            return self.channel.recv(1 << 16)
        except ConnectionResetError:  # it died with messages of ours unread
            return b""

    def warm_up(self) -> None:
        """Load the modules that every job needs, and tell the controller."""
        began_s = time.monotonic()
        import torch
        import torch._dynamo  # otherwise the first optimizer imports it: a second for every job
        import torch.utils.data

        from ecoshare.lane import hooks  # noqa: F401  (each job's process would load, and so copy, its pages)

        with contextlib.suppress(ImportError):  # the first step of an optimizer imports it; torch before 2.13 has none
            import torch.profiler._cupti_monitor
        interpreter.keep_operators()
        # Remove them only now: libraries have read them while they loaded, and no job of the user must see them.
        names = filter(None, os.environ.pop(interpreter.ADDED_ENVIRONMENT, "").split(","))
        self.added = {name: os.environ.pop(name) for name in names}
        gc.collect()
        gc.freeze()  # loaded objects are never garbage: a collection in a child need not touch, and so copy, them
        load_s = time.monotonic() - began_s
        self._send(Ready(os.getpid(), torch.__version__, torch.get_num_threads(), load_s, *_built_for()))

    def _obey(self, message: Message) -> LaunchAttempt | socket.socket | None:
        if isinstance(message, LaunchAttempt):
            why = self.unfit.get(message.script or str(message.module)) or warm_start.why_fresh(message)
            return self._launch_in_host(message) if message.fused and not why else self._launch(message)
        if isinstance(message, PrepareForks):
            if not self.is_forked:  # else the memory of the user's process would be there twice
                own_memory.use_huge_pages()
        elif isinstance(message, StopAttempt | MoveAttempt | KeepLane):
            for attempt in self.attempts:
                if (attempt.launch.job, attempt.launch.attempt) == (message.job, message.attempt):
                    self._ask(attempt, message)
        return None

    def _ask(self, attempt: AttemptProcess, message: StopAttempt | MoveAttempt | KeepLane) -> None:
        if isinstance(message, StopAttempt):
            attempt.ask_to_end(message)
            return
        if isinstance(message, KeepLane):
            attempt.keep_lane()
            return
        try:
            table = self._table(str(lane_path(Path(attempt.place.table.path).parent, message.lane)))
        except (OSError, ValueError) as error:
            self._send(NotMoved(message.command, str(error)))
            return
        attempt.go_on(table, message)

    def _launch_in_host(self, launch: LaunchAttempt) -> socket.socket | None:
        """Start a job in the process of its fused lane.

        Returns:
            In a forked child, the channel over which its jobs come; else None.
        """
        try:
            places = [PreparedSlot(self._table(path), slot, launch.command) for path, slot in launch.tables]
            place = place_of(launch)
            host = next((each for each in self.hosts if each.place == place and not each.retires), None)
            if host is None:
                ours, theirs = socket.socketpair()
                parent = os.getpid()
                pid = os.fork()
        except (OSError, ValueError) as error:
            self._send(NotLaunched(launch.command, str(error)))
            return None
        if host is None:
            if pid == 0:
                ours.close()
                processes.die_with_parent(parent)
                self._become_other()
                _confine(launch.processors)
                match_threads(launch.processors)
                lane = Path(launch.tables[0][0]).name
                processes.show_as(lane, runner.command_line(replace(launch, args=[])))
                return theirs
            theirs.close()
            host = FusedProcessHandle(place, pid, os.pidfd_open(pid), ours)
            self.hosts.append(host)
            self._selector.register(host.channel, selectors.EVENT_READ, partial(self._hear, host))
            self._selector.register(host.pidfd, selectors.EVENT_READ, partial(self._bury, host))
        attempt = AttemptProcess(launch, host.pid, host.pidfd, places)
        self.attempts.append(attempt)
        host.start(attempt)
        self._send(Launched(launch.command, host.pid, True, ""))
        return None

    def _hear(self, host: FusedProcessHandle) -> bool:
        """Handle messages of a process of a fused lane. Return False if no more will come."""
        heard = host.hear()
        if heard is None:
            self._selector.unregister(host.channel)
            return False
        for message in heard:
            if isinstance(message, NotLaunched):
                attempt = host.take_out(message.command)
                self._end(attempt, attempt.not_started(message.error))
            elif isinstance(message, Left):
                attempt = host.take_out(message.command)
                if message.unfit:
                    self.unfit[host.place[0]] = message.moved_out
                host.retires = host.retires or message.retires
                self._end(attempt, attempt.left(message))
        return True

    def _bury(self, host: FusedProcessHandle) -> None:
        """Clean up after a process of a fused lane that is gone, and end the attempts that were in it."""
        _, status, _ = os.wait4(host.pid, 0)
        if os.WIFSIGNALED(status) and self._abandoned():
            return
        while host.channel in self._selector.get_map() and self._hear(host):
            pass
        processes.kill_group(host.pid, reaped=True)
        self._selector.unregister(host.pidfd)
        self.hosts.remove(host)
        culprit = host.culprit()
        if culprit is None and host.attempts:  # it died before the first turn, or between two turns
            self.unfit[host.place[0]] = "its shared process died by itself"
        for attempt in host.attempts:
            self._end(attempt, attempt.died_in(status, culprit))
        host.close()

    def _launch(self, launch: LaunchAttempt) -> LaunchAttempt | None:
        """Start a job in a process of its own.

        Returns:
            In the forked child, the job that it must run; else None.
        """
        launch = replace(launch, fused=False)
        why = warm_start.why_fresh(launch)
        gang: Gang | None = None
        started: list[AttemptProcess] = []
        try:
            if launch.attempt > 1 and has_first(launch):
                keep_outputs_beyond(Path(launch.folder), count_of(launch), launch.attempt)
            if launch.ranks:
                gang = Gang(launch, GangTable(launch.gang_table))
            for each in launches(launch) if gang is not None else [launch]:
                attempt = self._fork(each, why)
                if attempt is None:
                    return each
                started.append(attempt)
                if gang is not None:
                    attempt.gang = gang
                    gang.running.append(attempt)
        except (OSError, ValueError) as error:
            if gang is not None:
                gang.give_up()
            self._send(NotLaunched(launch.command, str(error)))
            return None
        self._send(Launched(launch.command, started[0].pid, why is None, why or ""))
        return None

    def _fork(self, launch: LaunchAttempt, why: str | None) -> AttemptProcess | None:
        """Start the process of a job or of a rank.

        Args:
            launch: The attempt.
            why: Reason for an interpreter of its own; None to fork the process.

        Returns:
            The process; None in the forked child.

        Raises:
            OSError: The process cannot be made.
            ValueError: A table is not one of this version.
        """
        python = launch.python or sys.executable
        if why and not os.access(python, os.X_OK):
            raise FileNotFoundError(f"{python} is not an interpreter that can be run")
        places = [PreparedSlot(self._table(path), slot, launch.command) for path, slot in launch.tables]
        outputs = open_outputs(Path(launch.folder), launch.attempt)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            processes.die_with_parent(parent)
            self._become_other()
            for target, handle in zip((1, 2), outputs, strict=True):
                os.dup2(handle, target)
                os.close(handle)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _confine(launch.processors)
            if why:
                _replace(launch, python, self.added)
            return None
        for output in outputs:
            os.close(output)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        attempt = AttemptProcess(launch, pid, pidfd, places)
        self.attempts.append(attempt)
        self._selector.register(attempt.pidfd, selectors.EVENT_READ, partial(self._reap, attempt))
        return attempt

    def _table(self, path: str) -> LaneTable:
        if path not in self.tables:
            self.tables[path] = LaneTable(path)
            self.tables[path].tell_of_hung(self._end_hung)
        return self.tables[path]

    def _look_at_memory(self) -> None:
        """End the job that has outgrown its promise by most, if the jobs take more memory than there is for them.

        Nothing else limits memory on processors. A process that several jobs share counts with all of their promises,
        and the job with the turn answers for it. A process that ends gives its memory back, so none ends for it.
        """
        ending = {each.pid for each in self.attempts if each.stop is not None or each.verdict is not None}
        sharing: dict[int, list[AttemptProcess]] = {}
        for attempt in self.attempts:
            if attempt.launch.machine_bytes and attempt.pid not in ending:
                sharing.setdefault(attempt.pid, []).append(attempt)
        if not sharing:
            return
        most_bytes = max(each.launch.machine_bytes for each in self.attempts)
        taken = self._memory.over(sharing.keys(), most_bytes)
        beyond = {pid: taken[pid] - sum(each.launch.cap_bytes for each in sharing[pid]) for pid in taken}
        pid = max(beyond, key=lambda each: beyond[each], default=0)
        if not pid or beyond[pid] <= 0:
            return
        culprit = next((each for each in sharing[pid] if each.slot.seat == SlotState.HOLDING), sharing[pid][0])
        promised_bytes = taken[pid] - beyond[pid]
        reason = f"used {taken[pid] / _GIB:.2f} GiB of memory, and was promised {promised_bytes / _GIB:.2f}"
        all_bytes = sum(taken.values())
        with_others = f"; all jobs together use {all_bytes / _GIB:.2f} GiB" if len(taken) > 1 else ""
        culprit.end_outgrown(f"{reason}{with_others}, and there are {most_bytes / _GIB:.2f} GiB for them")

    def _look_for_hung(self) -> None:
        """End processes that are stopped while they hold a lane's lock.

        Other jobs of the lane may wait for the lock while this process has nothing to do there.
        """
        gangs = {id(each.gang): each.gang.table for each in self.attempts if each.gang is not None}
        tables: list[LaneTable | GangTable] = [*self.tables.values(), *gangs.values()]
        hung = {owner for table in tables if (owner := table.stopped_owner()) is not None}
        for pid in hung & self._hung:  # stopped with the lock at the last look, too
            self._end_hung(pid)
        self._hung = hung

    def _end_hung(self, pid: int) -> None:
        """End the jobs of a process that was stopped while it held a lane's lock: no job goes on there before."""
        for attempt in self.attempts:
            if attempt.pid == pid:
                attempt.end_hung()

    def _become_other(self) -> None:
        """Drop the supervisor's descriptors in a forked child, and make the child a session of its own."""
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        handles = [key.fd for key in self._selector.get_map().values()]
        self._selector.close()
        for handle in handles:  # the controller's channel, pidfds, and channels to fused lanes
            os.close(handle)
        self.channel.detach()
        for host in self.hosts:
            host.channel.detach()
        for table in self.tables.values():
            table.close()

    def _reap(self, attempt: AttemptProcess) -> None:
        _, status, used = os.wait4(attempt.pid, 0)
        if os.WIFSIGNALED(status) and self._abandoned():
            return  # the guard has killed it with the run: not an end of the job's own
        if processes.kill_group(attempt.pid, reaped=True):  # DataLoader workers outlive their parent by seconds
            self._cleaned_by_s[attempt.pid] = time.monotonic() + processes.CLEANERS_WITHIN_S
        self._look_for_orphans(attempt)
        ended = attempt.ended(status, used)
        self._selector.unregister(attempt.pidfd)
        os.close(attempt.pidfd)
        self._end(attempt, ended)

    def _look_for_orphans(self, ended: AttemptProcess | None = None) -> None:
        """Wait for processes that jobs have left behind, and end those of attempts that run no more.

        Args:
            ended: Attempt that ends now.
        """
        running = {_owner(each) for each in self.attempts if each is not ended}
        own = [*(each.pid for each in self.attempts), *(each.pid for each in self.hosts)]
        if ended is None:
            self._orphans.look(own, running)
        else:
            self._orphans.look(own, running, [_owner(ended)], ended.mps)

    def _end(self, attempt: AttemptProcess, ended: Ended) -> None:
        """Free the slots of an attempt that is over, record its end, and tell the controller."""
        attempt.free()
        self.attempts.remove(attempt)
        launch = attempt.launch
        if attempt.gang is not None:
            whole = attempt.gang.rank_ended(attempt, ended)
            if whole is None:
                return
            ended, launch = whole, attempt.gang.launch
        if has_first(launch):
            with contextlib.suppress(OSError):  # if the controller cannot write it into its log either, the run ends
                exit_records.write(Path(launch.folder), ended)
        self._send(ended)

    def _abandoned(self) -> bool:
        """Whether the controller is gone."""
        poll = select.poll()
        poll.register(self.channel, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _shut_down(self) -> None:
        """Kill all jobs: the controller is gone, and so is the run.

        Ends are not recorded, so that every job here runs again.
        """
        for attempt in self.attempts:
            if not attempt.launch.fused:
                processes.kill_group(attempt.pid, attempt.mps)
        for host in self.hosts:
            processes.kill_group(host.pid)

    def _send(self, message: Message) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the controller is gone; the loop will see it
            self.channel.sendall(messages.encode(message))


def _owner(attempt: AttemptProcess) -> Owner:
    return attempt.launch.job, attempt.launch.attempt


def _built_for() -> tuple[str, str, str]:
    """Versions of CUDA and HIP for which torch was built, and its architectures, as in `Ready`.

    A child of its own asks for the architectures. The question marks all later forks of a process as unfit for CUDA,
    and those of this process are the jobs. `torch.cuda.get_arch_list` would even initialise CUDA.
    """
    import torch

    cuda, hip = torch.version.cuda or "", torch.version.hip or ""
    if not (cuda or hip):
        return "", "", ""
    answer, theirs = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(theirs, (torch._C._cuda_getArchFlags() or "").encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(answer, "rb") as file:
        architectures = file.read().decode()
    os.waitpid(pid, 0)
    return cuda, hip, architectures


def _confine(processors: Sequence[int]) -> None:
    """Keep a forked child on its processors, or end it: it must not return into the code of its parent."""
    try:
        confine(processors)
    except OSError as error:
        os.write(2, f"ecoshare: the processors {list(processors)} cannot be used: {error}\n".encode())
        os._exit(127)


def _replace(launch: LaunchAttempt, python: str, added: dict[str, str]) -> None:
    """Replace the forked child by a fresh interpreter that runs the job."""
    try:
        source = os.memfd_create("launch", 0)  # values of `env` must not reach a command line or a file
        os.write(source, messages.encode(launch))
        os.lseek(source, 0, os.SEEK_SET)
        variables = {**added, **os.environ}
        interpreter.change(variables, launch.env)
        only_for_torch = [name for name in added if name not in launch.env]
        line = interpreter.program_command(
            "ecoshare.lane.supervisor.fresh", str(source), *only_for_torch, python=python
        )
        os.execve(python, line, variables)
    except OSError as error:
        os.write(2, f"ecoshare: {python} cannot be started: {error}\n".encode())
        os._exit(127)
