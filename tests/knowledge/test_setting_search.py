"""The search of a packing on invented responses: its promises hold for any numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshare.base.measurement import Measurement, MeasurementStatus
from ecoshare.knowledge.advisers.setting_search import (
    BUDGET,
    JudgedMeasurement,
    PackedJob,
    SearchEnding,
    SettingEvaluator,
    SettingSearch,
    knob_of,
    observable,
    space_of,
)
from ecoshare.knowledge.tuning_store import MeasurementRecord
from tests.knowledge.invented import CLOCKS, DEFAULT, SPACE, Device, measured
from tests.rounds import rounds
from tuner import Knob, Prior, Role, Setting, Space
from tuner.physics import grey_box

ONE = Device({"a": 0.4})
TWO = Device({"a": 0.2, "b": 0.9})

positive = st.floats(0.01, 1000.0)
statuses = st.sampled_from(
    [MeasurementStatus.MEASURED] * 4
    + [MeasurementStatus.CENSORED, MeasurementStatus.CONTAMINATED, MeasurementStatus.FAILED]
)


def search(device: Device = ONE, **options: Any) -> SettingSearch:
    return SettingSearch(SPACE, DEFAULT, device.jobs(), **options)


def carry_out(searching: SettingSearch, device: Device = ONE) -> list[JudgedMeasurement]:
    found = []
    while (setting := searching.next()) is not None:
        found.append(searching.told(device.measure(setting)))
    return found


def test_the_best_setting_of_a_device_is_found_and_what_it_saves_is_right() -> None:
    searching = search()
    trials = carry_out(searching)
    judged = {clock: searching.yardstick.judge(ONE.measure({"clock": clock}), ONE.measure(DEFAULT)) for clock in CLOCKS}
    kept = {clock: each for clock, each in judged.items() if each.interference["a"] <= 1.1}
    optimum = min(kept, key=lambda clock: kept[clock].energy)
    assert 1 < len(kept) < len(CLOCKS), "the limit decides nothing"
    assert searching.best == {"clock": optimum}
    known = {clock: ONE.measure({"clock": clock}) for clock in CLOCKS}
    joules = {clock: (each.power_w or 0.0) * each.times_s["a"] for clock, each in known.items()}
    assert searching.saved == pytest.approx(1.0 - joules[optimum] / joules[1400.0])
    assert trials[0].requested == DEFAULT and trials[0].best and trials[0].feasible
    assert searching.ending is not None and len(trials) < len(CLOCKS)


def times(searching: SettingSearch, setting: Setting) -> list[float]:
    """Times of job b in the measurements of a setting."""
    told = [trial for trial in searching.measurements if trial.requested == setting]
    return [trial.found.times_s["b"] for trial in told if trial.found.status is MeasurementStatus.MEASURED]


@pytest.mark.nightly
@settings(max_examples=rounds(25, nightly=60))
@given(st.lists(st.tuples(statuses, positive, positive, positive), min_size=1, max_size=14), st.integers(1, 14))
def test_whatever_comes_the_rules_are_kept(
    told: list[tuple[MeasurementStatus, float, float, float]], budget: int
) -> None:
    searching = search(TWO, budget=budget)
    first: Measurement | None = None
    for status, power_w, a_s, b_s in told:
        setting = searching.next()
        if setting is None:
            break
        assert setting == searching.next(), "asking twice is one question"
        asked = [(each.requested, each.found.status) for each in searching.measurements]
        repeated = [requested for requested, status in asked if status is MeasurementStatus.CONTAMINATED]
        assert all(repeated.count(each) <= 3 for each in repeated), "a disturbed measurement is repeated at most twice"
        over = (MeasurementStatus.FAILED, MeasurementStatus.CENSORED)
        gone = [requested for requested, status in asked if status in over]
        assert setting not in gone, "what cannot be, or is too slow, is not tried again"
        observed = measured(power_w, {"a": a_s, "b": b_s})
        nothing = measured(None, {}, status)
        outcome = searching.told(nothing if status is MeasurementStatus.FAILED else replace(observed, status=status))
        if status is MeasurementStatus.MEASURED and setting == DEFAULT:
            first = first or observed
        if outcome.score is not None:
            assert first is not None and status is MeasurementStatus.MEASURED
            assert outcome.feasible == (max(outcome.interference.values()) <= 1.1)
        if outcome.best:
            assert outcome.requested == searching.best
        MeasurementRecord.model_validate(outcome.as_dict())
    assert len(searching.measurements) <= budget
    assert searching.violations == sum(trial.feasible is False for trial in searching.measurements)
    if first is None:
        assert searching.best is None and searching.saved is None, "nothing is known without the default"
    else:
        assert searching.best is not None, "the default keeps its own limit"
        for setting in SPACE.settings:
            judged, own, default = searching.judged(setting), times(searching, setting), times(searching, DEFAULT)
            assert (judged is None) == (not own)
            if judged is not None:
                assert judged.interference["b"] == pytest.approx(geometric_mean(own) / geometric_mean(default))
        best = searching.judged(searching.best)
        assert best is not None and best.feasible
        believed = searching._tuner.best()
        if believed is None or searching.best != believed.setting:
            # The favourite broke the limit when it was measured, or was worse than the default: the numbers decide.
            other = None if believed is None else searching.judged(believed.setting)
            usual = searching.judged(DEFAULT)
            assert other is None or not other.feasible or (usual and other.objective > usual.objective)
            assert all(
                each is None or not each.feasible or best.objective <= each.objective
                for each in map(searching.judged, SPACE.settings)
            )


def test_the_budget_is_the_most() -> None:
    searching = search(budget=2)
    assert len(carry_out(searching)) == 2 and searching.ending is SearchEnding.BUDGET
    assert searching.next() is None


def test_every_setting_tried_is_the_end() -> None:
    space = Space.product(Knob("clock", (700.0, 1400.0), Role.CORE_CLOCK))
    searching = SettingSearch(space, DEFAULT, ONE.jobs())
    assert len(carry_out(searching)) == 2 and searching.ending is SearchEnding.NOTHING_LEFT


def test_little_to_gain_ends_it_after_three_trials_at_the_soonest() -> None:
    # Time is all that counts, and nothing can be faster than a default that is bound by the clock alone.
    searching = search(Device({"a": 1.0}), objective="jct")
    trials = carry_out(searching, Device({"a": 1.0}))
    assert searching.ending is SearchEnding.LITTLE_GAIN and 3 <= len(trials) < BUDGET
    assert searching.best == DEFAULT and searching.saved == 0.0


@pytest.mark.nightly
def test_a_disturbed_trial_is_repeated_twice_and_then_left() -> None:
    searching = search()
    searching.next()
    searching.told(ONE.measure(DEFAULT))
    setting = searching.next()
    for _ in range(3):
        assert searching.next() == setting
        outcome = searching.told(measured(1.0, {"a": 1e-6}, MeasurementStatus.CONTAMINATED))
        assert outcome.score is None and outcome.feasible is None and not outcome.best
    rest = carry_out(searching)
    assert all(trial.requested != setting for trial in rest), "it is tried for ever"
    assert searching.best is not None


@pytest.mark.slow
def test_a_default_that_is_always_disturbed_or_fails_ends_it() -> None:
    disturbed, failing = search(), search()
    for _ in range(3):
        assert disturbed.next() == DEFAULT
        disturbed.told(replace(ONE.measure(DEFAULT), status=MeasurementStatus.CONTAMINATED))
    failing.next()
    failing.told(measured(None, {}, MeasurementStatus.FAILED))
    for searching in (disturbed, failing):
        assert searching.next() is None and searching.ending is SearchEnding.NO_DEFAULT
        assert searching.best is None


def test_a_trial_stopped_early_is_a_violation_only_where_it_was_too_slow_already() -> None:
    searching = search()
    searching.next()
    searching.told(measured(200.0, {"a": 0.1}))
    searching.next()
    assert searching.told(measured(100.0, {"a": 0.12}, MeasurementStatus.CENSORED)).feasible is False
    searching.next()
    assert searching.told(measured(100.0, {"a": 0.105}, MeasurementStatus.CENSORED)).feasible is None
    setting = searching.next()
    nothing = measured(None, {}, MeasurementStatus.CENSORED)
    assert searching.told(nothing).feasible is None, "it was too slow to say how slow"
    assert searching.violations == 1 and searching.next() != setting


def test_trials_of_an_earlier_search_are_known_and_cost_nothing() -> None:
    searching = search(budget=3)
    known = [DEFAULT, {"clock": 1200.0}, {"clock": 600.0}]
    told = [searching.carry(setting, ONE.measure(setting)) for setting in known]
    assert [each.feasible for each in told] == [True, True, False] and searching.best == known[1]
    new = carry_out(searching)
    assert new and all(trial.requested not in known for trial in new), "what is known is measured again"
    assert new[0].number == 4 and len(new) <= 3
    for setting, observed in (({"clock": 1.0}, ONE.measure(DEFAULT)), (DEFAULT, measured(1.0, {}))):
        with pytest.raises(ValueError):
            searching.carry(setting, observed)


def test_energy_is_joules_per_joule_of_the_same_work_alone() -> None:
    default = measured(300.0, {"a": 0.2, "b": 0.4})
    # Two jobs in turn in one lane, half of the time each, alone 300 and 100 W: no gain and no loss.
    halves = SettingEvaluator([PackedJob("a", 300.0, 0.2, 0.5), PackedJob("b", 100.0, 0.4, 0.5)], "energy", 1.1)
    assert halves.judge(measured(200.0, default.times_s), default).energy == pytest.approx(1.0)
    # Side by side at 0.8 of their speed alone, together 350 W: 350 / (0.8 * 300 + 0.8 * 100).
    packed = measured(350.0, {"a": 0.25, "b": 0.5})
    side = SettingEvaluator([PackedJob("a", 300.0, 0.2), PackedJob("b", 100.0, 0.4)], "energy", 1.1)
    assert side.judge(packed, packed).energy == pytest.approx(350.0 / 320.0)
    assert side.judge(packed, packed).feasible, "the limit is on what tuning costs, not on what packing costs"
    unknown = SettingEvaluator([PackedJob("a", 300.0), PackedJob("b", 100.0)], "energy", 1.1)
    assert unknown.judge(packed, packed).energy == pytest.approx(350.0 / 400.0)


@given(st.tuples(positive, positive, positive), st.tuples(positive, positive, positive))
def test_objectives_agree_with_each_other(now: tuple[float, ...], default: tuple[float, ...]) -> None:
    jobs = [PackedJob("a", 120.0), PackedJob("b", 80.0)]
    here, there = (measured(each[0], {"a": each[1], "b": each[2]}) for each in (now, default))
    by = {name: SettingEvaluator(jobs, name, 1.1).judge(here, there) for name in ("energy", "edp", "jct", "makespan")}
    assert by["jct"] == by["makespan"]
    assert by["energy"].objective == by["energy"].energy == by["edp"].energy
    assert by["edp"].objective == pytest.approx(by["energy"].objective * by["jct"].objective)
    assert by["jct"].objective == pytest.approx((now[1] / default[1] + now[2] / default[2]) / 2)


def test_a_prior_is_used() -> None:
    names = [observable(name) for name in TWO.compute]
    prior: Prior = grey_box(SPACE, names, DEFAULT, seed=3)
    assert carry_out(search(TWO, prior=prior), TWO), "the names of a prior's observables are not the search's"
    with pytest.raises(ValueError, match="knows nothing"):
        search(TWO, prior=grey_box(SPACE, ["else"], DEFAULT))


@pytest.mark.slow
def test_equal_seeds_give_equal_searches() -> None:
    assert carry_out(search(TWO, seed=5), TWO) == carry_out(search(TWO, seed=5), TWO)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": "fun"}, "expected energy, edp, jct or makespan"),
        ({"tuning_limit": 0.9}, "at least 1"),
        ({"tuning_limit": math.nan}, "at least 1"),
        ({"budget": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        search(**options)


def test_jobs_that_cannot_be_are_refused() -> None:
    for jobs in (
        [],
        [PackedJob("a", 1.0), PackedJob("a", 2.0)],
        [PackedJob("a", 0.0)],
        [PackedJob("a", 1.0, math.inf)],
        [PackedJob("a", 1.0, share=0.0)],
    ):
        with pytest.raises(ValueError):
            SettingSearch(SPACE, DEFAULT, jobs)


def test_telling_what_was_not_asked_is_refused_and_changes_nothing() -> None:
    searching = search()
    with pytest.raises(RuntimeError, match="next"):
        searching.told(ONE.measure(DEFAULT))
    searching.next()
    for wrong in (
        measured(1.0, {}),
        measured(1.0, {"a": 1.0, "c": 1.0}),
        measured(0.0, {"a": 1.0}),
        measured(None, {"a": 1.0}),
    ):
        with pytest.raises(ValueError):
            searching.told(wrong)
    assert not searching.measurements and searching.next() == DEFAULT


def test_a_knob_whose_values_have_names_only_is_searched() -> None:
    """A power profile has no numbers: none may be asked of it."""
    profiles = {"none": 1.0, "max_p": 1.0, "max_q": 1.0}
    space = space_of([knob_of("power_profile", (), profiles)], lambda _setting: True)
    watts = {"none": 100.0, "max_p": 120.0, "max_q": 70.0}
    searching = SettingSearch(space, {"power_profile": "none"}, [PackedJob("a", 100.0)], budget=6)
    while (setting := searching.next()) is not None:
        name = str(setting["power_profile"])
        searching.told(
            Measurement((("power_profile", name),), MeasurementStatus.MEASURED, power_w=watts[name], times_s={"a": 1.0})
        )
    assert searching.best == {"power_profile": "max_q"} and searching.saved == pytest.approx(0.3)
    (told,) = searching.as_dict({"power_profile": ""})["knobs"]
    assert told == {"name": "power_profile", "unit": "", "count": 3, "lowest": None, "highest": None}
