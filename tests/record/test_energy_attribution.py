"""Attribution of energy to jobs: properties of every split."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.record.accounts.energy_account import Work, idle_part_j, split

LOADS = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
WORKS = st.lists(st.tuples(st.integers(0, 3), LOADS), max_size=8).map(
    lambda pairs: [Work(f"j{index}", lane, load) for index, (lane, load) in enumerate(pairs)]
)


@given(st.floats(0, 1e7), WORKS)
def test_the_shares_add_up_to_what_was_spent_and_none_is_negative(active_j: float, works: list[Work]) -> None:
    shares = split(active_j, works)
    assert all(share >= 0.0 for share in shares)
    whole = active_j if any(work.alone_j for work in works) else 0.0
    assert math.isclose(math.fsum(shares), whole, rel_tol=1e-9, abs_tol=1e-9)


@given(st.floats(0, 1e7), WORKS)
def test_a_job_without_work_gets_no_energy(active_j: float, works: list[Work]) -> None:
    for work, share in zip(works, split(active_j, works), strict=True):
        assert work.alone_j > 0.0 or share == 0.0


@given(st.floats(0, 1e6), WORKS, st.floats(1e-3, 1e3), st.integers(0, 3))
def test_equal_works_in_one_lane_get_the_same(active_j: float, works: list[Work], load: float, lane: int) -> None:
    *_, first, second = split(active_j, [*works, Work("x", lane, load), Work("y", lane, load)])
    assert math.isclose(first, second, rel_tol=1e-9)


@given(st.floats(0, 1e6), WORKS, st.randoms())
def test_the_order_of_the_jobs_does_not_matter(active_j: float, works: list[Work], random: object) -> None:
    shares = dict(zip((work.job for work in works), split(active_j, works), strict=True))
    mixed = list(works)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    for work, share in zip(mixed, split(active_j, mixed), strict=True):
        assert math.isclose(share, shares[work.job], rel_tol=1e-6, abs_tol=1e-6)


@given(st.floats(1, 1e3), st.floats(1, 1e3), st.floats(1, 1e3))
def test_two_jobs_in_two_lanes_get_their_shapley_value(a_j: float, b_j: float, both_j: float) -> None:
    first = max(0.0, (a_j + both_j - b_j) / 2)
    second = max(0.0, (b_j + both_j - a_j) / 2)
    whole = first + second
    shares = split(both_j, [Work("a", 0, a_j), Work("b", 1, b_j)])
    for share, wanted in zip(shares, (first, second), strict=True):
        assert math.isclose(share, wanted * both_j / whole, rel_tol=1e-6, abs_tol=1e-6)


@given(st.lists(st.floats(1.0, 100.0), min_size=2, max_size=5), st.floats(0.0, 0.005))
def test_where_pairs_interact_by_the_product_of_their_loads_it_is_the_shapley_value(
    loads: list[float], strength: float
) -> None:
    def cost(members: tuple[int, ...]) -> float:
        pairs = sum(loads[i] * loads[j] for i, j in itertools.combinations(members, 2))
        return sum(loads[i] for i in members) + strength * pairs

    exact = shapley(len(loads), cost)
    shares = split(cost(tuple(range(len(loads)))), [Work(str(i), i, load) for i, load in enumerate(loads)])
    assert shares == pytest.approx(exact, rel=1e-9)


def test_jobs_of_one_lane_do_not_interact() -> None:
    """Jobs that never run at once share the error of the profiles by their loads."""
    assert split(30.0, [Work("a", 0, 5.0), Work("b", 0, 15.0)]) == pytest.approx([7.5, 22.5])


def test_idle_is_never_more_than_was_measured() -> None:
    assert idle_part_j(100.0, 60.0, 1.0) == 60.0
    assert idle_part_j(50.0, 60.0, 1.0) == 50.0


def shapley(players: int, cost: object) -> list[float]:
    """Shapley value from all orders."""
    values = [0.0] * players
    orders = list(itertools.permutations(range(players)))
    for order in orders:
        for place, player in enumerate(order):
            before = tuple(sorted(order[:place]))
            values[player] += cost(tuple(sorted((*before, player)))) - cost(before)  # type: ignore[operator]
    return [value / len(orders) for value in values]
