"""Power budget: the limits of all devices never exceed it, at any instant, and watts go where they buy most."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import POWER_LIMIT, KnownResponse, MemoryDemand, PowerPoint
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import Setting
from ecoshare.core.commands import ApplySetting, AskPower, MeasureSetting, StartJob
from ecoshare.core.events import Config, DeviceFailed, Done, JobExited, Refused
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.settings.power_allocation import PoweredDevice, allocate, cost_at
from ecoshare.core.settings.power_budget import PowerBudget
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

GIB = 1 << 30
LIMITS_W = (100.0, 150.0, 200.0, 250.0, 300.0)
POLICIES = ("energy", "edp", "jct", "makespan", "fair", "fifo", "srtf", "tiresias", "gandiva", "fluid")


def gpu(number: int, limits_w: tuple[float, ...] = LIMITS_W) -> Device:
    return Device(f"cuda:{number}", "here", 16 * GIB, power_limits_w=limits_w)


def job(
    name: str, job_class: str = "a", length_s: float = 3.0, at_s: float = 0.0, slowdown_limit: float | None = None
) -> tuple[JobSpec, ScriptedJob]:
    known = MemoryDemand(GIB)
    spec = JobSpec(name, job_class, memory=known, profiled=job_class != "c", slowdown_limit=slowdown_limit)
    return spec, ScriptedJob(at_s, ((length_s, Outcome.COMPLETED),), profile=MemoryDemand(GIB))


def drive(
    budget_w: float,
    devices: tuple[Device, ...],
    *jobs: tuple[JobSpec, ScriptedJob],
    policy: str = "makespan",
    lanes: int = 1,
    refuses: frozenset[Setting] = frozenset(),
    tuning_limit: float = 0.0,
    failures: tuple[tuple[float, str], ...] = (),
    rounds_up_w: Mapping[str, float] = MappingProxyType({}),
    known_responses: tuple[KnownResponse, ...] = (),
) -> VirtualDriver:
    config = Config(
        policy,
        lanes_per_device=lanes,
        places_per_lane=2,
        profile=True,
        power_budget_w=budget_w,
        tuning_limit=tuning_limit,
    )
    described = {spec.name: (spec, script) for spec, script in jobs}
    return VirtualDriver(
        config,
        devices,
        described,
        refuses=refuses,
        failures=failures,
        rounds_up_w=rounds_up_w,
        known_responses=known_responses,
    ).run()


def limit_w(setting: Setting, device: Device) -> float:
    return float(dict(setting).get(POWER_LIMIT, device.power_limits_w[-1]))


def most_w(driver: VirtualDriver, budget_w: float) -> float:
    """Largest sum of the limits that may be in force at once after the first job was started.

    A limit may be in force from its command on, and the one before it until the answer. A refused one may be, too: a
    call that fails may have worked. A device may round a limit up.
    """
    may = {each.name: [each.power_limits_w[-1]] for each in driver.devices}
    asked: dict[int, tuple[str, float]] = {}
    largest, is_under_way = 0.0, False
    for event, commands in driver.log:
        if isinstance(event, Done | Refused) and event.command in asked:
            name, wanted_w = asked.pop(event.command)
            may[name] = [wanted_w] if isinstance(event, Done) else [max(may[name])]
        for each in commands:
            if isinstance(each, ApplySetting):
                wanted_w = driver.shown_w(each)
                asked[each.id] = each.device, wanted_w
                may[each.device].append(wanted_w)
            is_under_way = is_under_way or isinstance(each, StartJob)
            if is_under_way or sum(max(each) for each in may.values()) <= budget_w:
                is_under_way = True
                largest = max(largest, sum(max(each) for each in may.values()))
    return largest


def of(driver: VirtualDriver, kind: type) -> list:  # type: ignore[type-arg]
    return [each for _, commands in driver.log for each in commands if isinstance(each, kind)]


def test_no_job_starts_before_the_limits_fit_into_the_budget() -> None:
    driver = drive(500.0, (gpu(0), gpu(1)), job("a"))
    at_s = {type(event).__name__: event.at_s for event, commands in driver.log if of_kind(commands, StartJob)}
    answered = [event.at_s for event, _ in driver.log if isinstance(event, Done)]
    assert at_s and answered, "a job was started, and limits were set"
    first_start = next(place for place, (_, commands) in enumerate(driver.log) if of_kind(commands, StartJob))
    lowered = {each.device for _, commands in driver.log[:first_start] for each in of_kind(commands, ApplySetting)}
    assert lowered, "the limits were lowered before"
    assert most_w(driver, 500.0) <= 500.0


def of_kind(commands: tuple, kind: type) -> list:  # type: ignore[type-arg]
    return [each for each in commands if isinstance(each, kind)]


def test_a_budget_above_all_limits_leaves_devices_that_work_as_they_were_found() -> None:
    driver = drive(1000.0, (gpu(0), gpu(1)), job("a"), job("b"))
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert not of(driver, ApplySetting)


def test_the_watts_of_an_idle_device_go_to_the_one_that_works() -> None:
    driver = drive(400.0, (gpu(0), gpu(1)), job("a", length_s=8.0))
    limits_w = {each.name: 300.0 for each in driver.devices}
    while_it_runs: list[dict[str, float]] = []
    for event, commands in driver.log:
        for each in of_kind(commands, ApplySetting):
            limits_w[each.device] = limit_w(each.setting, gpu(0))
        if event.at_s > 2.0:
            while_it_runs.append(dict(limits_w))
    assert while_it_runs[0] == {"cuda:0": 300.0, "cuda:1": 100.0}


def test_a_packing_is_measured_under_its_limits_and_asked_about() -> None:
    driver = drive(400.0, (gpu(0), gpu(1)), job("a", "a", 20.0), job("b", "b", 20.0))
    measured = of(driver, MeasureSetting)
    assert measured and of(driver, AskPower)
    told = [each for each in of(driver, AskPower) if each.measurements]
    assert told and told[0].measurements[0].power_w == 100.0
    seen = [(each.device, each.setting, each.jobs) for each in measured]
    assert len(set(seen)) == len(seen), "no packing is measured twice under one limit"


def test_nothing_is_asked_about_a_device_that_its_last_job_left_while_it_was_measured() -> None:
    driver = drive(250.0, (gpu(0),), job("a", length_s=1.2))
    assert of(driver, MeasureSetting), "it was measured before its end"
    assert all(each.packing for each in of(driver, AskPower))


def test_a_run_ends_where_the_limits_cannot_be_lowered() -> None:
    refused = frozenset({((POWER_LIMIT, each),) for each in LIMITS_W})
    driver = drive(300.0, (gpu(0), gpu(1)), job("a"), job("b", at_s=5.0), refuses=refused)
    assert set(driver.states().values()) == {JobState.FAILED}
    assert not of(driver, StartJob)
    reasons = {job.history[-1].cause for job in driver.core.jobs.values()}
    assert len(reasons) == 1 and "the power budget of 300 W cannot be kept: cuda:" in reasons.pop()


@pytest.mark.slow
@settings(max_examples=3 * settings().max_examples)
@given(
    limits=st.lists(
        st.lists(st.integers(5, 40).map(lambda each: 10.0 * each), min_size=1, max_size=6, unique=True).map(
            lambda each: tuple(sorted(each))
        ),
        min_size=1,
        max_size=4,
    ),
    jobs=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.floats(0.05, 9.0), st.floats(0.0, 9.0), st.sampled_from((None, None, 1.2))
        ),
        min_size=1,
        max_size=8,
    ),
    part=st.floats(0.0, 1.2),
    policy=st.sampled_from(POLICIES),
    lanes=st.integers(1, 3),
    refused=st.sets(st.integers(5, 40).map(lambda each: 10.0 * each), max_size=2),
    failure=st.none() | st.tuples(st.floats(0.0, 9.0), st.integers(0, 3)),
    rounded=st.sets(st.integers(0, 3), max_size=2),
)
def test_the_limits_never_exceed_the_budget(
    limits: list[tuple[float, ...]],
    jobs: list[tuple[str, float, float, float | None]],
    part: float,
    policy: str,
    lanes: int,
    refused: set[float],
    failure: tuple[float, int] | None,
    rounded: set[int],
) -> None:
    devices = tuple(gpu(number, each) for number, each in enumerate(limits))
    least_w, found_w = sum(each[0] for each in limits), sum(each[-1] for each in limits)
    budget_w = least_w + part * (found_w - least_w) + 0.5
    made = [job(f"j{number}", *each) for number, each in enumerate(jobs)]
    settings_refused = frozenset({((POWER_LIMIT, each),) for each in refused})
    fails = ((failure[0], devices[failure[1] % len(devices)].name),) if failure is not None else ()
    driver = drive(
        budget_w,
        devices,
        *made,
        policy=policy,
        lanes=lanes,
        refuses=settings_refused,
        failures=fails,
        rounds_up_w={each.name: 3.0 for number, each in enumerate(devices) if number in rounded},
    )
    ends = set(driver.states().values())
    if JobState.FAILED in ends:
        none_began = ends == {JobState.FAILED} and not of(driver, StartJob)
        assert failure is not None or (none_began and (refused or rounded))
        return
    assert ends == {JobState.COMPLETED}
    assert most_w(driver, budget_w) <= budget_w


def test_a_job_may_lose_its_place_while_another_device_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device keeps its limit until the next job is there. Limits may be chosen before that."""
    monkeypatch.setattr("ecoshare.testing.virtual_driver._ANSWER_S", 1.0)  # a start takes long
    crashes = ((0.6, Outcome.CRASHED), (0.8, Outcome.CRASHED), (2.0, Outcome.COMPLETED))
    jobs = [
        (
            JobSpec(f"j{number}", "abc"[number % 3], memory=MemoryDemand(GIB), retries=3),
            ScriptedJob(0.4 * number, crashes),
        )
        for number in range(8)
    ]
    for policy in POLICIES:
        driver = drive(350.0, (gpu(0), gpu(1)), *jobs, policy=policy)
        assert set(driver.states().values()) == {JobState.COMPLETED}


def test_a_refused_raise_counts_as_if_it_were_in_force() -> None:
    """A call that fails may have worked."""
    refused = frozenset({((POWER_LIMIT, 240.0),)})
    two = gpu(0), gpu(1, (100.0, 240.0, 300.0))
    driver = drive(450.0, two, job("a", length_s=6.0), job("b", length_s=6.0, at_s=1.0), refuses=refused)
    assert any(isinstance(event, Refused) for event, _ in driver.log)
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert most_w(driver, 450.0) <= 450.0


def test_a_limit_that_a_device_rounds_up_counts_as_the_device_shows_it() -> None:
    """Two devices of 150 W would be in the budget of 300 W, and they are at 155 W."""
    rounds_up_w = dict.fromkeys(("cuda:0", "cuda:1"), 5.0)
    driver = drive(300.0, (gpu(0), gpu(1)), job("a"), job("b"), rounds_up_w=rounds_up_w)
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert 205.0 < most_w(driver, 300.0) <= 300.0


def test_no_job_starts_where_the_least_limits_are_rounded_up_beyond_the_budget() -> None:
    driver = drive(204.0, (gpu(0), gpu(1)), job("a"), rounds_up_w=dict.fromkeys(("cuda:0", "cuda:1"), 5.0))
    assert set(driver.states().values()) == {JobState.FAILED} and not of(driver, StartJob)
    reasons = {each.history[-1].cause for each in driver.core.jobs.values()}
    assert "cannot be kept: cuda:0: it rounds a limit of 100 W up to 105 W" in reasons.pop()


def test_a_budget_that_a_float_rounds_is_used_to_the_last_watt() -> None:
    devices = (gpu(0, (700.0,)), gpu(1, (700.0,)), gpu(2, (200.0, 610.0, 900.0)))
    budget_w = 2.01 * 1000
    assert budget_w < 2010.0
    driver = drive(budget_w, devices, *(job(f"j{each}") for each in range(3)))
    assert ((POWER_LIMIT, 610.0),) in [each.setting for each in of(driver, ApplySetting)]


def test_a_failed_device_keeps_its_part_of_the_budget() -> None:
    """Nothing can be set there any more, and it may still draw."""
    driver = drive(450.0, (gpu(0), gpu(1)), job("a", length_s=9.0), job("b", length_s=9.0), failures=((2.0, "cuda:0"),))
    assert set(driver.states().values()) == {JobState.COMPLETED}
    at_failure = next(place for place, (event, _) in enumerate(driver.log) if isinstance(event, DeviceFailed))
    limits_w = {each.name: 300.0 for each in driver.devices}
    for _, commands in driver.log[:at_failure]:
        limits_w.update({each.device: limit_w(each.setting, gpu(0)) for each in of_kind(commands, ApplySetting)})
    for _, commands in driver.log[at_failure:]:
        for each in of_kind(commands, ApplySetting):
            assert each.device == "cuda:1" and limits_w["cuda:0"] + limit_w(each.setting, gpu(0)) <= 450.0


def response(*points: tuple[float, float, float]) -> tuple[PowerPoint, ...]:
    return tuple(PowerPoint(*each) for each in points)


def throughput(_speeds: float, worth: float, _power_w: float) -> float:
    return 1.0 / worth if worth > 0.0 else inf


def joules(_speeds: float, worth: float, power_w: float) -> float:
    return power_w / worth if worth > 0.0 else inf


STEEP = response((100.0, 0.4, 100.0), (200.0, 0.8, 200.0), (300.0, 1.0, 300.0))
FLAT = response((100.0, 0.9, 100.0), (200.0, 0.97, 150.0), (300.0, 1.0, 160.0))


def test_watts_go_to_the_device_that_gains_most() -> None:
    both = [PoweredDevice(FLAT, 1.0, 1.0), PoweredDevice(STEEP, 1.0, 1.0)]
    assert allocate(both, 400.0, throughput) == [100.0, 300.0]
    assert allocate(both, 300.0, throughput) == [100.0, 200.0]
    assert allocate(both, 100.0, throughput) == [100.0, 100.0], "less than the least limits cannot be given"


def test_an_objective_that_counts_joules_leaves_watts_that_cost_more_than_they_save() -> None:
    alone = [PoweredDevice(STEEP, 1.0, 300.0)]
    assert allocate(alone, 1000.0, joules) == [100.0]
    assert allocate(alone, 1000.0, throughput) == [300.0]


@given(
    curves=st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.floats(0.01, 1.0)), min_size=1, max_size=4), min_size=1, max_size=3
    ),
    part=st.floats(0.0, 1.0),
)
def test_the_allocation_of_responses_that_bend_down_is_near_the_best(
    curves: list[list[tuple[int, float]]], part: float
) -> None:
    devices = []
    for steps in curves:
        watts, speed, points = 50.0, 0.2, []
        for more_w, faster in sorted(steps, key=lambda each: -each[1] / each[0]):
            points.append(PowerPoint(watts, speed, watts))
            watts, speed = watts + 10.0 * more_w, speed + faster
        devices.append(PoweredDevice(tuple(points), 1.0, 1.0))
    least_w = sum(each.response[0].limit_w for each in devices)
    budget_w = least_w + part * sum(each.response[-1].limit_w - each.response[0].limit_w for each in devices)
    chosen = allocate(devices, budget_w, throughput)
    assert sum(chosen) <= max(least_w, budget_w) + 1e-6
    best = min(
        cost_at(devices, each, throughput) for each in _every(devices) if sum(each) <= max(least_w, budget_w) + 1e-6
    )
    largest_step = max(
        (after.speed - before.speed for each in devices for before, after in pairwise(each.response)),
        default=0.0,
    )
    # Less than one step of a device is left: the best sum of speeds is at most that much larger.
    assert 1.0 / best <= 1.0 / cost_at(devices, chosen, throughput) + largest_step + 1e-9


def _every(devices: list[PoweredDevice]) -> list[list[float]]:
    found: list[list[float]] = [[]]
    for device in devices:
        found = [[*each, point.limit_w] for each in found for point in device.response]
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_all_policies_run_under_a_budget(policy: str) -> None:
    driver = drive(
        350.0, (gpu(0), gpu(1)), *(job(f"j{number}", "ab"[number % 2], 4.0) for number in range(6)), policy=policy
    )
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert 200.0 <= most_w(driver, 350.0) <= 350.0


def test_the_tuning_limit_bounds_how_far_joules_are_saved() -> None:
    one = (gpu(0),)
    free, bounded = (
        drive(300.0, one, job("a"), policy="energy"),
        drive(300.0, one, job("a"), policy="energy", tuning_limit=1.1),
    )
    # A device is as fast as the square root of its limit here: 0.91 of its speed takes 0.83 of its 300 W.
    assert [limit_w(each.setting, gpu(0)) for each in of(free, ApplySetting)] == [100.0]
    assert [limit_w(each.setting, gpu(0)) for each in of(bounded, ApplySetting)] == [250.0]
    scarce = drive(200.0, one, job("a"), policy="energy", tuning_limit=1.1)
    assert most_w(scarce, 200.0) <= 200.0, "the budget goes before the tuning limit"


def test_a_job_keeps_its_slowdown_limit_where_the_budget_suffices_for_all() -> None:
    """A device is as fast as the square root of its limit here: 1.2 times slower is 208 W of 300 W."""
    two = gpu(0), gpu(1)
    assert in_mid_run(drive(400.0, two, job("a"), job("b"))) == ([200.0, 200.0], {})
    limited = drive(400.0, two, job("a", slowdown_limit=1.2), job("b"))
    assert in_mid_run(limited) == ([250.0, 150.0], {})
    scarce = drive(400.0, two, job("a", slowdown_limit=1.2), job("b", slowdown_limit=1.2))
    assert in_mid_run(scarce) == ([200.0, 200.0], {"cuda:0": 250.0, "cuda:1": 250.0}), "the budget goes before it"


def test_the_slowdown_limit_of_a_job_goes_before_the_tuning_limit() -> None:
    """The first device needs 300 W for its job, and both need 250 W for the tuning limit."""
    jobs = job("a", slowdown_limit=1.05), job("b")
    driver = drive(500.0, (gpu(0), gpu(1)), *jobs, policy="energy", tuning_limit=1.1)
    assert in_mid_run(driver) == ([300.0, 100.0], {})


def in_mid_run(driver: VirtualDriver) -> tuple[list[float], dict[str, float]]:
    """Limit of each device before the first job ends, and limits that slowdown limits need beyond the budget."""
    core, limits_w = Scheduler(), {each.name: each.power_limits_w[-1] for each in driver.devices}
    for event, commands in driver.log:
        if isinstance(event, JobExited):
            break
        core.handle(event)
        limits_w.update({each.device: driver.shown_w(each) for each in of_kind(commands, ApplySetting)})
    budget = core.view.settings
    assert isinstance(budget, PowerBudget)
    return list(limits_w.values()), budget.short_w


def test_a_device_that_was_idle_is_raised_to_the_tuning_limit() -> None:
    jobs = job("a", length_s=9.0), job("b", at_s=3.0)
    driver = drive(520.0, (gpu(0), gpu(1)), *jobs, policy="energy", tuning_limit=1.1)
    later = [each for event, commands in driver.log if event.at_s >= 3.0 for each in of_kind(commands, ApplySetting)]
    assert (POWER_LIMIT, 250.0) in later[0].setting
