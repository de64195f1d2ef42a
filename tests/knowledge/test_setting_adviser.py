"""The adviser measures the default first, then searches with the way the jobs share; knobs that fail are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import Goal, Measurement, MeasurementStatus, Packing, Setting
from ecoshare.core.commands import AskSetting
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.knowledge.advisers.earlier_searches import Earlier, prior_from
from ecoshare.knowledge.advisers.setting_adviser import TunerAdviser
from ecoshare.knowledge.advisers.setting_search import PackedJob, knob_of, space_of
from tuner import Space

CLOCKS = tuple(float(each) for each in range(600, 1980, 60))
LIMITS = (150.0, 200.0, 250.0, 300.0)
PACKING: Packing = (("a", "b"),)
GOAL = Goal("energy", 1.1, 12)


class Device:
    """Two jobs in one lane: `a` computes, `b` waits for its input; knobs may go."""

    def __init__(self) -> None:
        self.knobs = {
            "gpu_clock": knob_of("gpu_clock", CLOCKS, {"unlocked": 1980.0}),
            "power_limit": knob_of("power_limit", LIMITS, {}),
        }

    def space(self) -> Space | None:
        return space_of(list(self.knobs.values()), lambda _setting: True) if self.knobs else None

    def default(self) -> dict[str, float | str]:
        whole: dict[str, float | str] = {"gpu_clock": "unlocked", "power_limit": 300.0}
        return {name: value for name, value in whole.items() if name in self.knobs}

    def run(self, setting: Setting, jobs: tuple[str, ...] = ("a", "b")) -> Measurement:
        """Measured rates of a setting, without noise."""
        values = dict(setting)
        clock = values.get("gpu_clock", "unlocked")
        part = 1.0 if clock == "unlocked" else float(clock) / 1980.0
        while 60.0 + 230.0 * part**2.4 > float(values.get("power_limit", 300.0)):
            part -= 0.002
        power = {"a": 60.0 + 230.0 * part**2.4, "b": 60.0 + 90.0 * part**2.4}
        times = {"a": 0.1 * (0.75 / part + 0.25), "b": 0.1 * (0.2 / part + 0.8)}
        return Measurement(
            setting,
            MeasurementStatus.MEASURED,
            power_w=sum(power[job] for job in jobs) / len(jobs),
            joules=1.0,
            times_s={job: times[job] for job in jobs},
            shares={job: 1.0 / len(jobs) for job in jobs},
        )


def adviser(device: Device, alone: Solo | None = None, **goal: Any) -> TunerAdviser:
    known = alone or Solo()
    return TunerAdviser(device.space, device.default, lambda _job: known, replace(GOAL, **goal))


def ask(trial: Measurement | None, number: int = 1) -> AskSetting:
    return AskSetting(number, "tuner", "cuda:0", PACKING, trial)


def carry_out(tuned: TunerAdviser, device: Device) -> tuple[list[Setting], Advice]:
    advice = tuned.answer(ask(None))
    tried = []
    while not advice.over:
        tried.append(advice.setting)
        advice = tuned.answer(ask(device.run(advice.setting)))
    return tried, advice


@pytest.mark.slow
def test_it_finds_a_setting_that_saves_and_keeps_the_limit() -> None:
    device = Device()
    tried, advice = carry_out(adviser(device), device)
    assert tried[0] == () and 3 <= len(tried) <= GOAL.budget
    before, after = device.run(()), device.run(advice.setting)
    assert all(after.times_s[job] <= 1.1 * before.times_s[job] * 1.001 for job in ("a", "b"))
    work = sum(0.5 * before.times_s[job] / after.times_s[job] for job in ("a", "b"))
    assert (after.power_w or 0.0) / work < 0.93 * (before.power_w or 0.0)


@pytest.mark.nightly
def test_a_job_s_own_limit_binds_the_packing_and_the_answer_says_how_slow_it_gets() -> None:
    device = Device()
    before = device.run(())
    rates = {job: 1.0 / time_s for job, time_s in before.times_s.items()}  # no turns to wait for

    class Counting(Device):
        def run(self, setting: Setting, jobs: tuple[str, ...] = ("a", "b")) -> Measurement:
            return replace(super().run(setting, jobs), rates=rates)

    def slower(**limits: float) -> Advice:
        known = Solo(iteration_s=before.times_s["a"])
        tuned = TunerAdviser(device.space, device.default, lambda _job: known, GOAL, slowdown_limit=limits.get)
        return carry_out(tuned, Counting())[1]

    free, bound = slower(), slower(a=1.03)
    assert bound.setting and 1.0 <= bound.slower <= 1.03 < free.slower <= 1.1
    after = device.run(bound.setting)
    assert after.times_s["a"] / before.times_s["a"] == pytest.approx(bound.slower)
    assert slower(a=0.9).slower == 1.0, "a limit that is broken already at the default leaves nothing to give"


@pytest.mark.nightly
def test_equal_questions_get_equal_answers() -> None:
    device = Device()
    assert carry_out(adviser(device), device) == carry_out(adviser(device), device)


@pytest.mark.slow
def test_other_jobs_of_the_same_classes_go_on_with_the_search() -> None:
    device = Device()
    expected, best = carry_out(adviser(device), device)
    tuned = TunerAdviser(device.space, device.default, lambda _job: Solo(), GOAL, class_of=lambda name: name[0])
    advice, tried = tuned.answer(ask(None)), []
    while not advice.over:
        tried.append(advice.setting)
        trial = device.run(advice.setting)
        if len(tried) > 2:
            names = {"a": f"a{len(tried)}", "b": f"b{len(tried)}"}
            values: dict[str, Any] = {
                each: {names[job]: value for job, value in getattr(trial, each).items()}
                for each in ("times_s", "shares")
            }
            trial = replace(trial, **values)
        advice = tuned.answer(ask(trial))
    assert (tried, advice) == (expected, best)


@pytest.mark.slow
def test_a_default_that_is_disturbed_is_measured_again_and_then_given_up() -> None:
    device, tuned = Device(), adviser(Device())
    disturbed = Measurement((), MeasurementStatus.CONTAMINATED, power_w=100.0, throttles=("temperature",))
    assert tuned.answer(ask(None)) == Advice(())
    assert tuned.answer(ask(disturbed)) == Advice(())
    assert not tuned.answer(ask(device.run(()))).over, "now it was measured"
    other = adviser(Device())
    other.answer(ask(None))
    answers = [other.answer(ask(disturbed)) for _ in range(3)]
    assert [each.over for each in answers] == [False, False, True] and "temperature" in answers[-1].note


def test_without_a_meter_it_is_over_at_once() -> None:
    tuned = adviser(Device())
    tuned.answer(ask(None))
    advice = tuned.answer(ask(Measurement((), MeasurementStatus.FAILED, note="joules are not measured")))
    assert advice.over and advice.setting == () and "joules are not measured" in advice.note


@pytest.mark.slow
def test_a_knob_that_is_gone_is_searched_without() -> None:
    device = Device()
    tuned = adviser(device)
    advice = tuned.answer(ask(None))
    for _ in range(3):
        advice = tuned.answer(ask(device.run(advice.setting)))
    del device.knobs["gpu_clock"]
    advice = tuned.answer(ask(Measurement(advice.setting, MeasurementStatus.FAILED, note="no permission")))
    while not advice.over:
        assert "gpu_clock" not in dict(advice.setting)
        advice = tuned.answer(ask(device.run(advice.setting)))
    assert "gpu_clock" not in dict(advice.setting)


@pytest.mark.nightly
def test_with_no_knob_left_it_is_over() -> None:
    device = Device()
    tuned = adviser(device)
    tuned.answer(ask(None))
    advice = tuned.answer(ask(device.run(())))
    device.knobs.clear()
    advice = tuned.answer(ask(Measurement(advice.setting, MeasurementStatus.FAILED, note="lost")))
    assert advice.over and advice.setting == () and "nothing can be set" in advice.note


@pytest.mark.slow
def test_nothing_feasible_is_an_answer() -> None:
    """Only the default keeps the limit here, and the default is no setting to apply."""
    device = Device()
    _, advice = carry_out(adviser(device, tuning_limit=1.0, objective="energy"), device)
    after = device.run(advice.setting)
    assert after.times_s["a"] <= device.run(()).times_s["a"] * 1.001


def test_a_job_that_is_slower_in_the_packing_counts_by_its_work() -> None:
    """E is energy over the energy alone: at the default it is the cost of the packing for every search."""
    device = Device()
    tuned = adviser(device, Solo(power_w=200.0, iteration_s=0.05))
    tuned.answer(ask(None))
    tuned.answer(ask(device.run(())))
    own = tuned.searches[PACKING]
    assert own.search is not None
    judged = own.search.judged(device.default())
    default = device.run(())
    expected = (default.power_w or 0.0) / sum(200.0 * 0.5 * 0.05 / default.times_s[job] for job in ("a", "b"))
    assert judged is not None and judged.energy == pytest.approx(expected)


@pytest.mark.slow
def test_what_a_job_alone_has_shown_is_the_prior_of_its_packing() -> None:
    device = Device()
    space = device.space()
    assert space is not None
    jobs = [PackedJob("one", 200.0), PackedJob("two", 150.0)]
    classes = {"one": "a", "two": "b"}

    def tuned_alone(name: str, *settings: Setting) -> Earlier:
        trials = [device.run(setting, (name,)) for setting in settings]
        return Earlier(
            name,
            [
                ({**device.default(), **dict(each.setting)}, each.power_w or 0.0, each.times_s[name], False)
                for each in trials
            ],
        )

    tried: list[Setting] = [(), (("gpu_clock", 1500.0),), (("gpu_clock", 1200.0),), (("power_limit", 200.0),)]
    prior = prior_from(space, device.default(), jobs, classes, [tuned_alone("a", *tried), tuned_alone("b", *tried)])
    assert prior is not None
    at = space.index({"gpu_clock": 1200.0, "power_limit": 300.0})
    slow_a, slow_b = (
        float(prior.mean[place, at] - prior.mean[place, space.index(device.default())]) for place in (1, 2)
    )
    assert slow_a > slow_b + 0.05, "what was seen of each is told apart"
    once = [tuned_alone("a", ())]
    assert prior_from(space, device.default(), jobs, classes, once) is None, "one setting tells of no response"
    elsewhere = [Earlier("a", [({"gpu_clock": 7.0, "power_limit": 1.0}, 100.0, 0.1, False)] * 3)]
    assert prior_from(space, device.default(), jobs, classes, elsewhere) is None
