"""Predicted speeds of pairs: properties that always hold, and accuracy on measured pairs."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import PairSpeed
from ecoshare.core.placement.colocation_estimates import (
    BESIDE,
    GPU_GUESS,
    PROCESSORS_GUESS,
    ColocationEstimates,
    FirstGuess,
)
from ecoshare.knowledge.advisers.interference_model import (
    ENOUGH,
    SHIPPED,
    InterferenceModel,
    PairMeasurement,
    Traits,
    _Kernel,
)
from scripts.bench.interference import TABLES, Round, centre
from scripts.bench.interference_tables import table_of

NAMES = ("a", "b", "c", "d", "e", "f")
STRANGER = "unknown class"

needs_data = pytest.mark.skipif(
    "ECOSHARE_DATA" not in os.environ, reason="ECOSHARE_DATA names no folder with Gavel's measured pairs"
)

numbers = st.dictionaries(
    st.sampled_from(["busy", "memory_busy", "log_iteration_s"]), st.floats(allow_nan=False, allow_infinity=False)
)
all_traits = st.dictionaries(st.sampled_from(NAMES), st.builds(Traits, st.sampled_from(["", "x", "y"]), numbers))
names = st.sampled_from(NAMES)
all_seen = st.lists(
    st.builds(PairMeasurement, names, names, st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 3)),
    max_size=40,
)
besides = st.floats(0.1, 1.0)


def like_a_device(seed: int) -> tuple[dict[str, Traits], dict[tuple[str, str], float]]:
    """Classes of three scripts, and their speeds beside each other: some suffer more, some hurt more, with noise."""
    draw = np.random.default_rng(seed)
    suffers, hurts = draw.uniform(0.1, 0.6, 3), draw.uniform(0.2, 1.0, 3)
    busy = {f"{script}{place}": draw.uniform(0.5, 1.0) for script in range(3) for place in range(4)}
    traits = {name: Traits(name[0], {"busy": value}) for name, value in busy.items()}
    speeds = {
        (one, other): math.exp(
            -busy[one] * busy[other] * (suffers[int(one[0])] + hurts[int(other[0])]) + 0.02 * draw.standard_normal()
        )
        for one in traits
        for other in traits
    }
    return traits, speeds


@pytest.mark.nightly
@given(all_traits, all_seen, besides)
def test_whatever_was_seen_speeds_are_speeds(
    traits: dict[str, Traits], seen: list[PairMeasurement], beside: float
) -> None:
    model = InterferenceModel(traits, seen, FirstGuess(beside, beside))
    for one in (*NAMES, STRANGER):
        for other in (*NAMES, STRANGER):
            first, second = model.speeds(one, other)
            both = model.combined(one, other)
            assert 0.0 < first.mean <= 1.0 and 0.0 < second.mean <= 1.0
            assert both.mean == pytest.approx(first.mean + second.mean)
            assert all(0.0 <= guess.sd <= 1.0 for guess in (first, second)), "more than any number from 0 to 1 can have"
            least, most = abs(first.sd - second.sd), first.sd + second.sd
            assert least - 1e-6 <= both.sd <= most + 1e-6


@pytest.mark.slow
@given(all_traits, all_seen, st.randoms(use_true_random=False))
def test_the_order_of_what_was_seen_does_not_matter(
    traits: dict[str, Traits], seen: list[PairMeasurement], draw: random.Random
) -> None:
    mixed = list(seen)
    draw.shuffle(mixed)
    first, second = InterferenceModel(traits, seen), InterferenceModel(dict(reversed(traits.items())), mixed)
    for one in NAMES:
        for other in NAMES:
            assert first.speeds(one, other)[0] == pytest.approx(second.speeds(one, other)[0], abs=1e-6)


@given(all_traits, all_seen, names, names)
def test_the_two_of_a_pair_may_be_named_in_any_order(
    traits: dict[str, Traits], seen: list[PairMeasurement], one: str, other: str
) -> None:
    model = InterferenceModel(traits, seen)
    assert model.speeds(one, other) == model.speeds(other, one)[::-1]
    assert model.combined(one, other) == pytest.approx(model.combined(other, one), abs=1e-9)


def test_a_pair_that_is_slower_than_all_others_lead_to_expect_is_believed() -> None:
    """It was predicted with 0.42: the others led to expect a speed of 1.2, which was cut to 1 and yet divided by."""
    seen = [PairMeasurement("a", "a", 1.0), PairMeasurement("a", "a", 0.375, 1), PairMeasurement("b", "b", 1.0, 1)]
    guess, _ = InterferenceModel({}, [*seen, PairMeasurement("a", "b", 0.5)]).speeds("a", "b")
    assert guess.mean == pytest.approx(0.5, rel=0.01)


@pytest.mark.slow
@given(
    all_traits,
    st.lists(st.builds(PairMeasurement, names, names, st.floats(0.3, 1.0), st.integers(0, 3)), max_size=20),
    st.floats(0.1, 0.9),
)
def test_what_was_measured_often_is_believed(
    traits: dict[str, Traits], seen: list[PairMeasurement], speed: float
) -> None:
    others = [each for each in seen if (each.one, each.other) != ("a", "b")]
    guess, _ = InterferenceModel(traits, [*others, *[PairMeasurement("a", "b", speed)] * 300]).speeds("a", "b")
    assert guess.mean == pytest.approx(speed, rel=0.05)
    assert guess.sd < 0.05


@pytest.mark.slow
@given(all_traits, st.floats(0.2, 0.8))
def test_each_measurement_makes_it_surer(traits: dict[str, Traits], speed: float) -> None:
    start = [PairMeasurement("a", "b", speed), PairMeasurement("b", "a", speed)]
    errors = [InterferenceModel(traits, start * times).combined("a", "b").sd for times in (1, 4, 16, 64)]
    assert (
        errors == sorted(errors, reverse=True)
        and errors[-1] < 0.5 * InterferenceModel(traits, []).combined("a", "b").sd
    )


@pytest.mark.parametrize("beside", [0.5, BESIDE])
def test_of_strangers_the_prior_is_said_with_a_wide_margin(beside: float) -> None:
    first, second = InterferenceModel({}, [], FirstGuess(beside, beside)).speeds(STRANGER, "another")
    assert first == second
    assert first.mean == pytest.approx(beside, abs=0.05) and first.sd > 0.1


def test_a_job_that_leaves_the_device_idle_is_expected_to_slow_down_less() -> None:
    busy = {"idle": 0.2, "half": 0.6, "all": 1.0}
    model = InterferenceModel({name: Traits(name, {"busy": value}) for name, value in busy.items()}, [])
    light, medium, heavy = (model.combined(name, "all").mean for name in busy)
    assert light > medium > heavy
    assert heavy == pytest.approx(2 * BESIDE, abs=0.1)


def test_jobs_that_seldom_want_the_device_are_surely_fast_beside_any_other() -> None:
    """Four jobs that waited were expected at 0.88 +- 0.17 of their speeds beside each other, and ran one by one."""
    busy = {"waits": 0.01, "waits too": 0.02, "half": 0.5, "all": 1.0}
    model = InterferenceModel({name: Traits(name, {"busy": value}) for name, value in busy.items()}, [])
    beside = [model.speeds("waits", other)[0] for other in ("waits too", "half", "all")]
    both_half = model.speeds("half", "half")[0]
    assert all(each.mean > 0.95 > both_half.mean and each.sd < 0.7 * both_half.sd for each in beside)
    unknown = InterferenceModel({"waits": Traits("s", {"busy": 0.01})}, []).speeds("waits", "never seen")[0]
    assert unknown.sd > 2 * beside[0].sd, "a class that was not measured may be busy"


def test_one_class_says_something_of_others_of_its_script_only() -> None:
    traits = {"a1": Traits("a"), "a2": Traits("a"), "b": Traits("b"), "z": Traits("z")}
    before, seen = (
        InterferenceModel(traits, []),
        InterferenceModel(traits, [PairMeasurement("a1", "z", 0.3), PairMeasurement("z", "a1", 0.3)]),
    )
    fell = {name: before.combined(name, "z").mean - seen.combined(name, "z").mean for name in ("a1", "a2", "b")}
    assert fell["a1"] > fell["a2"] > fell["b"], "what happens to one script says little of another"


def test_pairs_of_a_device_teach_of_others_that_were_not_measured() -> None:
    """Half of the pairs are seen; the others are predicted several times better than by one number for all."""
    traits, speeds = like_a_device(1)
    pairs = sorted(speeds)
    draw = np.random.default_rng(2).permutation(len(pairs))
    seen = [PairMeasurement(one, other, speeds[one, other]) for one, other in (pairs[place] for place in draw[::2])]
    rest = [pairs[place] for place in draw[1::2]]
    mean = float(np.mean([each.speed for each in seen]))
    model = InterferenceModel(traits, seen)
    off = [model.speeds(*pair)[0].mean - speeds[pair] for pair in rest]
    inside = [abs(each) < 1.96 * model.speeds(*pair)[0].sd for each, pair in zip(off, rest, strict=True)]
    assert np.std(off) < 0.35 * np.std([speeds[pair] - mean for pair in rest])
    assert np.mean(inside) >= 0.85


def test_hyperparameters_are_looked_for_once_enough_pairs_were_seen() -> None:
    traits, speeds = like_a_device(3)
    unordered = [(one, other) for one, other in sorted(speeds) if one < other]

    def after(pairs: int, fit: bool = True) -> dict[str, float]:
        seen = [
            PairMeasurement(*side, speeds[side])
            for one, other in unordered[:pairs]
            for side in ((one, other), (other, one))
        ]
        return InterferenceModel(traits, seen, fit=fit).hyperparameters

    assert after(ENOUGH - 1) == SHIPPED == after(40, fit=False)
    assert after(ENOUGH) != SHIPPED


@pytest.mark.parametrize("seed", range(3))
def test_the_slopes_are_those_of_the_covariance(seed: int) -> None:
    draw = np.random.default_rng(seed)
    known = [Traits(f"f{place % 3}", {"x": draw.normal(), "busy": draw.random()}) for place in range(6)] + [Traits()]
    kernel = _Kernel(known)
    sides = np.array([(one, other) for one in range(7) for other in range(7) if draw.random() < 0.5])
    weights = draw.normal(size=(len(sides), len(sides)))
    weights += weights.T
    at = {name: value + 0.3 * draw.normal() for name, value in SHIPPED.items()}
    assert np.diag(kernel.covariance(at, sides, sides)) == pytest.approx(kernel.variance(at, sides, sides))
    for name, slope in kernel.slopes(at, sides, weights).items():
        up, down = (
            float(np.sum(weights * kernel.covariance(at | {name: at[name] + step}, sides, sides)))
            for step in (1e-5, -1e-5)
        )
        assert slope == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-6), name


def group(speeds: dict[tuple[str, str], float], classes: Sequence[str]) -> tuple[float, ...]:
    outlook = ColocationEstimates()
    outlook.foreseen([PairSpeed(*pair, speed, 0.0) for pair, speed in speeds.items()], {})
    return outlook.forecast(classes).speeds


@given(st.integers(1, 6), st.floats(0.05, 1.0))
def test_delays_of_several_neighbours_add_up(count: int, speed: float) -> None:
    together = group({("a", "a"): speed}, ["a"] * count)
    assert together == pytest.approx([1.0 / (1.0 + (count - 1) * (1.0 / speed - 1.0))] * count)


def test_a_group_of_two_is_the_pair() -> None:
    assert group({("a", "b"): 0.5, ("b", "a"): 0.8}, "ab") == pytest.approx([0.5, 0.8])


def test_it_loads_no_torch_and_no_scipy() -> None:
    modules = "ecoshare.knowledge.advisers.interference_model, ecoshare.knowledge.advisers.interference_adviser"
    check = f"import sys, {modules}; print({{'torch', 'scipy'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.nightly
@needs_data
def test_on_measured_pairs_of_unseen_types_it_decides_as_well_as_it_did() -> None:
    """The bound is the benchmark's accuracy on all rounds, less what another draw of rounds may cost."""
    script = Path(__file__).parents[2] / "scripts" / "bench_interference.py"
    command = [sys.executable, str(script), "--quick", "--json", "--data", os.environ["ECOSHARE_DATA"]]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    values = {each["name"]: each["value"] for each in json.loads(done.stdout)["figures"]}
    least = {"simulation v100": 0.93, "simulation k80": 0.78, "oracle k80": 0.87}
    for table, gain in least.items():
        judged = f"{table}, both types new"
        assert values[f"{judged}: ours, gain"] >= gain
        assert values[f"{judged}: ours, gain"] > values[f"{judged}: always, gain"]
        assert values[f"{judged}: ours, within 1.96 sd"] >= 0.85


@pytest.mark.slow
@needs_data
def test_the_judge_fits_nothing_to_left_out_types() -> None:
    """If it failed, the judgement would be kinder than a live run: speeds of left-out types must not change it."""
    tables = [table_of(Path(os.environ["ECOSHARE_DATA"]), *each) for each in TABLES[:2]]
    names = sorted(tables[0].traits)
    left_out = Round("type", frozenset(names[::3]), frozenset(), 0)

    def fitted(factor: float) -> dict[str, float]:
        changed = [
            replace(
                each.profiled(),
                speeds={
                    pair: speeds if left_out.types.isdisjoint(pair) else (factor * speeds[0], factor * speeds[1])
                    for pair, speeds in each.speeds.items()
                },
            )
            for each in tables
        ]
        return centre(changed, {each.name: left_out.known(each.speeds) for each in changed})

    assert fitted(1.0) == fitted(0.5)
    judged = left_out.judged(tables[0].speeds)
    known = left_out.known(tables[0].speeds)
    assert sum(map(len, judged.values())) + len(known) == len(tables[0].speeds)
    assert {name: len(pairs) > 20 for name, pairs in judged.items()} == {"both types new": True, "one type new": True}
    assert all(set(each.numbers) == {"log_iteration_s"} for each in tables[0].profiled().traits.values())


def test_length_scales_hold_for_any_count_of_numbers() -> None:
    """If it failed, hyperparameters fitted with one number a class would not hold for a profile, which has four."""
    draw = np.random.default_rng(5)
    values = [float(value) for value in draw.normal(size=6)]
    few = {name: Traits("x", {"one": value}) for name, value in zip(NAMES, values, strict=True)}
    many = {
        name: Traits("x", dict.fromkeys(("one", "two", "three"), value))
        for name, value in zip(NAMES, values, strict=True)
    }
    seen = [PairMeasurement("a", "b", 0.4), PairMeasurement("b", "a", 0.7)]
    for one in NAMES:
        guesses = [tuple(InterferenceModel(traits, seen).combined(one, "f")) for traits in (few, many)]
        assert guesses[0] == pytest.approx(guesses[1])


def test_one_pair_that_is_far_slower_than_expected_does_not_make_all_others_slow() -> None:
    """If it failed, no other pair would be tried: in a simulated mix, all jobs then ran one after the other."""
    traits = {name: Traits(name, {"busy": 0.9}) for name in "abcd"}
    fast = {pair: InterferenceModel(traits, []).speeds(*pair)[0].mean for pair in (("a", "b"), ("c", "d"))}
    slow = [PairMeasurement("a", "b", 0.05), PairMeasurement("b", "a", 0.05)]
    model = InterferenceModel(traits, slow)
    assert model.speeds("a", "b")[0].mean < 0.1, "the pair itself is as slow as it was measured"
    assert model.speeds("c", "d")[0].mean > 0.6 * fast["c", "d"]
    more = [
        *slow,
        *(PairMeasurement(one, "c", 0.05) for one in "abd"),
        *(PairMeasurement("c", one, 0.05) for one in "abd"),
    ]
    assert InterferenceModel(traits, more).speeds("a", "d")[0].mean < 0.4 * fast["c", "d"], "several pairs are a device"


def test_a_group_of_three_that_is_far_slower_than_its_pairs_says_little_about_pairs() -> None:
    """If it failed, no pair would be tried after one such group: each of its parts agreed with the others."""
    traits = {name: Traits(name, {"busy": 0.9}) for name in "abcde"}
    sides = [(one, other) for one in "abc" for other in "abc" if one != other]
    before = InterferenceModel(traits, [])
    after = InterferenceModel(traits, [PairMeasurement(*side, 0.05, packing=1) for side in sides])
    for pair in ("ab", "de"):  # two of the three, and two others
        assert 0.75 < after.speeds(*pair)[0].mean / before.speeds(*pair)[0].mean < 0.95


@given(st.sampled_from([GPU_GUESS, PROCESSORS_GUESS]), st.none() | st.floats(0.0, 1.0), st.none() | st.floats(0.0, 1.0))
def test_until_the_adviser_has_answered_the_core_expects_what_it_will_answer(
    guess: FirstGuess, one: float | None, other: float | None
) -> None:
    """If it failed, jobs would begin beside each other, and be parted by the first answer."""
    outlook, traits = ColocationEstimates(guess), {}
    for name, busy in (("a", one), ("b", other)):
        outlook.learn(name, Solo(name, 0.1, 200.0, 40.0, busy=busy))
        traits[name] = Traits(name, {} if busy is None else {"busy": busy})
    answered = InterferenceModel(traits, [], guess).speeds("a", "b")
    forecast = outlook.forecast("ab")
    for speed, error, answer in zip(forecast.speeds, forecast.errors, answered, strict=True):
        assert speed == pytest.approx(answer.mean, abs=0.15) and error > answer.sd * 0.5
