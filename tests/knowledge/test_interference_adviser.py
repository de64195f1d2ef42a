"""Answers of the interference adviser: speeds of pairs, and the price of the work of each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import ColocationMeasurement, PairSpeed
from ecoshare.core.commands import AskInterference
from ecoshare.core.placement.colocation_estimates import PROCESSORS_GUESS, ColocationEstimates, FirstGuess
from ecoshare.knowledge.advisers.interference_adviser import MOST_GROUPS, foresee, prices

NAMES = ("a", "b", "c", "d")


def outlook_of(watts: dict[str, float], idle_w: float, speeds: dict[tuple[str, str], float]) -> ColocationEstimates:
    outlook = ColocationEstimates()
    for name, power_w in watts.items():
        outlook.learn(name, Solo(power_w=power_w, idle_w=idle_w))
    outlook.foreseen([PairSpeed(one, other, speed, 0.1) for (one, other), speed in speeds.items()], {})
    return outlook


@st.composite
def mixes(draw: st.DrawFn) -> tuple[ColocationEstimates, dict[str, float], int]:
    watts = {name: draw(st.floats(60.0, 300.0)) for name in NAMES}
    speeds = {(one, other): draw(st.floats(0.1, 1.0)) for one in NAMES for other in NAMES}
    work_s = {name: draw(st.sampled_from([0.0]) | st.floats(1.0, 1e5)) for name in NAMES}
    return outlook_of(watts, draw(st.floats(0.0, 60.0)), speeds), work_s, draw(st.integers(1, 4))


def groups(classes: Sequence[str], largest: int) -> list[tuple[str, ...]]:
    return [members for size in range(1, largest + 1) for members in combinations_with_replacement(classes, size)]


@given(mixes())
def test_no_work_is_worth_more_than_it_costs_alone_and_no_group_earns_more_than_it_draws(
    mix: tuple[ColocationEstimates, dict[str, float], int],
) -> None:
    outlook, work_s, largest = mix
    found = prices(outlook, work_s, largest)
    assert found.keys() == work_s.keys()
    for name, price in found.items():
        assert 0.0 <= price <= outlook.power_w(name) * (1.0 + 1e-9)
        if not work_s[name]:
            assert price == pytest.approx(outlook.power_w(name))
    busy = [name for name in NAMES if work_s[name] > 0.0]
    for members in groups(busy, largest):
        forecast = outlook.forecast(members)
        worth = sum(speed * found[name] for speed, name in zip(forecast.speeds, members, strict=True))
        assert worth <= forecast.power_w * (1.0 + 1e-6), "then doing more of it would spend less"


@pytest.mark.nightly
@given(mixes())
def test_with_these_prices_all_work_costs_what_the_best_schedule_spends(
    mix: tuple[ColocationEstimates, dict[str, float], int],
) -> None:
    """Strong duality; and complementary slackness: only groups that earn what they draw are in the schedule."""
    from scipy.optimize import linprog

    outlook, work_s, largest = mix
    busy = [name for name in NAMES if work_s[name] > 0.0]
    if not busy:
        return
    found = prices(outlook, work_s, largest)
    columns = [(members, outlook.forecast(members)) for members in groups(busy, largest)]
    rates = [
        [sum(speed for speed, of in zip(each.speeds, members, strict=True) if of == name) for members, each in columns]
        for name in busy
    ]
    needed = [-work_s[name] / 1e4 for name in busy]
    least = linprog(
        [each.power_w for _, each in columns], [[-rate for rate in row] for row in rates], needed, method="highs"
    )
    assert least.fun * 1e4 == pytest.approx(sum(found[name] * work_s[name] for name in busy), rel=1e-6)
    for (members, forecast), time_s, *_ in zip(columns, least.x, strict=True):
        if time_s > 1e-6:
            worth = sum(speed * found[name] for speed, name in zip(forecast.speeds, members, strict=True))
            assert worth == pytest.approx(forecast.power_w, rel=1e-5)


def test_without_neighbours_the_price_is_that_of_being_alone() -> None:
    outlook = outlook_of({"a": 100.0, "b": 250.0}, 40.0, {})
    assert prices(outlook, {"a": 10.0, "b": 1.0}, 1) == pytest.approx({"a": 100.0, "b": 250.0})


def test_two_that_do_not_disturb_each_other_share_what_the_idle_device_draws() -> None:
    """Prices while both classes have work: 40 W idle, and 60 W and 160 W beyond it."""
    speeds = {("a", "b"): 1.0, ("b", "a"): 1.0, ("a", "a"): 0.1, ("b", "b"): 0.1}
    found = prices(outlook_of({"a": 100.0, "b": 200.0}, 40.0, speeds), {"a": 50.0, "b": 50.0}, 2)
    assert found["a"] + found["b"] == pytest.approx(260.0)
    # There is more of `a` than `b` has time for: more of it runs alone, and being beside is what `b` is worth less for.
    more = prices(outlook_of({"a": 100.0, "b": 200.0}, 40.0, speeds), {"a": 80.0, "b": 50.0}, 2)
    assert more == pytest.approx({"a": 100.0, "b": 160.0})


def test_one_job_is_not_priced_as_if_it_ran_beside_copies_of_itself() -> None:
    """It would be worth next to nothing then, and never be let beside a job that keeps the device busy."""
    waits, busy = 60.0, 100.0
    speeds = {("a", "a"): 1.0, ("a", "b"): 1.0, ("b", "a"): 0.8, ("b", "b"): 0.5}
    outlook, work_s = outlook_of({"a": waits, "b": busy}, 40.0, speeds), {"a": 100.0, "b": 20.0}
    several = prices(outlook, work_s, 4)
    assert several["a"] <= 30.0, "four of them share the 40 W of the idle device"
    one = prices(outlook, work_s, 4, {"a": 1, "b": 1})
    assert one["a"] == pytest.approx(waits)
    beside = outlook.forecast(("a", "b"))
    worth = sum(speed * one[name] for speed, name in zip(beside.speeds, "ab", strict=True))
    assert worth == pytest.approx(beside.power_w) and one["b"] < busy, "the two beside each other are the best there is"


def test_power_on_processors_is_as_it_was_measured_with_the_same_classes() -> None:
    """Jobs that together want more than all of the processors need not use them: their threads may sleep and wait."""
    outlook = ColocationEstimates(PROCESSORS_GUESS)
    outlook.learn("a", Solo("a", 0.01, 6.6, 1.5, 0.92))
    outlook.learn("b", Solo("b", 0.08, 2.4, 1.5, 0.16))
    pairs = [PairSpeed(one, other, 0.7 if one == "a" else 1.0, 0.01) for one in "ab" for other in "ab"]
    outlook.foreseen(pairs, {})
    assert outlook.forecast("ab").power_w == pytest.approx(1.5 + 6.0 / 1.08), "all of their time"
    seen = [ColocationMeasurement(("b", "a"), (1.0, 0.7), watts) for watts in (5.9, 6.1)]
    outlook.foreseen(pairs, {}, seen)
    assert outlook.forecast("ab").power_w == outlook.forecast("ba").power_w == pytest.approx(6.0, rel=1e-3)
    assert outlook.forecast("a").power_w == pytest.approx(6.6)
    outlook.foreseen(pairs, {}, [ColocationMeasurement(("a", "b"), (0.7, 1.0), None)])
    assert outlook.forecast("ab").power_w == pytest.approx(1.5 + 6.0 / 1.08)


def test_where_no_watts_are_known_there_are_no_prices() -> None:
    outlook = ColocationEstimates()
    outlook.learn("a", Solo(busy=0.5, iteration_s=0.1))
    assert prices(outlook, {"a": 10.0, "b": 1.0}, 2) == {}
    outlook.learn("b", Solo(power_w=120.0))
    assert prices(outlook, {"a": 10.0, "b": 1.0}, 1).keys() == {"a", "b"}, "one is known, the other one's is the mean"


@pytest.mark.parametrize(
    ("classes", "largest", "members"), [(3, 2, 2), (3, 5, 5), (6, 6, 5), (8, 6, 4), (12, 6, 3), (12, 2, 2), (13, 3, 2)]
)
def test_the_fewer_the_classes_the_larger_the_groups_that_are_looked_at(
    classes: int, largest: int, members: int
) -> None:
    def priced(count: int, largest: int) -> float:
        names = [f"c{place}" for place in range(count)]
        speeds = {(one, other): 1.0 for one in names for other in names}
        outlook = outlook_of(dict.fromkeys(names, 100.0), 40.0, speeds)
        return sum(prices(outlook, dict.fromkeys(names, 10.0), largest).values()) / count

    looked_at = [sum(math.comb(classes + size - 1, size) for size in range(1, most + 1)) for most in range(1, 8)]
    assert looked_at[members - 1] <= MOST_GROUPS
    assert members == largest or looked_at[members] > MOST_GROUPS
    # Members that do not slow each other share the 40 W that the idle device draws.
    assert priced(classes, largest) == pytest.approx(60.0 + 40.0 / members)


def ask(
    solos: dict[str, Solo],
    seen: Sequence[ColocationMeasurement] = (),
    work_s: Sequence[tuple[str, float]] = (),
    largest: int = 2,
) -> AskInterference:
    return AskInterference(1, tuple(solos.items()), tuple(seen), tuple(work_s), largest)


WORK = (("a", 60.0), ("b", 30.0), ("c", 5.0))
SOLOS = {
    "a": Solo("x", iteration_s=0.1, power_w=200.0, idle_w=50.0, busy=0.9, memory_busy=0.4),
    "b": Solo("x", iteration_s=0.2, power_w=120.0, idle_w=50.0, busy=0.5),
    "elsewhere": Solo("y", iteration_s=1.0, busy=1.0),
}


def test_every_ordered_pair_of_classes_with_work_is_answered() -> None:
    pairs, found = foresee(ask(SOLOS, work_s=WORK))
    assert sorted((each.one, each.other) for each in pairs) == [(one, other) for one in "abc" for other in "abc"]
    assert all(0.0 < each.speed <= 1.0 and each.error > 0.0 for each in pairs)
    assert found.keys() == {"a", "b", "c"}
    # A gain: both do more together than in turn, by what is expected, so neither is worth what it costs alone.
    assert found["a"] <= 200.0 and found["b"] <= 120.0 and sum(found.values()) < 480.0


def test_nothing_known_is_the_prior_and_no_prices() -> None:
    pairs, found = foresee(ask({}, work_s=WORK), FirstGuess(0.5, 0.5))
    assert found == {} and all(each.speed == pytest.approx(0.5, abs=0.05) for each in pairs)
    assert foresee(ask({})) == ((), {})


def test_what_was_measured_of_a_pair_is_answered() -> None:
    seen = ColocationMeasurement(("a", "b"), (0.9, 0.3), 260.0)
    pairs, _ = foresee(ask(SOLOS, [seen] * 5, WORK))
    speeds = {(each.one, each.other): each.speed for each in pairs}
    assert speeds["a", "b"] == pytest.approx(0.9, abs=0.05) and speeds["b", "a"] == pytest.approx(0.3, abs=0.05)


def test_a_group_of_three_is_forecast_as_it_was_measured() -> None:
    """Neighbours share the delays of a group, and the core adds them up again."""
    seen = ColocationMeasurement(("a", "b", "c"), (0.7, 0.5, 0.4), 260.0)
    pairs, _ = foresee(ask(SOLOS, [seen] * 8, WORK, 3))
    outlook = ColocationEstimates()
    outlook.foreseen(pairs, {})
    assert outlook.forecast("abc").speeds == pytest.approx((0.7, 0.5, 0.4), abs=0.06)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.builds(
            Solo,
            st.sampled_from(["", "x"]),
            st.none() | st.floats(0.0, 1e4),
            st.none() | st.floats(0.0, 700.0),
            st.none() | st.floats(0.0, 100.0),
            st.none() | st.floats(0.0, 2.0),
            st.none() | st.floats(0.0, 1.0),
        ),
    ),
    st.lists(
        st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0.0, 1.5)), min_size=1, max_size=4).map(
            lambda jobs: ColocationMeasurement(tuple(name for name, _ in jobs), tuple(speed for _, speed in jobs), None)
        ),
        max_size=20,
    ),
    st.dictionaries(st.sampled_from([*NAMES, "e"]), st.floats(0.0, 1e6)),
    st.integers(1, 4),
)
def test_any_question_has_an_answer(
    solos: dict[str, Solo], seen: list[ColocationMeasurement], work_s: dict[str, float], largest: int
) -> None:
    pairs, found = foresee(ask(solos, seen, tuple(work_s.items()), largest))
    assert len(pairs) == len(work_s) ** 2 and all(0.0 < each.speed <= 1.0 for each in pairs)
    assert found.keys() == (work_s.keys() if any(solo.power_w is not None for solo in solos.values()) else set())
    assert all(price >= 0.0 for price in found.values())


def test_a_neighbour_that_is_known_to_hurt_is_blamed_for_the_delay_of_a_larger_group() -> None:
    """If it failed, a job beside it would look as slow as that neighbour."""
    solos = tuple((name, Solo(name, 0.1, 200.0, 40.0, 0.9)) for name in "abc")
    pair = ColocationMeasurement(("a", "b"), (0.3, 0.3), 300.0)
    three = ColocationMeasurement(("a", "b", "c"), (0.25, 0.25, 0.6), 300.0)

    def speed_of(one: str, other: str, *seen: ColocationMeasurement) -> float:
        found, _ = foresee(AskInterference(1, solos, seen, tuple((name, 60.0) for name in "abc"), 3))
        return next(each.speed for each in found if (each.one, each.other) == (one, other))

    assert speed_of("a", "c", three) == pytest.approx(speed_of("a", "b", three), rel=0.02), "nothing is known of pairs"
    assert speed_of("a", "c", pair, three) > 1.4 * speed_of("a", "b", pair, three)
    assert speed_of("a", "c", pair, three) > 0.44
