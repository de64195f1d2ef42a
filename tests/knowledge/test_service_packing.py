"""Adviser of a packing with a service, on the invented device of `test_service_search`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import (
    AS_FOUND,
    BATCH,
    Goal,
    Measurement,
    MeasurementStatus,
    Packing,
    ServiceFigures,
    Setting,
)
from ecoshare.core.commands import AskSetting
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.knowledge.advisers.service_packing import MOST_WITH_BATCHES, PackedService, with_batch
from ecoshare.knowledge.advisers.setting_adviser import TunerAdviser
from ecoshare.knowledge.advisers.setting_search import knob_of, space_of
from tests.knowledge.test_service_search import LOAD, TRAINING, measured
from tuner import Role, Space

CLOCKS = (700.0, 900.0, 1100.0, 1300.0, 1500.0)
SIZES = (1, 4, 16)
PACKING: Packing = (("s", "training"),)
GOAL = Goal("energy", 2.5, 8)


def space() -> Space:
    return space_of([knob_of("gpu_clock", CLOCKS, {})], lambda _setting: True)


def ran(setting: Setting, suffix: str = "", training: bool = True) -> Measurement:
    """Measurement of the packing at a setting. Names of jobs end with `suffix`."""
    values = {"clock": dict(setting).get("gpu_clock", 1500.0), "batch": dict(setting).get(BATCH, 16.0)}
    found = measured(values, training)
    figures = ServiceFigures(1000, 5, LOAD.rate_per_s, found.p99_s, found.batch, found.batch_s)
    busy = LOAD.rate_per_s * found.turn_s
    jobs = {f"training{suffix}": found.times_s["training"]} if training else {}
    return Measurement(
        setting,
        MeasurementStatus.MEASURED,
        power_w=found.power_w,
        joules=5.0 * found.power_w,
        duration_s=5.0,
        times_s=jobs,
        shares={f"s{suffix}": busy, **dict.fromkeys(jobs, 1.0 - busy)},
        rates={name: (1.0 - busy) / time_s for name, time_s in jobs.items()},
        services={f"s{suffix}": figures},
    )


def adviser(target_s: float, tuning_limit: float = 2.5) -> TunerAdviser:
    return TunerAdviser(
        space,
        lambda: {"gpu_clock": 1500.0},
        lambda _name: Solo(power_w=TRAINING.alone_w, iteration_s=TRAINING.alone_s),
        replace(GOAL, tuning_limit=tuning_limit),
        class_of=lambda name: name.rstrip("0123456789"),
        service=lambda name: PackedService(name, target_s, SIZES, LOAD.idle_w) if name.startswith("s") else None,
    )


def ask(found: Measurement | None = None, packing: Packing = PACKING) -> AskSetting:
    return AskSetting(1, "tuner", "cuda:0", packing, found)


def searched(
    own: TunerAdviser, training: bool = True, suffixes: tuple[str, ...] = ("",)
) -> list[tuple[Setting, Advice]]:
    """Settings in the order of their measurements, each with the advice that followed."""
    steps, advice = list[tuple[Setting, Advice]](), own.answer(ask())
    while not advice.over:
        setting = advice.setting
        found = ran(setting, suffixes[len(steps) % len(suffixes)], training)
        advice = own.answer(ask(found))
        steps.append((setting, advice))
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_joules_fall_and_the_target_is_kept(training: bool) -> None:
    target_s = 1.6 * ran(AS_FOUND, training=training).services["s"].p99_s
    own = adviser(target_s)
    steps = searched(own, training)
    search = own.searches[PACKING].search
    assert steps[0][0] == AS_FOUND and 1 < len(steps) <= GOAL.budget and search is not None
    late = [setting for setting, _ in steps if ran(setting, training=training).services["s"].p99_s > target_s]
    assert len(late) <= 1 and steps[-1][1].setting not in late
    assert all(dict(setting).get(BATCH, 16.0) in SIZES for setting, _ in steps)
    last = steps[-1][1]
    assert last.over and float(dict(last.setting)["gpu_clock"]) < 1500.0
    assert search.saved is not None and search.saved > 0.05
    watts = [ran(setting, training=training).power_w for setting in (last.setting, AS_FOUND)]
    assert watts[0] is not None and watts[1] is not None and watts[0] < watts[1]


@pytest.mark.slow
def test_the_limit_of_the_training_is_kept_too() -> None:
    own = adviser(1.0, tuning_limit=1.2)
    last = searched(own)[-1][1]
    clock = float(dict(last.setting)["gpu_clock"])
    assert 1500.0 / 1.2 <= clock < 1500.0 and last.slower == pytest.approx(1500.0 / clock)
    most_s = own.most_s(["s", "training"])
    assert most_s == {}, "the search is over"


@pytest.mark.nightly
def test_other_jobs_of_the_same_classes_go_on_with_a_search() -> None:
    one, two = (searched(adviser(0.05), suffixes=each) for each in (("1",), ("1", "2", "3")))
    assert one == two


@pytest.mark.slow
def test_a_disturbed_measurement_is_not_judged() -> None:
    own = adviser(0.05)
    first = own.answer(ask(ran(AS_FOUND)))
    disturbed = replace(ran(first.setting), status=MeasurementStatus.CONTAMINATED, services={})
    following = own.answer(ask(disturbed))
    (_, judged), search = own.searches[PACKING].measurements[-1], own.searches[PACKING].search
    assert judged is not None and judged.score is None and judged.feasible is None
    assert following.setting != first.setting and search is not None and search.judged(judged.requested) is None


@pytest.mark.nightly
def test_a_default_that_misses_the_target_ends_without_a_setting() -> None:
    last = searched(adviser(0.1 * ran(AS_FOUND).services["s"].p99_s))[-1][1]
    assert (last.setting, last.over, last.note) == (AS_FOUND, True, "no setting can keep the target")


def test_two_services_are_not_searched() -> None:
    found = ran(AS_FOUND)
    both = replace(found, services={**found.services, "s2": found.services["s"]})
    advice = adviser(0.05).answer(ask(both, (("s", "s", "training"),)))
    assert advice == Advice(AS_FOUND, True, "2 services on one device: only one can be tuned")


def test_the_largest_sizes_are_kept_where_there_are_too_many_settings() -> None:
    large = space_of([knob_of("gpu_clock", tuple(map(float, range(1400))), {})], lambda _setting: True)
    assert len(large) < MOST_WITH_BATCHES
    sizes = tuple(range(1, MOST_WITH_BATCHES))
    whole, default = with_batch(large, {"gpu_clock": 0.0}, sizes)
    assert len(whole) <= MOST_WITH_BATCHES and default[BATCH] == sizes[-1]
    assert whole.column(Role.WORK_SIZE) is not None
    assert with_batch(large, {"gpu_clock": 0.0}, (8,))[0] is large, "one size is no choice"


def overloading(setting: Setting) -> Measurement:
    """Measurement that was stopped because the setting is too slow for the service."""
    return Measurement(setting, MeasurementStatus.CENSORED, overloaded=("s",))


@pytest.mark.nightly
def test_a_setting_that_overloads_the_service_is_known_to_break_the_target() -> None:
    """Nothing but the fact is measured. It rules out the setting, and those that are as slow."""
    own = adviser(1.6 * ran(AS_FOUND).services["s"].p99_s)
    first = own.answer(ask(ran(AS_FOUND))).setting
    following = own.answer(ask(overloading(first)))
    (_, judged), search = own.searches[PACKING].measurements[-1], own.searches[PACKING].search
    assert judged is not None and judged.feasible is False and judged.score is None
    clocks = [float(dict(each).get("gpu_clock", 1500.0)) for each in (first, following.setting)]
    assert following.over or clocks[1] > clocks[0], "nothing slower is tried"
    assert search is not None and search.best == {"gpu_clock": 1500.0, BATCH: 16.0}


@pytest.mark.nightly
def test_a_search_that_must_end_keeps_the_best_so_far() -> None:
    own = adviser(1.6 * ran(AS_FOUND).services["s"].p99_s)
    first = own.answer(ask(ran(AS_FOUND))).setting
    second = own.answer(ask(ran(first))).setting
    last = own.answer(replace(ask(overloading(second)), last=True))
    assert last.over and last.note == "the requests did not recover from a setting"
    assert last.setting in (first, AS_FOUND), "one that was measured to keep the target"
