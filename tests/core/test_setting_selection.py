"""Settings of packings: known settings are applied, unknown ones searched, and a measurement is of the running jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import JobPhase, KnownSetting, MeasurementStatus, Packing, Setting, class_in
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.commands import (
    ApplySetting,
    AskSetting,
    AwaitRequests,
    Command,
    KillJob,
    MeasureSetting,
    MoveJob,
    ParkJob,
    ProfileJob,
)
from ecoshare.core.events import Config, JobExited, SettingAdvised, SettingMeasured
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

GIB = 1 << 30
GPU = Device("cuda:0", "here", 8 * GIB)
SLOW: Setting = (("gpu_clock", 1200.0),)
SLOWER: Setting = (("gpu_clock", 900.0), ("power_limit", 300.0))


def job(
    name: str, job_class: str, length_s: float, arrival_s: float = 0.0, known: bool = True
) -> tuple[JobSpec, ScriptedJob]:
    spec = JobSpec(name, job_class, memory=MemoryDemand(GIB), profiled=known)
    return spec, ScriptedJob(arrival_s, ((length_s, Outcome.COMPLETED),), profile=MemoryDemand(GIB))


def drive(
    *jobs: tuple[JobSpec, ScriptedJob],
    search: bool = False,
    lanes: int = 1,
    devices: tuple[Device, ...] = (GPU,),
    **options: Any,
) -> VirtualDriver:
    config = Config("fair", lanes_per_device=lanes, profile=True, search=search)
    return VirtualDriver(config, devices, {spec.name: (spec, script) for spec, script in jobs}, **options).run()


def commands(driver: VirtualDriver, kind: type[Command]) -> list:  # type: ignore[type-arg]
    return [each for _, commands in driver.log for each in commands if isinstance(each, kind)]


def applied(driver: VirtualDriver) -> list[Setting]:
    return [each.setting for each in commands(driver, ApplySetting)]


class Scripted:
    """Adviser that proposes settings one after the other, and ends with the last but one."""

    def __init__(self, *proposals: Setting) -> None:
        self.asked: list[AskSetting] = []
        self._proposals = proposals

    def __call__(self, ask: AskSetting) -> tuple[Setting, bool]:
        self.asked.append(ask)
        own = [each for each in self.asked if each.packing == ask.packing]
        if len(own) <= len(self._proposals):
            return self._proposals[len(own) - 1], False
        return self._proposals[-2] if len(self._proposals) > 1 else (), True


def test_a_run_that_knows_no_setting_sets_none() -> None:
    driver = drive(job("a", "a", 5.0), job("b", "b", 5.0))
    assert not applied(driver) and not commands(driver, AskSetting)


def test_a_known_packing_gets_its_setting_and_others_the_default() -> None:
    driver = drive(
        job("a", "a", 9.0),
        job("b", "b", 3.0, arrival_s=2.0),
        known_settings=(KnownSetting((("a", "b"),), SLOW),),
    )
    assert applied(driver) == [SLOW, ()], "while both run, and not before and after"


def test_lanes_and_jobs_have_no_order_in_a_packing() -> None:
    known = (KnownSetting((("a",), ("b",)), SLOW),)
    for names in (("a", "b"), ("b", "a")):
        assert applied(drive(*(job(name, name, 5.0) for name in names), lanes=2, known_settings=known))[0] == SLOW
    assert not applied(drive(job("a", "a", 5.0), job("b", "b", 5.0), lanes=1, known_settings=known)), (
        "one lane is another packing"
    )


EVALUATES, AWAY, TRAINS = JobPhase.EVALUATES, JobPhase.AWAY, JobPhase.TRAINS


def test_a_phase_has_the_setting_that_is_known_for_it() -> None:
    known = (
        KnownSetting((("a", "b"),), SLOW),
        KnownSetting(((class_in("a", EVALUATES), "b"),), SLOWER),
        KnownSetting((("b",),), SLOWER),
    )
    phases = ((3.0, "a", EVALUATES), (5.0, "a", TRAINS), (7.0, "a", AWAY), (9.0, "a", TRAINS))
    driver = drive(job("a", "a", 12.0), job("b", "b", 12.0), known_settings=known, phases=phases)
    assert applied(driver)[:5] == [SLOW, SLOWER, SLOW, SLOWER, SLOW]


def test_the_setting_stays_in_a_phase_for_which_nothing_is_known() -> None:
    known = (KnownSetting((("a", "b"),), SLOW),)
    phases = ((3.0, "a", EVALUATES), (5.0, "a", TRAINS), (7.0, "b", AWAY), (9.0, "b", TRAINS))
    driver = drive(job("a", "a", 12.0), job("b", "b", 12.0), known_settings=known, phases=phases)
    assert applied(driver) == [SLOW, ()], "until one has ended"


def test_the_setting_stays_while_all_jobs_are_away_and_a_new_attempt_trains() -> None:
    known = (KnownSetting((("a",),), SLOW), KnownSetting(((class_in("a", EVALUATES),),), SLOWER))
    phases = ((3.0, "a", AWAY), (5.0, "a", TRAINS))
    assert applied(drive(job("a", "a", 9.0), known_settings=known, phases=phases)) == [SLOW, ()], "at its end"
    spec, _ = job("a", "a", 0.0)
    fails = ScriptedJob(0.0, ((4.0, Outcome.FAILED), (4.0, Outcome.COMPLETED)))
    again = drive((replace(spec, retries=1), fails), known_settings=known, phases=((3.0, "a", EVALUATES),))
    assert applied(again) == [SLOW, SLOWER, (), SLOW, ()]


def test_a_phase_is_searched_by_itself_and_voids_the_trial_in_which_it_begins() -> None:
    adviser = Scripted((), SLOW, SLOWER)
    phases = ((1.3, "a", EVALUATES), (1.4, "a", TRAINS), (8.0, "a", EVALUATES))
    driver = drive(job("a", "a", 30.0), search=True, advises=adviser, phases=phases)
    trials = [each for each, _ in driver.log if isinstance(each, SettingMeasured)]
    told = [ask for ask in adviser.asked if ask.measurement is not None]
    assert len(trials) == len(told) + 1, "one was void"
    assert [ask.packing for ask in told] == [(("a",),)] * 2 + [((class_in("a", EVALUATES),),)] * 3


def test_a_phase_too_short_to_be_measured_is_searched_no_more() -> None:
    """Else its device would go to the default setting and back in each of them."""
    phases = tuple(each for at_s in range(10, 110, 10) for each in ((at_s, "a", EVALUATES), (at_s + 0.3, "a", TRAINS)))
    driver = drive(job("a", "a", 200.0), search=True, advises=Scripted((), SLOW, SLOWER), phases=phases)
    asked = [each for each in commands(driver, AskSetting) if each.packing == ((class_in("a", EVALUATES),),)]
    assert len(asked) == 3 and not [each for each in asked if each.measurement is not None]


def test_a_search_begins_with_the_default_and_ends_with_the_best() -> None:
    adviser = Scripted((), SLOW, SLOWER)
    driver = drive(job("a", "a", 20.0), job("b", "b", 20.0), search=True, advises=adviser)
    trials = [each.setting for each in commands(driver, MeasureSetting) if len(each.jobs) == 2]
    assert trials == [(), SLOW, SLOWER]
    told = [
        None if ask.measurement is None else ask.measurement.setting
        for ask in adviser.asked
        if len(ask.packing[0]) == 2
    ]
    assert told == [None, (), SLOW, SLOWER]
    assert applied(driver)[:3] == [SLOW, SLOWER, SLOW], "the best one, once it is over"


def test_a_packing_is_searched_on_one_device_and_used_on_all() -> None:
    """Before, two devices with equal packings each searched the same setting."""
    adviser = Scripted((), SLOW, SLOWER)
    devices = (GPU, replace(GPU, name="cuda:1"))
    driver = drive(job("a", "c", 40.0), job("b", "c", 40.0), search=True, advises=adviser, devices=devices)
    assert {ask.device for ask in adviser.asked} == {"cuda:0"}
    settings = {(each.device, each.setting) for each in commands(driver, ApplySetting) if each.setting}
    assert settings == {("cuda:0", SLOW), ("cuda:0", SLOWER), ("cuda:1", SLOW)}


def test_jobs_are_measured_alone_before_their_packing_is_searched() -> None:
    adviser = Scripted((), SLOW)
    driver = drive(job("a", "a", 30.0, known=False), job("b", "b", 30.0, known=False), search=True, advises=adviser)
    order = [
        type(each).__name__ for _, some in driver.log for each in some if isinstance(each, ProfileJob | AskSetting)
    ]
    assert order[:3] == ["ProfileJob", "ProfileJob", "AskSetting"]


def test_a_setting_that_is_refused_is_a_failed_trial() -> None:
    adviser = Scripted((), SLOWER, SLOW)
    driver = drive(job("a", "a", 20.0), search=True, advises=adviser, refuses=frozenset({SLOWER}))
    failed = [
        ask.measurement
        for ask in adviser.asked
        if ask.measurement is not None and ask.measurement.status is MeasurementStatus.FAILED
    ]
    assert [each.setting for each in failed] == [SLOWER] and failed[0].note == "value refused"
    assert [each.setting for each in commands(driver, MeasureSetting)] == [(), SLOW]


def test_a_known_setting_that_is_refused_is_not_tried_again_and_again() -> None:
    driver = drive(job("a", "a", 20.0), known_settings=(KnownSetting((("a",),), SLOW),), refuses=frozenset({SLOW}))
    assert applied(driver) == [SLOW]


@pytest.mark.parametrize(("limit", "is_set"), [(None, True), (1.3, True), (1.05, False)])
def test_a_setting_too_slow_for_a_job_s_own_limit_is_not_used(limit: float | None, is_set: bool) -> None:
    spec, script = job("a", "a", 20.0)
    known = KnownSetting((("a",),), SLOW, slower=1.1)
    config = Config("energy", lanes_per_device=2)
    limited = replace(spec, slowdown_limit=limit, solo=Solo("a", 0.1))
    driver = VirtualDriver(config, (GPU,), {"a": (limited, script)}, known_settings=(known,)).run()
    assert applied(driver)[:1] == ([SLOW] if is_set else [])


def test_a_packing_that_changes_voids_its_trial() -> None:
    adviser = Scripted((), SLOW, SLOWER)
    driver = drive(job("a", "a", 30.0), job("b", "b", 2.5), search=True, advises=adviser)
    (ended_s,) = [event.at_s for event, _ in driver.log if isinstance(event, JobExited) and event.job == "b"]
    begun = {each.id: each for each in commands(driver, MeasureSetting)}
    cut = [
        event
        for event, _ in driver.log
        if isinstance(event, SettingMeasured) and event.at_s > ended_s and "b" in begun[event.command].jobs
    ]
    assert len(cut) == 1, "b ends in a trial"
    late = [ask for event, some in driver.log if event.at_s > ended_s for ask in some if isinstance(ask, AskSetting)]
    assert late[0].packing == (("a",),) and late[0].measurement is None, (
        "nothing of it is told, and another search begins"
    )
    assert all(ask.packing == (("a",),) for ask in late)


def test_a_stopped_run_asks_for_nothing_more() -> None:
    adviser = Scripted((), SLOW, SLOWER)
    driver = drive(job("a", "a", 30.0), search=True, advises=adviser, stop_s=2.0)
    after = [each for event, some in driver.log if event.at_s >= 2.0 for each in some]
    assert not [each for each in after if isinstance(each, ApplySetting | AskSetting | MeasureSetting)]


def test_every_device_has_its_own_setting() -> None:
    devices = (GPU, Device("cuda:1", "here", 8 * GIB))
    driver = drive(
        job("a", "a", 5.0), job("b", "b", 5.0), devices=devices, known_settings=(KnownSetting((("b",),), SLOW),)
    )
    (first, *_) = commands(driver, ApplySetting)
    where = (
        next(lane.device.name for lane in driver.core.jobs["b"].lanes or []) if driver.core.jobs["b"].lanes else None
    )
    assert first.setting == SLOW and (where is None or first.device == where)
    assert {each.device for each in commands(driver, ApplySetting)} == {first.device}


proposals = st.lists(st.sampled_from([(), SLOW, SLOWER]), min_size=1, max_size=4)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0.1, 12.0), st.floats(0.0, 8.0), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    proposals,
    st.booleans(),
    st.integers(1, 2),
    st.sets(st.sampled_from([SLOW, SLOWER]), max_size=1),
    st.none() | st.floats(0.0, 15.0),
    st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(0, 5), st.sampled_from(JobPhase)), max_size=6),
)
def test_whatever_comes_and_goes_trials_are_of_what_runs(
    some: list[tuple[str, float, float, bool]],
    proposed: list[Setting],
    search: bool,
    lanes: int,
    refused: set[Setting],
    stop_s: float | None,
    phases: list[tuple[float, int, JobPhase]],
) -> None:
    """Every job ends. The virtual driver checks every measurement and window against the setting in force."""
    jobs = [
        job(f"{place}{name}", name, length, arrival, known) for place, (name, length, arrival, known) in enumerate(some)
    ]
    driver = drive(
        *jobs,
        search=search,
        lanes=lanes,
        known_settings=(KnownSetting((("a",),), SLOW), KnownSetting((("a", "b"),), SLOWER)),
        advises=Scripted(*proposed),
        refuses=frozenset(refused),
        stop_s=stop_s,
        phases=tuple((at_s, jobs[place % len(jobs)][0].name, phase) for at_s, place, phase in phases),
    )
    assert all(state.ended for state in driver.states().values())
    answered = {event.command for event, _ in driver.log if isinstance(event, SettingAdvised | SettingMeasured)}
    assert {each.id for each in commands(driver, AskSetting)} | {
        each.id for each in commands(driver, MeasureSetting)
    } == answered


@pytest.mark.parametrize("seed", range(3))
def test_equal_runs_give_equal_commands(seed: int) -> None:
    logs = [
        drive(
            job("a", "a", 12.0, 0.1 * seed), job("b", "b", 3.0, known=False), search=True, advises=Scripted((), SLOW)
        ).log
        for _ in range(3)
    ]
    assert logs[0] == logs[1] == logs[2]


SERVED: Packing = (("s", "t"),)


def served(late_s: float | None, known: bool = False, **options: Any) -> VirtualDriver:
    """A service beside training. It misses its target for a minute at a time (s)."""
    service, script = job("s", "s", 200.0)
    spec = replace(service, service=ServiceSpec(0.05, requests=RequestSource(rate_per_s=5.0, count=1000)))
    jobs = {"s": (spec, script), "t": job("t", "t", 200.0)}
    config = Config("fair", lanes_per_device=1, profile=True, search="advises" in options)
    settings = (KnownSetting(SERVED, SLOW),) if known else ()
    misses = () if late_s is None else ((late_s, "s"),)
    return VirtualDriver(config, (GPU,), jobs, known_settings=settings, misses=misses, **options).run()


def test_a_packing_with_a_service_is_searched() -> None:
    adviser = Scripted((), SLOW, SLOWER)
    driver = served(None, advises=adviser)
    assert [each.setting for each in commands(driver, MeasureSetting)] == [(), SLOW, SLOWER]
    assert applied(driver)[:3] == [SLOW, SLOWER, SLOW]


@pytest.mark.parametrize("late_s", [20.0, 60.0, 61.0])
def test_a_setting_at_which_a_service_misses_its_target_is_given_up(late_s: float) -> None:
    driver = served(late_s, known=True)
    assert applied(driver) == [SLOW, ()], "the default, and never the known setting again"
    kept = [each for _, some in driver.log for each in some if isinstance(each, MoveJob | ParkJob | KillJob)]
    assert not kept, "no neighbour leaves while a setting may be at fault"


def test_a_target_that_is_missed_ends_the_search() -> None:
    adviser = Scripted((), SLOW, SLOWER, *[SLOW, SLOWER] * 20)
    searched = commands(served(None, advises=adviser), MeasureSetting)
    assert len(searched) > 20
    again = Scripted((), SLOW, SLOWER, *[SLOW, SLOWER] * 20)
    driver = served(10.0, advises=again)
    asked = [(event.at_s, each) for event, some in driver.log for each in some if isinstance(each, MeasureSetting)]
    assert 1 < len(asked) < len(searched) and max(at_s for at_s, _ in asked) <= 10.0
    assert applied(driver)[-1] == ()


def order(driver: VirtualDriver) -> list[object]:
    """Commands of the search, in order: a setting that is applied as it is, any other command by its name."""
    kinds = ApplySetting | MeasureSetting | AwaitRequests | AskSetting
    found = [each for _, some in driver.log for each in some if isinstance(each, kinds)]
    return [each.setting if isinstance(each, ApplySetting) else type(each).__name__ for each in found]


def test_a_service_recovers_at_the_default_before_the_next_setting_is_tried() -> None:
    adviser = Scripted((), SLOWER, SLOW, SLOW)
    driver = served(None, advises=adviser, overloads=frozenset({SLOWER}))
    tried = ["AskSetting", "MeasureSetting", "AskSetting", SLOWER, "MeasureSetting"]
    recovers = [(), "AwaitRequests", "AskSetting"]
    assert order(driver)[:11] == [*tried, *recovers, SLOW, "MeasureSetting", "AskSetting"]
    (wait,) = commands(driver, AwaitRequests)
    assert wait.jobs == ("s",) and 0.0 < wait.missed_share < 0.01
    told = [ask.measurement for ask in adviser.asked if ask.measurement is not None]
    assert [(each.setting, each.overloaded) for each in told[:2]] == [((), ()), (SLOWER, ("s",))]
    assert not any(ask.last for ask in adviser.asked)


def test_a_search_ends_if_the_service_does_not_recover() -> None:
    adviser = Scripted((), SLOWER, SLOW, SLOW)
    served(None, advises=adviser, overloads=frozenset({SLOWER}), never_recover=True)
    assert [ask.last for ask in adviser.asked[:3]] == [False, False, True]


def test_misses_while_a_service_recovers_are_no_fault_of_its_neighbours() -> None:
    """The device has its default setting by then, and the requests were late at the setting before."""
    adviser = Scripted((), SLOWER, SLOW, SLOW)
    free = served(None, advises=adviser, overloads=frozenset({SLOWER}), never_recover=True)
    (wait_s,) = (event.at_s for event, some in free.log for each in some if isinstance(each, AwaitRequests))
    driver = served(
        wait_s + 5.0, advises=Scripted((), SLOWER, SLOW, SLOW), overloads=frozenset({SLOWER}), never_recover=True
    )
    parted = [each for _, some in driver.log for each in some if isinstance(each, MoveJob | ParkJob | KillJob)]
    assert not parted and applied(driver) == [SLOWER, ()], "the search is given up, and nothing else"
