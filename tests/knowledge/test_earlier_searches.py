"""Earlier searches of an adviser are the prior for a packing of the same classes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import Goal, Measurement, MeasurementStatus, Packing, Setting
from ecoshare.core.commands import AskSetting
from ecoshare.knowledge.advisers.earlier_searches import Earlier, prior_from, tuned_alone
from ecoshare.knowledge.advisers.setting_adviser import TunerAdviser
from ecoshare.knowledge.advisers.setting_search import PackedJob
from tests.knowledge.invented import DEFAULT, SPACE

COMPUTE = {"a": 0.9, "b": 0.1}
"""Part of the time that the clock changes, by class."""
GOAL = Goal("energy", 1.1, 8)
LOW = SPACE.index({"clock": 1000.0})
AT = SPACE.index(DEFAULT)


def run(setting: Setting, jobs: tuple[str, ...], slower: float = 1.0, share: float = 1.0) -> Measurement:
    """Measurement of a setting. Power adds up over lanes; in one lane it is the power of the job that has the turn."""
    clock = dict(setting).get("clock", DEFAULT["clock"])
    assert isinstance(clock, float)
    part = clock / 1400.0
    times_s = {job: slower * 0.1 * (COMPUTE[job] / part + 1.0 - COMPUTE[job]) for job in jobs}
    power_w = 40.0 + len(jobs) * share * 80.0 / slower * part**2.5
    return Measurement(
        setting, MeasurementStatus.MEASURED, power_w, times_s=times_s, shares=dict.fromkeys(jobs, share), joules=1.0
    )


def search(adviser: TunerAdviser, packing: Packing, most: int = 99) -> None:
    """Ask the adviser until its search is over, at most `most` times."""
    advice = adviser.answer(AskSetting(1, "tuner", "cuda:0", packing, None))
    jobs = tuple(job for lane in packing for job in lane)
    while not advice.over and most > 0:
        advice, most = adviser.answer(AskSetting(1, "tuner", "cuda:0", packing, run(advice.setting, jobs))), most - 1


def adviser() -> TunerAdviser:
    return TunerAdviser(lambda: SPACE, lambda: dict(DEFAULT), lambda _job: Solo(), GOAL)


def earlier() -> list[Earlier]:
    """Searches of both classes, each alone."""
    tuned = adviser()
    for job in ("a", "b"):
        search(tuned, ((job,),))
    return tuned_alone(tuned.searches)


@pytest.mark.slow
def test_searches_of_one_class_are_what_is_known_alone() -> None:
    tuned = adviser()
    search(tuned, (("b",),))
    search(tuned, (("a",),), most=2)
    search(tuned, (("a",), ("b",)), most=2)
    search(tuned, (("a", "b"),), most=0)
    (first, second) = tuned_alone(tuned.searches)
    assert (first.job_class, second.job_class) == ("b", "a"), "those of several are left out"
    whole = tuned.searches[(("b",),)].search
    assert whole is not None and len(first.measurements) == len(whole.measurements)
    assert len(second.measurements) == 2, "of one under way, as far as it is"
    setting, power_w, time_s, stopped = second.measurements[0]
    assert dict(setting) == DEFAULT and (power_w, time_s) == pytest.approx((120.0, 0.1)) and not stopped


@pytest.mark.slow
def test_what_a_class_did_in_other_packings_belongs_to_what_is_known_of_it() -> None:
    tuned = adviser()
    search(tuned, (("a",),))
    search(tuned, (("a",), ("b",)), most=3)
    (alone,) = tuned_alone(tuned.searches)
    whole = tuned.searches[(("a",), ("b",))].search
    assert whole is not None and len(alone.in_company) == 3
    assert alone.in_company == [(each.requested, each.interference["a"]) for each in whole.measurements]
    jobs = [PackedJob("a", 120.0), PackedJob("b", 120.0)]
    slower = replace(alone, in_company=[({"clock": 1000.0}, 1.9)])
    means = []
    for known in (replace(alone, in_company=()), slower):
        prior = prior_from(SPACE, DEFAULT, jobs, {"a": "a", "b": "b"}, [known], 0, {"a": 0.13, "b": 0.13})
        assert prior is not None
        means.append(float(prior.parts[0].mean[1, LOW]))
    assert means[1] > means[0] + 0.005, "its class was seen to be slower there than its search alone says"


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.5], ids=["beside each other", "in one lane"])
def test_each_job_of_a_packing_is_believed_to_respond_as_its_class(share: float) -> None:
    jobs = [PackedJob("first", 120.0, share=share), PackedJob("second", 120.0, share=share)]
    classes = {"first": "a", "second": "b"}
    prior = prior_from(SPACE, DEFAULT, jobs, classes, earlier(), default_s={"first": 0.15, "second": 0.15})
    assert prior is not None and prior.observables == ("power_w", "time of first", "time of second")
    slow = prior.parts[0].mean[1:, LOW] - prior.parts[0].mean[1:, AT]
    truth = run((("clock", 1000.0),), ("a", "b")).times_s
    for found, job in zip(slow.tolist(), ("a", "b"), strict=True):
        assert found == pytest.approx(math.log(truth[job] / 0.1), abs=0.04)


@pytest.mark.slow
def test_how_much_neighbours_slow_a_job_down_is_its_time_over_that_alone() -> None:
    """A job that is slowed to a crawl draws nothing beside the other, so power falls as for the other alone."""
    jobs, classes, known = [PackedJob("a", 120.0), PackedJob("b", 120.0)], {"a": "a", "b": "b"}, earlier()
    levels: tuple[dict[str, float], ...] = ({"a": 0.1, "b": 0.1}, {"a": 0.1, "b": 10.0}, {})
    free, crawls, unknown = (prior_from(SPACE, DEFAULT, jobs, classes, known, default_s=each) for each in levels)
    assert free is not None and crawls is not None and unknown is not None
    fall = [float(prior.parts[0].mean[0, LOW]) for prior in (free, crawls, unknown)]
    assert fall[0] < fall[2] < fall[1] < -0.1, "idle watts are a larger part of what less work draws"


@pytest.mark.slow
def test_a_class_alone_that_was_never_searched_may_be_like_any() -> None:
    jobs = [PackedJob("new", 120.0, alone_s=0.05), PackedJob("old", 120.0)]
    prior = prior_from(SPACE, DEFAULT, jobs, {"new": "c", "old": "a"}, earlier(), default_s={"new": 0.1, "old": 0.1})
    assert prior is not None
    spread = prior.parts[0].root[:, 1:, LOW].square().sum(dim=0).sqrt()
    assert float(spread[0]) > 3.0 * float(spread[1])


@pytest.mark.slow
def test_a_search_that_knows_its_classes_asks_for_less() -> None:
    """The first setting after the default is within 5 % of the best that keeps the limit."""
    packing: Packing = (("a",), ("b",))
    known = earlier()

    def first_tried(with_prior: bool) -> Setting:
        default_s = {"a": 0.13, "b": 0.13}
        made = prior_from(
            SPACE, DEFAULT, [PackedJob("a", 120.0), PackedJob("b", 120.0)], {"a": "a", "b": "b"}, known, 0, default_s
        )
        tuned = TunerAdviser(
            lambda: SPACE,
            lambda: dict(DEFAULT),
            lambda _job: Solo(power_w=120.0, iteration_s=0.1),
            GOAL,
            prior=lambda _space, _jobs, _default_s: made if with_prior else None,
        )
        tuned.answer(AskSetting(1, "tuner", "cuda:0", packing, None))
        return tuned.answer(AskSetting(1, "tuner", "cuda:0", packing, run((), ("a", "b"), slower=1.3))).setting

    def cost(setting: Setting) -> float:
        trial = run(setting, ("a", "b"), slower=1.3)
        assert trial.power_w is not None
        return trial.power_w / sum(0.1 / time_s for time_s in trial.times_s.values())

    settings: list[Setting] = [tuple(each.items()) for each in SPACE.settings]
    default_s = run((), ("a", "b"), slower=1.3).times_s["a"]
    kept = [each for each in settings if run(each, ("a", "b"), slower=1.3).times_s["a"] <= 1.1 * default_s]
    best = min(map(cost, kept))
    assert first_tried(True) in kept and cost(first_tried(True)) <= 1.05 * best
    assert cost(()) > 1.05 * best, "the default would not do"
