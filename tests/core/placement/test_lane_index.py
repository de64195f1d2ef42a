"""Index of the lanes: jobs are spread over the devices, and the lanes of a device are filled evenly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.device import Device, over_nvlinks
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.policies import own_names
from ecoshare.core.records import Job, Lane, LaneState
from tests.core.test_device_failures import devices_of
from tests.core.test_scheduler import GIB, LONG, drive, job


class Places:
    """Lanes without a policy's preference, and jobs in them.

    Attributes:
        jobs: Jobs with a place, in the order in which they came.
    """

    def __init__(self, devices: Sequence[Device], lanes: int, places: int = 1) -> None:
        self.index, self.jobs, self._names = LaneIndex(lambda lane: ()), list[Job](), map(str, count())
        for number in range(lanes * len(devices)):
            self.index.add(Lane(number, devices[number // lanes], places, command=0))
        for lane in self.index.lanes.values():
            lane.state = LaneState.OPEN
            self.index.opened(lane)

    def take(self, gpus: int = 1) -> list[int]:
        """Numbers of the lanes that another job gets."""
        newcomer = Job(JobSpec("next", "class", gpus=gpus, takes_turns=True), 0.0)
        numbers = [lane.number for lane in self.index.find(newcomer, lambda lane: lane.has_place)]
        self.put(*numbers)
        return numbers

    def put(self, *numbers: int) -> None:
        """Give another job a place in each of these lanes."""
        lanes = tuple(self.index.lanes[number] for number in numbers)
        self.jobs.append(Job(JobSpec(next(self._names), "class", gpus=len(lanes)), 0.0, lanes=lanes))
        self.index.take(self.jobs[-1])


def device(name: str, **more: Any) -> Device:
    return Device(name, "here", 8 * GIB, **more)


@pytest.mark.parametrize("policy", own_names())
def test_an_idle_device_gets_a_job_before_a_second_lane_of_a_busy_one(policy: str) -> None:
    """Fails if two jobs share a device while another one is idle."""
    jobs = [job(f"j{number}", arrival_s=float(number), attempts=LONG) for number in range(2)]
    driver = drive(policy, *jobs, devices=(device("d0"), device("d1")), config={"lanes_per_device": 2})
    assert [devices_of(driver, f"j{number}") for number in range(2)] == [[("d0",)], [("d1",)]]


def test_jobs_are_spread_again_after_one_has_ended() -> None:
    """Fails if the lanes are only numbered over the devices in turn, or if a device that is idle again is missed."""
    three = Places([device("d0"), device("d1"), device("d2")], lanes=2)
    assert [three.take() for _ in range(5)] == [[0], [2], [4], [1], [3]]
    for place in (1, 4):  # both jobs of d1
        three.index.give(three.jobs[place])
    assert [three.take() for _ in range(3)] == [[2], [3], [5]]


def test_an_idle_device_goes_before_a_faster_one_that_is_busy() -> None:
    fast, slow = device("fast", speeds=(("", 1.2),)), device("slow", speeds=(("", 1.0),))
    places = Places([slow, fast], lanes=2)
    assert [places.take() for _ in range(4)] == [[2], [0], [3], [1]]


def test_links_go_before_the_number_of_jobs_of_busy_devices() -> None:
    """Fails if a gang gets devices without a link between them, because one of them has one job less."""
    linked = [device("d0", links=(("d1", over_nvlinks(4)),)), device("d1"), device("d2")]
    busy = Places(linked, lanes=3)
    for number in (0, 1, 3, 6):  # d0 has two jobs
        busy.put(number)
    assert set(busy.take(gpus=2)) == {2, 4}
    idle = Places(linked, lanes=3)
    idle.put(0)
    assert set(idle.take(gpus=2)) == {3, 6}, "idle devices go before links"


@given(
    devices=st.integers(1, 4),
    lanes=st.integers(1, 4),
    places=st.integers(1, 3),
    steps=st.lists(st.integers(0, 5), max_size=60),
    closed=st.integers(0, 30),
)
def test_a_job_gets_the_emptiest_lane_of_the_emptiest_device(
    devices: int, lanes: int, places: int, steps: list[int], closed: int
) -> None:
    """Fails if the order of the lanes is not up to date after any number of jobs has come, moved and gone."""
    world = Places([device(f"d{number}") for number in range(devices)], lanes, places)
    index = world.index
    if closed in index.lanes:
        index.closed(index.lanes[closed])
        index.lanes[closed].state = LaneState.CLOSED
    for step in steps:
        open_lanes = [lane for lane in index.lanes.values() if lane.has_place]
        if step == 0 and world.jobs:
            index.give(world.jobs.pop(0))
        elif step == 1 and world.jobs:
            here = world.jobs[-1].lanes[0]
            free = [each for each in index.devices[here.device.name] if each.has_place and each is not here]
            if free:
                index.move(world.jobs[-1], free[-1])
        elif open_lanes:

            def order(lane: Lane) -> tuple[int, int, int]:
                beside = sum(len(each.jobs) for each in index.devices[lane.device.name])
                return len(lane.jobs), beside, lane.number

            found = index.find(Job(JobSpec("next", "class"), 0.0), lambda lane: True)
            assert found == (min(open_lanes, key=order),)
            world.put(found[0].number)
        else:
            assert not index.has_places
