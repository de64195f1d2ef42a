"""Room for latency targets: a service shares a lane only with jobs beside which it can keep its target."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.commands import DropJob, KillJob, MoveJob, ParkJob, StartJob
from ecoshare.core.reasons import ReasonKind, Reasons
from ecoshare.core.records import Job, JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.reporting.reason_words import reason_words
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver
from tests.core.test_scheduler import GIB, drive, job

TARGET_S = 0.05
OPEN, ENDS = ServiceSpec(TARGET_S), ServiceSpec(TARGET_S, requests=RequestSource(count=10))
ONE_LANE = {"lanes_per_device": 1}
TWO_LANES = {"lanes_per_device": 2}
SERVES = ((math.inf, Outcome.COMPLETED),)


def known(name: str, profiled_s: float | None = 0.005, **spec: Any) -> tuple[JobSpec, ScriptedJob]:
    """Job with a longest iteration, or answer, that its profile tells."""
    return job(name, solo=Solo(longest_s=profiled_s), memory=MemoryDemand(GIB), profiled=True, **spec)


def service(name: str, profiled_s: float | None = 0.005, **spec: Any) -> tuple[JobSpec, ScriptedJob]:
    spec = {"attempts": ((10.0, Outcome.COMPLETED),), "service": ENDS} | spec
    return known(name, profiled_s, **spec)


def first_lanes(driver: VirtualDriver) -> dict[str, int]:
    """Lane in which each job was started first."""
    found: dict[str, int] = {}
    for _, commands in driver.log:
        for each in commands:
            if isinstance(each, StartJob):
                found.setdefault(each.job, each.lanes[0])
    return found


def started_s(driver: VirtualDriver, name: str) -> float:
    return next(
        event.at_s
        for event, commands in driver.log
        for each in commands
        if isinstance(each, StartJob) and each.job == name
    )


def of(driver: VirtualDriver, kind: type[Any]) -> list[Any]:
    return [each for _, commands in driver.log for each in commands if isinstance(each, kind)]


def test_jobs_with_long_iterations_go_to_another_lane() -> None:
    long = [known(name, 0.08) for name in "abc"]
    driver = drive("fair", service("s"), *long, known("short"), config=TWO_LANES)
    lanes = first_lanes(driver)
    assert {lanes[name] for name in "abc"} == {1 - lanes["s"]} and lanes["short"] == lanes["s"]


@pytest.mark.parametrize("policy", ["fair", "fifo", "energy", "makespan"])
def test_a_job_without_another_lane_waits_for_the_end_of_the_service(policy: str) -> None:
    driver = drive(policy, service("s"), known("a", 0.08, arrival_s=0.1), config=ONE_LANE)
    assert set(driver.states().values()) == {JobState.COMPLETED} and started_s(driver, "a") > 10.0


@pytest.mark.parametrize("policy", ["fair", "energy", "makespan"])
def test_a_job_that_is_kept_out_holds_up_no_other(policy: str) -> None:
    jobs = service("s"), known("a", 0.08, arrival_s=0.1), known("b", arrival_s=0.2)
    driver = drive(policy, *jobs, config=ONE_LANE)
    assert started_s(driver, "b") < 1.0 and started_s(driver, "a") > 10.0


def test_an_unknown_iteration_keeps_no_job_out() -> None:
    driver = drive("fair", service("s", None), known("a", None, arrival_s=0.1), config=ONE_LANE)
    assert started_s(driver, "a") < 1.0


@pytest.mark.parametrize("policy", ["fair", "energy"])
def test_a_job_that_would_wait_for_ever_is_refused_with_the_numbers(policy: str) -> None:
    """If it failed, the run would never end: the service waits for the job, and the job for the service."""
    stays = service("s", attempts=SERVES, service=OPEN)
    driver = drive(policy, stays, known("a", 0.08, arrival_s=0.1), known("b", arrival_s=0.1), config=ONE_LANE)
    assert driver.states() == {"s": JobState.COMPLETED, "a": JobState.FAILED, "b": JobState.COMPLETED}
    cause = driver.core.jobs["a"].history[-1].cause
    assert [each.job for each in of(driver, DropJob)] == ["a"], "the log tells it"
    assert cause == (
        "there is no lane for it: a holds the turn for up to 80 ms at a time, so answers of s could take 86 ms "
        "(target: 50 ms)"
    )


def test_a_service_that_is_too_slow_alone_is_refused() -> None:
    driver = drive("fair", service("s", 0.06), known("a"))
    assert driver.states() == {"s": JobState.FAILED, "a": JobState.COMPLETED}
    assert driver.core.jobs["s"].history[-1].cause == "its answers take up to 60 ms alone, and its target is 50 ms"


def test_answers_of_another_service_cannot_be_cut_either() -> None:
    slow = service("slow", 0.1, service=ServiceSpec(0.5, requests=RequestSource(count=1)))
    driver = drive("fair", service("s"), slow, config=TWO_LANES)
    assert len(set(first_lanes(driver).values())) == 2
    together = drive("fair", service("s"), service("t"), known("a"), known("b"), config=TWO_LANES)
    assert set(together.states().values()) == {JobState.COMPLETED}


def test_what_was_measured_counts_more_than_a_profile() -> None:
    """A job keeps its longest iteration when it starts again; its first iterations count only once it is warm."""
    now = Job(JobSpec("a", "c", solo=Solo(longest_s=0.01)), 0.0)
    now.tell(Usage(iterations=3, longest_iteration_s=2.0), 1.0)
    assert now.longest_iteration_s == 0.01
    now.tell(Usage(iterations=60, longest_iteration_s=0.02), 2.0)
    now.tell(Usage(), 3.0)
    assert now.longest_iteration_s == 0.02
    now.tell(Usage(iterations=20, held_s=40.0, longest_iteration_s=2.0), 50.0)
    assert now.longest_iteration_s == 2.0


def measured(name: str, told_s: float, **spec: Any) -> tuple[JobSpec, ScriptedJob]:
    """Job of an unknown class that runs for long and tells its longest iteration."""
    ends = {"attempts": ((200.0, Outcome.COMPLETED),), "longest_s": lambda _: told_s}
    return job(name, memory=MemoryDemand(GIB), **{**ends, **spec})


def test_a_service_gets_in_when_the_iterations_are_short_again() -> None:
    """If it failed, one long iteration (a checkpoint) would keep a service out until a job ends."""
    longer = measured("a", 0.2, longest_s=lambda since_s: 0.2 if since_s < 25.0 else 0.01)
    driver = drive("fair", longer, service("s", arrival_s=20.0), config=ONE_LANE)
    assert 25.0 <= started_s(driver, "s") <= 27.0


def test_explain_names_the_other_job_and_the_numbers() -> None:
    for policy in ("fair", "energy"):
        driver = drive(policy, service("s"), known("a", 0.08, arrival_s=0.1), config=ONE_LANE)
        again = Scheduler()
        for event, _ in driver.log:
            if event.at_s < 5.0:
                again.handle(event)
        reason = Reasons(again.view, 5.0).of(again.jobs["a"])
        assert reason is not None and reason.because is not None
        assert (reason.because.why, reason.because.jobs) == (ReasonKind.LATENCY, ("s", "a"))
        assert reason_words("a", reason, policy) == (
            "waited: it holds the turn for up to 80 ms at a time, so answers of s could take 86 ms (target: 50 ms)"
        )


LIMITS = ((100.0, "s"), (160.0, "s"))


def test_a_neighbour_with_long_iterations_moves_to_another_lane() -> None:
    jobs = service("s", None, attempts=((300.0, Outcome.COMPLETED),)), *(measured(name, 0.08) for name in "abc")
    for policy in ("fair", "energy"):
        driver = drive(policy, *jobs, config=TWO_LANES, misses=LIMITS)
        mates = [name for name, lane in first_lanes(driver).items() if lane == first_lanes(driver)["s"] and name != "s"]
        moved = {each.job for each in of(driver, MoveJob)}
        assert set(mates) <= moved, policy
        assert set(driver.states().values()) == {JobState.COMPLETED}


def test_a_neighbour_is_parked_until_the_service_has_ended() -> None:
    quick = service("s", None, attempts=((150.0, Outcome.COMPLETED),))
    driver = drive("fair", quick, measured("a", 0.08), config=ONE_LANE | {"host_bytes": 8 * GIB}, misses=LIMITS)
    [park] = of(driver, ParkJob)
    assert park.job == "a" and set(driver.states().values()) == {JobState.COMPLETED}
    back = next(step.at_s for step in driver.core.jobs["a"].history if step.after is JobState.RESUMING)
    assert back > 150.0, "not beside the service again"


def test_a_movable_neighbour_goes_on_on_another_device() -> None:
    two = Device("cpu/0", "here", 8 * GIB), Device("cpu/1", "here", 8 * GIB)
    other = known("b", 0.01, attempts=((50.0, Outcome.COMPLETED),), arrival_s=0.1)
    stays = service("s", None, attempts=SERVES, service=OPEN)
    late = measured("a", 0.08, movable=True, arrival_s=0.2)
    driver = drive("fair", stays, other, late, config=ONE_LANE, devices=two, misses=LIMITS)
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert [each.lanes for each in of(driver, StartJob) if each.job == "a"] == [(0,), (1,)]
    reason = "a holds the turn for up to 80 ms at a time, so answers of s could take 81 ms (target: 50 ms)"
    assert [each.reason for each in of(driver, KillJob) if each.job == "a"] == [reason]


def test_a_neighbour_without_a_way_stays() -> None:
    """If it failed, a job would wait for ever for the end of a service that waits for the job."""
    stays = service("s", None, attempts=SERVES, service=OPEN)
    jobs = stays, measured("a", 0.08, movable=True), measured("b", 0.08)
    driver = drive("fair", *jobs, config=ONE_LANE | {"host_bytes": 8 * GIB}, misses=LIMITS)
    assert not of(driver, ParkJob) and not of(driver, MoveJob)
    assert set(driver.states().values()) == {JobState.COMPLETED} and driver.core.jobs["a"].attempt == 1


def test_a_service_that_is_too_slow_alone_parts_nothing() -> None:
    driver = drive("fair", service("s", None), measured("a", 0.01), config=TWO_LANES, misses=((5.0, "s"),))
    assert not of(driver, MoveJob) and not [each for each in of(driver, KillJob) if each.job == "a"]


ITERATIONS = st.sampled_from([None, 0.001, 0.01, 0.04, 0.06, 0.3])
JOBS = st.lists(
    st.tuples(
        st.sampled_from([None, None, OPEN, ENDS]),
        ITERATIONS,  # profiled
        ITERATIONS,  # measured
        st.integers(0, 10),  # arrival (s)
        st.booleans(),  # movable
        st.integers(1, 8),  # length (s)
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("policy", ["fair", "energy"])
@given(jobs=JOBS, lanes=st.integers(1, 3), devices=st.integers(1, 2), host=st.booleans(), misses=st.integers(0, 3))
def test_no_job_starts_beside_a_service_that_would_miss_its_target(
    policy: str, jobs: list[Any], lanes: int, devices: int, host: bool, misses: int
) -> None:
    """Every run with other jobs ends, whatever is known of them. The driver checks each start and the replay."""
    scripts, serving = [], []
    for place, (kind, profiled, told, arrival_s, movable, length_s) in enumerate(jobs):
        name = f"j{place}"
        ends = ((math.inf if kind is OPEN else float(length_s), Outcome.COMPLETED),)
        tells = None if told is None else (lambda _, told_s=told: told_s)
        spec = {"arrival_s": float(arrival_s), "attempts": ends, "longest_s": tells, "movable": movable}
        scripts.append(known(name, profiled, service=kind, **spec))
        serving += [name] if kind is not None else []
    config = {"lanes_per_device": lanes, "places_per_lane": 8, "host_bytes": 8 * GIB if host else 0}
    told = tuple((5.0 * (each + 1), name) for each in range(misses) for name in serving)
    on = tuple(Device(f"cpu/{place}", "here", 16 * GIB) for place in range(devices))
    driver = drive(policy, *scripts, config=config, devices=on, misses=told, stop_s=100.0)
    if any(kind is not OPEN for kind, *_ in jobs):
        assert not driver.core.stopping, driver.states()
