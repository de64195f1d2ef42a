"""A lane in virtual time: who has the turn, how far its jobs are, and when something happens by itself.

Turns go from job to job by the same function as in real lanes (`core/turns.py`). Between two events nothing changes,
so a lane costs one event a turn, and a job that has no rival in its lane needs no turns at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from ecoshare.core.commands import Share
from ecoshare.core.events import Usage
from ecoshare.core.turns import Contender, next_holder, quantum_s, service_on_return_s
from ecoshare.simulate.traces.job_trace import TraceJob

COARSE = 1 / 200
"""A simulated turn stands for several real ones where these are a smaller part than this of what its job has left."""


TOLD_S, TOLD_SHARE = 1.0, 0.01
"""Progress in a shared lane is looked at once a second, and told where a hundredth more was done, as in live runs;
looked at less often where nobody can have done so much."""

_NEARLY = 1e-9
"""Of an iteration: it is over, but for rounding."""


@dataclass(slots=True, eq=False)
class SimulatedAttempt:
    """An attempt of a job in its lane.

    Attributes:
        left_s: Work that is left, in seconds alone on the device that the trace was made on; `work_s`: of all of it.
        cap_bytes: Most memory that it may rise to.
        held_s: Time that this attempt has held the turn.
        service_s: The same by its weight, on the lane's clock of service.
        since_s: When it began to wait.
        told_s: Of `held_s`, what the core knows.
        speed: Work done in a second of the turn.
        steps: Values that it reports in all, and `reported`: those that are told.
    """

    job: TraceJob
    attempt: int
    lanes: tuple[int, ...]
    left_s: float
    began_left_s: float
    work_s: float
    cap_bytes: int
    rank: int = 0
    weight: float = 1.0
    held_s: float = 0.0
    service_s: float = 0.0
    since_s: float = 0.0
    told_s: float = 0.0
    speed: float = 1.0
    handovers: int = 0
    steps: int = 0
    reported: int = 0

    @property
    def report_left_s(self) -> float:
        """Work until it reports its next value; infinite where it has no more."""
        if self.reported >= self.steps:
            return math.inf
        whole_s = self.work_s - self.job.startup_s
        return (self.reported + 1) * whole_s / self.steps - (whole_s - self.left_s)

    @property
    def has_report(self) -> bool:
        """Whether its next value is there."""
        return self.report_left_s <= _NEARLY * self.work_s

    @property
    def iteration_s(self) -> float:
        """Length of an iteration now, alone."""
        return self._phase()[2]

    def boundary_s(self) -> float:
        """Work until its next boundary; none where it is at one. What comes before the first iteration has none."""
        done_s, _, iteration_s = self._phase()
        if iteration_s <= 0.0:
            return 0.0
        return max(0.0, max(1 if done_s < 0.0 else 0, math.ceil(done_s / iteration_s - _NEARLY)) * iteration_s - done_s)

    def turn_s(self, work_s: float) -> float:
        """Work until its first boundary at which so much has been done: at least an iteration."""
        done_s, iterations, iteration_s = self._phase()
        if iteration_s <= 0.0:
            return work_s
        ahead = max(0, math.floor(done_s / iteration_s + _NEARLY)) + 1
        wanted = math.ceil((done_s + work_s) / iteration_s - _NEARLY)
        return max(min(max(ahead, wanted), iterations) * iteration_s - done_s, min(iteration_s, self.left_s))

    def usage(self) -> Usage:
        """What this attempt has done so far."""
        first, last = self._iterations(self.began_left_s), self._iterations(self.left_s)
        count = last - first
        # As real jobs count: from the first boundary to the last.
        span_s = max(0.0, self.held_s - (0.0 if first else self.job.startup_s)) * (1.0 - 1.0 / count) if count else 0.0
        return Usage(
            iterations=count,
            held_s=self.held_s,
            span_s=span_s,
            peak_bytes=0 if self.job.memory is None else min(self.cap_bytes, self.job.memory.peak_bytes),
            handovers=self.handovers,
            left_s=self._expected_s(),
        )

    @property
    def phase_left_s(self) -> float:
        """Work until its iterations become others, which shows; infinite where they stay as they are."""
        if len(self.job.phases) == 1:
            return math.inf
        done_s, iterations, iteration_s = self._phase()
        left_s = iterations * iteration_s - done_s
        return left_s if left_s < self.left_s - _NEARLY else math.inf

    def _expected_s(self) -> float | None:
        """Turn time that it needs still by its present speed: what its epochs will be like, nobody knows.

        None where that is what its iterations tell.
        """
        return None if len(self.job.phases) == 1 else expected_s(self.job, self.left_s)

    def _phase(self) -> tuple[float, int, float]:
        """Of the phase that it is in: work done there, negative before the first; iterations, and how long one is."""
        done_s = self.work_s - self.left_s - self.job.startup_s
        for phase in self.job.phases:
            whole_s = phase.iterations * phase.iteration_s
            if done_s < whole_s * (1.0 - _NEARLY):
                break
            done_s -= whole_s
        else:
            done_s += whole_s
        return done_s, phase.iterations, phase.iteration_s

    def _iterations(self, left_s: float) -> int:
        """Iterations that are done when so much is left."""
        if left_s <= 0.0:
            return self.job.iterations
        done_s, count = self.work_s - left_s - self.job.startup_s, 0
        for phase in self.job.phases:
            if done_s <= 0.0:
                break
            whole = int(done_s / phase.iteration_s + _NEARLY) if phase.iteration_s else phase.iterations
            count += min(phase.iterations, whole)
            done_s -= phase.iterations * phase.iteration_s
        return count


def expected_s(job: TraceJob, left_s: float) -> float:
    """Turn time that a job with so much work left needs still, by its present speed, if it counts its epochs."""
    done_s = job.service_s - left_s - job.startup_s
    epochs, epoch_s = 0.0, 0.0
    for phase in job.phases:
        if phase.epoch_iterations is None:
            return left_s
        whole_s = phase.iterations * phase.iteration_s
        if done_s < whole_s * (1.0 - _NEARLY):
            epoch_s = epoch_s or phase.epoch_iterations * phase.iteration_s
            epochs += (1.0 - max(0.0, done_s) / whole_s) * phase.iterations / phase.epoch_iterations
        done_s = min(0.0, done_s - whole_s) if epoch_s else done_s - whole_s
    return epochs * epoch_s + max(0.0, left_s - job.service_s + job.startup_s)


@dataclass(slots=True, eq=False)
class VirtualLane:
    """One lane.

    Attributes:
        handover_s: What it costs to hand the turn over.
        at_s: Up to when its jobs' progress is counted.
        next_s: When its holder ends, its turn does, or it is to be told of; infinite where nobody has the turn.
        ends: Whether that is the holder's end.
        tells: Whether the core must be told then how far its jobs are; `looked_s`: when it was told last.
        version: Changes with `next_s`, so that an older one is known to be void.
        planned: The version that the driver has noted.
        claims: Ranks and weights of its jobs, and of those that are being started.
        closely: Whether progress is told as in live runs even where one job is alone in it.
        watched_s: Since when it is told even where one job is alone in it, beside those of other lanes; infinite
            where it is not.
        only: Who alone may have the turn; empty for nobody, None for all.
    """

    handover_s: float
    closely: bool = False
    seats: dict[str, SimulatedAttempt] = field(default_factory=dict)
    holder: SimulatedAttempt | None = None
    at_s: float = 0.0
    turn_ends_s: float = math.inf
    next_s: float = math.inf
    ends: bool = False
    tells: bool = False
    looked_s: float = 0.0
    version: int = 0
    planned: int = 0
    claims: dict[str, tuple[int, float]] = field(default_factory=dict)
    watched_s: float = math.inf
    only: str | None = None

    @property
    def is_watched(self) -> bool:
        """Whether each look at its one job is told."""
        return self.watched_s < math.inf and len(self.seats) == 1

    def watch(self, wanted: bool, now_s: float) -> None:
        """Whether the core wants to know how far its job is although it has the lane to itself."""
        if wanted != (self.watched_s < math.inf):
            self.advance(now_s)
            self.watched_s = now_s if wanted else math.inf
            self._plan()

    def reserve(self, only: str | None, now_s: float) -> None:
        """Let one job alone have the turn, nobody (empty), or all again (None); a holder goes on to its boundary."""
        self.advance(now_s)
        self.only = only
        holder = self.holder
        if holder is None:
            self._grant(now_s)
        elif not self._may(holder):
            self.turn_ends_s = max(self.at_s, now_s) + holder.boundary_s() / holder.speed
            self._plan()
        else:
            self.turn_ends_s = math.inf
            self._look(now_s)

    def _may(self, seat: SimulatedAttempt) -> bool:
        return self.only is None or self.only == seat.job.name

    def _rivals(self, holder: SimulatedAttempt) -> list[SimulatedAttempt]:
        """Those that may have the turn beside its holder."""
        return [each for each in self.seats.values() if each is not holder and self._may(each)]

    def join(self, seat: SimulatedAttempt, now_s: float) -> None:
        """A job wants turns from now on."""
        self.advance(now_s)
        seat.rank, seat.weight = self.claims.get(seat.job.name, (0, 1.0))
        seat.since_s = now_s
        seat.service_s = service_on_return_s(0.0, [each.service_s for each in self.seats.values()])
        self.seats[seat.job.name] = seat
        self._look(now_s)

    def leave(self, name: str, now_s: float) -> None:
        """A job has ended or was stopped."""
        self.advance(now_s)
        seat = self.seats.pop(name)
        if not self.seats:
            self.watched_s = math.inf
        if seat is self.holder:
            self._grant(now_s)
        else:
            self._look(now_s)

    def claim(self, shares: Iterable[Share], now_s: float) -> None:
        """Ranks and weights have changed."""
        self.claims = {share.job: (share.rank, share.weight) for share in shares}
        for name, seat in self.seats.items():
            seat.rank, seat.weight = self.claims.get(name, (seat.rank, seat.weight))
        if len(self.seats) > 1:
            self.advance(now_s)
            self._look(now_s)

    def go_on(self, now_s: float) -> None:
        """The holder's turn is over, or it is told of."""
        self.advance(now_s)
        if self.tells:
            self.looked_s = now_s
        if now_s >= self.turn_ends_s:
            self._grant(now_s)
        else:
            self._plan()

    def heard(self, now_s: float) -> None:
        """What its holder had to report is told."""
        self.advance(now_s)
        self._plan()

    def advance(self, now_s: float) -> None:
        """Count what was done until now."""
        seat = self.holder
        if seat is not None and now_s > self.at_s:
            passed_s = now_s - self.at_s
            seat.left_s -= passed_s * seat.speed
            seat.held_s += passed_s
            seat.service_s += passed_s / seat.weight
            self.at_s = now_s

    def set_speed(self, speed: float, now_s: float) -> None:
        """Its holder does so much work in a second from now on."""
        if self.holder is not None and self.holder.speed != speed:
            self.advance(now_s)
            self.holder.speed = speed
            self._plan()

    def _look(self, now_s: float) -> None:
        """Somebody came, went or has another claim: the turn may end earlier or later."""
        holder = self.holder
        if holder is None:
            self._grant(now_s)
            return
        if not self._may(holder):
            return
        rivals = [each for each in self._rivals(holder) if each.rank <= holder.rank]
        if not rivals:
            self.turn_ends_s = math.inf
        elif any(each.rank < holder.rank for each in rivals):
            self.turn_ends_s = max(self.at_s, now_s) + holder.boundary_s() / holder.speed
        elif self.turn_ends_s == math.inf:
            self.turn_ends_s = now_s + self._turn_s(holder)
        self._plan()

    def _grant(self, now_s: float) -> None:
        before, self.holder = self.holder, None
        self.at_s = now_s
        seats = [each for each in self.seats.values() if self._may(each)]
        if before is not None:
            before.since_s = now_s
        contenders = [Contender(slot, each.rank, each.service_s, each.since_s) for slot, each in enumerate(seats)]
        chosen = next_holder(contenders) if len(contenders) != 1 else 0
        if chosen is not None:
            holder = self.holder = seats[chosen]
            if holder is not before:
                holder.handovers += 1
                self.at_s = now_s + (self.handover_s if before is not None else 0.0)
            rivals = any(each.rank <= holder.rank for each in self._rivals(holder))
            self.turn_ends_s = self.at_s + self._turn_s(holder) if rivals else math.inf
        self._plan()

    def _turn_s(self, holder: SimulatedAttempt) -> float:
        """Length of a turn: whole iterations, and several real turns in one where nobody could tell."""
        rivals = [holder, *(each for each in self._rivals(holder) if each.rank <= holder.rank)]
        longest_s = max(each.iteration_s / each.speed for each in rivals)
        turn_s = quantum_s(len(rivals), self.handover_s, longest_s)
        turn_s = max(turn_s, COARSE * min(each.left_s / each.speed for each in rivals))
        return holder.turn_s(turn_s * holder.speed) / holder.speed

    def _plan(self) -> None:
        self.version += 1
        holder = self.holder
        if holder is None:
            self.next_s, self.ends = math.inf, False
            return
        end_s = self.at_s + max(0.0, holder.left_s) / holder.speed
        shows_s = min(holder.phase_left_s, max(0.0, holder.report_left_s))
        shown_s = self.at_s + shows_s / holder.speed
        if shows_s and shown_s == self.at_s:  # too soon to be told apart from now: or the time would stand still
            shown_s = math.nextafter(self.at_s, math.inf)
        tell_s = min(shown_s, self._look_s())
        self.ends = end_s <= min(self.turn_ends_s, tell_s)
        self.tells = not self.ends and tell_s <= self.turn_ends_s
        self.next_s = min(end_s, self.turn_ends_s, tell_s)

    def _look_s(self) -> float:
        """When progress is looked at next; never where one is alone, and what it has done follows from the time."""
        if self.holder is None or (len(self.seats) == 1 and self.watched_s == math.inf and not self.closely):
            return math.inf
        if len(self.seats) == 1 and not self.closely:
            # Soon, and ever more rarely: what its neighbour does to it shows at once.
            return max(self.at_s, self.watched_s + max(TOLD_S, 2.0 * (self.looked_s - self.watched_s)))
        return max(self.at_s, self.looked_s + max(TOLD_S, TOLD_SHARE * self.holder.held_s))
