"""PAL, and the choice of lanes under a policy that knows the slowness of a job in each lane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.contrib.policies.pal import Pal
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.linked_lanes import together
from ecoshare.core.policies import register, unregister
from ecoshare.core.policies.orders import Srtf
from ecoshare.core.records import Job, Lane, LaneState
from ecoshare.testing.policy_contract import PolicyContract
from tests.core.stepping import Run, Speeds

GIB = 1 << 30


def spec(name: str, job_class: str = "any", gpus: int = 1, nodes: int | None = None) -> JobSpec:
    return JobSpec(name, job_class, gpus, nodes, movable=True)


UNEVEN = {"a0": {"picky": 0.9, "calm": 0.99}, "a1": {"picky": 1.0, "calm": 1.0}, "b0": {"picky": 1.1, "calm": 1.01}}


def test_the_most_sensitive_gets_the_fastest_device_although_it_came_last() -> None:
    run = Run(UNEVEN, spec("other", "unknown"), spec("calm", "calm"), spec("picky", "picky"))
    assert run.places == {"picky": ("b0",), "calm": ("a1",), "other": ("a0",)}


def test_blind_jobs_get_the_places_that_they_would_get_without_speeds() -> None:
    jobs = [spec("calm", "calm"), spec("picky", "picky")]
    blind, unknown = Run(UNEVEN, *jobs, blind=1.0), Run({device: {} for device in UNEVEN}, *jobs)
    assert blind.places == unknown.places == {"calm": ("a0",), "picky": ("a1",)}


def test_those_that_run_keep_their_places() -> None:
    run = Run(UNEVEN, spec("calm", "calm"))
    run.come(spec("picky", "picky"), at_s=1.0)
    run.wait_until(299.0)
    assert run.places == {"calm": ("b0",)}, "no job starts before the next round"
    run.wait_until(300.0)
    assert run.places == {"calm": ("b0",), "picky": ("a1",)}
    assert not run.stopped


def test_the_earliest_run_whatever_they_gain_by_fast_devices() -> None:
    speeds = {"a0": {"picky": 1.1, "calm": 1.0}, "a1": {"picky": 0.9, "calm": 1.0}}
    run = Run(speeds, spec("c0", "calm"), spec("c1", "calm"), spec("picky", "picky"))
    assert run.places == {"c0": ("a0",), "c1": ("a1",)}


def test_the_job_with_the_least_service_runs_under_that_option() -> None:
    for las, runs, stopped in ((0.0, "early", []), (1.0, "late", ["early"])):
        run = Run({"a0": {}}, spec("early"), las=las)
        run.come(spec("late"), at_s=10.0)
        run.wait_until(300.0)
        assert (list(run.places), run.stopped) == ([runs], stopped)


def pairs(slow: float) -> Speeds:
    """Speeds of two nodes with a fast and a slow device each, and of a node with two equal devices."""
    fast = {f"{node}{gpu}": {"": 1.0 if gpu == 0 else 0.5} for node in "ab" for gpu in range(2)}
    return {**fast, "c0": {"": slow}, "c1": {"": slow}}


@pytest.mark.parametrize(
    ("slow", "options", "found"),
    [
        (0.9, {}, ("c0", "c1")),
        (0.6, {}, ("c0", "c1")),  # 1 / 0.6 is less than 1.7
        (0.58, {}, ("a0", "b0")),  # 1 / 0.58 is more
        (0.9, {"across": 1.0}, ("a0", "b0")),
        (1.0, {"across": 1.0}, ("c0", "c1")),  # equally slow in one node: as few nodes as possible
        (0.4, {"across": 3.0}, ("a0", "a1")),
    ],
)
def test_a_gang_spans_nodes_where_that_is_less_slow(slow: float, options: dict[str, Any], found: object) -> None:
    run = Run(pairs(slow), spec("gang", gpus=2), **options)
    assert run.places == {"gang": found}


def test_a_gang_that_must_not_span_nodes_gets_the_least_slow_of_one() -> None:
    speeds = {"a0": {"": 1.0}, "a1": {"": 0.5}, "b0": {"": 0.7}, "b1": {"": 0.9}, "b2": {"": 0.8}}
    run = Run(speeds, spec("gang", gpus=2, nodes=1))
    assert run.places == {"gang": ("b1", "b2")}


class Knowing(Srtf):
    """Policy without rounds that knows the speeds."""

    name: ClassVar[str] = "knowing"
    across = 1.0

    def meet(self, devices: Sequence[Device]) -> None:
        pass

    def slowness(self, job: Job, lane: Lane) -> float:
        return 1.0 / lane.device.speed(job.spec.job_class)


@pytest.mark.parametrize("preempt", [False, True])
def test_any_policy_may_know_the_speeds(preempt: bool, request: pytest.FixtureRequest) -> None:
    register("knowing", Knowing)
    request.addfinalizer(lambda: unregister("knowing"))
    run = Run(UNEVEN, spec("one", "picky"), spec("two", "picky"), policy="knowing", preempt=preempt)
    assert run.places == {"one": ("b0",), "two": ("a1",)}


class Lost(Knowing):
    """Policy with a slowness that is not a number."""

    name: ClassVar[str] = "lost"

    def slowness(self, job: Job, lane: Lane) -> float:
        return math.nan


def test_an_answer_that_is_no_slowness_is_told() -> None:
    contract: PolicyContract = type("TestIt", (PolicyContract,), {"policy": Lost})()
    with pytest.raises(AssertionError, match=r"slowness\(\) of job j\d+ .* is nan: expected a positive number"):
        contract.test_its_answers_can_be_compared()


def lanes(nodes: Sequence[int]) -> list[Lane]:
    """Open lanes, each on a device of its own: this many in each node."""
    found: list[Lane] = []
    for node, count in enumerate(nodes):
        for gpu in range(count):
            device = Device(f"{node}:{gpu}", str(node), 8 * GIB)
            found.append(Lane(len(found), device, 1, 0, LaneState.OPEN))
    return found


SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@given(sizes=SIZES, data=st.data(), gpus=st.integers(1, 5), nodes=st.sampled_from([None, 1, 2]))
def test_no_other_lanes_are_less_slow_together(
    sizes: list[int], data: st.DataObject, gpus: int, nodes: int | None
) -> None:
    free = lanes(sizes)
    slowness = data.draw(st.lists(st.integers(1, 4), min_size=len(free), max_size=len(free)))
    found = together(free, gpus, nodes, lambda lane: slowness[lane.number])
    choices = [
        each for each in combinations(free, gpus) if nodes is None or len({lane.device.node for lane in each}) <= nodes
    ]
    if not choices:
        assert found == ()
        return
    assert len(set(found)) == gpus
    assert len({lane.device.node for lane in found}) <= (nodes or gpus)
    slowest = [max(slowness[lane.number] for lane in each) for each in (found, *choices)]
    assert slowest[0] == min(slowest)


@given(sizes=SIZES, data=st.data(), gpus=st.integers(1, 5), nodes=st.sampled_from([None, 1, 2]))
def test_where_all_are_as_slow_a_job_gets_what_it_would_get_without(
    sizes: list[int], data: st.DataObject, gpus: int, nodes: int | None
) -> None:
    policy = Pal({"blind": 1.0})
    rooms = [LaneIndex(policy.lane), LaneIndex(policy.lane, policy)]
    taken, kept = (data.draw(st.sets(st.integers(0, sum(sizes) - 1))) for _ in range(2))
    found = []
    for room in rooms:
        for lane in lanes(sizes):
            room.add(lane)
            room.opened(lane)
        for number in sorted(taken):
            job = Job(spec(f"other{number}"), 0.0)
            job.lanes = (room.lanes[number],)
            room.take(job)
        got = room.find(Job(spec("job", gpus=gpus, nodes=nodes), 0.0), lambda lane: not lane.jobs, kept)
        found.append({lane.number for lane in got})
    assert found[0] == found[1]
