"""Parts of the truth in place of what `ecoshare` knows, on small invented tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.measurement import TUNING_LIMIT
from ecoshare.core.placement.colocation_estimates import ColocationEstimates
from ecoshare.knowledge.advisers.interference_adviser import foresee
from scripts.bench.energy import LANES, WAYS, Outcome, run
from scripts.bench.energy_bound import bound
from scripts.bench.energy_excess import ExcessAccount, When
from scripts.bench.energy_parts import (
    ALL,
    ALL_PARTS,
    BASE,
    VARIANTS,
    KnownEstimates,
    MixOutcomes,
    Part,
    Truth,
    Variant,
    figures,
)
from scripts.bench.energy_world import DRIFT, MeasuredWorld, load, mix
from tests.simulation.test_energy_world import drawn_packing, tables

NO_PARTS = frozenset[Part]()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> MeasuredWorld:
    return load(tables(tmp_path_factory.mktemp("tables")), 3)


@pytest.fixture(scope="module")
def truth(world: MeasuredWorld) -> Truth:
    return Truth(world, {each: world.states((each,)).watts[world.space.index(world.default)] for each in world.classes})


@given(draw=st.data())
def test_the_best_setting_has_the_least_joules_under_the_limit(
    world: MeasuredWorld, truth: Truth, draw: st.DataObject
) -> None:
    """If it failed, `response` would be less than the whole truth, and the search would pass for better than it is."""
    packing = drawn_packing(world, draw, most=3)
    default = world.states(packing).speeds[:, world.space.index(world.default)]

    def cost(place: int) -> float:
        states = world.states(packing)
        worth = [world.states((each,)).watts[world.space.index(world.default)] for each in packing]
        return float(states.watts[place] / np.dot(worth, states.speeds[:, place]))

    places = range(len(world.space))
    kept = [each for each in places if (default <= world.states(packing).speeds[:, each] * TUNING_LIMIT).all()]
    best = truth.best(packing)
    place = world.space.index({**world.default, **dict(best.setting)})
    assert place in kept and cost(place) == pytest.approx(min(map(cost, kept)))
    faster = world.states(packing).speeds[:, place] / default
    assert [best.faster[each] for each in packing] == pytest.approx(faster.tolist())


@given(draw=st.data())
def test_estimates_know_the_parts_that_are_true(world: MeasuredWorld, truth: Truth, draw: st.DataObject) -> None:
    """If it failed, a variant would know more or less than its name says."""
    packing = drawn_packing(world, draw, most=3)
    best, plain = truth.best(packing), ColocationEstimates()
    states, default = world.states(packing), world.space.index(world.default)
    place = world.space.index({**world.default, **dict(best.setting)})
    known = {parts: KnownEstimates(truth, frozenset(parts)) for parts in ((), (Part.SPEEDS,), (Part.RESPONSE,))}
    assert known[()].forecast(packing) == plain.forecast(packing)
    assert known[Part.SPEEDS,].forecast(packing).speeds == pytest.approx(states.speeds[:, default].tolist())
    guessed = [speed * best.faster[each] for speed, each in zip(plain.forecast(packing).speeds, packing, strict=True)]
    assert known[Part.RESPONSE,].forecast(packing).speeds == pytest.approx(guessed)
    both = KnownEstimates(truth, ALL_PARTS)
    expected = both.forecast(packing)
    assert expected.speeds == pytest.approx(states.speeds[:, place].tolist())
    assert expected.power_w == pytest.approx(float(states.watts[place]))
    assert both.hoped(packing, expected, 1.5) == expected


@pytest.mark.nightly
def test_no_part_is_ecoshare_and_all_parts_come_near_the_bound(world: MeasuredWorld) -> None:
    """If it failed, the base would be no run of energy.py, or the truth would not reach the decisions."""
    jobs = mix(world, 5, 2)
    least = bound(world, [(each.job_class, each.work_s) for each in jobs], LANES, tuning_limit=TUNING_LIMIT)
    base = Variant(world, jobs, least, foresee, NO_PARTS).run(ExcessAccount(least.prices))
    assert base == run(world, jobs, WAYS["ecoshare"], foresee)
    known = Variant(world, jobs, least, foresee, ALL_PARTS).run(ExcessAccount(least.prices))
    assert least.joules * (1.0 - 2.0 * DRIFT) <= known.joules < base.joules


@pytest.mark.nightly
@pytest.mark.parametrize("parts", [NO_PARTS, ALL_PARTS - {Part.ARRIVALS}], ids=["base", "known"])
def test_the_joules_above_the_bound_are_accounted_for(world: MeasuredWorld, parts: frozenset[Part]) -> None:
    """If it failed, what the account names would not be what the decisions cost."""
    jobs = mix(world, 5, 4)
    least = bound(world, [(each.job_class, each.work_s) for each in jobs], LANES, tuning_limit=TUNING_LIMIT)
    account = ExcessAccount(least.prices)
    made = Variant(world, jobs, least, foresee, parts).run(account)
    assert sum(account.joules.values()) == pytest.approx(made.joules - least.joules, rel=1e-3)
    for when, part in ((When.WINDOW, Part.WINDOWS), (When.MEASURING, Part.SEARCH)):
        assert (account.joules[when] > 1.0) == (part not in parts)


def test_each_part_is_true_alone_and_left_out_once() -> None:
    sizes = [len(parts) for parts in VARIANTS.values()]
    assert sorted(sizes) == [0, *[1] * len(Part), *[len(Part) - 1] * len(Part), len(Part)]
    assert len(set(VARIANTS.values())) == len(VARIANTS)


def test_parts_of_the_distance() -> None:
    """If it failed, a part that ecoshare lacks would have the wrong sign or size."""
    base = Outcome(200.0, 10.0, 20.0, 0, 0)
    joules = {BASE: 200.0, "speeds true": 150.0, ALL: 120.0, "all true but speeds": 160.0}
    outcomes = {name: replace(base, joules=joules.get(name, 120.0)) for name in VARIANTS}
    above = {name: dict.fromkeys(When, 0.25) for name in VARIANTS}
    made = {each.name: each.value for each in figures([MixOutcomes(100.0, outcomes, above)])}
    assert made[f"{BASE}: joules above the bound, in profiling windows"] == pytest.approx(25.0)
    part = "part of the distance to the bound"
    assert made[f"speeds true: {part}"] == pytest.approx(50.0)
    assert made[f"{ALL}: {part}"] == pytest.approx(80.0)
    assert made[f"all true but speeds: {part}"] == pytest.approx(40.0)
    assert made["all true but speeds: joules over all true, mean"] == pytest.approx(160.0 / 120.0)
