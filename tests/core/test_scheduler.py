"""The scheduler, driven in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import EarlierAttempts, JobSpec
from ecoshare.core.commands import KillJob, MoveJob, OpenLane, ProfileJob, SetShares, StartJob
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    IterationsDone,
    JobArrived,
    JobExited,
    RunOpened,
    StopRequested,
)
from ecoshare.core.job_ends import MOST_LOSSES
from ecoshare.core.placement.admission import MOST_PASSED
from ecoshare.core.policies import own_names
from ecoshare.core.records import IllegalMove, JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

GIB = 1 << 30
UNASKED = [each for each in Outcome if each not in (Outcome.STOPPED, Outcome.PRUNED)]
"""Outcomes of an attempt that the scheduler did not end."""
CPU = (Device("cpu", "here", 8 * GIB),)


def drive(
    policy: str, *jobs: tuple[JobSpec, ScriptedJob], config: dict[str, Any] | None = None, **options: Any
) -> VirtualDriver:
    named = {spec.name: (spec, script) for spec, script in jobs}
    return VirtualDriver(Config(policy, **(config or {})), options.pop("devices", CPU), named, **options).run()


def job(name: str, **spec: Any) -> tuple[JobSpec, ScriptedJob]:
    script = {
        key: spec.pop(key)
        for key in ("arrival_s", "attempts", "refused", "stays", "profile", "longest_s")
        if key in spec
    }
    return JobSpec(name, spec.pop("job_class", "class"), **spec), ScriptedJob(**script)


def starts(driver: VirtualDriver) -> list[str]:
    return [each.job for _, commands in driver.log for each in commands if isinstance(each, StartJob)]


def test_lanes_of_a_device_share_its_memory() -> None:
    driver = drive("fair", config={"lanes_per_device": 2})
    opened = [each for _, commands in driver.log for each in commands if isinstance(each, OpenLane)]
    assert [lane.budget_bytes for lane in opened] == [8 * GIB, 8 * GIB]


def test_lanes_that_open_one_after_the_other_are_filled_evenly() -> None:
    driver = drive("fair", *(job(f"j{number}") for number in range(4)), config={"lanes_per_device": 2})
    placed = [each.lanes for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert placed == [(0,), (1,), (0,), (1,)]


def test_fifo_runs_one_after_the_other_in_order_of_arrival() -> None:
    driver = drive("fifo", job("b", arrival_s=0.0), job("a", arrival_s=0.1), job("c", arrival_s=0.2))
    assert starts(driver) == ["b", "a", "c"]
    running = 0
    for event, commands in driver.log:
        running += sum(isinstance(each, StartJob) for each in commands) - isinstance(event, JobExited)
        assert running <= 1


def test_fifo_does_not_overtake_what_does_not_fit() -> None:
    big = MemoryDemand(7 * GIB)
    driver = drive(
        "fifo",
        job("first", attempts=((5.0, Outcome.COMPLETED),), memory=MemoryDemand(GIB)),
        job("big", arrival_s=1.0, memory=big),
        job("small", arrival_s=2.0, memory=MemoryDemand(GIB)),
    )
    assert starts(driver) == ["first", "big", "small"]


def test_others_overtake_what_does_not_fit() -> None:
    driver = drive(
        "pack",
        job("first", attempts=((5.0, Outcome.COMPLETED),), memory=MemoryDemand(2 * GIB)),
        job("big", arrival_s=1.0, memory=MemoryDemand(7 * GIB)),
        job("small", arrival_s=2.0, memory=MemoryDemand(GIB)),
    )
    assert starts(driver) == ["first", "small", "big"]


def test_a_job_for_a_whole_device_is_not_passed_for_ever() -> None:
    steady = [job(f"s{n:02}", arrival_s=0.3 * n, attempts=((1.0, Outcome.COMPLETED),)) for n in range(80)]
    needy = job("needy", arrival_s=0.1, memory=MemoryDemand(8 * GIB))
    driver = drive("fair", *steady, needy)
    order = starts(driver)
    assert order.index("needy") <= MOST_PASSED + 8, "others that come later always fit before it"
    assert order.index("needy") > 2, "others may use the lane while it waits"
    assert set(driver.states().values()) == {JobState.COMPLETED}


def test_a_resumed_job_has_the_failures_that_it_had() -> None:
    fails = ((0.1, Outcome.FAILED),)
    failed_once = EarlierAttempts(attempts=1, failures=1)
    before = drive("fair", job("a", retries=1, attempts=fails, earlier_attempts=failed_once))
    assert starts(before) == ["a"]
    assert before.states()["a"] is JobState.FAILED
    short = drive("fair", job("a", earlier_attempts=EarlierAttempts(attempts=1, out_of_memory=True)))
    [start] = [each for _, log in short.log for each in log if isinstance(each, StartJob)]
    assert start.cap_bytes == 8 * GIB


def test_ephemeral_memory_is_shared_in_a_lane() -> None:
    demand = MemoryDemand(GIB, 4 * GIB)  # two need 2 + 4 of 8 GiB; a third 3 + 4; a fifth does not fit
    driver = drive("fair", *(job(f"j{n}", memory=demand) for n in range(5)), config={"places_per_lane": 10})
    together = max(
        sum(1 for each in driver.log[:n] for command in each[1] if isinstance(command, StartJob))
        - sum(isinstance(each[0], JobExited) for each in driver.log[:n])
        for n in range(len(driver.log))
    )
    assert together == 4


def test_priority_ranks_the_turn_and_the_queue() -> None:
    driver = drive(
        "priority", job("low"), job("high", priority=5, arrival_s=0.5), job("mid", priority=1, arrival_s=0.6)
    )
    last = [each for _, commands in driver.log for each in commands if isinstance(each, SetShares)][-1]
    assert {share.job: share.rank for share in last.shares} == {"high": 0, "mid": 1, "low": 2}


def test_srtf_ranks_by_what_remains() -> None:
    core = Scheduler()
    core.handle(RunOpened(0.0, SCHEMA, Config("srtf"), CPU))
    core.handle(Done(0.0, 1))
    commands = core.handle(JobArrived(0.0, JobSpec("long", "c", iterations=1000)))
    commands += core.handle(JobArrived(0.0, JobSpec("short", "c", iterations=10)))
    for command in commands:
        if isinstance(command, StartJob):
            core.handle(Done(0.1, command.id))
    [shares] = core.handle(IterationsDone(1.0, "long", Usage(iterations=10, span_s=0.9, held_s=1.0)))
    assert isinstance(shares, SetShares)
    assert {share.job: share.rank for share in shares.shares} == {"short": 0, "long": 1}
    assert (
        core.handle(IterationsDone(2.0, "short", Usage(iterations=5, span_s=0.9, held_s=1.0))) == []
    )  # the order is the same
    [shares] = core.handle(IterationsDone(9.0, "long", Usage(iterations=999, span_s=9.0, held_s=9.0)))
    assert isinstance(shares, SetShares)
    assert {share.job: share.rank for share in shares.shares} == {"short": 1, "long": 0}


def test_srtf_does_not_prefer_a_job_that_has_done_more_than_its_number() -> None:
    """Else a number that is far too small would put the job before all others to its end."""
    core = Scheduler()
    core.handle(RunOpened(0.0, SCHEMA, Config("srtf"), CPU))
    core.handle(Done(0.0, 1))
    commands = core.handle(JobArrived(0.0, JobSpec("wrong", "c", iterations=10, service_s=1.0)))
    commands += core.handle(JobArrived(0.0, JobSpec("right", "c", iterations=60)))
    for command in commands:
        if isinstance(command, StartJob):
            core.handle(Done(0.1, command.id))
    [shares] = core.handle(IterationsDone(1.0, "right", Usage(iterations=10, span_s=0.9, held_s=1.0)))
    assert isinstance(shares, SetShares)
    assert {share.job: share.rank for share in shares.shares} == {"wrong": 0, "right": 1}
    at_its_number = Usage(iterations=10, span_s=0.9, held_s=1.0)
    assert core.handle(IterationsDone(2.0, "wrong", at_its_number)) == [], "it is about to end"
    [shares] = core.handle(IterationsDone(11.0, "wrong", Usage(iterations=100, span_s=9.9, held_s=10.0)))
    assert isinstance(shares, SetShares)
    assert {share.job: share.rank for share in shares.shares} == {"wrong": 1, "right": 0}, "10 s had, 5 s left"


def test_a_failure_is_tried_again_as_often_as_its_owner_allows() -> None:
    fails = ((1.0, Outcome.FAILED),)
    driver = drive("fair", job("never", attempts=fails), job("twice", attempts=fails, retries=2))
    assert starts(driver).count("never") == 1
    assert starts(driver).count("twice") == 3
    assert driver.states() == {"never": JobState.FAILED, "twice": JobState.FAILED}


def test_a_job_that_met_its_limit_begins_again_once_with_a_whole_device() -> None:
    attempts = ((1.0, Outcome.OUT_OF_MEMORY), (1.0, Outcome.COMPLETED))
    driver = drive("fair", job("hungry", attempts=attempts), job("other", attempts=((5.0, Outcome.COMPLETED),)))
    caps = [
        each.cap_bytes for _, log in driver.log for each in log if isinstance(each, StartJob) and each.job == "hungry"
    ]
    assert caps == [2 * GIB, 8 * GIB]
    assert driver.states()["hungry"] is JobState.COMPLETED
    again = drive("fair", job("hungry", memory=MemoryDemand(0), attempts=((1.0, Outcome.OUT_OF_MEMORY),)))
    assert starts(again) == ["hungry"] * 2, "a lack of memory with a whole device is final"
    assert again.states()["hungry"] is JobState.FAILED


def test_a_lost_attempt_does_not_count_as_a_failure_but_not_for_ever() -> None:
    once = drive("fair", job("a", attempts=((1.0, Outcome.LOST), (1.0, Outcome.COMPLETED))))
    assert once.states()["a"] is JobState.COMPLETED
    always = drive("fair", job("a", attempts=((1.0, Outcome.LOST),)))
    assert starts(always) == ["a"] * (MOST_LOSSES + 1)
    assert always.states()["a"] is JobState.FAILED


def test_a_refused_start_fails_with_its_reason() -> None:
    driver = drive("fair", job("a", refused=1), job("b", refused=1, retries=1))
    assert driver.states() == {"a": JobState.FAILED, "b": JobState.COMPLETED}
    assert "no such interpreter" in driver.core.jobs["a"].history[-1].cause


def test_neighbours_of_an_unclean_death_begin_again_where_they_share_a_context() -> None:
    jobs = (job("culprit", attempts=((1.0, Outcome.CRASHED),)), job("victim", attempts=((9.0, Outcome.COMPLETED),)))
    apart = drive("fair", *jobs)
    assert starts(apart) == ["culprit", "victim"]
    shared = drive("fair", *jobs, config={"shared_context": True})
    assert starts(shared) == ["culprit", "victim", "victim"]
    [kill] = [each for _, log in shared.log for each in log if isinstance(each, KillJob)]
    assert kill.job == "victim" and "culprit" in kill.reason


def test_a_stop_starts_nothing_more_and_ends_what_runs() -> None:
    jobs = [job(f"j{n}", attempts=((9.0, Outcome.COMPLETED),)) for n in range(6)]
    driver = drive("fair", *jobs, stop_s=1.0)
    assert len(starts(driver)) == 4
    assert set(driver.states().values()) == {JobState.CANCELLED}
    assert sum(isinstance(each, KillJob) for _, log in driver.log for each in log) == 4


def test_a_second_stop_kills_at_once() -> None:
    core = Scheduler()
    core.handle(RunOpened(0.0, SCHEMA, Config("fair"), CPU))
    core.handle(Done(0.0, 1))
    start = core.handle(JobArrived(0.0, JobSpec("a", "c")))[0]
    core.handle(Done(0.1, start.id))
    (asked,), (forced,) = core.handle(StopRequested(1.0, False)), core.handle(StopRequested(2.0, True))
    assert isinstance(asked, KillJob) and asked.at_once is False
    assert isinstance(forced, KillJob) and forced.at_once is True


def test_what_can_never_fit_is_refused_on_arrival() -> None:
    driver = drive("fair", job("gang", gpus=2), job("huge", memory=MemoryDemand(9 * GIB)), job("fine"))
    states = driver.states()
    assert states == {"gang": JobState.FAILED, "huge": JobState.FAILED, "fine": JobState.COMPLETED}
    assert "2 devices" in driver.core.jobs["gang"].history[-1].cause


def test_a_gang_gets_all_its_devices_in_one_node_or_none() -> None:
    devices = tuple(Device(f"{node}:{n}", node, 8 * GIB) for node in ("x", "y") for n in range(2))
    longer = ((5.0, Outcome.COMPLETED),)
    driver = drive(
        "fair",
        job("one", attempts=longer),
        job("two", attempts=longer),
        job("gang", gpus=2, arrival_s=1.0),
        devices=devices,
    )
    assert driver.states()["gang"] is JobState.COMPLETED


@pytest.mark.parametrize(("takes_turns", "starts_s"), [(True, 1.0), (False, 5.0)])
def test_a_gang_that_takes_turns_starts_beside_other_jobs(takes_turns: bool, starts_s: float) -> None:
    """Any other gang waits until two lanes are empty, and keeps later jobs out of them."""
    devices = tuple(Device(f"cpu:{number}", "here", 8 * GIB) for number in range(2))
    longer = ((5.0, Outcome.COMPLETED),)
    driver = drive(
        "fair",
        job("one", attempts=longer),
        job("two", attempts=longer),
        job("gang", gpus=2, takes_turns=takes_turns, arrival_s=1.0, attempts=longer),
        job("late", arrival_s=1.5),
        devices=devices,
    )
    began_s = {
        each.job: event.at_s for event, commands in driver.log for each in commands if isinstance(each, StartJob)
    }
    assert began_s["gang"] >= starts_s and began_s["gang"] == pytest.approx(starts_s, abs=1.0)
    assert set(driver.states().values()) == {JobState.COMPLETED}


@pytest.mark.parametrize("objective", ["energy", "jct", "makespan", "edp"])
def test_jobs_have_empty_devices_before_they_share_one(objective: str) -> None:
    """Before, the second job of a run shared the first device, however slow, while the second device was idle."""
    devices = tuple(Device(f"cpu:{number}", "here", 8 * GIB, threads=1) for number in range(2))
    longer = ((5.0, Outcome.COMPLETED),)
    driver = drive(
        objective,
        *(job(name, attempts=longer, job_class=name) for name in ("one", "two")),
        devices=devices,
        config={"lanes_per_device": 6},
    )
    placed = [each.lanes[0] for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert sorted(lane // 6 for lane in placed) == [0, 1]


@pytest.mark.parametrize(("refusals", "asked"), [(0, ["stays", "goes"]), (1, ["stays", "goes", "stays"])])
def test_another_job_moves_where_one_cannot_and_that_one_once_it_has_got_on(refusals: int, asked: list[str]) -> None:
    """A job that waited for a process kept the others in its lane: its move had no answer."""
    long, short = ((20.0, Outcome.COMPLETED),), ((3.0, Outcome.COMPLETED),)
    tells = MemoryDemand(GIB, GIB)
    driver = drive(
        "fair",
        job("before", memory=MemoryDemand(GIB, 4 * GIB), attempts=short, priority=1),
        job("stays", memory=tells, attempts=long, stays=1, arrival_s=0.5),
        job("goes", memory=tells, attempts=long, stays=refusals, arrival_s=0.6),
        config={"lanes_per_device": 2, "host_bytes": GIB},
    )
    moved = [each.job for _, commands in driver.log for each in commands if isinstance(each, MoveJob)]
    assert moved == asked


def test_a_gang_that_takes_turns_has_a_lane_on_each_of_its_devices() -> None:
    devices = tuple(Device(f"cpu:{number}", "here", 8 * GIB) for number in range(3))
    driver = drive(
        "fair",
        *(job(f"gang{number}", gpus=2, takes_turns=True) for number in range(3)),
        devices=devices,
        config={"lanes_per_device": 2},
    )
    placed = [each.lanes for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert len(placed) == 3
    assert all(len({lane // 2 for lane in lanes}) == 2 for lanes in placed), "two lanes of one device are one device"


def test_an_illegal_event_tells_the_jobs_history() -> None:
    core = Scheduler()
    core.handle(RunOpened(0.0, SCHEMA, Config("fair"), CPU))
    core.handle(Done(0.0, 1))
    start = core.handle(JobArrived(0.0, JobSpec("a", "c")))[0]
    core.handle(Done(0.1, start.id))
    core.handle(JobExited(1.0, "a", 1, Outcome.COMPLETED, 0, "", Usage()))
    with pytest.raises(IllegalMove, match="queued -> starting"):
        core.jobs["a"].move(JobState.RUNNING, 2.0, "a defect")


LONG = ((20.0, Outcome.COMPLETED),)


def windows(driver: VirtualDriver) -> list[str]:
    return [each.job for _, commands in driver.log for each in commands if isinstance(each, ProfileJob)]


def test_the_first_job_of_a_class_is_measured_once_it_is_warm() -> None:
    jobs = [job(name, attempts=LONG, job_class=name[0]) for name in ("a1", "a2", "b1")]
    driver = drive("fair", *jobs, config={"profile": True})
    assert windows(driver) == ["a1", "b1"], "one of a class is enough"
    began = {
        each.job: event.at_s for event, commands in driver.log for each in commands if isinstance(each, ProfileJob)
    }
    assert began["a1"] >= 1.0, "the first iterations are not typical"
    assert began["b1"] >= began["a1"] + 0.7, "two windows on one device would measure each other"
    assert not windows(drive("fair", *jobs)), "no window was asked for"


def test_a_class_that_is_known_or_ends_soon_is_not_measured() -> None:
    known = job("known", attempts=LONG, job_class="k", profiled=True)
    brief = job("brief", attempts=((2.5, Outcome.COMPLETED),), job_class="s", iterations=50)
    assert not windows(drive("fair", known, brief, config={"profile": True}))
    longer = job("longer", attempts=LONG, job_class="s", iterations=30)
    assert windows(drive("fair", longer, config={"profile": True})) == ["longer"], "the number was too small"


def test_a_window_that_fails_is_tried_with_another_job_but_not_for_ever() -> None:
    longer = ((200.0, Outcome.COMPLETED),)
    jobs = [job(name, attempts=longer, profile="the job ended in its window") for name in "abc"]
    driver = drive("fair", *jobs, config={"profile": True})
    began = [event.at_s for event, commands in driver.log for each in commands if isinstance(each, ProfileJob)]
    assert len(began) == 3
    assert began[1] - began[0] > 30.0 and began[2] - began[1] > 60.0, "what is in the way has to go away first"


def test_what_was_measured_decides_how_many_fit() -> None:
    need = MemoryDemand(GIB, GIB)
    jobs = [job(f"j{number}", attempts=LONG, profile=need) for number in range(9)]
    driver = drive("fair", *jobs, config={"profile": True, "places_per_lane": 6, "enforces_memory": True})
    late = [event.at_s for event, commands in driver.log for each in commands if isinstance(each, StartJob)]
    caps = [each.cap_bytes for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert caps[:6] == [8 * GIB // 6] * 6, "an equal share before anything is known"
    assert caps[6:] == [2 * GIB + GIB // 2] * 3, "what was measured, and an allowance beyond it"
    assert late[6] > 19.0, "a lane of six places is full with six"


JOBS = st.lists(
    st.tuples(
        st.builds(
            JobSpec,
            name=st.just("?"),
            job_class=st.sampled_from("cd"),
            gpus=st.sampled_from([1, 1, 1, 2]),
            priority=st.integers(0, 3),
            iterations=st.none() | st.integers(1, 100),
            retries=st.integers(0, 2),
            memory=st.none() | st.builds(MemoryDemand, st.integers(0, 9 * GIB), st.integers(0, 4 * GIB)),
        ),
        st.builds(
            ScriptedJob,
            arrival_s=st.floats(0, 5),
            attempts=st.lists(
                st.tuples(st.floats(0, 5), st.sampled_from(UNASKED)),
                min_size=1,
                max_size=3,
            ).map(tuple),
            refused=st.sampled_from([0, 0, 0, 1]),
            stays=st.sampled_from([0, 0, 1, 3]),
            profile=st.none()
            | st.just("the job ended in its window")
            | st.builds(MemoryDemand, st.integers(0, 9 * GIB), st.integers(0, 4 * GIB)),
        ),
    ),
    max_size=12,
)


@given(
    policy=st.sampled_from(own_names()),
    jobs=JOBS,
    lanes=st.integers(1, 3),
    places=st.integers(1, 4),
    shared=st.booleans(),
    profile=st.booleans(),
    nodes=st.lists(st.sampled_from("xy"), min_size=1, max_size=4),
    stop_s=st.none() | st.floats(0, 10),
)
def test_whatever_happens_every_job_ends_and_no_lane_is_overfull(
    policy: str,
    jobs: list[tuple[JobSpec, ScriptedJob]],
    lanes: int,
    places: int,
    shared: bool,
    profile: bool,
    nodes: list[str],
    stop_s: float | None,
) -> None:
    named = {}
    for number, (spec, script) in enumerate(jobs):
        named[f"j{number}"] = (
            replace(spec, name=f"j{number}"),
            script,
        )
    devices = tuple(Device(f"d{number}", node, 8 * GIB) for number, node in enumerate(nodes))
    config = Config(policy, lanes, places, shared, profile)
    driver = VirtualDriver(config, devices, named, stop_s=stop_s).run()
    assert all(state.ended for state in driver.states().values())
    assert len(driver.states()) == len(named)
    again = VirtualDriver(config, devices, named, stop_s=stop_s).run()
    assert again.log == driver.log
    for name, record in driver.core.jobs.items():
        ends = [event.at_s for event, _ in driver.log if isinstance(event, JobExited) and event.job == name]
        held_s = sum(
            event.usage.held_s for event, _ in driver.log if isinstance(event, JobExited) and event.job == name
        )
        assert not ends or ends[-1] - record.arrival_s >= held_s - 1e-6  # JCT >= service time
