"""Requests of the user about single jobs: cancel, hold, release, another priority; and the drain of a queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import EarlierAttempts, JobSpec, StoppingSpec, SweepSpec
from ecoshare.core.commands import KillJob, SetShares, StartJob
from ecoshare.core.events import (
    CancelRequested,
    Config,
    DeviceFailed,
    DrainRequested,
    Event,
    HoldRequested,
    JobArrived,
    PriorityChanged,
    ReleaseRequested,
    Reported,
    RetryRequested,
    StopRequested,
)
from ecoshare.core.policies import own_names
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.user_requests import DRAINED
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver
from tests.core.test_device_failures import ALONE, CONFIGS, RULES, advice, can_complete, named_jobs
from tests.core.test_scheduler import GIB, JOBS, drive, job, starts
from tests.core.test_sweeps import World

TEN = ((10.0, Outcome.COMPLETED),)
cancel = partial(CancelRequested, reason="cancelled by the user")


def kills(driver: VirtualDriver) -> list[tuple[str, bool]]:
    """Job of each `KillJob`, and whether it is killed at once."""
    return [(each.job, each.at_once) for _, commands in driver.log for each in commands if isinstance(each, KillJob)]


@pytest.mark.parametrize("policy", own_names())
def test_a_cancelled_job_ends_and_the_others_go_on(policy: str) -> None:
    jobs = [job(name, attempts=TEN, retries=3) for name in "abc"]
    requests = ((4.0, partial(cancel, job="a")), (4.5, partial(cancel, job="c")))
    driver = drive(policy, *jobs, config=ALONE, requests=requests)
    assert driver.states() == {"a": JobState.CANCELLED, "b": JobState.COMPLETED, "c": JobState.CANCELLED}
    assert kills(driver) == [("a", False)] and starts(driver) == ["a", "b"], "c has never started"
    assert driver.core.jobs["c"].history[-1].cause == "cancelled by the user"


def test_a_job_that_stops_already_is_killed_only_if_asked_to() -> None:
    for at_once in (False, True):
        requests = tuple((4.0, partial(cancel, job="a", at_once=again)) for again in (False, at_once))
        driver = drive("fair", job("a", attempts=TEN), requests=requests)
        assert kills(driver) == [("a", False), ("a", True)][: 1 + at_once]


def test_a_job_that_gives_its_place_away_does_not_come_back_once_it_is_cancelled() -> None:
    jobs = [job("a", attempts=TEN, service_s=10.0, movable=True), job("b", service_s=1.0, arrival_s=3.0)]
    config = {**ALONE, "preempt": True}
    before = drive("srtf", *jobs, config=config)
    assert starts(before) == ["a", "b", "a"]
    after = drive("srtf", *jobs, config=config, requests=((3.0, partial(cancel, job="a")),))
    assert starts(after) == ["a", "b"] and after.states()["a"] is JobState.CANCELLED


def test_a_job_that_has_ended_or_never_came_stays_as_it_is() -> None:
    jobs = [job("a"), job("b", attempts=TEN)]
    requests = tuple((5.0, partial(cancel, job=name)) for name in ("a", "z"))
    driver = drive("fair", *jobs, requests=requests)
    assert set(driver.states().values()) == {JobState.COMPLETED}


def test_a_held_job_waits_until_it_is_released_and_lets_others_pass() -> None:
    jobs = [job(name, attempts=TEN) for name in "abc"]
    requests = ((1.0, partial(HoldRequested, job="b")), (15.0, partial(ReleaseRequested, job="b")))
    driver = drive("fifo", *jobs, config=ALONE, requests=requests)
    assert starts(driver) == ["a", "c", "b"]
    assert set(driver.states().values()) == {JobState.COMPLETED}


def test_a_job_with_a_place_is_not_held() -> None:
    driver = drive("fifo", job("a", attempts=TEN), requests=((1.0, partial(HoldRequested, job="a")),))
    assert driver.states()["a"] is JobState.COMPLETED


def test_a_held_job_ends_with_the_run_and_can_be_cancelled() -> None:
    jobs = [job(name, attempts=TEN) for name in "ab"]
    hold = (1.0, partial(HoldRequested, job="b"))
    for ending in ({"stop_s": 5.0, "requests": (hold,)}, {"requests": (hold, (2.0, partial(cancel, job="b")))}):
        assert drive("fifo", *jobs, config=ALONE, **ending).states()["b"] is JobState.CANCELLED


@pytest.mark.parametrize("places", [1, 4])
def test_another_priority_changes_the_queue_and_the_turn(places: int) -> None:
    jobs = [job(name, attempts=TEN, priority=1) for name in "abc"]
    request = (1.0, partial(PriorityChanged, job="c", priority=9))
    driver = drive("priority", *jobs, config={**ALONE, "places_per_lane": places}, requests=(request,))
    assert driver.core.jobs["c"].spec.priority == 9
    assert starts(driver) == (["a", "c", "b"] if places == 1 else ["a", "b", "c"])
    sent = [each for _, commands in driver.log for each in commands if isinstance(each, SetShares)]
    ranks = [{share.job: share.rank for share in each.shares} for each in sent]
    assert not ranks if places == 1 else {"c": 0, "a": 1, "b": 1} in ranks


def test_a_drain_lets_the_started_jobs_end_and_cancels_the_others() -> None:
    """A job that waits for its next attempt has started, too."""
    again = ((2.0, Outcome.FAILED), (10.0, Outcome.COMPLETED))
    jobs = [job("a", attempts=TEN), job("b", attempts=again, retries=1), job("c", arrival_s=4.0), job("d")]
    drain = (3.5, DrainRequested)
    hold = (0.5, partial(HoldRequested, job="d"))
    config = {"lanes_per_device": 1, "places_per_lane": 2}
    driver = drive("fair", *jobs, config=config, requests=(hold, drain))
    states = {"a": JobState.COMPLETED, "b": JobState.COMPLETED, "c": JobState.CANCELLED, "d": JobState.CANCELLED}
    assert driver.states() == states
    assert driver.core.jobs["d"].history[-1].cause == DRAINED


DRAIN, STOP = (2.5, DrainRequested), (2.5, partial(StopRequested, at_once=False))
JUST_THEN = 2.485
"""Time (s) that an attempt from the beginning takes to end by itself between the stop and the kill."""


@pytest.mark.parametrize(
    ("runs", "requests", "resumable"),
    [
        pytest.param({}, [DRAIN], {"waits"}, id="drained"),
        pytest.param({}, [(1.0, partial(HoldRequested, job="waits")), DRAIN], {"waits"}, id="held"),
        pytest.param({}, [STOP], {"runs", "waits"}, id="stopped"),
        pytest.param({}, [(1.0, partial(cancel, job="waits")), STOP], {"runs"}, id="cancelled before"),
        pytest.param({}, [(2.0, partial(cancel, job="runs")), STOP], {"waits"}, id="cancelled while it ran"),
        pytest.param({}, [DRAIN, (3.0, partial(cancel, job="waits"))], set(), id="cancelled after"),
        pytest.param({"attempts": ((JUST_THEN, Outcome.FAILED),)}, [STOP], {"waits"}, id="failed"),
        pytest.param(
            {"attempts": ((JUST_THEN, Outcome.FAILED),), "retries": 1}, [STOP], {"runs", "waits"}, id="retried"
        ),
        pytest.param({"attempts": ((JUST_THEN, Outcome.LOST),)}, [STOP], {"runs", "waits"}, id="lost"),
        pytest.param(
            {}, [(2.5, partial(DeviceFailed, device="cpu", reason="it is lost"))], {"runs", "waits"}, id="no device"
        ),
    ],
)
def test_a_job_has_ended_only_if_no_other_session_goes_on_with_it(
    runs: dict[str, Any], requests: list[tuple[float, Callable[..., Event]]], resumable: set[str]
) -> None:
    """If it failed, a queue would tell an end that is none, or run a job again that has ended."""
    jobs = [job("runs", **{"attempts": TEN, **runs}), job("waits", arrival_s=0.1)]
    driver = drive("fifo", *jobs, config=ALONE, requests=tuple(requests))
    assert {name for name, each in driver.core.jobs.items() if each.resumable} == resumable
    assert all(state.ended for state in driver.states().values())


def test_a_job_that_runs_again_goes_on_from_its_next_attempt() -> None:
    spec, script = job("a", attempts=((1.0, Outcome.FAILED), (1.0, Outcome.COMPLETED)))
    again = partial(JobArrived, job=replace(spec, earlier_attempts=EarlierAttempts(1)))
    requests = ((3.0, partial(RetryRequested, job="a")), (3.1, again), (3.2, partial(RetryRequested, job="a")))
    driver = drive("fifo", (spec, script), job("b", attempts=TEN), config=ALONE, requests=requests)
    attempts = [each.attempt for _, log in driver.log for each in log if isinstance(each, StartJob) and each.job == "a"]
    assert attempts == [1, 2] and driver.states()["a"] is JobState.COMPLETED, (
        "a job that has not ended is not forgotten"
    )


@pytest.mark.parametrize("rule", RULES, ids=["all", "asha", "halving"])
@pytest.mark.parametrize("request_of", [partial(cancel, job="s"), DrainRequested], ids=["cancel", "drain"])
def test_a_sweep_that_is_cancelled_or_drained_draws_no_more(
    rule: StoppingSpec | None, request_of: Callable[..., Event]
) -> None:
    for seed, steps in product(range(4), (1, 10, 40)):
        world = World(SweepSpec("s", 5, early_stopping=rule), 60, seed=seed)
        for _ in range(steps):
            if world.asked:
                world.answer()
        drawn = len(world.core.jobs) + len(world.asked)
        world.tell(request_of(at_s=0.0))
        world.go_on(3)
        assert world.core.is_sweep_over("s") and len(world.core.jobs) == drawn
        states = {each.state for each in world.core.jobs.values()}
        assert all(state.ended for state in states)
        if isinstance(request_of, partial):
            assert states == {JobState.CANCELLED}


def test_a_paused_trial_can_be_cancelled() -> None:
    """The rest of its rung does not wait for it."""
    world = World(SweepSpec("s", 2, early_stopping=RULES[2]), 3)
    world.answer()
    world.answer()
    world.tell(Reported(0.0, "s.0000", 1, 0.5))
    states = [world.core.jobs["s.0000"].state]
    world.tell(cancel(at_s=0.0, job="s.0000"))
    assert [*states, world.core.jobs["s.0000"].state] == [JobState.PAUSED, JobState.CANCELLED]
    world.go_on(3)
    assert all(each.state.ended for each in world.core.jobs.values()) and world.core.is_sweep_over("s")


REQUESTS = st.tuples(
    st.floats(0, 15),
    st.sampled_from(["cancel", "kill", "hold", "release", "priority"]),
    st.integers(0, 7),
    st.integers(-2, 2),
)


def _request(kind: str, name: str, priority: int) -> Callable[..., Event]:
    made: dict[str, Callable[..., Event]] = {
        "cancel": partial(cancel, job=name),
        "kill": partial(cancel, job=name, at_once=True),
        "hold": partial(HoldRequested, job=name),
        "release": partial(ReleaseRequested, job=name),
        "priority": partial(PriorityChanged, job=name, priority=priority),
    }
    return made[kind]


@given(
    config=CONFIGS,
    jobs=JOBS,
    movable=st.booleans(),
    asked=st.lists(REQUESTS, min_size=1, max_size=12),
    failure_s=st.none() | st.floats(0, 15),
    drain_s=st.none() | st.floats(0, 20),
)
def test_whatever_the_user_asks_for_every_job_ends(
    config: Config,
    jobs: list[tuple[JobSpec, ScriptedJob]],
    movable: bool,
    asked: list[tuple[float, str, int, int]],
    failure_s: float | None,
    drain_s: float | None,
) -> None:
    """All jobs are released in the end. Those that nothing was asked for complete if they can."""
    named = named_jobs(jobs, movable, config.profile)
    requests = [(at_s, _request(kind, f"j{number}", priority)) for at_s, kind, number, priority in asked]
    requests += [(30.0, partial(ReleaseRequested, job=name)) for name in named]
    if drain_s is not None:
        requests.append((drain_s, DrainRequested))
    driver = VirtualDriver(
        config,
        tuple(Device(f"d{number}", "here", 8 * GIB) for number in range(2)),
        named,
        failures=() if failure_s is None else ((failure_s, "d0"),),
        requests=tuple(requests),
        advises=advice,
    ).run()
    assert all(state.ended for state in driver.states().values()), driver.states()
    touched = {f"j{number}" for _, kind, number, _ in asked if kind in ("cancel", "kill")}
    for name, record in driver.core.jobs.items():
        if can_complete(*named[name]) and drain_s is None and name not in touched:
            assert record.state is JobState.COMPLETED, record.history
        if record.state is JobState.CANCELLED:
            assert name in touched or drain_s is not None


def test_the_ends_of_an_event_are_told_once() -> None:
    core = Scheduler()
    driver = drive("fifo", job("a"), job("b"), config=ALONE)
    told = []
    for event, _ in driver.log:
        core.handle(event)
        told += [each.spec.name for each in core.ended]
    assert told == ["a", "b"]


def test_a_job_that_fits_nowhere_ends_when_it_is_released() -> None:
    """The device of the job has failed while it was held."""
    devices = (Device("small", "here", 2 * GIB), Device("big", "here", 8 * GIB))
    jobs = [
        job("a", attempts=((30.0, Outcome.COMPLETED),)),
        job("b", attempts=((30.0, Outcome.COMPLETED),)),
        job("c", memory=MemoryDemand(6 * GIB)),
    ]
    requests = ((1.0, partial(HoldRequested, job="c")), (9.0, partial(ReleaseRequested, job="c")))
    driver = drive("fifo", *jobs, config=ALONE, devices=devices, requests=requests, failures=((5.0, "big"),))
    assert driver.states()["c"] is JobState.FAILED
    assert not [each for _, log in driver.log for each in log if isinstance(each, StartJob) and each.job == "c"]
