"""Runs of all users on this machine agree on slices, over Unix sockets.

::

    /run/lock/ecoshare-slices-1.0.lock   held (flock) by the run that keeps the table
    /run/lock/ecoshare-slices-1.0.sock   the other runs connect there, and it connects to itself

    run     hello, wants, took, ended ──►  table (core/slices.py)
    run     ◄── begin, end, members, twice a second

No process must not die. If the keeper ends, its lock is free and its line is closed: another run takes the lock, and
each says hello again, with the slice that it has. If the keeper hangs, or gives no slices, the others go to the next
table, 1, 2 and so on. The highest table that is kept is the one that counts; a keeper that sees a higher one gives up.

A line may bring anything, since every user can connect. Lines are short, few, and numbers and names in
their bounds. The kernel says which user is at the other end. A run that lies about its slices gets more of the device
than its share, as it would without ecoshare.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import itertools
import os
import re
import socket
import stat
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ecoshare.core.slices import ENDS_WITHIN_S, SLICE_S, Member, SliceTable
from ecoshare.devices.control.state_folder import StateFolder, open_lock, user_name
from ecoshare.jobs.quantities import format_duration

VERSION = 1
"""Version of the messages. Runs of different versions have different tables, so they do not take turns."""

_NAME = f"ecoshare-slices-{VERSION}"

_BEAT_S = 0.5
"""Time (s) between two lists of the members, by which a keeper shows that it lives."""

_SILENT_S = 3.0
"""Time (s) after which a keeper that says nothing counts as hung."""

_AGAIN_S = 0.02
"""Time (s) between two tries to reach a table."""

_MOST_TABLE, _MOST_BYTES, _MOST_MEMBERS, _MOST_OF_A_USER, _MOST_IN_A_SECOND = 9999, 1 << 14, 128, 32, 100
"""Bounds: number of a table, bytes of a line, members, members of one user, and lines of a member in a second."""

_LISTED_BYTES = 1 << 18
_LOOKS = "none"
"""Key of the device of one that only looks."""

_MOST_FAILURES = 20
"""Failures to make a table, one after the other, after which a run does without."""

_MOST_PATIENCE_S = 300.0
"""Longest wait (s) in a table that gives slices, whatever the number of members that it lists."""

_SHORTEST = 0.5
"""Part of the usual length from which a slice counts as one."""
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

_RANGE = re.compile(r"processors:(\d{1,4})-(\d{1,4})")

Key = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\x21-\x7e]+$")]
"""Key of a device, or of processors in a row, as `processors:0-63`."""
Seconds = Annotated[float, Field(ge=0.0, le=1e10, allow_inf_nan=False)]


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Hello(_Message):
    """First message of a run.

    Attributes:
        devices: Keys of its devices.
        run: Path of its folder, or what it is called.
        wants: Whether it wants slices.
        runs: Whether it has one, from another table.
    """

    say: Literal["hello"] = "hello"
    version: int
    devices: list[Key] = Field(min_length=1, max_length=128)
    run: str = Field(max_length=512)
    wants: bool
    runs: bool


class RunWord(_Message):
    """A run wants slices, or has begun the one that it was given."""

    say: Literal["wants", "took"]


class SliceOver(_Message):
    """A run has drained its lanes."""

    say: Literal["ended"] = "ended"
    wants: bool


class KeeperWord(_Message):
    """A run is to begin its slice, or to end it; or there is no place for one more, of all users or of this one."""

    say: Literal["begin", "end", "full"]


class ListedMember(_Message):
    """Member of a table, for the others to see.

    Attributes:
        name: Name that tells it from the others.
        user: Number of its user.
        pid: Number of its process.
        run: Path of its folder, or what it is called; from the run itself.
        devices: Keys of its devices.
        state: Present state; see `MemberState`.
        since_s: Time (s) for which it has been in this state.
        used_s: Time (s) for which it has had them.
        here_s: Time (s) for which it has been in this table; 0 from a keeper that does not tell.
    """

    name: str = Field(max_length=32)
    user: Annotated[int, Field(ge=0, le=2**32)]
    pid: Annotated[int, Field(ge=0, le=2**32)]
    run: str = Field(max_length=512)
    devices: list[Key] = Field(max_length=128)
    state: Literal["idle", "waits", "given", "runs", "ends", "beside", "silent"]
    since_s: Seconds
    used_s: Seconds
    here_s: Seconds = 0.0

    def __str__(self) -> str:
        """Words for the other runs: `/home/ada/runs/a (ada's process 7): waits for 2 s, has had 40 % of 2 min`."""
        state = f"{_STATES.get(self.state, 'has its slice')} for {format_duration(self.since_s)}"
        had = f"has had {format_duration(self.used_s)}"
        if self.here_s > 0.0:
            had = f"has had {min(100.0, 100.0 * self.used_s / self.here_s):.0f} % of {format_duration(self.here_s)}"
        run = self.run if self.run.isprintable() else ascii(self.run)[1:-1]  # a keeper may lie
        return f"{run or 'a run'} ({user_name(self.user)}'s process {self.pid}): {state}, {had}"


_STATES = {
    "idle": "has nothing to do",
    "waits": "waits",
    "beside": "runs beside the others",
    "silent": "does not answer",
}


class Members(_Message):
    """All members of a table. `you` is the name of the one that reads this."""

    say: Literal["members"] = "members"
    you: str = Field(max_length=32)
    members: list[ListedMember] = Field(max_length=_MOST_MEMBERS)


_FROM_RUN: TypeAdapter[Hello | RunWord | SliceOver] = TypeAdapter(
    Annotated[Hello | RunWord | SliceOver, Field(discriminator="say")]
)
_FROM_KEEPER: TypeAdapter[KeeperWord | Members] = TypeAdapter(
    Annotated[KeeperWord | Members, Field(discriminator="say")]
)


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Paths of the tables of this machine.

    Attributes:
        folder: Folder of the locks of all users.
    """

    folder: Path

    @classmethod
    def of_this_user(cls) -> TablePaths:
        """Paths that this process uses."""
        return cls(StateFolder.of_this_user().locks)

    def lock(self, number: int) -> Path:
        """Path of the lock of a table."""
        return self.folder / f"{_NAME}.{number}.lock"

    def socket(self, number: int) -> Path:
        """Path of the socket of a table."""
        return self.folder / f"{_NAME}.{number}.sock"

    def kept(self) -> list[int]:
        """Numbers of the tables that are kept, the highest first."""
        found = (re.fullmatch(rf"{_NAME}\.(\d{{1,4}})\.lock", path.name) for path in self._locks())
        return sorted((number for each in found if each and self._is_kept(number := int(each[1]))), reverse=True)

    def _locks(self) -> list[Path]:
        try:
            return list(self.folder.glob(f"{_NAME}.*.lock"))
        except OSError:
            return []

    def _is_kept(self, number: int) -> bool:
        try:
            file = os.open(self.lock(number), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError:
            return stat.S_ISREG(os.fstat(file).st_mode)
        finally:
            os.close(file)


def keys_of(processors: Iterable[int]) -> tuple[str, ...]:
    """Keys of processors, those in a row together."""
    rows: list[list[int]] = []
    for number in sorted(processors):
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return tuple(f"processors:{first}-{last}" for first, last in rows)


def _each(keys: Iterable[str]) -> frozenset[str]:
    """Keys with each processor for itself."""
    found = set[str]()
    for key in keys:
        row = _RANGE.fullmatch(key)
        found |= {key} if row is None else {f"processor:{number}" for number in range(int(row[1]), int(row[2]) + 1)}
    return frozenset(found)


def _line(message: BaseModel) -> bytes:
    return message.model_dump_json().encode() + b"\n"


@dataclass(eq=False)
class _Line:
    """Line to a member, with what the kernel says of its other end."""

    name: str
    user: int
    pid: int
    run: str
    devices: list[str]
    writer: asyncio.StreamWriter

    def tell(self, message: bytes) -> None:
        """Send a message. One that does not read is cut off."""
        if self.writer.transport.get_write_buffer_size() > _LISTED_BYTES:
            self.writer.transport.abort()
        elif not self.writer.is_closing():
            self.writer.write(message)


class TableKeeper:
    """Keeps one table: the run that holds its lock does so, beside its own work."""

    def __init__(self, paths: TablePaths, number: int) -> None:
        """Take the lock of a table.

        Raises:
            BlockingIOError: Another run keeps it.
            OSError: The lock cannot be made.
        """
        self.number = number
        self._paths, self._table = paths, SliceTable()
        self._lines: dict[str, _Line] = {}
        self._open: dict[asyncio.StreamWriter, int] = {}  # user of each line, before its hello, too
        self._names = itertools.count(1)
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._lock = open_lock(paths.lock(number))
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._lock)
            raise

    async def open(self) -> None:
        """Let runs connect.

        Raises:
            OSError: The socket cannot be made.
        """
        path = self._paths.socket(self.number)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._server = await asyncio.start_unix_server(self._hear, path, limit=_MOST_BYTES)
        path.chmod(0o666)

    async def keep(self) -> None:
        """Give slices, until a higher table is kept."""
        now = asyncio.get_running_loop().time
        beat_s = now()
        while True:
            for order in self._table.look(now()):
                self._lines[order.member.name].tell(_line(KeeperWord(say="begin" if order.begins else "end")))
            if now() >= beat_s:
                beat_s = now() + _BEAT_S
                self._list()
                if any(number > self.number for number in self._paths.kept()):
                    return
            until_s = min(beat_s, self._table.next_look_s(now()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._news.wait()
            self._news.clear()

    def close(self) -> None:
        """Close all lines, and let the table go."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                self._paths.socket(self.number).unlink()
        for writer in self._open:
            writer.transport.abort()
        os.close(self._lock)

    def _list(self) -> None:
        now_s = asyncio.get_running_loop().time()
        listed = [self._listed(each, now_s) for each in self._table.members.values()]
        for each in list(self._lines.values()):
            each.tell(_line(Members(you=each.name, members=listed)))

    def _listed(self, member: Member, now_s: float) -> ListedMember:
        line = self._lines[member.name]
        since_s = max(0.0, now_s - member.since_s)
        return ListedMember.model_construct(
            name=member.name,
            user=member.user,
            pid=line.pid,
            run=line.run,
            devices=line.devices,
            state=member.state.value,
            since_s=since_s,
            used_s=member.used_s / max(1, len(member.devices)),
            here_s=max(0.0, now_s - member.joined_s),
        )

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = None
        try:
            own: socket.socket = writer.get_extra_info("socket")
            pid, user, _ = _CREDENTIALS.unpack(own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if Counter(self._open.values())[user] >= 2 * _MOST_OF_A_USER or len(self._open) >= 2 * _MOST_MEMBERS:
                return
            self._open[writer] = user
            line = await self._welcome(reader, writer, user, max(0, pid))
            if line is not None:
                await self._follow(line, reader)
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
            pass  # it is gone, or says what no run says
        finally:
            self._open.pop(writer, None)
            if line is not None:
                del self._lines[line.name]
                self._table.leave(line.name, asyncio.get_running_loop().time())
                self._news.set()
            writer.transport.abort()

    async def _welcome(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, user: int, pid: int
    ) -> _Line | None:
        async with asyncio.timeout(_SILENT_S):
            hello = _FROM_RUN.validate_json(await reader.readuntil())
        of_users = Counter(each.user for each in self._lines.values())
        if len(self._lines) >= _MOST_MEMBERS or of_users[user] >= _MOST_OF_A_USER:
            writer.write(_line(KeeperWord(say="full")))
            await writer.drain()
            return None
        if not isinstance(hello, Hello) or hello.version != VERSION:
            return None
        now_s, run = asyncio.get_running_loop().time(), hello.run if hello.run.isprintable() else ascii(hello.run)[1:-1]
        line = _Line(f"{next(self._names):09}", user, pid, run[:512], hello.devices, writer)
        self._lines[line.name] = line
        self._table.join(line.name, user, _each(hello.devices), now_s, hello.runs)
        if hello.wants:
            self._table.wants(line.name, now_s)
        self._list()
        self._news.set()
        return line

    async def _follow(self, line: _Line, reader: asyncio.StreamReader) -> None:
        now, second, count = asyncio.get_running_loop().time, 0, 0
        while True:
            message = _FROM_RUN.validate_json(await reader.readuntil())
            second, count = int(now()), count + 1 if int(now()) == second else 1
            if count > _MOST_IN_A_SECOND:
                return
            match message:
                case RunWord(say="wants"):
                    self._table.wants(line.name, now())
                case RunWord():
                    self._table.took(line.name, now())
                case SliceOver():
                    self._table.ended(line.name, now(), message.wants)
                case Hello():
                    return
            self._news.set()


def members_now(paths: TablePaths | None = None) -> list[ListedMember]:
    """Runs of this machine that take turns, without taking part; empty if there is none, or if it does not answer."""
    paths = paths or TablePaths.of_this_user()
    for number in paths.kept()[:1]:
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_SILENT_S)
            line.connect(str(paths.socket(number)))
            line.sendall(_line(Hello(version=VERSION, devices=[_LOOKS], run="", wants=False, runs=False)))
            with line.makefile("rb") as answers:
                found = _FROM_KEEPER.validate_json(answers.readline(_LISTED_BYTES))
            if isinstance(found, Members):
                return [each for each in found.members if each.devices != [_LOOKS]]
    return []


class _Gone(Exception):
    """A table is gone, silent, or gives no slices."""


class _Full(Exception):
    """A table has as many members as can be."""


class DeviceSlices:
    """Slices of one run on its devices: it begins and ends them as the others of the machine allow.

    A thread keeps the line, so that a busy run answers at once. It calls `begin` and `end`.

    Attributes:
        fault: Reason why the run takes no turns with others, in words; empty if it does.
    """

    def __init__(
        self,
        devices: Collection[str],
        begin: Callable[[], None],
        end: Callable[[], None],
        run: str = "",
        paths: TablePaths | None = None,
    ) -> None:
        """Not open yet.

        Args:
            devices: Keys of the devices.
            begin: Called when a slice begins.
            end: Called when it is to end; the run then calls `ended`.
            run: Path of the folder of the run, for others to see.
            paths: Paths of the tables; None for those of this machine.
        """
        self._devices, self._run = sorted(devices), run[:512]
        self._mine = _each(self._devices)
        self._begin, self._end = begin, end
        self._paths = paths or TablePaths.of_this_user()
        self._wants = self._runs = False
        self._waits_from_s = self._took_s = 0.0
        self.fault = ""
        self._listed: Members | None = None
        self._is_alone = False
        self._shunned: set[int] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._live, name="ecoshare-slices", daemon=True)

    @property
    def others(self) -> list[ListedMember]:
        """Other runs that share one of the devices of this one, as of half a second ago."""
        if (listed := self._listed) is None:
            return []
        return [each for each in listed.members if each.name != listed.you and self._mine & _each(each.devices)]

    def open(self) -> None:
        """Begin to take part."""
        self._thread.start()
        self._is_open.wait()

    def want(self, wants: bool) -> None:
        """Want slices from now on, or no more. A run that has a slice and wants no more calls `ended`, too."""
        self._call(lambda: self._set_wants(wants))

    def ended(self) -> None:
        """Tell that the slice is over: no lane of the run is at work any more."""
        self._call(self._tell_end)

    def close(self) -> None:
        """Leave. The run has no lane at work any more."""
        self._call(lambda: self._work.cancel() if self._work is not None else None)
        self._thread.join()

    def _call(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(act)

    def _set_wants(self, wants: bool) -> None:
        if wants == self._wants:
            return
        self._wants, self._waits_from_s = wants, asyncio.get_running_loop().time()
        if self._is_alone:
            self._take()
        elif not self._runs:
            self._tell(RunWord(say="wants") if wants else SliceOver(wants=False))

    def _tell_end(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._took_s > _SHORTEST * SLICE_S:  # else a keeper could starve the run with slices of no length
            self._waits_from_s = now_s
        self._runs = False
        self._tell(SliceOver(wants=self._wants))
        if self._is_alone:
            self._take()

    def _tell(self, message: BaseModel) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(_line(message))

    def _live(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._take_part())
        except Exception as defect:  # the run goes on without turns
            self.fault = repr(defect)
            self._is_open.set()
            self._begin()

    async def _take_part(self) -> None:
        self._loop, self._work = asyncio.get_running_loop(), asyncio.current_task()
        self._loop.set_exception_handler(lambda _loop, _context: None)  # a line of another user prints nothing here
        self._is_open.set()
        failures = locked = 0
        while failures < _MOST_FAILURES:
            number, keeping = self._highest(), None
            is_kept = number is not None and number not in self._shunned
            try:
                if number is None or not is_kept:
                    number = 0 if number is None else number + 1
                    while number in self._shunned:
                        number += 1
                    keeping = await self._keep(number)
                await self._talk(number)
                failures = locked = 0
            except _Full as full:
                reason = str(full)
                break
            except BlockingIOError:
                locked += 1  # another run was faster, or a program holds a lock that is not a keeper's
                if locked > _SILENT_S / _AGAIN_S and number is not None:
                    self._shunned.add(number)
                    locked, reason = 0, "its tables are locked"
                    failures += 1
            except (OSError, ValueError, EOFError, asyncio.LimitOverrunError, _Gone) as error:
                failures += 1
                reason = (isinstance(error, OSError) and error.strerror) or str(error) or "a table is silent"
                if keeping is None and number is not None:
                    self._shunned.add(number)
            finally:
                if keeping is not None:
                    keeping.cancel()
                    await asyncio.wait([keeping])
            await asyncio.sleep(_AGAIN_S)
        self.fault, self._is_alone, self._listed = reason, True, None
        self._take()
        await asyncio.Event().wait()

    def _highest(self) -> int | None:
        return next(iter(self._paths.kept()), None)

    async def _keep(self, number: int) -> asyncio.Task[None]:
        """Begin to keep a table.

        Raises:
            BlockingIOError: Another run keeps it.
            OSError: It cannot be made.
        """
        if number > _MOST_TABLE:
            raise OSError(errno.ENOSPC, "all tables are kept, and none answers")
        keeper = TableKeeper(self._paths, number)
        try:
            await keeper.open()
        except BaseException:
            keeper.close()
            raise

        async def keep() -> None:
            try:
                await keeper.keep()
            finally:
                keeper.close()

        return asyncio.get_running_loop().create_task(keep())

    async def _talk(self, number: int) -> None:
        """Take part in a table, until its line is cut.

        Raises:
            OSError: It cannot be reached, or hangs.
            ValueError, EOFError, _Gone, _Full: It talks nonsense, gives no slices or has no place.
        """
        now = asyncio.get_running_loop().time
        reader, writer = await self._connect(number)
        self._writer, self._waits_from_s, self._listed = writer, now(), None
        try:
            hello = Hello(version=VERSION, devices=self._devices, run=self._run, wants=self._wants, runs=self._runs)
            self._tell(hello)
            while True:
                async with asyncio.timeout(_SILENT_S):
                    line = await reader.readline()
                if not line and self._listed is None:
                    raise _Gone  # it did not even answer
                if not line:
                    return
                message = _FROM_KEEPER.validate_json(line)
                match message:
                    case KeeperWord(say="begin"):
                        self._take()
                    case KeeperWord(say="end") if self._runs:
                        self._end()
                    case KeeperWord(say="end"):
                        self._tell_end()
                    case KeeperWord():
                        raise _Full("too many runs take turns already")
                    case Members():
                        self._listed = message
                if self._wants and not self._runs and now() - self._waits_from_s > self._patience_s():
                    raise _Gone
        finally:
            self._writer = None
            writer.transport.abort()

    async def _connect(self, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a table, of which the keeper may have taken the lock just now."""
        async with asyncio.timeout(_SILENT_S):
            while True:
                try:
                    return await asyncio.open_unix_connection(self._paths.socket(number), limit=_LISTED_BYTES)
                except (FileNotFoundError, ConnectionRefusedError):
                    await asyncio.sleep(_AGAIN_S)

    def _patience_s(self) -> float:
        """Longest wait (s) in a table that gives slices."""
        return min(_MOST_PATIENCE_S, 2.0 * (1 + len(self.others)) * (SLICE_S + ENDS_WITHIN_S))

    def _take(self) -> None:
        """Begin a slice, if the run wants one."""
        self._tell(RunWord(say="took"))
        if self._wants and not self._runs:
            self._runs, self._took_s = True, asyncio.get_running_loop().time()
            self._begin()
        elif not self._runs:
            self._tell(SliceOver(wants=False))
