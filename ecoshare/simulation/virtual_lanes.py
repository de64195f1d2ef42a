"""Lanes and devices of a simulation. A change of a holder changes the power of its device and the speeds there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any

from ecoshare.base.measurement import Setting
from ecoshare.core.commands import Share
from ecoshare.core.turns import (
    WAIT_PER_JOB_S,
    Contender,
    CuttableTurn,
    cut_at_s,
    expected_cut_s,
    next_holder,
    quantum_s,
    service_on_return_s,
    stretch_s,
    successor,
)
from ecoshare.simulation.result import UsageIntegrals
from ecoshare.simulation.simulated_attempt import Claim, ServiceAttempt, SimulatedAttempt
from ecoshare.simulation.world import Truth


class What(IntEnum):
    """Kinds of coming events, in their order at one moment."""

    DONE = 0
    STOPPED = 1
    LANE = 2
    MEASURED = 3
    WAKE = 4


class ComingEvents:
    """Heap of coming events. Events of one time and kind come in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, What, int, Any]] = []
        self._order = 0

    def push(self, at_s: float, what: What, subject: Any) -> None:
        """Add an event at a time (s)."""
        self._order += 1
        heappush(self._heap, (at_s, what, self._order, subject))

    def pop(self) -> tuple[float, What, Any]:
        """Take out the next event: its time (s), kind and subject.

        Raises:
            IndexError: No event will come.
        """
        at_s, what, _, subject = heappop(self._heap)
        return at_s, what, subject

    @property
    def next_s(self) -> float:
        """Time (s) of the next event; infinite if none will come."""
        return self._heap[0][0] if self._heap else math.inf


@dataclass(slots=True, eq=False)
class VirtualDevice:
    """One device in virtual time.

    Attributes:
        name: Name of the device.
        at_work: Attempt that holds the turn, keyed by lane number; idle lanes are absent.
        watts: Power (W) above idle.
        busy: Whether any job is at work.
        lanes: Numbers of the device's lanes.
        setting: Setting in force.
    """

    name: str
    at_work: dict[int, SimulatedAttempt] = field(default_factory=dict)
    watts: float = 0.0
    busy: bool = False
    lanes: list[int] = field(default_factory=list)
    setting: Setting = ()

    @property
    def seats(self) -> list[SimulatedAttempt]:
        """Attempts at work on the device."""
        return list(self.at_work.values())

    def others(self, lanes: Sequence[int]) -> list[SimulatedAttempt]:
        """Attempts at work on the device in lanes other than `lanes`."""
        return [seat for lane, seat in self.at_work.items() if lane not in lanes]


COARSE = 1 / 200
"""Least length of a simulated turn / turn time left to the rival nearest its end. A longer simulated turn stands for
several real ones."""

TOLD_S, TOLD_SHARE = 1.0, 0.01
"""Interval (s) at which progress in a shared lane is checked, and relative progress from which it is reported. Live
runs use the same. The lane checks less often while no job can have made that much progress."""

EARLY_S = 0.1
"""Interval (s) at which a job on processors is looked at until its first iteration. Live runs use the same."""

_ROUNDING_S = 1e-9
"""Tolerance (s) for rounding: a quantum this close to its end is used up."""


@dataclass(slots=True, eq=False)
class VirtualLane:
    """One lane in virtual time.

    Real lanes choose the next holder by the same functions (`core/turns.py`). Nothing changes between two events, so a
    lane costs one event a turn. A job without a rival in its lane needs no turns at all.

    A lane with a service is simulated to the iteration: while a request waits, each boundary of the holder is an event.

    ::

        requests            ▼            ▼ ▼
        service            ▏██▏         ▏███▏          wants the turn while requests wait; a batch is its iteration
        training   ████████▏  ▏█████████▏   ▏██████    offers its turn at each boundary while a request waits

    If no boundary comes in time, the turn is cut inside an iteration, by the rule of real lanes.

    Attributes:
        handover_s: Time (s) of a hand-over.
        closely: Whether progress of a lone job is reported, too, as in live runs.
        looks_early: Whether its first iteration is reported at once, as on processors.
        seats: Attempts in the lane, keyed by job name.
        holder: Attempt that holds the turn; None for none.
        at_s: Time (s) up to which progress is counted.
        began_s: Time (s) at which the turn began.
        turn_ends_s: Time (s) at which the turn ends, or is offered; infinite for a holder without rivals.
        is_cut: Whether that is inside an iteration.
        next_s: Time (s) of the next event: the holder ends, its turn ends, or progress is due. Infinite if no job has
            the turn.
        ends: Whether the holder ends at `next_s`.
        tells: Whether progress is due at `next_s`.
        looked_s: Time (s) at which progress was checked last.
        version: Counter that changes with `next_s`, so that the driver can drop events that are out of date.
        planned: Version that the driver has scheduled.
        claims: Rank and weight of each job in the lane, and of jobs that are being started.
        watched_s: Time (s) from which progress of a lone job is reported, because of neighbours in other lanes;
            infinite if it is not.
        only: The one job that may hold the turn; empty for no job, None for all.
        services: Number of services in the lane.
        virtual_s: Largest service of any holder so far.
        empties: Whether caches are emptied at a hand-over: there is no memory for cuts then.
    """

    handover_s: float
    closely: bool = False
    looks_early: bool = False
    seats: dict[str, SimulatedAttempt] = field(default_factory=dict)
    holder: SimulatedAttempt | None = None
    at_s: float = 0.0
    began_s: float = 0.0
    turn_ends_s: float = math.inf
    is_cut: bool = False
    next_s: float = math.inf
    ends: bool = False
    tells: bool = False
    looked_s: float = 0.0
    version: int = 0
    planned: int = 0
    claims: dict[str, tuple[int, float]] = field(default_factory=dict)
    watched_s: float = math.inf
    only: str | None = None
    services: int = 0
    virtual_s: float = 0.0
    empties: bool = False

    @property
    def is_watched(self) -> bool:
        """Whether each check of the lone job is reported."""
        return self.watched_s < math.inf and len(self.seats) == 1

    def watch(self, wanted: bool, now_s: float) -> None:
        """Turn reports on the progress of a lone job on or off."""
        if wanted != (self.watched_s < math.inf):
            self.advance(now_s)
            self.watched_s = now_s if wanted else math.inf
            self._plan()

    def reserve(self, only: str | None, now_s: float) -> None:
        """Restrict turns to one job, to no job (empty), or to all (None); the holder goes on to its boundary."""
        self.advance(now_s)
        self.only = only
        holder = self.holder
        if holder is None:
            self._grant(now_s)
        elif not self._may(holder):
            self.turn_ends_s = max(self.at_s, now_s) + holder.boundary_s() / holder.rate
            self._plan()
        else:
            self.turn_ends_s = math.inf
            self._look(now_s)

    def close(self, is_closed: bool, now_s: float) -> None:
        """Give no job the turn from now on, or all again. The holder goes on to its boundary, or is cut before that."""
        self.reserve("" if is_closed else None, now_s)
        holder = self.holder
        if is_closed and holder is not None and holder.job.is_cuttable and not (self.empties or holder.is_service):
            self.turn_ends_s = min(self.turn_ends_s, max(self.at_s, now_s) + expected_cut_s(holder.longest_s))
            self._plan()

    def _may(self, seat: SimulatedAttempt) -> bool:
        return seat.wants_turn and (self.only is None or self.only == seat.job.name)

    def _rivals(self, holder: SimulatedAttempt) -> list[SimulatedAttempt]:
        """Attempts other than the holder that may have the turn."""
        return [each for each in self.seats.values() if each is not holder and self._may(each)]

    def join(self, seat: SimulatedAttempt, now_s: float) -> None:
        """Add a job that wants turns from now on."""
        self.advance(now_s)
        seat.rank, seat.weight = self.claims.get(seat.job.name, (0, 1.0))
        seat.since_s = now_s
        present_s = [each.service_s for each in self.seats.values() if each.wants_turn]
        seat.service_s = service_on_return_s(0.0, present_s or [self.virtual_s])
        self.seats[seat.job.name] = seat
        self.services += seat.is_service
        self._look(now_s)

    def leave(self, name: str, now_s: float) -> None:
        """Remove a job that has ended, moved or was stopped."""
        self.advance(now_s)
        seat = self.seats.pop(name)
        self.services -= seat.is_service
        if isinstance(seat, ServiceAttempt):
            seat.claim = None
        for each in self.seats.values() if not self.services else ():
            each.pace = 1.0
        if not self.seats:
            self.watched_s = math.inf
        if seat is self.holder:
            self._grant(now_s)
        else:
            self._look(now_s)

    def claim(self, shares: Iterable[Share], now_s: float) -> None:
        """Set the ranks and weights of the jobs."""
        self.claims = {share.job: (share.rank, share.weight) for share in shares}
        for name, seat in self.seats.items():
            seat.rank, seat.weight = self.claims.get(name, (seat.rank, seat.weight))
        if len(self.seats) > 1:
            self.advance(now_s)
            self._look(now_s)

    def go_on(self, now_s: float) -> None:
        """Continue after the end of a turn, or after a progress check."""
        self.advance(now_s)
        if self.tells:
            self.looked_s = now_s
        if now_s < self.turn_ends_s:
            self._plan()
        elif self.services:
            self._offer(now_s)
        else:
            self._grant(now_s)

    def want(self, seat: ServiceAttempt, claim: Claim, now_s: float) -> None:
        """Let a service want the turn, which it neither has nor wants."""
        self.advance(now_s)
        present = [each for each in self.seats.values() if each.wants_turn]
        present_s = [each.service_s for each in present]
        credit_s = self._longest_turn_s() / min((each.weight for each in present), default=1.0)
        seat.back = seat.handovers > 0
        seat.since_s, seat.claim = now_s, claim
        seat.service_s = service_on_return_s(
            seat.service_s, present_s or [self.virtual_s], credit_s if seat.back else 0.0
        )
        self._look(now_s)

    def answered(self, seat: ServiceAttempt, now_s: float) -> None:
        """End the batch of the holder: it offers the turn if more requests wait, or leaves it."""
        self.advance(now_s)
        seat.left_s = 0.0
        seat.claim = seat.requests.answered(now_s)
        if seat.claim is None:
            self._grant(now_s)
        else:
            self._offer(now_s)

    def heard(self, now_s: float) -> None:
        """Continue after the holder has reported a value."""
        self.advance(now_s)
        self._plan()

    def advance(self, now_s: float) -> None:
        """Count the holder's progress up to `now_s`."""
        seat = self.holder
        if seat is not None and now_s > self.at_s:
            passed_s = now_s - self.at_s
            seat.left_s -= passed_s * seat.rate
            seat.held_s += passed_s
            seat.service_s += passed_s / seat.weight
            self.at_s = now_s
            self.virtual_s = max(self.virtual_s, seat.service_s)

    def set_speed(self, speed: float, now_s: float) -> None:
        """Set the speed of the holder: work done in a second of its turn from now on."""
        if self.holder is not None and self.holder.speed != speed:
            self.advance(now_s)
            self.holder.speed = speed
            if self.services and self._may(self.holder):
                self._set_end(self._offers_s(max(self.at_s, now_s)), now_s)
            self._plan()

    def _look(self, now_s: float) -> None:
        """Adapt the end of the turn after a job came, went or got another claim."""
        holder = self.holder
        if holder is None:
            self._grant(now_s)
            return
        if not self._may(holder):
            return
        rivals = [each for each in self._rivals(holder) if each.rank <= holder.rank]
        if self.services:
            self._set_end(self._offers_s(max(self.at_s, now_s)), now_s)
        elif not rivals:
            self.turn_ends_s = math.inf
        elif any(each.rank < holder.rank for each in rivals):
            self._set_end(max(self.at_s, now_s) + holder.boundary_s() / holder.rate, now_s)
        elif self.turn_ends_s == math.inf:
            self.turn_ends_s = now_s + self._turn_s(holder)
        self._plan()

    def _grant(self, now_s: float) -> None:
        """Let the next job have the turn."""
        if self.holder is not None:
            self.holder.since_s = now_s
        if self.services:
            chosen = next_holder(self._contenders(), now_s, self._longest_turn_s(), self._bound_s())
            self._give(None if chosen is None else self._seat(chosen), now_s)
            return
        seats = [each for each in self.seats.values() if self._may(each)]
        contenders = [Contender(slot, each.rank, each.service_s, each.since_s) for slot, each in enumerate(seats)]
        chosen = next_holder(contenders) if len(contenders) != 1 else 0
        self._give(None if chosen is None else seats[chosen], now_s)

    def _offer(self, now_s: float) -> None:
        """Offer the turn at a boundary of the holder, or inside an iteration, as `lane/turn.py` does.

        A service that keeps it goes on.
        """
        holder = self.holder
        assert holder is not None, "a holder has boundaries"
        if not self._may(holder):
            self._grant(now_s)
            return
        used_up = self.is_cut or now_s - self.began_s >= self._quantum_s() - _ROUNDING_S
        place = list(self.seats).index(holder.job.name)
        mine = holder.contender(place)._replace(since_s=now_s)
        if self.is_cut:  # nothing tells how long it would go on
            mine, holder.is_inside = mine._replace(needs_s=math.inf), True
        others = [each for each in self._contenders() if each.slot != place]
        chosen = successor(mine, others, used_up, now_s, self._longest_turn_s(), self._bound_s())
        if chosen != place:
            holder.since_s = now_s
            self._give(self._seat(chosen), now_s)
            return
        if used_up and others:  # a live holder does not even look if no job waits
            self.began_s = now_s
        self._start(holder, now_s)

    def _give(self, seat: SimulatedAttempt | None, now_s: float) -> None:
        """Give the turn to a job, or to none."""
        before, self.holder = self.holder, seat
        self.at_s = now_s
        if seat is None:
            self.turn_ends_s = math.inf
            self._plan()
            return
        if seat is not before:
            seat.handovers += 1
            self.at_s = now_s + (self.handover_s if before is not None else 0.0)
        seat.back, self.began_s = False, self.at_s
        self._start(seat, now_s)

    def _start(self, holder: SimulatedAttempt, now_s: float) -> None:
        """Let the holder begin: a service its next batch, and any other job a turn, or what is left of it."""
        if isinstance(holder, ServiceAttempt):
            holder.left_s = holder.requests.begin(self.at_s)
        if self.services:
            if not holder.is_inside:
                holder.vary()
            holder.is_inside = False
            self._set_end(self._offers_s(max(self.at_s, now_s)), now_s)
        else:
            rivals = any(each.rank <= holder.rank for each in self._rivals(holder))
            self.turn_ends_s = self.at_s + self._turn_s(holder) if rivals else math.inf
        self._plan()

    def _seat(self, slot: int) -> SimulatedAttempt:
        return list(self.seats.values())[slot]

    def _contenders(self) -> list[Contender]:
        """Jobs that want the turn and may have it, the holder included."""
        return [each.contender(slot) for slot, each in enumerate(self.seats.values()) if self._may(each)]

    def _offers_s(self, now_s: float) -> float:
        """Time (s) of the holder's next boundary at which another job may get the turn; infinite if none can.

        A service offers its turn after each batch, which is an end and no boundary here. A training job offers it when
        its quantum is used up, and at each boundary if a service or a more urgent job waits or its iterations vary.
        """
        holder = self.holder
        assert holder is not None, "a turn has a holder"
        rivals = self._rivals(holder)
        if holder.is_service or not (rivals or holder.job.spread):
            return math.inf
        at_once = holder.job.spread or any(each.is_service or each.rank < holder.rank for each in rivals)
        least_s = 0.0 if at_once else self.began_s + self._quantum_s() - now_s
        return now_s + holder.next_boundary_s(max(0.0, least_s) * holder.rate) / holder.rate

    def _set_end(self, boundary_s: float, now_s: float) -> None:
        """Let the turn end at a boundary (s), or be cut before that for a job that waits."""
        holder = self.holder
        assert holder is not None, "a turn has a holder"
        self.turn_ends_s, self.is_cut = boundary_s, False
        if self.empties or not holder.job.is_cuttable or boundary_s <= now_s:
            return
        cut_s = expected_cut_s(holder.longest_s)
        turn = CuttableTurn(holder.rank, self.began_s, boundary_s, cut_s)
        for slot, each in enumerate(self.seats.values()):
            if each is not holder and self._may(each):
                at_s = cut_at_s(turn, each.contender(slot), now_s, self._quantum_s(), self._bound_s())
                at_s = max(self.at_s, now_s, at_s) + cut_s
                if at_s < self.turn_ends_s:
                    self.turn_ends_s, self.is_cut = at_s, True

    def _quantum_s(self) -> float:
        """Quantum (s) of a lane with services: all jobs count, as in the table of a live lane."""
        return quantum_s(len(self.seats), self.handover_s, self._longest_s())

    def _longest_s(self) -> float:
        return max((self._stretch_s(each, len(self.seats)) for each in self.seats.values()), default=0.0)

    def _stretch_s(self, seat: SimulatedAttempt, jobs: int) -> float:
        """Time (s) for which a job keeps the others waiting beyond its quantum: an iteration, or the time to a cut."""
        longest_s = seat.longest_s
        if self.empties or not seat.job.is_cuttable:
            return longest_s
        return stretch_s(longest_s, expected_cut_s(longest_s), jobs)

    def _longest_turn_s(self) -> float:
        return self._quantum_s() + self._longest_s() + self.handover_s

    def _bound_s(self) -> float:
        return len(self.seats) * WAIT_PER_JOB_S

    def _turn_s(self, holder: SimulatedAttempt) -> float:
        """Length (s) of a turn: whole iterations unless it is cut; several real turns in one if that is the same."""
        rivals = [holder, *(each for each in self._rivals(holder) if each.rank <= holder.rank)]
        longest_s = max(each.iteration_s / each.speed for each in rivals)
        if longest_s > WAIT_PER_JOB_S:
            longest_s = max(self._stretch_s(each, len(rivals)) for each in rivals)
        turn_s = quantum_s(len(rivals), self.handover_s, longest_s)
        turn_s = max(turn_s, COARSE * min(each.left_s / each.speed for each in rivals))
        if self._stretch_s(holder, len(rivals)) < holder.longest_s > turn_s:
            return turn_s
        return holder.turn_s(turn_s * holder.speed) / holder.speed

    def _plan(self) -> None:
        self.version += 1
        holder = self.holder
        if holder is None:
            self.next_s, self.ends = math.inf, False
            return
        end_s = self.at_s + max(0.0, holder.left_s) / holder.rate
        shows_s = min(holder.phase_left_s, max(0.0, holder.report_left_s))
        shown_s = self.at_s + shows_s / holder.rate
        if shows_s and shown_s == self.at_s:  # sooner than the clock resolves: without this, time would stand still
            shown_s = math.nextafter(self.at_s, math.inf)
        tell_s = min(shown_s, self._look_s())
        self.ends = end_s <= min(self.turn_ends_s, tell_s)
        self.tells = not self.ends and tell_s <= self.turn_ends_s
        self.next_s = min(end_s, self.turn_ends_s, tell_s)

    def _look_s(self) -> float:
        """Time (s) of the next progress check; infinite for a lone job, for which progress follows from the time."""
        if self.holder is None or (len(self.seats) == 1 and self.watched_s == math.inf and not self.closely):
            return math.inf
        if len(self.seats) == 1 and not self.closely:
            # Early at first, then ever more rarely: the effect of a neighbour shows at once.
            return max(self.at_s, self.watched_s + max(TOLD_S, 2.0 * (self.looked_s - self.watched_s)))
        if self.looks_early and not self.holder.told_s:
            return max(self.at_s, self.looked_s + max(EARLY_S, self.holder.iteration_s / self.holder.speed))
        return max(self.at_s, self.looked_s + max(TOLD_S, TOLD_SHARE * self.holder.held_s))


class VirtualLanes:
    """All lanes, each on its device.

    Attributes:
        lanes: Lanes by number.
        devices: Devices by name.
        watches: Whether the progress of a job is reported because of its neighbours in other lanes.
        are_closed: Whether no job gets a turn, because another run has its slice.
    """

    def __init__(
        self, world: Truth, account: UsageIntegrals, feels_neighbours: bool, push: Callable[[float, What, object], None]
    ) -> None:
        """No lane is open yet.

        Args:
            world: Speeds and watts.
            account: Integrals to which changes of power are added.
            feels_neighbours: Whether speeds change with the jobs at work, the setting or the time.
            push: Adds a coming event.
        """
        self.lanes: dict[int, VirtualLane] = {}
        self.devices: dict[str, VirtualDevice] = {}
        self.watches = self.are_closed = False
        self._device_of: dict[int, VirtualDevice] = {}
        self._world, self._account, self._push = world, account, push
        self._feels_neighbours = feels_neighbours

    def open(self, number: int, device_name: str, lane: VirtualLane) -> None:
        """Add a lane to a device."""
        lane.only = "" if self.are_closed else None
        self.lanes[number] = lane
        device = self.devices.setdefault(device_name, VirtualDevice(device_name))
        device.lanes.append(number)
        self._device_of[number] = device

    def of(self, seat: SimulatedAttempt) -> VirtualLane:
        """Lane in which an attempt takes turns: the first one of a job with several."""
        return self.lanes[seat.lanes[0]]

    def join(self, seat: SimulatedAttempt, now_s: float) -> None:
        """Let an attempt join its lane."""
        lane = self.of(seat)
        before, seat.speed = lane.holder, self._speed(seat, now_s)
        lane.join(seat, now_s)
        self.changed(lane, now_s, before)

    def leave(self, seat: SimulatedAttempt, now_s: float) -> None:
        """Let an attempt leave its lane."""
        lane = self.of(seat)
        before = lane.holder
        lane.leave(seat.job.name, now_s)
        self.changed(lane, now_s, before)

    def reserve(self, seat: SimulatedAttempt, only: str | None, now_s: float) -> VirtualDevice:
        """Restrict turns on the device of an attempt to one job, to no job (empty), or to all jobs (None)."""
        device = self._device_of[seat.lanes[0]]
        for number in device.lanes:
            lane = self.lanes[number]
            before = lane.holder
            lane.reserve(only if not only or number in seat.lanes else "", now_s)
            self.changed(lane, now_s, before)
        return device

    def close(self, are_closed: bool, now_s: float) -> None:
        """Give no job a turn from now on, or open all lanes again."""
        self.are_closed = are_closed
        for lane in self.lanes.values():
            before = lane.holder
            lane.close(are_closed, now_s)
            self.changed(lane, now_s, before)

    @property
    def are_held(self) -> bool:
        """Whether a job has a turn."""
        return any(lane.holder is not None for lane in self.lanes.values())

    @property
    def are_wanted(self) -> bool:
        """Whether a job has a turn, or waits for one."""
        return any(seat.wants_turn for lane in self.lanes.values() for seat in lane.seats.values())

    def beside(self, seat: SimulatedAttempt) -> list[SimulatedAttempt]:
        """Attempts at work in other lanes of the devices of an attempt."""
        return [other for number in seat.lanes for other in self._device_of[number].others(seat.lanes)]

    def changed(self, lane: VirtualLane, now_s: float, before: SimulatedAttempt | None) -> None:
        """Update the devices of a lane after a change of its holder, and plan the next event of the lane.

        Args:
            before: Attempt that held the turn before the change; None for none.
        """
        holder = lane.holder
        if holder is not before:
            touched: dict[str, VirtualDevice] = {}
            if before is not None:
                for number in before.lanes:
                    device = self._device_of[number]
                    touched[device.name] = device
                    del device.at_work[number]
            if holder is not None:
                for number in holder.lanes:
                    device = self._device_of[number]
                    touched[device.name] = device
                    device.at_work[number] = holder
            for device in touched.values():
                self.feel(device, now_s)
        self.plan(lane)

    def feel(self, device: VirtualDevice, now_s: float) -> None:
        """Update the power of a device and the speeds of the jobs at work on it."""
        busy, watts, seats = device.busy, device.watts, device.seats
        device.watts = self._world.device_watts([seat.job for seat in seats], device.name, device.setting, now_s)
        device.busy = bool(seats)
        self._account.work(device.busy - busy, device.watts - watts, now_s)
        for seat in seats if self._feels_neighbours else ():
            lane = self.of(seat)
            lane.set_speed(self._speed(seat, now_s), now_s)
            if self.watches:
                lane.watch(len(device.at_work) > 1, now_s)
            self.plan(lane)

    def plan(self, lane: VirtualLane) -> None:
        """Schedule the next event of a lane, if it has changed."""
        if lane.version != lane.planned:
            lane.planned = lane.version
            if lane.next_s < math.inf:
                self._push(lane.next_s, What.LANE, (lane, lane.version))

    def apply(self, device_name: str, setting: Setting, now_s: float) -> None:
        """Put a setting of a device in force."""
        device = self.devices[device_name]
        device.setting = setting
        self.feel(device, now_s)

    def _speed(self, seat: SimulatedAttempt, now_s: float) -> float:
        devices = [self._device_of[number] for number in seat.lanes]
        names = [device.name for device in devices]
        return self._world.speed(seat.job, names, [each.job for each in self.beside(seat)], devices[0].setting, now_s)
