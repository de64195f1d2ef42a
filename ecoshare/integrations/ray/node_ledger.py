"""Ledger of the memory that each trial uses on a node's devices: a file in shared memory, written under a lock.

::

    <folder>/book       queue of waiting trials; for each device, its budget C, and P, T and slot of each trial on it
    <folder>/cpu        table of the lane of that device, in which the turn goes round
    <folder>/GPU-...

No process supervises. Each trial that enters, waits, or checks the turn finds dead trials and frees their places. The
remaining trials therefore go on after any other trial ends, even if only one is left.

A trial of a kind without a known demand gets an empty lane and all of its budget, until its memory has been observed.
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

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.disk import atomic_write, memory_folder
from ecoshare.core.memory import cached_bytes, lane_bytes, promised
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.quantities import format_size
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_SLOT, SLOTS

_VERSION = 1
"""Version of the book's format; each version keeps its own book in its own folder."""

_MOST_KINDS = 256


@dataclass(frozen=True, slots=True)
class Wish:
    """Request of a trial for a place.

    Attributes:
        kind: Key of trials that need equal memory.
        budgets: Devices that the trial may use, each with a function that returns its usable memory (bytes);
            the function is called only for an empty lane.
        demand: Memory that the user states; None to use the demand observed for the kind.
        most_bytes: Most memory (bytes) of a device that trials together may use; None for no such limit.
    """

    kind: str
    budgets: Mapping[str, Callable[[], int]]
    demand: MemoryDemand | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """A trial's place in the lane of a device.

    Attributes:
        owner: Number of the trial, unique on this node.
        demand: Memory demand with which the trial was admitted.
        measured: True if the demand is known; otherwise it is all of the budget until `update` corrects it.
    """

    device: str
    owner: int
    slot: int
    table: LaneTable
    demand: MemoryDemand
    measured: bool
    budget_bytes: int


class NodeLedger:
    """A process's access to the book of its node. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Open the book in `folder`. A missing folder is made, with access for its user only.

        Raises:
            UnfitEnvironment: The folder cannot be made, is another user's, or is open to other users.
        """
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            raise UnfitEnvironment(f"the ledger of this node cannot be kept in {folder}: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise UnfitEnvironment(f"the ledger of this node cannot be kept in {folder}, which others may write")
        self._folder = folder
        # A record lock: the kernel drops it when the process ends, and a forked child does not inherit it.
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._threads = threading.RLock()
        self._tables: dict[str, tuple[int, LaneTable]] = {}

    @classmethod
    def of_this_node(cls) -> NodeLedger:
        """The ledger of this user for the processes of one PID namespace.

        Raises:
            UnfitEnvironment: See the constructor.
        """
        base = Path(os.environ.get("ECOSHARE_STATE", memory_folder()))
        namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
        return cls(base / f"ecoshare-ledger-{_VERSION}-{os.geteuid()}-{namespace}")

    def queue(self) -> int:
        """Join the queue and return the trial's number; lower numbers are admitted first."""
        with self._open() as book:
            book.last += 1
            book.waiting.append(_this_process(book.last))
            return book.last

    def enter(self, number: int, wish: Wish) -> TrialPlace | None:
        """Admit the trial if it is first in the queue and fits; None if it must wait and ask again.

        Raises:
            UnfitEnvironment: The stated demand exceeds the budget of each of its devices.
        """
        with self._open() as book:
            if all(each.owner != number for each in book.waiting):  # the folder was cleared meanwhile
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
        """Leave the queue; without effect on an admitted trial."""
        with self._open() as book:
            book.waiting = [each for each in book.waiting if each.owner != number]

    def update(self, place: TrialPlace, demand: MemoryDemand) -> None:
        """Record the observed demand of a trial; its kind then counts as needing at least as much."""
        with self._open() as book:
            member = book.devices[place.device].members.get(str(place.owner))
            if member is not None:
                known = book.kinds.get(member.kind)
                book.kinds[member.kind] = demand if known is None else _larger(known, demand)
                promise = promised(demand, place.budget_bytes)
                member.demand = _larger(member.demand, promise) if member.measured else promise
                member.measured = True
                lane = book.devices[place.device]
                if cached_bytes(each.demand for each in lane.members.values()) > lane.budget_bytes:
                    place.table.set_caching(False)

    def leave(self, place: TrialPlace) -> None:
        """Give back the place of a finished trial."""
        with self._open() as book:
            self._free(book, place.device, str(place.owner))

    def look(self, place: TrialPlace) -> None:
        """Free the places of dead trials if one of them holds the turn of this lane; cheap otherwise."""
        holder = place.table.header.holder
        if holder in (NO_SLOT, place.slot) or _started(place.table.slots[holder].pid) is not None:
            return
        self.sweep()

    def sweep(self) -> None:
        """Free the places of dead trials in all lanes."""
        with self._open():
            pass

    def _admit(self, book: _Book, wish: Wish, device: str, budget_bytes: int) -> TrialPlace | None:
        """Admit the first trial of the queue if it fits beside the trials in the lane."""
        lane = book.devices[device]
        known = wish.demand or book.kinds.get(wish.kind)
        measured = known is not None
        if known is None or (wish.demand is not None and known.peak_bytes > budget_bytes):
            demand = known or MemoryDemand(budget_bytes)  # an unknown kind has the whole budget: its trial runs alone
        else:
            demand = promised(known, budget_bytes)
        members = lane.members.values()
        if len(members) == SLOTS or not all(member.measured for member in members):
            return None
        together = [*(member.demand for member in members), demand]
        if lane_bytes(together) > budget_bytes:
            return None
        if cached_bytes(together) > budget_bytes and not self._empties(device):
            return None
        slot = min(set(range(SLOTS)) - {member.slot for member in members})
        table = self._table(device, is_new=not members)
        first = book.waiting.pop(0)
        table.seat(slot, first.owner)
        lane.members[str(first.owner)] = _Member(first.pid, first.started, slot, wish.kind, demand, measured)
        return TrialPlace(device, first.owner, slot, table, demand, measured, budget_bytes)

    def _empties(self, device: str) -> bool:
        """Whether no waiting trial of a lane has a cache; they are asked to empty theirs."""
        table = self._table(device)
        table.set_caching(False)
        return table.caches_are_emptied

    def _table(self, device: str, is_new: bool = False) -> LaneTable:
        """Table of a device's lane. One mapping a process, since closing another would drop this process's locks."""
        path = self._folder / device
        inode, table = self._tables.get(device, (0, None))
        if table is not None and path.exists() and path.stat().st_ino == inode:
            return table
        try:
            table = LaneTable(path)
        except (OSError, ValueError):  # no table yet, or its maker died before it was complete
            if not is_new:
                raise
            path.unlink(missing_ok=True)
            table = LaneTable.create(path)
        self._tables[device] = path.stat().st_ino, table
        return table

    def _free(self, book: _Book, device: str, owner: str) -> None:
        lane = book.devices[device]
        member = lane.members.pop(owner, None)
        if member is not None:
            with contextlib.suppress(OSError, ValueError):  # without a table there is no turn to free
                table = self._table(device)
                table.free(member.slot, int(owner))
                if cached_bytes(each.demand for each in lane.members.values()) <= lane.budget_bytes:
                    table.set_caching(True)

    @contextmanager
    def _open(self) -> Iterator[_Book]:
        """Context manager that locks the book, frees dead trials, and writes the book back if it changed."""
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
    """True if the process is gone, or another process has its number."""
    return _started(process.pid) != process.started


def _started(pid: int) -> int | None:
    """Start time of a process, in clock ticks since the machine's start; None if it is gone or a zombie."""
    # `psutil` takes twice as long, and its seconds since 1970 change when the machine's clock is set.
    try:
        # The program's name stands in brackets and may hold any character.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
