"""Choice of the job that gets the turn of a lane, and the length of its turn."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.turns import (
    FEWEST_ITERATIONS,
    HANDOVER_SHARE,
    SHORTEST_QUANTUM_S,
    URGENT_WAIT_S,
    WAIT_MARGIN,
    WAIT_PER_JOB_S,
    Contender,
    CuttableTurn,
    cut_at_s,
    early_at_s,
    next_holder,
    pressing,
    quantum_s,
    service_on_return_s,
    stretch_s,
    successor,
)

CONTENDERS = st.lists(
    st.builds(
        Contender,
        slot=st.integers(0, 63),
        rank=st.integers(0, 3),
        service_s=st.floats(0, 100),
        since_s=st.floats(0, 100),
    ),
    unique_by=lambda each: each.slot,
)


def test_no_job_wants_the_turn() -> None:
    assert next_holder([]) is None


def test_rank_goes_before_service() -> None:
    assert next_holder([Contender(0, 1, 0.0, 0.0), Contender(1, 0, 99.0, 9.0)]) == 1


def test_least_served_goes_first_then_longest_wait_then_slot() -> None:
    assert next_holder([Contender(0, 0, 2.0, 0.0), Contender(1, 0, 1.0, 5.0)]) == 1
    assert next_holder([Contender(0, 0, 1.0, 5.0), Contender(1, 0, 1.0, 4.0)]) == 1
    assert next_holder([Contender(1, 0, 1.0, 4.0), Contender(0, 0, 1.0, 4.0)]) == 0


def test_a_job_that_would_wait_past_the_bound_goes_first_inside_its_rank() -> None:
    waiting = [Contender(0, 0, 0.0, 9.0), Contender(1, 0, 50.0, 2.0), Contender(2, 0, 60.0, 1.0)]
    assert next_holder(waiting, now_s=10.0, turn_s=1.0, bound_s=12.0) == 0
    assert next_holder(waiting, now_s=10.0, turn_s=1.0, bound_s=9.5) == 2, "it would wait 10 s"
    assert next_holder([*waiting, Contender(3, -1, 70.0, 9.0)], now_s=10.0, turn_s=1.0, bound_s=9.5) == 3


@given(CONTENDERS, st.randoms())
def test_the_order_of_the_table_does_not_matter(contenders: list[Contender], draw: random.Random) -> None:
    chosen = next_holder(contenders)
    draw.shuffle(contenders)
    assert next_holder(contenders) == chosen
    assert (chosen is None) == (not contenders)


@pytest.mark.nightly
@given(st.lists(st.floats(0.5, 4.0), min_size=2, max_size=6))
def test_equal_ranks_get_time_in_proportion_to_their_weights(weights: list[float]) -> None:
    held = [0.0] * len(weights)
    for turn in range(2000):
        table = [Contender(slot, 0, held[slot] / weight, turn) for slot, weight in enumerate(weights)]
        chosen = next_holder(table)
        assert chosen is not None
        held[chosen] += 1.0
    for slot, weight in enumerate(weights):
        assert abs(held[slot] / 2000 - weight / sum(weights)) < 0.01


def test_a_newcomer_starts_level_and_catches_nothing_up() -> None:
    assert service_on_return_s(0.0, [7.0, 9.0]) == 7.0
    assert service_on_return_s(8.0, [7.0, 9.0]) == 8.0
    assert service_on_return_s(3.0, []) == 3.0


def test_one_that_was_away_keeps_what_it_is_owed_up_to_its_credit() -> None:
    assert service_on_return_s(6.5, [7.0, 9.0], credit_s=1.0) == 6.5
    assert service_on_return_s(2.0, [7.0, 9.0], credit_s=1.0) == 6.0
    assert service_on_return_s(8.0, [7.0, 9.0], credit_s=1.0) == 8.0


def test_the_quantum_keeps_handovers_to_their_share() -> None:
    assert quantum_s(1, 0.002, 0.01) == 0.002 / HANDOVER_SHARE
    assert quantum_s(4, 0.0, 0.001) == SHORTEST_QUANTUM_S
    assert quantum_s(4, 0.0, 0.01) == FEWEST_ITERATIONS * 0.01


@given(st.integers(2, 64), st.floats(0, 0.1), st.floats(0, 0.25))
def test_the_longest_wait_stays_bounded(jobs: int, handover_s: float, iteration_s: float) -> None:
    quantum = quantum_s(jobs, handover_s, iteration_s)
    assert quantum >= 0.0
    assert (jobs - 1) * (quantum + iteration_s) <= jobs * 0.25 + 1e-9


@given(st.integers(2, 12), st.integers(0, 1000))
def test_no_wait_is_past_the_bound_where_turns_differ_in_length(jobs: int, seed: int) -> None:
    draw = random.Random(seed)
    iteration_s = 0.02
    quantum = quantum_s(jobs, 1.0, iteration_s)
    served_s, since_s, now_s = [0.0] * jobs, [0.0] * jobs, 0.0
    for _ in range(300):
        table = [Contender(slot, 0, served_s[slot], since_s[slot]) for slot in range(jobs)]
        slot = next_holder(table, now_s, quantum + iteration_s, jobs * 0.25)
        assert slot is not None
        assert now_s - since_s[slot] <= jobs * 0.25 + 1e-9
        held_s = draw.uniform(0.2, 1.0) * quantum + draw.uniform(0.0, iteration_s)
        now_s += held_s
        served_s[slot] += held_s
        since_s[slot] = now_s


def after_boundary(holder: Contender, *waiting: Contender, used_up: bool = False, bound_s: float = math.inf) -> int:
    return successor(holder, waiting, used_up, now_s=10.0, turn_s=1.0, bound_s=bound_s)


def test_a_holder_keeps_its_quantum_unless_a_returning_job_is_owed_more() -> None:
    holder = Contender(0, 1, 5.0, 10.0)
    waits, was_away = Contender(1, 1, 1.0, 9.0), Contender(2, 1, 2.0, 9.5, back=True)
    assert after_boundary(holder, waits) == 0
    assert after_boundary(holder, waits, used_up=True) == 1
    assert after_boundary(holder, was_away) == 2
    assert after_boundary(holder, was_away._replace(service_s=6.0)) == 0, "it has had more than the holder"
    assert after_boundary(holder, waits, was_away) == 0, "another is before it, and waits for the quantum"
    assert after_boundary(holder, waits._replace(service_s=3.0), was_away) == 2


def test_absences_do_not_pass_ranks() -> None:
    holder = Contender(0, 1, 5.0, 10.0)
    assert after_boundary(holder, Contender(1, 2, 0.0, 0.0, back=True), used_up=True) == 0
    assert after_boundary(holder, Contender(1, 2, 0.0, 0.0, back=True), bound_s=1.0) == 0
    assert after_boundary(holder, Contender(1, 0, 9.0, 9.9)) == 1
    assert early_at_s(1, [Contender(1, 2, 0.0, 0.0, back=True), Contender(2, 1, 3.0, 0.0)]) == math.inf
    assert early_at_s(1, [Contender(1, 1, 4.0, 0.0, back=True), Contender(2, 1, 3.0, 0.0, back=True)]) == 3.0


def test_no_job_comes_early_if_another_would_wait_past_the_bound() -> None:
    holder, waits = Contender(0, 0, 5.0, 10.0), Contender(1, 0, 4.0, 2.0)
    was_away = Contender(2, 0, 3.0, 9.5, back=True)
    assert after_boundary(holder, waits, was_away, bound_s=9.5) == 2
    assert after_boundary(holder, waits, was_away, bound_s=8.5) == 0, "the other would have waited for 9 s"


def test_a_service_waits_as_long_as_an_iteration_fits_before_it() -> None:
    holder = Contender(0, 0, 5.0, 10.0, needs_s=3.0)
    service = Contender(1, 0, 9.0, 9.0, needs_s=1.0, due_s=14.0)
    assert after_boundary(holder, service) == 0, "the answer is out at 14, when it is due"
    assert after_boundary(holder, service._replace(due_s=13.9)) == 1
    assert after_boundary(holder, service._replace(due_s=13.9, rank=7)) == 1, "ranks do not count"
    assert after_boundary(holder, service, used_up=True) == 0, "it has had more, and can wait"
    assert pressing([service], 10.0, 3.0) is None and pressing([holder], 10.0, 99.0) is None


def test_the_service_that_is_due_first_goes_first() -> None:
    long = Contender(1, 0, 0.0, 9.0, needs_s=5.0, due_s=15.0)
    soon = Contender(2, 3, 9.0, 9.5, needs_s=1.0, due_s=14.0)
    assert next_holder([long, soon], now_s=10.0) == 2
    holder = Contender(0, 0, 5.0, 10.0, needs_s=1.0)
    assert after_boundary(holder, long, soon) == 2, "the other one cannot wait either, but is in time after it"
    assert after_boundary(holder._replace(due_s=13.0), long, soon) == 0, "the holder is due before them"


def test_services_that_hand_over_to_each_other_make_room_for_a_job_past_the_bound() -> None:
    """Neither uses its quantum up, so the job would wait for ever."""
    holder = Contender(0, 0, 5.0, 10.0, needs_s=1.0, due_s=11.0)
    other = Contender(1, 0, 5.0, 9.0, needs_s=1.0, due_s=10.5)
    waits = Contender(2, 0, 9.0, 2.0, needs_s=3.0)
    assert after_boundary(holder, other, waits, bound_s=9.0) == 1
    assert after_boundary(holder, other, waits, bound_s=7.5) == 2
    assert after_boundary(holder._replace(due_s=math.inf), waits, bound_s=7.5) == 0, "a quantum is as long as it is"


def test_a_service_with_long_answers_has_its_share_and_no_more() -> None:
    """If it failed, a server that needs seconds to wake would have its turn after each iteration of a neighbour."""
    holder, service = Contender(0, 0, 50.0, 10.0), Contender(1, 0, 60.0, 1.0, True, needs_s=2.0, due_s=30.0)
    assert after_boundary(holder, service, used_up=True, bound_s=1.0) == 0
    assert after_boundary(holder, service._replace(needs_s=0.5), used_up=True, bound_s=1.0) == 1
    assert after_boundary(holder, service._replace(service_s=49.0), bound_s=1.0) == 1, "it has had less"
    assert after_boundary(holder, service._replace(due_s=11.0), bound_s=1.0) == 1, "it would be late"
    assert after_boundary(holder, service._replace(due_s=math.inf), used_up=True, bound_s=1.0) == 1


def test_a_job_that_has_waited_past_the_bound_goes_before_services() -> None:
    waits = Contender(0, 0, 1.0, 2.0, needs_s=3.0)
    service = Contender(1, 0, 5.0, 9.0, needs_s=1.0, due_s=11.0)
    assert next_holder([waits, service], 10.0, 1.0, bound_s=9.0) == 1
    assert next_holder([waits, service], 10.0, 1.0, bound_s=7.0) == 0


@dataclass
class Simulated:
    """Job in virtual time, with the length of an iteration and of the absence after it; and its results."""

    iteration_s: float
    away_s: float = 0.0
    weight: float = 1.0
    rank: int = 0
    held_s: float = 0.0
    longest_wait_s: float = 0.0
    service_s: float = 0.0
    since_s: float = 0.0
    back_at_s: float | None = 0.0  # None: it is there
    back: bool = False
    due_s: float = math.inf

    def contender(self, slot: int, service_s: float, since_s: float) -> Contender:
        return Contender(slot, self.rank, service_s, since_s, self.back, self.iteration_s, self.due_s)

    def goes_on(self, now_s: float) -> bool:
        """Whether the job has more to do after its iteration; it leaves the turn otherwise."""
        self.back_at_s = now_s + self.away_s if self.away_s else None
        return not self.away_s

    def begins(self) -> None:
        """The job is back."""


@dataclass
class SimulatedService(Simulated):
    """Service: `iteration_s` is the time of an answer, and its requests come at given times."""

    target_s: float = 0.0
    arrivals_s: deque[float] = field(default_factory=deque)
    late_s: list[float] = field(default_factory=list)
    """Time of each answer after it was due."""

    def __post_init__(self) -> None:
        self.back_at_s = self.arrivals_s[0]

    def goes_on(self, now_s: float) -> bool:
        self.late_s.append(now_s - self.due_s)
        self.arrivals_s.popleft()
        self.begins()
        if self.arrivals_s and self.arrivals_s[0] <= now_s:
            self.back_at_s = None
            return True
        self.back_at_s = self.arrivals_s[0] if self.arrivals_s else math.inf
        return False

    def begins(self) -> None:
        self.due_s = self.arrivals_s[0] + self.target_s if self.arrivals_s else math.inf


class Lane:
    """Lane in virtual time, with hand-overs of no length."""

    def __init__(self, jobs: list[Simulated], handover_s: float = 0.0) -> None:
        self.jobs = jobs
        longest_s = max(job.iteration_s for job in jobs)
        self.quantum_s = quantum_s(len(jobs), handover_s, longest_s)
        self.turn_s = self.quantum_s + longest_s
        self.bound_s = 0.25 * len(jobs)
        self.now_s = self.began_s = self.virtual_s = 0.0
        self.holder: int | None = None

    def run(self, until_s: float) -> None:
        while self.now_s < until_s:
            if self.holder is None:
                self.now_s = max(self.now_s, min(job.back_at_s for job in self.jobs if job.back_at_s is not None))
                self._return()
            else:
                self.now_s += self.jobs[self.holder].iteration_s
                self._return()
                self._boundary(self.holder)

    def _return(self) -> None:
        away = [(job.back_at_s, slot) for slot, job in enumerate(self.jobs) if job.back_at_s is not None]
        for back_at_s, slot in sorted(away):
            if back_at_s > self.now_s:
                break
            job = self.jobs[slot]
            present = [each for each, other in enumerate(self.jobs) if other.back_at_s is None]
            present_s = [self._service_s(each, back_at_s) for each in present] or [self.virtual_s]
            turn_s = self.turn_s / min((self.jobs[each].weight for each in present), default=1.0)
            job.back, job.since_s, job.back_at_s = job.held_s > 0.0, back_at_s, None
            job.service_s = service_on_return_s(job.service_s, present_s, turn_s if job.back else 0.0)
            job.begins()
        if self.holder is None:
            self._grant(self._next())

    def _boundary(self, slot: int) -> None:
        job, held_s = self.jobs[slot], self.now_s - self.began_s
        if not job.goes_on(self.now_s):
            self._account(slot)
            self._grant(self._next())
            return
        waiting = self._waiting()
        used_up, urgent = held_s >= self.quantum_s, any(each.rank < job.rank for each in waiting)
        early = self._service_s(slot, self.now_s) > early_at_s(job.rank, waiting)
        late = any(self.now_s + job.iteration_s > each.latest_s for each in waiting)
        if not waiting or not (used_up or urgent or early or late):
            return
        mine = job.contender(slot, self._service_s(slot, self.now_s), self.now_s)
        chosen = successor(mine, waiting, used_up, self.now_s, self.turn_s, self.bound_s)
        if chosen == slot and not used_up:
            return
        self._account(slot)
        job.since_s = self.now_s
        self._grant(chosen)

    def _waiting(self) -> list[Contender]:
        return [
            job.contender(slot, job.service_s, job.since_s)
            for slot, job in enumerate(self.jobs)
            if job.back_at_s is None and slot != self.holder
        ]

    def _next(self) -> int | None:
        self.holder = None
        return next_holder(self._waiting(), self.now_s, self.turn_s, self.bound_s)

    def _service_s(self, slot: int, at_s: float) -> float:
        job = self.jobs[slot]
        return job.service_s + ((at_s - self.began_s) / job.weight if slot == self.holder else 0.0)

    def _account(self, slot: int) -> None:
        job = self.jobs[slot]
        job.service_s = self._service_s(slot, self.now_s)
        job.held_s += self.now_s - self.began_s
        self.virtual_s = max(self.virtual_s, job.service_s)

    def _grant(self, slot: int | None) -> None:
        self.holder, self.began_s = slot, self.now_s
        if slot is not None:
            job = self.jobs[slot]
            job.longest_wait_s = max(job.longest_wait_s, self.now_s - job.since_s)
            job.back = False


@pytest.mark.nightly
@given(
    st.floats(0.002, 0.05),
    st.floats(0.002, 0.2),
    st.floats(0.002, 0.05),
    st.sampled_from([0.25, 1.0, 4.0]),
    st.sampled_from([0.0001, 0.0025]),
)
def test_one_that_loads_data_gets_what_it_can_use_or_its_share(
    iteration_s: float, away_s: float, other_s: float, weight: float, handover_s: float
) -> None:
    loads, plain = Simulated(iteration_s, away_s, weight), Simulated(other_s)
    lane = Lane([loads, plain], handover_s)
    lane.run(30.0)
    # It comes back in the middle of the other's iteration, which is never cut.
    can_use = iteration_s / (iteration_s + away_s + other_s)
    assert loads.held_s / lane.now_s > 0.95 * min(can_use, weight / (weight + 1))
    assert plain.held_s / lane.now_s > 0.95 / (weight + 1)
    assert loads.held_s + plain.held_s > 0.98 * lane.now_s, "the device was idle while a job wanted it"


JOBS = st.builds(Simulated, iteration_s=st.floats(0.002, 0.03), away_s=st.just(0.0) | st.floats(0.002, 0.2))


@pytest.mark.slow
@given(st.lists(JOBS, min_size=2, max_size=8), st.sampled_from([0.0001, 0.0025]))
def test_absences_starve_no_job_and_no_job_waits_past_the_bound(jobs: list[Simulated], handover_s: float) -> None:
    lane = Lane(jobs, handover_s)
    lane.run(30.0)
    iterations_s = sum(job.iteration_s for job in jobs)
    for job in jobs:
        # Each of the others may have an iteration before a job that comes back.
        can_use = job.iteration_s / (job.away_s + iterations_s) if job.away_s else 1.0
        assert job.held_s / lane.now_s > 0.85 * min(can_use, 1 / len(jobs))
        assert job.longest_wait_s <= lane.bound_s + 1e-9


def requests(gaps_s: list[float]) -> deque[float]:
    return deque(accumulate(gaps_s))


@given(
    st.lists(JOBS, min_size=1, max_size=6),
    st.floats(0.001, 0.02),
    st.floats(0.0, 0.05),
    st.lists(st.floats(0.0, 0.1), min_size=1, max_size=300),
    st.integers(0, 3),
)
def test_a_service_that_is_admitted_keeps_its_target(
    jobs: list[Simulated], answer_s: float, spare_s: float, gaps_s: list[float], rank: int
) -> None:
    """It waits for one iteration that has begun, and for the requests before it, but for nothing else."""
    longest_s = max(job.iteration_s for job in jobs)
    gaps_s = [gap_s + answer_s + longest_s for gap_s in gaps_s]
    service = SimulatedService(
        answer_s, rank=rank, target_s=longest_s + answer_s + spare_s, arrivals_s=requests(gaps_s)
    )
    lane = Lane([*jobs, service], 0.0001)
    lane.run(sum(gaps_s) + 1.0)
    assert len(service.late_s) == len(gaps_s)
    assert max(service.late_s) <= 1e-9


@pytest.mark.slow
@given(st.lists(st.floats(0.001, 0.01), min_size=1, max_size=5), st.floats(0.002, 0.03))
def test_services_without_end_leave_a_job_an_iteration_within_the_bound(
    answers_s: list[float], iteration_s: float
) -> None:
    services = [SimulatedService(each, target_s=0.001, arrivals_s=requests([0.0] * 20_000)) for each in answers_s]
    plain = Simulated(iteration_s)
    lane = Lane([plain, *services], 0.0001)
    lane.run(10.0)
    assert plain.held_s > 0.0
    assert plain.longest_wait_s <= lane.bound_s + lane.quantum_s + max(answers_s) + 1e-9


def cut_at(waiting: Contender, next_s: float = math.inf, now_s: float = 1.0, bound_s: float = 0.5) -> float:
    """Time of a cut of a turn of rank 1 that began at 1 s, in a lane with quanta of 0.2 s."""
    return cut_at_s(CuttableTurn(1, 1.0, next_s, 0.01), waiting, now_s, 0.2, bound_s)


def test_a_turn_without_a_boundary_is_cut_at_the_end_of_its_quantum() -> None:
    assert cut_at(Contender(0, 1, 0.0, 1.0)) == pytest.approx(1.2 - 0.01)
    assert cut_at(Contender(0, 1, 0.0, 0.6)) == pytest.approx(1.1 - 0.01), "it has waited longer than the turn"
    assert cut_at(Contender(0, 2, 0.0, 1.0)) == math.inf, "it is less urgent"


def test_an_operation_that_took_long_once_does_not_cut_turns_to_nothing() -> None:
    turn = CuttableTurn(1, 1.0, math.inf, cut_s=5.0)
    assert cut_at_s(turn, Contender(0, 1, 0.0, 1.0), 1.0, 0.2, 0.5) == pytest.approx(1.1)
    assert quantum_s(2, 0.0, stretch_s(10.0, 5.0, 2)) > 0.1


def test_a_turn_is_not_cut_if_a_boundary_comes_within_the_bound() -> None:
    waits = Contender(0, 1, 0.0, 1.0)
    assert cut_at(waits, next_s=1.5) == pytest.approx(1.501), "when it is overdue"
    assert cut_at(waits, next_s=1.51) == pytest.approx(1.2 - 0.01)
    assert cut_at(waits, next_s=1.5, now_s=1.51) == pytest.approx(1.2 - 0.01), "the boundary is overdue"


def test_a_more_urgent_job_waits_for_a_boundary_for_a_moment_only() -> None:
    waits = Contender(0, 0, 9.0, 3.0)
    assert cut_at(waits, now_s=3.0) == pytest.approx(3.0 + URGENT_WAIT_S - 0.01)
    assert cut_at(waits, next_s=3.04, now_s=3.0) == pytest.approx(3.041)


def test_a_turn_is_cut_at_once_for_a_service_that_would_be_late() -> None:
    due = Contender(0, 5, 9.0, 3.0, needs_s=0.03, due_s=3.1)
    assert cut_at(due, now_s=3.0) == pytest.approx(3.0 - 0.01), "whatever the ranks"
    assert cut_at(due, next_s=3.06, now_s=3.0) == pytest.approx(3.061)


@given(st.integers(2, 64), st.floats(0, 30), st.floats(0, 0.02))
def test_iterations_that_leave_no_quantum_count_as_long_as_a_cut_takes(
    jobs: int, longest_s: float, cut_s: float
) -> None:
    stretched_s = stretch_s(longest_s, cut_s, jobs)
    bound_s = jobs * WAIT_PER_JOB_S
    if stretched_s < longest_s:
        assert stretched_s <= cut_s
        assert (jobs - 1) * (longest_s + SHORTEST_QUANTUM_S) > WAIT_MARGIN * bound_s
    assert (jobs - 1) * (quantum_s(jobs, 0.0, stretched_s) + stretched_s) <= bound_s, "the longest wait"
