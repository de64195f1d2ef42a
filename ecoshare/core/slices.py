"""Slices: which of the runs that share devices has them next, and for how long.

Runs of one machine take turns, as jobs of a lane do, but for seconds: a run drains its lanes before the next begins.

::

    cuda:0   run A (user 1) ██████▏      ██████▏           users first: each has an equal share of what it asks for,
             run B (user 1)        ▏                ██████ then the runs of a user share what that has
             run C (user 2)         ██████▏     ▏██████▏

    cuda:0   A ██████▏ ▏C C C C      a run of several devices has all of them at once: while it is next in order,
    cuda:1   B ███▏    ▏C C C C      no other run begins on any of them

The memory of a GPU is divided between them, too (`shared_between`, `device_share.py`): jobs keep it from slice to
slice.

A member is never trusted to answer. One that does not take its slice at once has none until it is heard again. One
that does not end its slice in time runs on beside the others, as without ecoshare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

SLICE_S = 2.0
"""Length (s) of a slice while others wait."""

ANSWERS_WITHIN_S = 0.5
"""Time (s) within which a member takes the slice that it was given."""

ENDS_WITHIN_S = 3.0
"""Time (s) within which a member ends its slice. If its iterations take longer and cannot be cut, it runs on beside
the others."""

_PATIENCE = 3
"""Longest wait of a member, in times of the slices until its turn if each user had equal time on its devices."""

_ROUNDING_S = 1e-6


class MemberState(Enum):
    """State of a member."""

    IDLE = "idle"
    """It has no work for the devices."""
    WAITS = "waits"
    GIVEN = "given"
    """It was given a slice, and has not taken it yet."""
    RUNS = "runs"
    ENDS = "ends"
    """It was asked to end its slice, and drains its lanes."""
    BESIDE = "beside"
    """It did not end its slice in time, and runs beside the others."""
    SILENT = "silent"
    """It did not take its slice in time, and has none until it is heard again."""


_BUSY = (MemberState.GIVEN, MemberState.RUNS, MemberState.ENDS)
_WORKS = (MemberState.RUNS, MemberState.ENDS, MemberState.BESIDE)


@dataclass(slots=True, eq=False)
class Member:
    """Run that shares devices.

    Attributes:
        name: Name that tells the member from the others.
        user: Number of its user.
        devices: Keys of its devices.
        state: Present state.
        since_s: Time (s) since which it is in this state.
        joined_s: Time (s) of its coming.
        used_s: Device time (s) that it has had.
        service_s: Device time (s) on the clock of its user, with which it contends.
        is_told: Whether it was told to end its slice.
    """

    name: str
    user: int
    devices: frozenset[str]
    state: MemberState = MemberState.IDLE
    since_s: float = 0.0
    joined_s: float = 0.0
    used_s: float = 0.0
    service_s: float = 0.0
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """Order to a member, to begin its slice or to end it."""

    member: Member
    begins: bool


class SliceTable:
    """Slices of the members of one machine. Times that are passed to the methods never decrease.

    Attributes:
        members: Members by name.
    """

    def __init__(self) -> None:
        """No member is there yet."""
        self.members: dict[str, Member] = {}
        self._users: dict[int, float] = {}  # device time (s) of each user, with which it contends
        self._told_s = 0.0

    def join(self, name: str, user: int, devices: Iterable[str], at_s: float, runs: bool = False) -> Member:
        """Add a member, which asks for nothing yet.

        Args:
            name: A new name.
            user: Number of its user.
            devices: Keys of its devices, at least one.
            at_s: Present time (s).
            runs: Whether it has a slice already: it got that from another table, which is gone.
        """
        self._account(at_s)
        member = self.members[name] = Member(name, user, frozenset(devices), since_s=at_s, joined_s=at_s)
        if runs:
            self._level(member)
            member.state = MemberState.RUNS
        return member

    def leave(self, name: str, at_s: float) -> None:
        """Remove a member, which has ended or is gone."""
        self._account(at_s)
        member = self.members.pop(name)
        if not any(each.user == member.user for each in self.members.values()):
            self._users.pop(member.user, None)

    def wants(self, name: str, at_s: float) -> None:
        """Let a member have slices from now on. It is heard again, if it was silent."""
        self._account(at_s)
        member = self.members[name]
        if member.state in (MemberState.IDLE, MemberState.SILENT):
            self._level(member)
            self._move(member, MemberState.WAITS, at_s)

    def took(self, name: str, at_s: float) -> None:
        """Note that a member has begun the slice that it was given, late or not."""
        self._account(at_s)
        member = self.members[name]
        if member.state is MemberState.GIVEN:
            self._move(member, MemberState.RUNS, at_s)
        elif member.state in (MemberState.SILENT, MemberState.WAITS, MemberState.IDLE):
            self._move(member, MemberState.BESIDE, at_s)
            member.is_told = False

    def ended(self, name: str, at_s: float, wants: bool) -> None:
        """Note that a member has no lane at work any more.

        Args:
            name: The member.
            at_s: Present time (s).
            wants: Whether it wants another slice.
        """
        self._account(at_s)
        self._move(self.members[name], MemberState.WAITS if wants else MemberState.IDLE, at_s)

    def look(self, at_s: float) -> list[SliceOrder]:
        """Orders that are due now."""
        self._account(at_s)
        for each in self.members.values():
            if each.state is MemberState.GIVEN and at_s >= each.since_s + ANSWERS_WITHIN_S - _ROUNDING_S:
                self._move(each, MemberState.SILENT, at_s)
                self._charge(each, SLICE_S * len(each.devices))  # else it would be the next again, for ever
            elif each.state is MemberState.ENDS and at_s >= each.since_s + ENDS_WITHIN_S - _ROUNDING_S:
                self._move(each, MemberState.BESIDE, at_s)
        taken = {key for each in self._in(*_BUSY) for key in each.devices}
        orders, reserved = list[SliceOrder](), set[str]()
        for each in self._in(MemberState.BESIDE):
            if not each.is_told:
                orders.append(self._end(each))
        alone = set[str]()
        for each in sorted(self._in(MemberState.RUNS), key=lambda each: (each.since_s, each.name)):
            if each.devices & alone:  # two tables, of which one is gone, have given a slice each
                self._move(each, MemberState.ENDS, at_s)
                orders.append(self._end(each))
            alone |= each.devices
        for each in self._in_order(at_s):
            if each.state is MemberState.RUNS:
                if each.devices & reserved:
                    self._move(each, MemberState.ENDS, at_s)
                    orders.append(self._end(each))
            elif each.devices & (taken | reserved):
                reserved |= each.devices
            else:
                self._move(each, MemberState.GIVEN, at_s)
                each.is_told = False
                orders.append(SliceOrder(each, begins=True))
                taken |= each.devices
        return orders

    def next_look_s(self, at_s: float) -> float:
        """Time (s) of the next look that may give orders, if nothing comes before it; infinity if none may."""
        waiting = {key for each in self._in(MemberState.WAITS) for key in each.devices}
        times = [each.since_s + ANSWERS_WITHIN_S for each in self._in(MemberState.GIVEN)]
        times += [each.since_s + ENDS_WITHIN_S for each in self._in(MemberState.ENDS)]
        for each in self._in(MemberState.RUNS):
            if each.devices & waiting:
                slices = max(1, math.floor((at_s - each.since_s + _ROUNDING_S) / SLICE_S) + 1)
                times.append(each.since_s + slices * SLICE_S)
        return min(times, default=math.inf)

    def _end(self, member: Member) -> SliceOrder:
        member.is_told = True
        return SliceOrder(member, begins=False)

    def _in(self, *states: MemberState) -> Iterator[Member]:
        return (each for each in self.members.values() if each.state in states)

    def _is_over(self, member: Member, at_s: float) -> bool:
        """Whether a slice has had its length, so that the member contends with those that wait."""
        return member.state is MemberState.RUNS and at_s >= member.since_s + SLICE_S - _ROUNDING_S

    def _in_order(self, at_s: float) -> Iterator[Member]:
        """Members that contend, each after those that go before it.

        The user with the least device time goes first, then its member with the least, in whole slices. If two are
        equal, one that waits goes before one that runs, and the longest wait goes first. A member that was placed
        counts as if it had had its slice.

        A member that has waited for `_PATIENCE` times its turn goes before all of these: its user may have had more
        than others all the time, on devices that it does not use itself.
        """
        contend = [
            each for each in self.members.values() if each.state is MemberState.WAITS or self._is_over(each, at_s)
        ]
        users = {each.user: self._users.get(each.user, 0.0) for each in contend}

        late = {each.name for each in contend if self._is_late(each, at_s)}

        def rank(each: Member) -> tuple[bool, int, int, bool, float, str]:
            if each.name in late:
                return False, 0, 0, False, each.since_s, each.name
            had = round(users[each.user] / SLICE_S), round(each.service_s / SLICE_S)
            return True, *had, each.state is MemberState.RUNS, each.since_s, each.name

        while contend:
            first = min(contend, key=rank)
            contend.remove(first)
            users[first.user] += SLICE_S * len(first.devices)
            yield first

    def _is_late(self, member: Member, at_s: float) -> bool:
        """Whether a member has waited too long: users take turns on its devices, and so do the members of its user."""
        if member.state is not MemberState.WAITS or at_s < member.since_s + _PATIENCE * SLICE_S:
            return False
        away = (MemberState.IDLE, MemberState.SILENT)
        there = [each for each in self.members.values() if each.state not in away and each.devices & member.devices]
        turns = len({each.user for each in there}) * sum(1 for each in there if each.user == member.user)
        return at_s >= member.since_s + _PATIENCE * turns * SLICE_S

    def _move(self, member: Member, to: MemberState, at_s: float) -> None:
        if member.state is not to:
            member.state, member.since_s = to, at_s

    def _account(self, at_s: float) -> None:
        """Count the device time up to now."""
        passed_s, self._told_s = max(0.0, at_s - self._told_s), max(at_s, self._told_s)
        for each in self._in(*_WORKS) if passed_s else ():
            held_s = passed_s * len(each.devices)
            each.used_s += held_s
            self._charge(each, held_s)

    def _charge(self, member: Member, held_s: float) -> None:
        member.service_s += held_s
        self._users[member.user] = self._users.get(member.user, 0.0) + held_s

    def _level(self, member: Member) -> None:
        """Bring one that comes, or comes back, level with those present: it does not catch up on the past."""
        present = [each for each in self.members.values() if each is not member and each.state is not MemberState.IDLE]
        own = [each.service_s for each in present if each.user == member.user]
        member.service_s = max(member.service_s, min(own, default=0.0))
        if not own:
            others = [self._users.get(each.user, 0.0) for each in present]
            self._users[member.user] = max(self._users.get(member.user, 0.0), min(others, default=0.0))


class MemoryWish(NamedTuple):
    """Memory of a device that one of several runs would use.

    Attributes:
        wanted_bytes: Memory for its jobs there, and for those that wait.
        needed_bytes: Memory without which it can start no job, if it has none there; 0 otherwise.
        since_s: Time (s) since which it has needed that.
        number: Number that tells the run from the others.
    """

    wanted_bytes: int
    needed_bytes: int = 0
    since_s: float = 0.0
    number: int = 0


def shared_between(memory_bytes: int, wishes: Sequence[MemoryWish]) -> list[int]:
    """Parts (bytes) of a device's memory for several runs.

    A run without a job gets what its first one needs, the longest wait first: else two runs, each with a job larger
    than half of the device, would wait for ever. The rest is divided max-min with equal weights: a run that wants
    little has that, and what all leave goes in equal parts to those that want any.
    """
    parts, left_bytes = [0] * len(wishes), memory_bytes
    for place in sorted(range(len(wishes)), key=lambda place: (wishes[place].since_s, wishes[place].number)):
        if 0 < wishes[place].needed_bytes <= left_bytes:
            parts[place] = wishes[place].needed_bytes
            left_bytes -= parts[place]
    wanting = [place for place, wish in enumerate(wishes) if wish.wanted_bytes > 0]
    wanting.sort(key=lambda place: wishes[place].wanted_bytes - parts[place])
    for done, place in enumerate(wanting):
        more_bytes = min(max(0, wishes[place].wanted_bytes - parts[place]), left_bytes // (len(wanting) - done))
        parts[place] += more_bytes
        left_bytes -= more_bytes
    for place in wanting:
        parts[place] += left_bytes // len(wanting)
    return parts
