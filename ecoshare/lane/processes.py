"""Processes of a job, read from /proc (Linux): names them, lists them, measures their memory and time, and ends them.

`psutil` is not used: forked jobs would find it loaded, and `family` runs four times a second for each job on the CPU.
Ratios of psutil's time to ours, for nine processes among 85 and 397 of the machine: `family` 20 and 68 (psutil reads
every process of the machine), `processor_s` 4, `resident_bytes` 6, `proportional_bytes` 1.5.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_NAME_BYTES = 15
"""Longest name of a thread. The name of the main one is that of the process."""

_ROOM_BYTES = 256
"""Room for a command line that is enough to cut a longer one there."""

_LOOKS = 3
"""Number of looks at a group in which some processes are spared: a process may fork between a look and its end."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies. Exit now if the parent is already dead."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def name_thread(name: str) -> None:
    """Have `top` and the like show the calling thread as `ecoshare:NAME`.

    The name has no blank. It stands in /proc/PID/stat, which many programs split at blanks: Slurm with
    `proctrack/linuxproc` finds no child of a process with a blank there, and sends it no signal.
    """
    shown = "-".join(f"ecoshare:{_printable(name)}".split()).encode()
    _LIBC.prctl(_PR_SET_NAME, shown[:_NAME_BYTES].decode(errors="ignore").encode(), 0, 0, 0)


def show_as(name: str, words: Sequence[str] = ()) -> None:
    """Have `ps`, `htop` and the like show this process as `ecoshare: NAME`, with these words as its command line.

    Call this in the main thread. The kernel shows in /proc the memory that held the command line when the program
    started. Right behind it is that of the environment, in which the kernel shows the token of the run: `setproctitle`
    would write there, too. Without room for the words, as in a fork of a process with a short command line, the command
    line stays.
    """
    name_thread(name)
    with contextlib.suppress(OSError):
        start, end = _place_of(_ARGUMENTS)
        shown = _printable(": ".join(["ecoshare", name, *filter(None, [" ".join(words)])])).encode()
        # All that stands before the first zero is shown if the last byte is none (fs/proc/base.c, get_mm_cmdline).
        room_bytes = end - start - 2
        if len(shown) <= room_bytes or room_bytes >= _ROOM_BYTES:
            ctypes.memmove(start, shown[:room_bytes].ljust(room_bytes + 1, b"\0") + b"\1", end - start)


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def _place_of(field: int) -> tuple[int, int]:
    """Addresses of the begin and the end of what this program was started with.

    Args:
        field: `_ARGUMENTS` or `_ENVIRONMENT`.

    Raises:
        OSError: /proc cannot be read.
    """
    fields = _read("/proc/self/stat").rpartition(b")")[2].split()
    return int(fields[field]), int(fields[field + 1])


_ARGUMENTS, _ENVIRONMENT = 45, 47
"""Places of `arg_start` and `env_start` in /proc/PID/stat, after the name of the program (proc(5))."""


def mark(name: str, value: str) -> None:
    """Have the kernel show a variable in the environment of this process, and of processes that it forks.

    The kernel shows in /proc the memory that held the environment when the program started. The variable takes the
    place of the longest one there. If that is too short, nothing is shown.
    """
    start, end = _place_of(_ENVIRONMENT)
    entry = f"{name}={value}".encode() + b"\0"
    entries = ctypes.string_at(start, end - start).split(b"\0")
    longest = max(entries, key=len)
    if len(longest) < len(entry):
        return
    name_there = longest.partition(b"=")[0]
    if name_there in os.environb:
        os.environb[name_there] = os.environb[name_there]  # libc keeps it elsewhere from now on
    place = start + sum(len(each) + 1 for each in entries[: entries.index(longest)])
    ctypes.memmove(place, entry.ljust(len(longest), b"\0"), len(longest))


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process, which then does nothing until it is continued."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _read(path: str) -> bytes:
    """Content of a file of the kernel. `Path.read_bytes` takes 2.4 times as long, and a run reads many."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(file, 65536):
            content += part
        return content
    finally:
        os.close(file)


def family(pid: int) -> list[int]:
    """Process ids of a process and of all descendants that are still connected to it; the process itself first.

    Process 0, which a slot has before its job is launched, has no family.
    """
    found = [pid] if pid else []
    for member in found:
        found += children(member)
    return found


def children(pid: int | None = None) -> list[int]:
    """Process ids of the children of a process, by default of this one."""
    threads = Path(f"/proc/{'self' if pid is None else pid}/task")
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process is gone
        for thread in threads.iterdir():
            with contextlib.suppress(OSError, ValueError):  # a thread that ended in between has no children
                found += map(int, _read(f"{thread}/children").split())
    return found


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal. A process that is gone has none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def processor_s(pids: list[int], with_children: bool = True) -> float:
    """Processor time (s) of the given processes, and of ended children for which they have waited."""
    ticks, last = 0, 15 if with_children else 13
    for pid in pids:
        try:
            # The name of the program, in brackets, may hold anything.
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:last]))
        except (OSError, ValueError):
            continue
    return ticks / _TICKS_A_SECOND


def spent_asleep_s(pid: int) -> float | None:
    """Processor time (s) of all threads of a process if its main thread sleeps; None if that does not, or is gone."""
    try:
        state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0]
        return time.clock_gettime(~pid << 3 | 2) if state == b"S" else None  # the clock of clock_getcpuclockid(3)
    except (OSError, IndexError):
        return None


def resident_bytes(pids: list[int]) -> int:
    """Sum of the resident set sizes: cheap, and never below `proportional_bytes`."""
    total = 0
    for pid in pids:
        try:
            total += int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            continue
    return total


def proportional_bytes(pids: list[int]) -> int:
    """Sum of the proportional set sizes: a page that n processes share counts 1/n for each.

    Pages of files do not count: the kernel drops those of a job that maps its data where memory is short.
    """
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += own_proportional_bytes(pid) or 0
    return total


def own_proportional_bytes(pid: int | str = "self") -> int | None:
    """Proportional set size of one process without pages of files; None if the kernel does not tell it.

    Raises:
        OSError: The process has ended, or belongs to another user.
    """
    words = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    found = {name: int(rest[0]) * 1024 for name, *rest in words}
    if "Pss_Anon:" not in found:  # Linux before 5.4
        return found.get("Pss:")
    return found["Pss_Anon:"] + found["Pss_Shmem:"]


CLEANERS_WITHIN_S = 1.0
"""Time (s) for cleaners to end by themselves after the processes that they clean up after are gone."""

_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
"""Names in the command lines of cleaners. A cleaner removes the shared memory of dead processes that it outlives."""


class TotalMemory:
    """Proportional memory of the processes of jobs, read only where it may matter.

    The kernel needs 3 ms to tell it for a process that has loaded torch, and 15 us to tell the resident size, which is
    never less. So the growth of the resident size bounds that of the proportional size since it was read.
    """

    def __init__(self) -> None:
        self._read: dict[int, tuple[int, int]] = {}  # resident and proportional bytes when last read

    def over(self, leaders: Collection[int], most_bytes: int) -> dict[int, int]:
        """Proportional memory (bytes) of jobs, by first process, if all together take more than `most_bytes`.

        The result is empty if they take less.
        """
        self._read = {pid: each for pid, each in self._read.items() if pid in leaders}
        families = {pid: family(pid) for pid in leaders}
        resident = {pid: resident_bytes(pids) for pid, pids in families.items()}
        bounds: dict[int, int] = {}
        for pid, now_bytes in resident.items():
            then_bytes, proportional = self._read.get(pid, (0, 0))
            bounds[pid] = proportional + max(0, now_bytes - then_bytes)
        for pid in sorted(leaders, key=lambda pid: self._read.get(pid, (0, 0))[1] - bounds[pid]):
            if sum(bounds.values()) <= most_bytes:
                return {}
            bounds[pid] = proportional_bytes(families[pid])
            self._read[pid] = resident[pid], bounds[pid]
        return bounds if sum(bounds.values()) > most_bytes else {}


def cleans_up(pid: int) -> bool:
    """Whether a process cleans up after others: the resource tracker of `multiprocessing`, or torch's manager."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(name in line for name in _CLEANERS) and not line.startswith(b"ecoshare: ")


def group(leader: int) -> list[int]:
    """Process ids of a group, including ended processes for which the parent has not waited."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return []  # the usual case, which costs one system call
    except PermissionError:
        pass
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[2]) == leader:
                    found.append(int(entry.name))
    return found


def kill_group(leader: int, mps: str | None = None, reaped: bool = False) -> list[int]:
    """SIGKILL every process of a group, except cleaners. Return the process ids of the cleaners.

    Args:
        leader: Process id of the group's leader; the group may outlive it.
        mps: Pipe folder of the MPS daemon of which the leader or its descendants are clients. MPS must be told first: a
            client killed with work in flight may leave its neighbours in an undefined state (NVIDIA, "Multi-Process
            Service", 3.3).
        reaped: Whether the leader has been waited for: its id may then be another process's. Until then the leader is
            also killed by its own id, since it may not have made its group yet.
    """
    if mps is not None:
        _terminate_mps_clients(family(leader), mps)
    with contextlib.suppress(ProcessLookupError):
        if not reaped:
            os.kill(leader, signal.SIGKILL)
    for _ in range(_LOOKS):
        members = group(leader)
        cleaners = [pid for pid in members if cleans_up(pid)]
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no group; a set-user-id member
            if not cleaners:
                os.killpg(leader, signal.SIGKILL)  # includes processes that they fork meanwhile
                return []
        for pid in set(members) - set(cleaners):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return cleaners


def kill_family(leader: int, mps: str | None = None) -> None:
    """SIGKILL a process with its group, and its descendants that have left the group. See `kill_group`."""
    outside = [pid for pid in family(leader)[1:] if _group_of(pid) != leader]
    kill_group(leader, mps)
    for pid in outside:  # a launcher often gives each child a session, and so a group, of its own
        if not cleans_up(pid):
            kill_group(pid)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def kill_cleaners(leader: int) -> None:
    """SIGKILL the cleaners of a group that have not ended by themselves."""
    for pid in group(leader):
        if cleans_up(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _terminate_mps_clients(pids: Collection[int], mps: str) -> None:
    """Ask the MPS daemon to end its clients among these. A failure is ignored: they are killed in any case."""

    def ask(question: str) -> str:
        return subprocess.run(
            ["nvidia-cuda-mps-control"],
            input=question + "\n",
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": mps},
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout

    try:
        for server in ask("get_server_list").split():
            for client in ask(f"get_client_list {server}").split():
                if client.isdigit() and int(client) in pids:
                    ask(f"terminate_client {server} {client}")
    except (OSError, subprocess.SubprocessError):
        pass


_PR_SET_CHILD_SUBREAPER = 36

Owner = tuple[str, int]
"""Name of a job, and number of its attempt."""


class Orphans:
    """Orphans of a server. The process that makes this object becomes the subreaper.

    ::

        server ─┬─ job ─── child (setsid)         the job ends       server ─┬─ other job
                └─ other job                     ────────────►               └─ child: it ends now

    The server is the nearest subreaper of all jobs (`PR_SET_CHILD_SUBREAPER`), so the kernel gives it every process
    that has lost its parent. Such an orphan ends with the attempt that has started it. The environment tells which one
    that is, or the name of a fork. An orphan that tells nothing ends when every attempt has ended that ran when it was
    first seen.
    """

    def __init__(self) -> None:
        """Get all processes that lose their parent from now on."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._spared = set(children())
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
        orphans = set(children()) - self._spared - set(own)
        if not orphans:
            self._owners.clear()
            return
        left = {pid for pid in orphans if not _has_ended(pid)}
        self._owners = {pid: self._owners.get(pid) or _owners(pid, {*running, *ended}) for pid in left}
        for pid, owners in self._owners.items():
            if owners.isdisjoint(running) and not cleans_up(pid):
                kill_family(pid, mps)


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
