"""Devices that fail in the middle of a run: their jobs begin again on the others, and nothing waits for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec, StoppingSpec, SweepSpec
from ecoshare.base.measurement import Setting
from ecoshare.core.commands import ApplySetting, AskSetting, KillJob, MeasureSetting, ProfileJob, StartJob
from ecoshare.core.events import Config, DeviceFailed, JobExited
from ecoshare.core.job_ends import MOST_LOSSES
from ecoshare.core.policies import own_names
from ecoshare.core.records import JobState, LaneState
from ecoshare.core.scheduler import Scheduler
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver
from tests.core.test_scheduler import GIB, JOBS, drive, job, starts
from tests.core.test_sweeps import World

TWO = (Device("d0", "here", 8 * GIB), Device("d1", "here", 8 * GIB))
LONG = ((20.0, Outcome.COMPLETED),)
ALONE = {"lanes_per_device": 1, "places_per_lane": 1}
LIMITED: Setting = (("power_limit_w", 100.0),)


def advice(command: AskSetting) -> tuple[Setting, bool]:
    """One setting is tried, and then kept."""
    return LIMITED, command.measurement is not None


def devices_of(driver: VirtualDriver, name: str) -> list[tuple[str, ...]]:
    """Devices of each attempt of a job."""
    lanes = driver.core.lanes
    commands = [each for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    return [tuple(lanes[lane].device.name for lane in each.lanes) for each in commands if each.job == name]


def asked(driver: VirtualDriver) -> list[tuple[type, float, str]]:
    """Kind, time (s) and device of each command about settings."""
    return [
        (type(each), event.at_s, each.device)
        for event, commands in driver.log
        for each in commands
        if isinstance(each, ApplySetting | MeasureSetting | AskSetting)
    ]


@pytest.mark.parametrize("policy", own_names())
def test_jobs_of_a_failed_device_begin_again_on_another(policy: str) -> None:
    jobs = [job("a", attempts=LONG), job("b", attempts=LONG)]
    driver = drive(policy, *jobs, devices=TWO, config=ALONE, failures=((5.0, "d1"),))
    assert driver.states() == {"a": JobState.COMPLETED, "b": JobState.COMPLETED}
    ways = {name: devices_of(driver, name) for name in "ab"}
    assert sorted(ways.values(), key=len) == [[("d0",)], [("d1",), ("d0",)]]
    hit = next(name for name, way in ways.items() if len(way) == 2)
    kill = next(each for _, commands in driver.log for each in commands if isinstance(each, KillJob))
    assert (kill.job, kill.at_once, kill.reason) == (hit, True, "d1 failed: it is lost")
    assert driver.core.jobs[hit].failures == 0, "no fault of its own"
    assert driver.core.lanes[1].state is LaneState.CLOSED


@pytest.mark.parametrize("policy", own_names())
@pytest.mark.parametrize("preempt", [False, True], ids=["", "preempts"])
def test_a_job_does_not_wait_where_another_device_is_idle(policy: str, preempt: bool) -> None:
    """Three jobs on four devices: a plan that was made before the failure must not hold the job back."""
    devices = (*TWO, Device("d2", "here", 8 * GIB), Device("d3", "here", 8 * GIB))
    jobs = [job(name, attempts=((100.0, Outcome.COMPLETED),)) for name in "abc"]
    config = {**ALONE, "preempt": preempt}
    driver = drive(policy, *jobs, devices=devices, config=config, failures=((5.0, "d0"),))
    commands = [(event.at_s, each) for event, commands in driver.log for each in commands]
    [again] = [at_s for at_s, each in commands if isinstance(each, StartJob) and each.attempt == 2]
    assert 5.0 <= again < 6.0


def test_a_failure_of_a_job_after_that_of_its_device_is_not_its_own() -> None:
    """The device fails while the job is about to fail from it, before the kill is carried out."""
    attempts = ((4.99, Outcome.FAILED), (1.0, Outcome.COMPLETED))
    driver = drive("fifo", job("a", attempts=attempts), devices=TWO, failures=((5.005, "d0"),))
    outcomes = [event.outcome for event, _ in driver.log if isinstance(event, JobExited)]
    assert outcomes == [Outcome.FAILED, Outcome.COMPLETED]
    assert (driver.states()["a"], driver.core.jobs["a"].losses) == (JobState.COMPLETED, 1)


def test_a_later_failure_is_its_own_again() -> None:
    attempts = ((20.0, Outcome.COMPLETED), (1.0, Outcome.FAILED))
    driver = drive("fifo", job("a", attempts=attempts), devices=TWO, failures=((5.0, "d0"),))
    assert driver.states()["a"] is JobState.FAILED


def test_a_job_with_which_one_device_after_another_fails_is_given_up() -> None:
    count = MOST_LOSSES + 2
    devices = tuple(Device(f"d{number}", "here", GIB) for number in range(count))
    failures = tuple((5.0 * (number + 1), f"d{number}") for number in range(count - 1))
    driver = drive("fifo", job("a", attempts=LONG), devices=devices, failures=failures)
    assert (len(starts(driver)), driver.states()["a"]) == (MOST_LOSSES + 1, JobState.FAILED)


def test_a_gang_needs_its_devices_and_fails_with_the_name_of_the_one_that_is_gone() -> None:
    wide, narrow = job("wide", attempts=LONG, gpus=2), job("narrow", attempts=LONG)
    driver = drive("fifo", wide, narrow, devices=TWO, failures=((5.0, "d1"),))
    assert driver.states() == {"wide": JobState.FAILED, "narrow": JobState.COMPLETED}
    cause = driver.core.jobs["wide"].history[-1].cause
    assert cause == "needs 2 devices of one node, and 1 can be had (d1 failed: it is lost)"


def test_a_gang_begins_again_on_the_devices_that_are_left() -> None:
    devices = (*TWO, Device("d2", "here", 8 * GIB))
    driver = drive("fifo", job("wide", attempts=LONG, gpus=2), devices=devices, failures=((5.0, "d0"),))
    assert devices_of(driver, "wide") == [("d0", "d1"), ("d1", "d2")]


def test_without_a_device_all_jobs_end() -> None:
    late = job("late", arrival_s=9.0)
    jobs = [job("a", attempts=LONG), job("waits", attempts=LONG), late]
    driver = drive("fifo", *jobs, config=ALONE, devices=TWO[:1], failures=((5.0, "d0"),))
    assert set(driver.states().values()) == {JobState.FAILED}
    for name in ("waits", "late"):
        assert "d0 failed: it is lost" in driver.core.jobs[name].history[-1].cause


def test_a_window_on_a_failed_device_is_made_on_another() -> None:
    driver = drive(
        "fifo", job("a", attempts=LONG), devices=TWO, config={"profile": True, **ALONE}, failures=((1.7, "d0"),)
    )
    windows = [event.at_s for event, commands in driver.log for each in commands if isinstance(each, ProfileJob)]
    assert len(windows) == 2 and windows[0] < 1.7 < windows[1]
    assert driver.states()["a"] is JobState.COMPLETED


def test_a_search_on_a_failed_device_goes_on_on_another() -> None:
    """Others wait for the search of a packing. They must not wait for a device that is gone."""
    config = {"profile": True, "search": True, **ALONE}
    known = [job(name, attempts=((60.0, Outcome.COMPLETED),), profiled=True) for name in "ab"]
    for failure_s in (1.05, 1.12, 1.3, 1.6):  # asks, applies, measures, asks again
        failures = ((failure_s, "d0"),)
        driver = drive("fifo", *known, devices=TWO, config=config, failures=failures, advises=advice)
        assert set(driver.states().values()) == {JobState.COMPLETED}
        commands = asked(driver)
        assert any(kind is MeasureSetting and device == "d1" for kind, _, device in commands), failure_s
        assert not [each for each in commands if each[2] == "d0" and each[1] >= failure_s]


def test_a_parked_job_begins_again_elsewhere() -> None:
    """Four jobs share two places by being parked: when one device fails, its parked jobs lose their memory, too."""
    config = {**ALONE, "host_bytes": 64 * GIB}
    jobs = [job(name, attempts=((60.0, Outcome.COMPLETED),)) for name in "abcd"]
    devices = tuple(replace(each, memory_bytes=GIB) for each in TWO)
    driver = drive("fair", *jobs, devices=devices, config=config, failures=((40.0, "d0"),))
    assert set(driver.states().values()) == {JobState.COMPLETED}
    killed = [event for event, _ in driver.log if isinstance(event, DeviceFailed)]
    assert len(killed) == 1
    stopped = [each for event, commands in driver.log for each in commands if isinstance(each, KillJob)]
    assert len(stopped) == 2 and {each.at_once for each in stopped} == {True}, "the one that ran, and the parked one"
    for each in stopped:
        assert devices_of(driver, each.job) == [("d0",), ("d1",)]


def named_jobs(
    jobs: list[tuple[JobSpec, ScriptedJob]], movable: bool, profile: bool
) -> dict[str, tuple[JobSpec, ScriptedJob]]:
    """Jobs by their names: j0, j1, and so on. Without profiles, their memory is not known."""
    named = {}
    for number, (spec, script) in enumerate(jobs):
        memory = None if profile else spec.memory  # jobs of one class have one demand
        moves = movable and spec.gpus == 1
        movable_spec = replace(spec, name=f"j{number}", movable=moves, widest=1 + moves, memory=memory)
        named[movable_spec.name] = movable_spec, script
    return named


def can_complete(spec: JobSpec, script: ScriptedJob) -> bool:
    """Whether each attempt of a job completes, and one device of 8 GiB has room for it."""
    good = {outcome for _, outcome in script.attempts} == {Outcome.COMPLETED} and not script.refused
    return good and spec.gpus == 1 and (spec.memory is None or spec.memory.peak_bytes <= 8 * GIB)


def _config(lanes: int, places: int, preempt: bool, **options: Any) -> Config:
    """Configuration of a run. Jobs are preempted in a single place."""
    lanes, places = (1, 1) if preempt else (lanes, places)
    return Config(lanes_per_device=lanes, places_per_lane=places, preempt=preempt, **options)


CONFIGS = st.builds(
    _config,
    policy=st.sampled_from(own_names()),
    lanes=st.integers(1, 3),
    places=st.integers(1, 4),
    profile=st.booleans(),
    search=st.booleans(),
    preempt=st.booleans(),
    host_bytes=st.sampled_from([0, 64 * GIB]),
)
"""Random configurations of a run."""


@given(
    config=CONFIGS,
    jobs=JOBS,
    movable=st.booleans(),
    nodes=st.lists(st.sampled_from("xy"), min_size=2, max_size=4),
    failures=st.lists(st.tuples(st.floats(0, 15), st.integers(0, 3)), min_size=1, max_size=4),
    stop_s=st.none() | st.floats(0, 20),
)
def test_whatever_fails_every_job_ends_and_none_is_on_a_failed_device(
    config: Config,
    jobs: list[tuple[JobSpec, ScriptedJob]],
    movable: bool,
    nodes: list[str],
    failures: list[tuple[float, int]],
    stop_s: float | None,
) -> None:
    named = named_jobs(jobs, movable, config.profile)
    devices = tuple(Device(f"d{number}", node, 8 * GIB) for number, node in enumerate(nodes))
    failing = tuple((at_s, f"d{number % len(devices)}") for at_s, number in failures)
    driver = VirtualDriver(config, devices, named, stop_s, failing, advises=advice).run()
    assert all(state.ended for state in driver.states().values()), driver.states()
    assert len(driver.states()) == len(named)
    lost = {name for _, name in failing}
    if stop_s is None and len(lost) < len(devices):
        for name, record in driver.core.jobs.items():
            if can_complete(*named[name]):
                assert record.state is JobState.COMPLETED, record.history


RULES = [None, StoppingSpec("asha", 1, 3), StoppingSpec("halving", 1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fair", "fifo", "srtf", "energy", "fluid"])
@pytest.mark.parametrize("rule", RULES, ids=["all", "asha", "halving"])
@pytest.mark.parametrize("devices", [1, 2], ids=["the only device", "one of two devices"])
def test_a_sweep_bears_a_failed_device(policy: str, rule: StoppingSpec | None, devices: int) -> None:
    """Trials are drawn once, and end. Without a device the sampler is not asked any more."""
    for seed, steps in enumerate((1, 10, 40)):
        world = World(SweepSpec("s", 7, early_stopping=rule), 30, policy=policy, seed=seed, devices=devices)
        world.go_on(4, fails_after=steps)
        jobs = world.core.jobs
        assert all(job.state.ended for job in jobs.values()), [(name, each.state) for name, each in jobs.items()]
        assert len(jobs) == 30 or devices == 1
        assert world.core.live_jobs == world.core.open_sweeps == 0
        again = Scheduler()
        assert all(
            again.handle(event) == commands for event, commands in zip(world.events, world.commands, strict=True)
        )
