"""Who holds the turn of a lane next, and for how long.

The one place where a turn's next holder is picked. A lane calls it inside the jobs' own processes at every
hand-over, the simulator calls it in virtual time; neither asks the controller.

::

    rank 0   A ████████▏        ▏████████        ranks: the lowest one that wants the turn has it
    rank 0   B         ▏████████▏        ████    equal ranks: least time held per unit of weight first,
                                                 unless somebody has waited for too long
    rank 1   C                                   waits until no rank 0 wants the turn

A job that leaves its turn to load data keeps its claim: it comes back with the service that it had, and once the
holder has had as much, it gets the turn at the holder's next boundary instead of at the end of the quantum.

::

    rank 0   A █▏  ▏█▏  ▏█▏  ▏█▏  ▏              loads data after each iteration
    rank 0   B  ▏██▏ ▏██▏ ▏██▏ ▏██▏              has what A leaves of the time, at least half of it
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

HANDOVER_SHARE = 0.01
"""Most of a lane's time that hand-overs may take."""

SHORTEST_QUANTUM_S = 0.02
"""Below this the noise of measuring a hand-over decides more than its cost does."""

FEWEST_ITERATIONS = 12
"""In a quantum, where the longest wait allows it: the last ones then run warm, and show what the first ones lost."""

WAIT_PER_JOB_S = 0.25
"""Default bound of the longest wait for a turn, for each job of the lane."""

WAIT_MARGIN = 0.75
"""Part of that bound that quanta are planned to fill: the next iterations may be longer than those seen."""


class Contender(NamedTuple):
    """A job that wants the turn of its lane.

    Attributes:
        slot: Its place in the lane's table.
        rank: Lower goes first, whatever was held before.
        service_s: Time it has held the turn, divided by its weight.
        since_s: When it began to wait.
        back: Whether it had the turn before, left it to load data, and has not had it since.
    """

    slot: int
    rank: int
    service_s: float
    since_s: float
    back: bool = False


def next_holder(
    contenders: Iterable[Contender], now_s: float = 0.0, turn_s: float = 0.0, bound_s: float = math.inf
) -> int | None:
    """The slot that gets the turn, or None where nobody wants it.

    Strict priority between ranks; inside a rank the smallest weighted service, which is start-time fair queueing
    (Goyal et al., 1997) with a turn for a packet. Ties go to the longest wait, then to the lower slot, so that equal
    tables always give equal answers.

    Where turns differ in length, fair queueing gives somebody two of them in a row. It may, as long as all who wait
    could still be served within the bound after that, the one who has waited longest first; else he is chosen. The
    chosen one's own place among them is counted as a margin, but not where it was away: in a lane of few jobs that
    would leave no room to come back before the others.

    Args:
        contenders: Jobs that want the turn.
        now_s: On the clock of `since_s`.
        turn_s: Longest that a turn is expected to take.
        bound_s: Longest that a job should wait, where all ranks are equal.
    """
    waiting = list(contenders)
    if not waiting:
        return None
    first = min(each.rank for each in waiting)
    waiting = sorted((each for each in waiting if each.rank == first), key=lambda each: (each.since_s, each.slot))
    least = min(waiting, key=lambda each: (each.service_s, each.since_s, each.slot))
    served = [each for each in waiting if each is not least or not each.back]
    if any(now_s - each.since_s + (turns + 1) * turn_s > bound_s for turns, each in enumerate(served)):
        return waiting[0].slot
    return least.slot


def service_on_return_s(own_s: float, present_s: Iterable[float], credit_s: float = 0.0) -> float:
    """Weighted service with which a job joins those present, seconds.

    A newcomer starts level with the least served of those present: it does not catch up on what it did not ask for.
    One that was away loading data may be behind them by its credit. Without that, each absence would cost it what the
    others had meanwhile, and one that is away after every iteration would never catch up.

    Args:
        own_s: What it had when it left.
        present_s: What those have who hold the turn or wait for it.
        credit_s: Most that it may catch up. One turn: all that others can have had before it could come back.
    """
    return max(own_s, min(present_s, default=own_s) - credit_s)


def early_at_s(rank: int, waiting: Iterable[Contender]) -> float:
    """Weighted service beyond which a holder makes room before its quantum is used up, seconds; inf: for nobody.

    That of the least served who was away and has the holder's rank. One that was away for longer than it had held the
    turn is behind already, and comes in at the next boundary; one that was away for a moment, once they are level.

    Args:
        rank: The holder's.
        waiting: The others that want the turn.
    """
    return min((each.service_s for each in waiting if each.back and each.rank == rank), default=math.inf)


def successor(
    holder: Contender, waiting: Iterable[Contender], used_up: bool, now_s: float, turn_s: float, bound_s: float
) -> int:
    """The slot that has the turn after a boundary of its holder: the holder's own where it goes on.

    With its quantum used up it contends like the others; before that it makes room only for one that is more urgent or
    was away, and only where that one is next.

    Args:
        holder: With its service up to now, waiting since now.
        waiting: The others that want the turn.
        used_up: Whether its quantum is.
        now_s: As in `next_holder`, like those that follow.
        turn_s: Longest that a turn is expected to take.
        bound_s: Longest that a job should wait, where all ranks are equal.
    """
    others = list(waiting)
    chosen = next_holder([*others, holder], now_s, turn_s, bound_s)
    comes_in = any(each.slot == chosen and (each.back or each.rank < holder.rank) for each in others)
    return holder.slot if chosen is None or not (used_up or comes_in) else chosen


def quantum_s(
    jobs: int, handover_s: float, longest_iteration_s: float, wait_per_job_s: float = WAIT_PER_JOB_S
) -> float:
    """How long a turn lasts before the holder hands it over at its next boundary, seconds.

    Long enough for hand-overs to cost at most `HANDOVER_SHARE` of the time, and short enough for the longest wait,
    `(jobs - 1) * (quantum + longest iteration)`, to stay within `jobs * wait_per_job_s` with a margin. Where both
    cannot be, the wait wins; an iteration is never cut, so iterations longer than the bound exceed it.

    Args:
        jobs: Jobs in the lane, at least 1.
        handover_s: Measured cost of one hand-over: until the next holder runs, and what its first iterations lost.
        longest_iteration_s: Of any job in the lane.
        wait_per_job_s: Bound of the longest wait, for each job.
    """
    wanted_s = max(SHORTEST_QUANTUM_S, handover_s / HANDOVER_SHARE, FEWEST_ITERATIONS * longest_iteration_s)
    if jobs < 2:
        return wanted_s
    bound_s = WAIT_MARGIN * jobs * wait_per_job_s / (jobs - 1) - longest_iteration_s
    return max(0.0, min(wanted_s, bound_s))
