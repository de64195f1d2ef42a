"""Who gets the turn of a lane, and how long it lasts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.turns import (
    FEWEST_ITERATIONS,
    HANDOVER_SHARE,
    SHORTEST_QUANTUM_S,
    Contender,
    next_holder,
    quantum_s,
    service_on_return_s,
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


def test_nobody_wants_it() -> None:
    assert next_holder([]) is None


def test_rank_goes_before_service() -> None:
    assert next_holder([Contender(0, 1, 0.0, 0.0), Contender(1, 0, 99.0, 9.0)]) == 1


def test_least_served_goes_first_then_longest_wait_then_slot() -> None:
    assert next_holder([Contender(0, 0, 2.0, 0.0), Contender(1, 0, 1.0, 5.0)]) == 1
    assert next_holder([Contender(0, 0, 1.0, 5.0), Contender(1, 0, 1.0, 4.0)]) == 1
    assert next_holder([Contender(1, 0, 1.0, 4.0), Contender(0, 0, 1.0, 4.0)]) == 0


def test_who_would_wait_past_the_bound_goes_first_inside_its_rank() -> None:
    waiting = [Contender(0, 0, 0.0, 9.0), Contender(1, 0, 50.0, 2.0), Contender(2, 0, 60.0, 1.0)]
    assert next_holder(waiting, now_s=10.0, turn_s=1.0, bound_s=12.0) == 0
    assert next_holder(waiting, now_s=10.0, turn_s=1.0, bound_s=9.5) == 2, "it would wait 10 s"
    assert next_holder([*waiting, Contender(3, -1, 70.0, 9.0)], now_s=10.0, turn_s=1.0, bound_s=9.5) == 3


@given(CONTENDERS, st.randoms())
def test_the_order_of_the_table_does_not_matter(contenders: list[Contender], random) -> None:
    chosen = next_holder(contenders)
    random.shuffle(contenders)
    assert next_holder(contenders) == chosen
    assert (chosen is None) == (not contenders)


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
