"""Open-ended services: they serve until all other jobs have ended, and then they have completed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import WORK_OVER, Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec, SweepSpec
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.commands import KillJob, StartJob
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    Exhausted,
    JobArrived,
    JobExited,
    RunOpened,
    StopRequested,
    SweepOpened,
    WorkOver,
)
from ecoshare.core.job_ends import KILLED
from ecoshare.core.policies import own_names
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver
from tests.core.test_scheduler import CPU, GIB, drive, job

SERVES = ((math.inf, Outcome.COMPLETED),)
OPEN = ServiceSpec(0.05)
ENDS = ServiceSpec(0.05, requests=RequestSource(count=10))


def service(
    name: str, attempts: tuple[tuple[float, Outcome], ...] = SERVES, **spec: Any
) -> tuple[JobSpec, ScriptedJob]:
    return job(name, attempts=attempts, service=OPEN, **spec)


def kills(driver: VirtualDriver) -> list[KillJob]:
    return [each for _, commands in driver.log for each in commands if isinstance(each, KillJob)]


def over_s(driver: VirtualDriver) -> list[float]:
    return [event.at_s for event, _ in driver.log if isinstance(event, WorkOver)]


@pytest.mark.parametrize("policy", own_names())
def test_a_service_ends_when_all_other_jobs_have(policy: str) -> None:
    """If it failed, a run with a service would go on for ever, or count it as cancelled."""
    late = job("late", arrival_s=5.0)
    driver = drive(policy, service("s"), job("a"), late, config={"lanes_per_device": 2})
    assert set(driver.states().values()) == {JobState.COMPLETED}
    last_s = max(event.at_s for event, _ in driver.log if isinstance(event, JobExited) and event.job != "s")
    assert over_s(driver) == [last_s], "once, and at once"
    [kill] = [each for each in kills(driver) if each.reason == WORK_OVER]
    assert (kill.job, kill.at_once) == ("s", False)
    assert driver.core.jobs["s"].history[-1].cause == Outcome.STOPPED.value
    assert driver.core.jobs["s"].history[-2].cause == WORK_OVER


def test_a_service_with_a_last_request_is_a_job_like_others() -> None:
    driver = drive("fair", job("s", service=ENDS, attempts=((3.0, Outcome.COMPLETED),)), job("a"))
    assert set(driver.states().values()) == {JobState.COMPLETED} and not over_s(driver) and not kills(driver)


def test_services_alone_go_on() -> None:
    driver = drive("fair", service("s"), service("t"))
    assert not over_s(driver) and set(driver.states().values()) == {JobState.RUNNING}


def test_a_service_without_a_place_has_completed_too() -> None:
    one_place = {"lanes_per_device": 1, "places_per_lane": 1}
    driver = drive("fifo", job("a"), service("s", arrival_s=0.1), service("t", arrival_s=0.1), config=one_place)
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert driver.core.jobs["t"].attempt == 0 and driver.core.jobs["t"].history[-1].cause == WORK_OVER


def test_a_service_that_dies_is_started_again() -> None:
    dies = ((0.3, Outcome.CRASHED), (0.2, Outcome.FAILED), *SERVES)
    driver = drive("fair", service("s", dies, retries=2), job("a", attempts=((3.0, Outcome.COMPLETED),)))
    assert (driver.core.jobs["s"].attempt, driver.states()["s"]) == (3, JobState.COMPLETED)
    gave_up = drive("fair", service("s", dies, retries=1), job("a", attempts=((3.0, Outcome.COMPLETED),)))
    assert gave_up.states() == {"s": JobState.FAILED, "a": JobState.COMPLETED} and not over_s(gave_up)


def test_a_service_that_cannot_start_is_not_started_for_ever() -> None:
    """If it failed, a wrong path would be tried 100 times, and the run would take minutes to say so."""
    dies = ((0.3, Outcome.FAILED),)
    work = job("a", attempts=((60.0, Outcome.COMPLETED),))
    driver = drive("fair", service("s", dies, retries=100), work)
    assert (driver.core.jobs["s"].attempt, driver.states()["s"]) == (6, JobState.FAILED)
    lives = drive(
        "fair", service("s", ((11.0, Outcome.FAILED),), retries=100), job("a", attempts=((99.0, Outcome.COMPLETED),))
    )
    assert lives.core.jobs["s"].attempt > 6 and lives.states()["s"] is JobState.COMPLETED


def test_a_stop_by_the_user_leaves_a_service_beside_other_jobs_for_another_session() -> None:
    driver = drive("fair", service("s"), job("a", attempts=SERVES), stop_s=2.0)
    assert driver.states() == {"s": JobState.CANCELLED, "a": JobState.CANCELLED} and not over_s(driver)


def test_services_alone_have_completed_when_the_user_stops_them() -> None:
    driver = drive("fair", service("s"), service("t"), stop_s=2.0)
    assert set(driver.states().values()) == {JobState.COMPLETED}


class World:
    """Scheduler of one device in which each start is answered at once."""

    def __init__(self, *specs: JobSpec) -> None:
        self.core, self.now_s = Scheduler(), 0.0
        self.tell(RunOpened(0.0, SCHEMA, Config("fair"), (Device("cpu", "here", 8 * GIB),)))
        for spec in specs:
            self.tell(JobArrived(0.0, spec))

    def tell(self, event: Any) -> list[Any]:
        self.now_s += 1.0
        commands = self.core.handle(replace(event, at_s=self.now_s))
        for command in commands:
            if type(command).__name__ in ("OpenLane", "StartJob"):
                self.tell(Done(0.0, command.id))
        return commands

    def ends(self, name: str, outcome: Outcome, exit_code: int = 0) -> list[Any]:
        return self.tell(JobExited(0.0, name, self.core.jobs[name].attempt, outcome, exit_code, "", Usage()))


SERVICE, WORK = JobSpec("s", "c", service=OPEN, retries=5), JobSpec("a", "c")


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.STOPPED, JobState.COMPLETED),
        (Outcome.LOST, JobState.COMPLETED),
        (Outcome.COMPLETED, JobState.COMPLETED),
        (Outcome.CRASHED, JobState.FAILED),
        (Outcome.OUT_OF_MEMORY, JobState.FAILED),
    ],
)
def test_nothing_begins_again_after_the_work(outcome: Outcome, state: JobState) -> None:
    """If it failed, a service that dies at the end would be started once more, and never be ended."""
    world = World(SERVICE, WORK)
    assert not world.core.only_services_left
    world.ends("a", Outcome.COMPLETED)
    assert world.core.only_services_left
    assert [each.reason for each in world.tell(WorkOver(0.0))] == [WORK_OVER]
    assert not world.core.only_services_left, "it is told once"
    assert not world.tell(WorkOver(0.0)) and not world.tell(StopRequested(0.0, at_once=False))
    assert not [each for each in world.ends("s", outcome, KILLED) if isinstance(each, StartJob)]
    assert (world.core.jobs["s"].state, world.core.live_jobs) == (state, 0)


def test_a_service_that_was_killed_after_ctrl_c_has_not_completed() -> None:
    for exit_code, state in ((143, JobState.COMPLETED), (0, JobState.COMPLETED), (KILLED, JobState.CANCELLED)):
        world = World(SERVICE)
        world.tell(StopRequested(0.0, at_once=False))
        world.ends("s", Outcome.STOPPED, exit_code)
        assert world.core.jobs["s"].state is state


def test_an_open_sweep_is_work_to_come() -> None:
    world = World(SERVICE)
    commands = world.tell(SweepOpened(0.0, SweepSpec("w", parallel=1)))
    [ask] = [each for each in commands if type(each).__name__ == "AskSampler"]
    world.tell(JobArrived(0.0, JobSpec("w.0000", "c", sweep="w"), ask.id))
    [ask] = [each for each in world.ends("w.0000", Outcome.COMPLETED) if type(each).__name__ == "AskSampler"]
    assert not world.core.only_services_left
    world.tell(Exhausted(0.0, ask.id))
    assert world.core.only_services_left


COURSES = st.lists(
    st.tuples(
        st.sampled_from([None, OPEN, ENDS]),
        st.integers(0, 30),  # arrival, tenths of a second
        st.lists(st.tuples(st.integers(1, 20), st.sampled_from([Outcome.FAILED, Outcome.CRASHED])), max_size=2),
        st.integers(0, 2),  # retries
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "lanes", "places"),
    [("fair", 1, 8), ("fair", 2, 4), ("priority", 2, 4), ("energy", 1, 8), ("jct", 2, 4)],
)
@given(courses=COURSES, stop=st.none() | st.integers(0, 40))
def test_a_run_ends_whenever_it_has_other_jobs(
    policy: str, lanes: int, places: int, courses: list[Any], stop: int | None
) -> None:
    """No service outlives the work, none begins after it, and the log replays (the driver checks that).

    There is memory and a place for each job: a job that waits for the place of a service waits for ever.
    """
    jobs = []
    for place, (kind, arrival, failures, retries) in enumerate(courses):
        length_s = math.inf if kind is OPEN else 1.0
        attempts = (*((length / 10, outcome) for length, outcome in failures), (length_s, Outcome.COMPLETED))
        script = ScriptedJob(arrival / 10, attempts)
        memory = MemoryDemand(GIB // 2)
        jobs.append((JobSpec(f"j{place}", "c", retries=retries, service=kind, memory=memory, profiled=True), script))
    config = {"lanes_per_device": lanes, "places_per_lane": places}
    driver = drive(policy, *jobs, config=config, devices=CPU, stop_s=None if stop is None else stop / 10)
    has_work = any(not spec.is_open_ended for spec, _ in jobs)
    if has_work or stop is not None:
        assert all(state.ended for state in driver.states().values()), driver.states()
    if told := over_s(driver):
        assert has_work and len(told) == 1
        begun = [event.at_s for event, commands in driver.log for each in commands if isinstance(each, StartJob)]
        assert max(begun, default=0.0) <= told[0]
