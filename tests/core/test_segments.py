"""Segments of the log: a fresh scheduler takes over jobs that go on, and decides as well as the one before."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.segment import CarriedJob, Segment
from ecoshare.core.commands import OpenLane, ProfileJob, StartJob
from ecoshare.core.events import CancelRequested, Config, HoldRequested, ReleaseRequested, RunOpened
from ecoshare.core.records import JobState
from ecoshare.record import event_log
from ecoshare.testing.virtual_driver import WINDOW_S, ScriptedJob, VirtualDriver
from tests.core.test_device_failures import ALONE, CONFIGS, advice, can_complete, named_jobs
from tests.core.test_scheduler import GIB, JOBS, drive, job, starts
from tests.simulation.simulating import OURS

TEN = ((10.0, Outcome.COMPLETED),)


@pytest.mark.parametrize("policy", OURS)
def test_jobs_go_on_and_ended_ones_are_forgotten(policy: str) -> None:
    jobs = [job(name, attempts=TEN) for name in "abcd"]
    driver = drive(policy, *jobs, config=ALONE, segments_s=(12.0, 15.0, 25.0))
    assert driver.segments == 4 and starts(driver) == list("abcd")
    assert set(driver.states().values()) == {JobState.COMPLETED} and len(driver.states()) == 4
    assert len(driver.core.jobs) < 4, "the scheduler keeps no job that ended in an earlier segment"


def test_a_start_without_an_answer_goes_on_in_the_next_segment() -> None:
    """A job of 10 s that is started at 3 s is answered at 3.1 s. Else a queue with short jobs would never be calm."""
    driver = drive("fair", job("a", attempts=TEN), job("b", attempts=TEN, arrival_s=3.0), segments_s=(3.0,))
    (begun,) = [event for event, _ in driver.log if isinstance(event, RunOpened) and event.segment is not None]
    assert begun.segment is not None and begun.at_s == 3.0
    assert [(each.spec.name, each.state) for each in begun.segment.jobs] == [("a", ""), ("b", "starting")]
    assert set(driver.states().values()) == {JobState.COMPLETED}
    assert starts(driver) == ["a", "b"]


def test_a_device_joins_and_a_failed_one_is_gone() -> None:
    """Lanes keep their numbers. Those of a device that joins are numbered on, and it takes the jobs that wait."""
    jobs = [job(name, attempts=((30.0, Outcome.COMPLETED),)) for name in "abc"]
    driver = drive(
        "fifo",
        *jobs,
        config={**ALONE, "lanes_per_device": 1},
        devices=(Device("d0", "here", 8 * GIB), Device("d1", "here", 8 * GIB)),
        failures=((5.0, "d0"),),
        joins=((10.0, Device("d2", "there", 8 * GIB)), (50.0, Device("d3", "there", 8 * GIB))),
    )
    openings = [event for event, _ in driver.log if isinstance(event, RunOpened)]
    numbered = [{number: device.name for number, device in each.lanes.items()} for each in openings]
    assert numbered == [{0: "d0", 1: "d1"}, {1: "d1", 2: "d2"}, {1: "d1", 2: "d2", 3: "d3"}]
    opened = [(each.lane, each.device) for _, commands in driver.log for each in commands if isinstance(each, OpenLane)]
    assert opened == [(0, "d0"), (1, "d1"), (2, "d2"), (3, "d3")]
    begun = [(each.job, each.lanes) for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert begun == [("a", (0,)), ("b", (1,)), ("a", (2,)), ("c", (1,))]
    assert set(driver.states().values()) == {JobState.COMPLETED}


def test_a_segment_does_without_devices_that_no_job_uses() -> None:
    """One is left, and lanes keep their numbers."""
    devices = tuple(Device(f"d{number}", "here", 8 * GIB) for number in range(3))
    lasts_s = {"a": 4.0, "b": 30.0, "c": 12.0}
    driver = drive(
        "fifo",
        *(job(name, attempts=((each_s, Outcome.COMPLETED),)) for name, each_s in lasts_s.items()),
        config={**ALONE, "lanes_per_device": 1},
        devices=devices,
        segments_s=(10.0, 25.0),
        spares=True,
    )
    openings = [event for event, _ in driver.log if isinstance(event, RunOpened)]
    numbered = [{number: device.name for number, device in each.lanes.items()} for each in openings]
    assert numbered == [{0: "d0", 1: "d1", 2: "d2"}, {1: "d1"}, {1: "d1"}]
    assert set(driver.states().values()) == {JobState.COMPLETED}


@pytest.mark.parametrize(
    ("jobs", "spare", "spares"),
    [
        ([], {"d0"}, True),
        ([], {"d0", "d1", "d2"}, False),
        ([("a", 1, (0,), False)], {"d1", "d2"}, True),
        ([("a", 1, (0,), False)], {"d0"}, False),
        ([("a", 1, (0,), False), ("b", 1, (), False)], {"d2"}, False),
        ([("a", 1, (0,), False), ("b", 1, (), True)], {"d1", "d2"}, True),
        ([("a", 1, (0,), False), ("b", 2, (), True)], {"d1", "d2"}, False),
        ([("a", 1, (0,), False), ("b", 2, (), True)], {"d2"}, True),
    ],
)
def test_devices_are_spare_if_no_job_runs_there_or_may_need_them(
    jobs: list[tuple[str, int, tuple[int, ...], bool]], spare: set[str], spares: bool
) -> None:
    carried = tuple(
        CarriedJob(JobSpec(name, job_class=name, gpus=gpus), 0.0, lanes=lanes, held=held)
        for name, gpus, lanes, held in jobs
    )
    lanes = tuple((number, f"d{number}") for number in range(3))
    segment = Segment(carried, settings=(("d0", ()), ("d2", ())), emptied=("d1",), lanes=lanes)
    assert segment.spares(spare) is spares
    left = segment.without({"d1", "d2"})
    assert (left.lanes, left.settings, left.emptied) == (((0, "d0"),), (("d0", ()),), ())


def test_a_machine_that_answers_nothing_any_more_holds_up_no_segment() -> None:
    """The core waits for no answer of a lost device. One that comes still, in the next segment, is ignored."""
    for silent in (True, False):
        driver = drive(
            "fair",
            job("a", attempts=((30.0, Outcome.COMPLETED),) * 2),
            config={**ALONE, "profile": True},
            devices=(Device("d0", "here", 8 * GIB), Device("d1", "there", 8 * GIB)),
            failures=((1.2, "d0"),),
            silent=silent,
            segments_s=(1.205,),
        )
        windows = [(event.at_s, each.job) for event, log in driver.log for each in log if isinstance(each, ProfileJob)]
        assert windows[0][0] < 1.2 < windows[0][0] + WINDOW_S, "a window is open when the device fails"
        (begun,) = [event for event, _ in driver.log if isinstance(event, RunOpened)][1:]
        assert begun.segment is not None and begun.segment.dropped and begun.segment.had_work
        assert driver.states() == {"a": JobState.COMPLETED}


def test_a_held_job_stays_held_and_a_failed_attempt_counts() -> None:
    fails = ((6.0, Outcome.FAILED), (30.0, Outcome.FAILED))
    requests = (
        (1.0, partial(HoldRequested, job="h")),
        (60.0, partial(ReleaseRequested, job="h")),
        (70.0, partial(CancelRequested, job="h", reason="cancelled by the user")),
    )
    jobs = [job("f", attempts=fails, retries=1), job("h", arrival_s=0.5, attempts=((99.0, Outcome.COMPLETED),))]
    driver = drive("fifo", *jobs, config=ALONE, segments_s=(20.0, 50.0), requests=requests)
    assert starts(driver) == ["f", "f", "h"] and driver.segments == 3
    assert driver.states() == {"f": JobState.FAILED, "h": JobState.CANCELLED}


def test_a_segment_is_read_as_it_was_written() -> None:
    driver = drive("energy", job("a", attempts=TEN), job("b", attempts=TEN), segments_s=(5.0,))
    opened = [event for event, _ in driver.log if isinstance(event, RunOpened)][1]
    line = event_log.line_of(opened)
    assert event_log.entry_of(line) == opened


@pytest.mark.slow
@given(
    config=CONFIGS,
    jobs=JOBS,
    movable=st.booleans(),
    segments_s=st.lists(st.floats(0, 30), min_size=1, max_size=6),
    failure_s=st.none() | st.floats(0, 15),
    joins_s=st.none() | st.floats(0, 30),
    silent=st.booleans(),
    spares=st.booleans(),
)
def test_whenever_segments_begin_every_job_ends_as_it_would(
    config: Config,
    jobs: list[tuple[JobSpec, ScriptedJob]],
    movable: bool,
    segments_s: list[float],
    failure_s: float | None,
    joins_s: float | None,
    silent: bool,
    spares: bool,
) -> None:
    """No job is lost or started twice for one attempt, even if a device fails, joins or leaves."""
    named = named_jobs(jobs, movable, config.profile)
    driver = VirtualDriver(
        config,
        tuple(Device(f"d{number}", "here", 8 * GIB) for number in range(2)),
        named,
        failures=() if failure_s is None else ((failure_s, "d0"),),
        silent=silent,
        spares=spares,
        segments_s=tuple(segments_s),
        joins=() if joins_s is None else ((joins_s, Device("d2", "there", 8 * GIB)),),
        advises=advice,
    ).run()
    states = driver.states()
    assert len(states) == len(named) and all(state.ended for state in states.values()), states
    begun = [(each.job, each.attempt) for _, log in driver.log for each in log if isinstance(each, StartJob)]
    assert len(set(begun)) == len(begun)
    for name, (spec, script) in named.items():
        if can_complete(spec, script):
            assert states[name] is JobState.COMPLETED
