"""Turns: which job holds the turn of a lane next, and for how long.

This module alone picks the next holder of a turn. A lane calls it inside the processes of its jobs at every hand-over.
The simulator calls it in virtual time. Neither asks the controller.

::

    rank 0   A ████████▏        ▏████████        ranks: the lowest rank that wants the turn has it
    rank 0   B         ▏████████▏        ████    equal ranks: least time held per unit of weight first,
                                                 unless a job has waited for too long
    rank 1   C                                   waits until no job of rank 0 wants the turn

A job that leaves its turn to load data keeps its claim: it comes back with the service that it had. Once the holder has
as much service, the job gets the turn at the holder's next boundary, not only at the end of the quantum.

::

    rank 0   A █▏  ▏█▏  ▏█▏  ▏█▏  ▏              loads data after each iteration
    rank 0   B  ▏██▏ ▏██▏ ▏██▏ ▏██▏              has the time that A leaves, at least half of it

A service waits with the time at which its answer is due. Before a job runs for so long that a service could not keep
its time, the service has the turn, whatever the ranks; of several services the one that is due first.

::

    service  S         ▏█▏          due ↓        the request came, and was answered, within one iteration of A
    rank 0   A ████████▏ ▏████████▏████████

If no boundary comes in time, the turn is cut inside an iteration (`cut_at_s`): for a service that would be late, for a
more urgent job, or at the end of a quantum where the wait of another job would exceed the bound.

::

    service  S              ▏█▏  due ↓
    rank 0   A █████████████▏  ▏██████████████   one iteration, whose memory stays on the device meanwhile
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

HANDOVER_SHARE = 0.01
"""Largest part of the time of a lane that hand-overs may take."""

SHORTEST_QUANTUM_S = 0.02
"""Shortest quantum (s) that is planned. Below it, noise in the measured cost of a hand-over outweighs the cost."""

FEWEST_ITERATIONS = 12
"""Fewest iterations in a quantum, if the bound of the longest wait allows it.

The last iterations then run warm, so they show how much time the first ones lost.
"""

WAIT_PER_JOB_S = 0.25
"""Default bound (s) of the longest wait for a turn, multiplied by the number of jobs in the lane."""

WAIT_MARGIN = 0.75
"""Part of that bound that quanta are planned to fill. The rest is a margin for longer iterations than those seen."""

HANDOVER_S = 0.001
"""Time (s) that is assumed for a hand-over to a service: many times the measured one, since its process must wake."""

URGENT_WAIT_S = 0.05
"""Longest wait (s) of a job behind one of another rank that is less urgent, if that can be cut."""

_OVERDUE_S = 0.001
"""Time (s) after which a boundary that was expected is overdue."""

FIRST_CUT_S, _CUT_SHARE = 0.005, 0.025
"""Least time (s) to a cut that is assumed before the first, and its part of the longest iteration: an operation is not
cut."""


def expected_cut_s(longest_iteration_s: float) -> float:
    """Time (s) to a cut inside an iteration at most, as long as none has been measured."""
    return max(FIRST_CUT_S, _CUT_SHARE * longest_iteration_s)


class Contender(NamedTuple):
    """Job that wants the turn of its lane.

    Attributes:
        slot: Index of the job in the table of the lane.
        rank: Rank; the lowest goes first, whatever was held before.
        service_s: Weighted service (s): time for which the job has held the turn / its weight.
        since_s: Time (s) at which the job began to wait.
        back: Whether the job had the turn before, left it to load data, and has not had it since.
        needs_s: Time (s) that the job runs at least once it has the turn, as an upper estimate: an iteration, or the
            answer of a service.
        due_s: Time (s) at which a service has to answer; infinity for any other job.
    """

    slot: int
    rank: int
    service_s: float
    since_s: float
    back: bool = False
    needs_s: float = 0.0
    due_s: float = math.inf

    @property
    def latest_s(self) -> float:
        """Latest time (s) at which a service must have the turn to answer in time; infinity for any other job."""
        return self.due_s - self.needs_s


class CuttableTurn(NamedTuple):
    """Turn that may be cut inside an iteration, as those that wait see it.

    Attributes:
        rank: Rank of its job.
        since_s: Time (s) at which it began.
        next_s: Latest time (s) at which its next boundary is expected, from the longest iteration of late; infinity if
            no iteration of the job was seen.
        cut_s: Time (s) from the wish for a cut to the hand-over, at most, of late.
    """

    rank: int
    since_s: float
    next_s: float
    cut_s: float


def cut_at_s(turn: CuttableTurn, waiting: Contender, now_s: float, quantum_s: float, bound_s: float) -> float:
    """Time (s) from which a turn is to be cut for a job that waits; infinity if the job is less urgent.

    A boundary that is expected in time is the better place: the job keeps no memory of an iteration there. So the turn
    is cut after that time only: the boundary is overdue then.

    Args:
        turn: The turn.
        waiting: A job that waits.
        now_s: Present time (s), as in `next_holder`.
        quantum_s: Quantum (s) of the lane.
        bound_s: Bound (s) of the wait of a job among jobs of equal rank.
    """
    if waiting.due_s < math.inf:
        last_s, wanted_s = waiting.latest_s - HANDOVER_S, waiting.since_s
    elif waiting.rank < turn.rank:
        last_s = wanted_s = waiting.since_s + URGENT_WAIT_S
    elif waiting.rank == turn.rank:
        last_s = waiting.since_s + bound_s
        wanted_s = min(last_s, turn.since_s + quantum_s)
    else:
        return math.inf
    at_s = wanted_s - min(turn.cut_s, 0.5 * quantum_s)
    is_expected = now_s <= turn.next_s <= last_s and turn.next_s < math.inf
    return max(at_s, turn.next_s + _OVERDUE_S) if is_expected else at_s


def stretch_s(longest_s: float, cut_s: float, jobs: int, wait_per_job_s: float = WAIT_PER_JOB_S) -> float:
    """Time (s) for which a job that can be cut keeps the others waiting beyond its quantum, at most.

    It is an iteration, or the time to a cut if iterations are so long that they would leave no quantum.

    Args:
        longest_s: Longest iteration (s) of the job of late.
        cut_s: Time (s) to a cut, as in `CuttableTurn`.
        jobs: Number of jobs in the lane.
        wait_per_job_s: Bound (s) of the longest wait, multiplied by the number of jobs.
    """
    room_s = WAIT_MARGIN * jobs * wait_per_job_s / max(1, jobs - 1)
    is_short = jobs < 2 or longest_s + SHORTEST_QUANTUM_S <= room_s
    return longest_s if is_short else min(longest_s, cut_s, 0.5 * room_s)


def pressing(waiting: Iterable[Contender], now_s: float, needs_s: float) -> Contender | None:
    """Service that gets the turn before another job runs for `needs_s` (s); None if every service can wait for that.

    It is the one that is due first (earliest deadline first: Jackson, 1955), even if another is the one that cannot
    wait. Ranks and shares do not count.
    """
    services = [each for each in waiting if each.due_s < math.inf]
    if all(now_s + needs_s <= each.latest_s for each in services):
        return None
    return min(services, key=lambda each: (each.due_s, each.slot))


def next_holder(
    contenders: Iterable[Contender], now_s: float = 0.0, turn_s: float = 0.0, bound_s: float = math.inf
) -> int | None:
    """Slot that gets the turn; None if no job wants it.

    Ranks have strict priority. Inside a rank the smallest weighted service goes first: start-time fair queueing (Goyal
    et al., 1997) with turns in place of packets. Ties go to the longest wait, then to the lower slot, so equal tables
    always give equal answers.

    If turns differ in length, fair queueing gives a job two turns in a row. The job with the least service gets the
    turn if all waiting jobs could still be served within the bound afterwards, the longest wait first. Otherwise the
    job with the longest wait gets it. The job with the least service itself counts among those still to be served, as a
    margin. It does not count if it was away: in a lane of few jobs, the margin would keep it from coming in early.
    A service with answers that take longer than the bound has no claim to be served within it: its turns would follow
    each short wait of its own, and leave the other jobs far less than their shares.

    A service that is `pressing` goes before the job that is chosen so, unless that job has waited beyond the bound: it
    has an iteration then, even if services could use all the time. If the chosen job is a service, the service that is
    due first has its turn.

    Args:
        contenders: Jobs that want the turn.
        now_s: Present time (s) on the clock of `since_s`.
        turn_s: Longest expected turn (s).
        bound_s: Bound (s) of the wait of a job among jobs of equal rank.
    """
    waiting = list(contenders)
    if not waiting:
        return None
    chosen = _fairest(waiting, now_s, turn_s, bound_s)
    is_service = chosen.due_s < math.inf
    if not is_service and now_s - chosen.since_s > bound_s:
        return chosen.slot
    first = pressing(waiting, now_s, math.inf if is_service else chosen.needs_s)
    return (first or chosen).slot


def _fairest(contenders: Sequence[Contender], now_s: float, turn_s: float, bound_s: float) -> Contender:
    """Job that gets the turn by ranks, shares and waits alone."""
    first = min(each.rank for each in contenders)
    waiting = sorted((each for each in contenders if each.rank == first), key=lambda each: (each.since_s, each.slot))
    least = min(waiting, key=lambda each: (each.service_s, each.since_s, each.slot))
    bounded = [each for each in waiting if each.due_s == math.inf or each.needs_s <= bound_s]
    served = [each for each in bounded if each is not least or not each.back]
    if any(now_s - each.since_s + (turns + 1) * turn_s > bound_s for turns, each in enumerate(served)):
        return bounded[0]
    return least


def service_on_return_s(own_s: float, present_s: Iterable[float], credit_s: float = 0.0) -> float:
    """Weighted service (s) with which a job joins the jobs present.

    A newcomer starts level with the least served job present: it does not catch up on time that it did not ask for. A
    job that was away to load data may be behind by its credit. Without a credit, each absence would cost the job as
    much as the others got meanwhile. A job that is away after every iteration would never catch up.

    Args:
        own_s: Weighted service (s) of the job when it left.
        present_s: Weighted service (s) of each job that holds the turn or waits for it.
        credit_s: Largest service (s) that the job may catch up. It is one turn: the most that the others can get before
            the job can come back.
    """
    return max(own_s, min(present_s, default=own_s) - credit_s)


def early_at_s(rank: int, waiting: Iterable[Contender]) -> float:
    """Weighted service (s) beyond which the holder makes room before the end of its quantum; infinity if it need not.

    The value is the least service of the waiting jobs that were away and have the rank of the holder. A job that was
    away for longer than it had held the turn is behind already, so it comes in at the next boundary. A job that was
    away for a moment comes in once the two are level.

    Args:
        rank: Rank of the holder.
        waiting: The other jobs that want the turn.
    """
    return min((each.service_s for each in waiting if each.back and each.rank == rank), default=math.inf)


def successor(
    holder: Contender, waiting: Iterable[Contender], used_up: bool, now_s: float, turn_s: float, bound_s: float
) -> int:
    """Slot that has the turn after a boundary of the holder; the holder's own slot if it goes on.

    After its quantum the holder contends like the other jobs. Before that it makes room only for the next job in turn,
    and only if that job has a lower rank or was away, or for a service that is `pressing`. Services that hand over to
    each other never use a quantum up, so a service makes room for a job that has waited beyond the bound, too.

    Args:
        holder: Holder, with its service up to now and `since_s` equal to now.
        waiting: The other jobs that want the turn.
        used_up: Whether the quantum of the holder is used up.
        now_s: Present time (s), as in `next_holder`.
        turn_s: Longest expected turn (s).
        bound_s: Bound (s) of the wait of a job among jobs of equal rank.
    """
    others = list(waiting)
    everyone = [*others, holder]
    chosen = next_holder(everyone, now_s, turn_s, bound_s)
    longest_s = bound_s if holder.due_s < math.inf else math.inf
    comes_in = any(
        each.slot == chosen and (each.back or each.rank < holder.rank or now_s - each.since_s > longest_s)
        for each in others
    )
    if chosen is not None and (used_up or comes_in):
        return chosen
    hurried = pressing(everyone, now_s, holder.needs_s)
    return holder.slot if hurried is None else hurried.slot


def quantum_s(
    jobs: int, handover_s: float, longest_iteration_s: float, wait_per_job_s: float = WAIT_PER_JOB_S
) -> float:
    """Quantum (s): time that a turn lasts before the holder hands it over at its next boundary.

    The quantum is so long that hand-overs cost at most `HANDOVER_SHARE` of the time. It is so short that the longest
    wait, `(jobs - 1) * (quantum + longest iteration)`, stays within `jobs * wait_per_job_s` with a margin. If both are
    impossible, the wait decides. Iterations longer than the bound exceed it, unless they can be cut.

    Args:
        jobs: Number of jobs in the lane, at least 1.
        handover_s: Measured cost (s) of one hand-over: the time until the next holder runs, and the time that its first
            iterations lose.
        longest_iteration_s: Longest iteration (s) of any job in the lane, or its `stretch_s`.
        wait_per_job_s: Bound (s) of the longest wait, multiplied by the number of jobs.
    """
    wanted_s = max(SHORTEST_QUANTUM_S, handover_s / HANDOVER_SHARE, FEWEST_ITERATIONS * longest_iteration_s)
    if jobs < 2:
        return wanted_s
    bound_s = WAIT_MARGIN * jobs * wait_per_job_s / (jobs - 1) - longest_iteration_s
    return max(0.0, min(wanted_s, bound_s))
