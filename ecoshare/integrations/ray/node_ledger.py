"""Who uses how much of a node's devices: a file in shared memory that trials write, each for itself, under a lock.

::

    <folder>/book       queue of those that wait; of each device its budget C, and P, T and slot of each trial in it
    <folder>/cpu        table of the lane of that device, in which the turn goes round
    <folder>/GPU-...

There is no process that supervises: whoever comes, waits, or looks at the turn finds the dead ones, and frees what they
had. So nobody's end, not even that of all but one, keeps the others from going on.

A trial of a kind that nobody has measured gets an empty lane and all of its budget, until it has been measured.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ecoshare.common.atomic_write import atomic_write
from ecoshare.common.folders import memory_folder
from ecoshare.core.memory import MemoryDemand, lane_fits
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.quantities import format_size
from ecoshare.lane.lane_table import NOBODY, SLOTS, LaneTable

_VERSION = 1
"""Of the book: another version keeps another one, in a folder of its own."""

_MOST_KINDS = 256


@dataclass(frozen=True, slots=True)
class Wish:
    """What a trial wants.

    Attributes:
        kind: What trials that need alike are known by.
        budgets: Devices that it may use, and how many bytes of each are free now, asked for only where nobody is there.
        demand: As its owner says; None to go by what others of its kind were seen to need.
        most_bytes: Of a device, that trials together may use, where less than all.
    """

    kind: str
    budgets: Mapping[str, Callable[[], int]]
    demand: MemoryDemand | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """A trial's place in the lane of a device.

    Attributes:
        owner: Tells it from all other trials of this node.
        demand: That it was let in with.
        measured: Whether the demand is known; else it is all of the budget, to be corrected by `update`.
    """

    device: str
    owner: int
    slot: int
    table: LaneTable
    demand: MemoryDemand
    measured: bool
    budget_bytes: int


class NodeLedger:
    """The book of a node, as one process sees it; for use by several threads."""

    def __init__(self, folder: Path) -> None:
        """The book in `folder`, which is made where it is missing, for its owner alone.

        Raises:
            UnfitEnvironment: Somebody else's folder has that name, or it cannot be made.
        """
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            raise UnfitEnvironment(f"the ledger of this node cannot be kept in {folder}: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise UnfitEnvironment(f"the ledger of this node cannot be kept in {folder}, which others may write")
        self._folder = folder
        # A record lock, which the kernel drops with the process, and which a child forked meanwhile does not keep.
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._threads = threading.RLock()
        self._tables: dict[str, tuple[int, LaneTable]] = {}

    @classmethod
    def of_this_node(cls) -> NodeLedger:
        """The one of this user, among the processes that see each other by number.

        Raises:
            UnfitEnvironment: As the constructor.
        """
        base = Path(os.environ.get("ECOSHARE_STATE", memory_folder()))
        namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
        return cls(base / f"ecoshare-ledger-{_VERSION}-{os.geteuid()}-{namespace}")

    def queue(self) -> int:
        """A number for one that wants to come in: those with lower ones go first."""
        with self._open() as book:
            book.last += 1
            book.waiting.append(_this_process(book.last))
            return book.last

    def enter(self, number: int, wish: Wish) -> TrialPlace | None:
        """Let one in whose turn in the queue it is; None where it must wait, and ask again.

        Raises:
            UnfitEnvironment: It needs more than any of its devices has.
        """
        with self._open() as book:
            if all(each.owner != number for each in book.waiting):  # somebody has cleared the folder
                book.last = max(book.last, number)
                book.waiting.append(_this_process(number))
            if book.waiting[0].owner != number:
                return None
            largest_bytes = 0
            for device, free in sorted(wish.budgets.items(), key=lambda item: book.members_of(item[0])):
                lane = book.devices.setdefault(device, _Lane())
                if not lane.members:
                    lane.budget_bytes = free()
                budget_bytes = min(lane.budget_bytes, wish.most_bytes or lane.budget_bytes)
                largest_bytes = max(largest_bytes, budget_bytes)
                if (place := self._admit(book, wish, device, budget_bytes)) is not None:
                    return place
            if wish.demand is not None and wish.demand.peak_bytes > largest_bytes:
                raise UnfitEnvironment(
                    f"a trial needs {format_size(wish.demand.peak_bytes)} of memory, "
                    f"and trials together may use {format_size(largest_bytes)} of {' or '.join(wish.budgets)}"
                )
            return None

    def withdraw(self, number: int) -> None:
        """One that waited does not want to come in any more; nothing where it is in."""
        with self._open() as book:
            book.waiting = [each for each in book.waiting if each.owner != number]

    def update(self, place: TrialPlace, demand: MemoryDemand) -> None:
        """A trial was seen to need so much: it, and others of its kind, count as needing no less."""
        with self._open() as book:
            member = book.devices[place.device].members.get(str(place.owner))
            if member is not None:
                known = book.kinds.get(member.kind)
                book.kinds[member.kind] = demand if known is None else _larger(known, demand)
                member.demand = _larger(member.demand, demand) if member.measured else demand
                member.measured = True

    def leave(self, place: TrialPlace) -> None:
        """A trial is over."""
        with self._open() as book:
            self._free(book, place.device, str(place.owner))

    def look(self, place: TrialPlace) -> None:
        """Free what dead ones had, if one of them has the turn of this lane: cheap where not."""
        holder = place.table.header.holder
        if holder in (NOBODY, place.slot) or _started(place.table.slots[holder].pid) is not None:
            return
        self.sweep()

    def sweep(self) -> None:
        """Free what dead ones had, in all lanes."""
        with self._open():
            pass

    def _admit(self, book: _Book, wish: Wish, device: str, budget_bytes: int) -> TrialPlace | None:
        """Let the first of the queue in, if it fits beside those in the lane."""
        lane = book.devices[device]
        demand = wish.demand or book.kinds.get(wish.kind)
        measured = demand is not None
        if demand is None or (wish.demand is None and demand.peak_bytes > budget_bytes):
            demand = MemoryDemand(budget_bytes)  # alone
        members = lane.members.values()
        if len(members) == SLOTS or not all(member.measured for member in members):
            return None
        if not lane_fits([*(member.demand for member in members), demand], budget_bytes):
            return None
        slot = min(set(range(SLOTS)) - {member.slot for member in members})
        table = self._table(device, is_new=not members)
        first = book.waiting.pop(0)
        table.seat(slot, first.owner)
        lane.members[str(first.owner)] = _Member(first.pid, first.started, slot, wish.kind, demand, measured)
        return TrialPlace(device, first.owner, slot, table, demand, measured, budget_bytes)

    def _table(self, device: str, is_new: bool = False) -> LaneTable:
        """The table of a device's lane, one mapping a process: to close another would drop this process's locks."""
        path = self._folder / device
        inode, table = self._tables.get(device, (0, None))
        if table is not None and path.exists() and path.stat().st_ino == inode:
            return table
        try:
            table = LaneTable(path)
        except (OSError, ValueError):  # none yet, or whoever made it died before it was whole
            if not is_new:
                raise
            path.unlink(missing_ok=True)
            table = LaneTable.create(path)
        self._tables[device] = path.stat().st_ino, table
        return table

    def _free(self, book: _Book, device: str, owner: str) -> None:
        member = book.devices[device].members.pop(owner, None)
        if member is not None:
            with contextlib.suppress(OSError, ValueError):  # no table, no turn
                self._table(device).free(member.slot, int(owner))

    @contextmanager
    def _open(self) -> Iterator[_Book]:
        """The book, without dead ones; it is written back where it has changed."""
        with self._threads:
            fcntl.lockf(self._lock, fcntl.LOCK_EX)
            try:
                path = self._folder / "book"
                before = path.read_text() if path.exists() else ""
                book = _Book.read(before)
                for device, lane in book.devices.items():
                    for owner in [owner for owner, each in lane.members.items() if _is_dead(each)]:
                        self._free(book, device, owner)
                book.waiting = [each for each in book.waiting if not _is_dead(each)]
                try:
                    yield book
                finally:
                    if (after := book.text()) != before:
                        atomic_write(path, after)
            finally:
                fcntl.lockf(self._lock, fcntl.LOCK_UN)


@dataclass(slots=True)
class _Process:
    owner: int
    pid: int
    started: int


@dataclass(slots=True)
class _Member:
    pid: int
    started: int
    slot: int
    kind: str
    demand: MemoryDemand
    measured: bool


@dataclass(slots=True)
class _Lane:
    budget_bytes: int = 0
    members: dict[str, _Member] = field(default_factory=dict)


@dataclass(slots=True)
class _Book:
    last: int = 0
    waiting: list[_Process] = field(default_factory=list)
    devices: dict[str, _Lane] = field(default_factory=dict)
    kinds: dict[str, MemoryDemand] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> _Book:
        if not text:
            return cls()
        plain = json.loads(text)
        book = cls(plain["last"], [_Process(**each) for each in plain["waiting"]])
        for name, lane in plain["devices"].items():
            members = {
                owner: _Member(**{**each, "demand": MemoryDemand(**each["demand"])})
                for owner, each in lane["members"].items()
            }
            book.devices[name] = _Lane(lane["budget_bytes"], members)
        book.kinds = {kind: MemoryDemand(**each) for kind, each in plain["kinds"].items()}
        return book

    def text(self) -> str:
        while len(self.kinds) > _MOST_KINDS:
            self.kinds.pop(next(iter(self.kinds)))
        return json.dumps(asdict(self))

    def members_of(self, device: str) -> int:
        return len(self.devices[device].members) if device in self.devices else 0


def _larger(one: MemoryDemand, other: MemoryDemand) -> MemoryDemand:
    return MemoryDemand(
        max(one.persistent_bytes, other.persistent_bytes), max(one.ephemeral_bytes, other.ephemeral_bytes)
    )


def _this_process(number: int) -> _Process:
    return _Process(number, os.getpid(), _started(os.getpid()) or 0)


def _is_dead(process: _Process | _Member) -> bool:
    """Whether it is gone, or its number another's by now."""
    return _started(process.pid) != process.started


def _started(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; None where it is gone, or only not yet reaped."""
    # `psutil` takes twice as long, and its seconds since 1970 change when the machine's clock is set.
    try:
        # The name of the program, in brackets, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
