"""Links of the devices: which devices a gang and a job of one device get."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import ACROSS_NODES, NUMA_NODE, Device, over_nvlinks
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import StartJob
from ecoshare.core.events import Config
from ecoshare.core.placement.linked_lanes import MOST_SETS, DeviceLinks
from ecoshare.core.policies import own_names
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

GIB = 1 << 30

Near = dict[tuple[int, int], int]
"""Nearness of pairs of devices, by their numbers, the smaller one first."""

PAIRS: Near = dict.fromkeys(combinations(range(4), 2), ACROSS_NODES) | {(0, 2): over_nvlinks(4), (1, 3): 14}
"""Four devices: 0 and 2 are linked, and 1 and 3."""


def devices(near: Near, count: int) -> tuple[Device, ...]:
    """Devices of a node; the first one of each pair names the link."""
    return tuple(
        Device(f"g{one}", "here", 8 * GIB, links=tuple((f"g{b}", to) for (a, b), to in near.items() if a == one))
        for one in range(count)
    )


def links(near: Near, count: int) -> DeviceLinks:
    found = DeviceLinks()
    for device in devices(near, count):
        found.add(device)
    return found


def quality(near: DeviceLinks, chosen: Sequence[str]) -> tuple[float, int]:
    values = [near.between(one, other) for one, other in combinations(chosen, 2)]
    return min(values, default=math.inf), sum(values)


@example(
    (
        6,
        {(0, 1): 1, (4, 5): 1, (3, 5): 1, (3, 4): 1, (2, 5): 1, (2, 4): 2, (1, 3): 1, (2, 3): 1, (1, 4): 1},
        [5, 1, 2, 3, 4, 0],
        2,
        2,
    )
)
@given(
    st.integers(1, 7).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.fixed_dictionaries({}, optional={pair: st.integers(1, 4) for pair in combinations(range(count), 2)}),
            st.permutations(range(count)),
            st.integers(0, count),
            st.integers(0, count),
        )
    )
)
def test_the_chosen_set_is_the_first_of_the_best(drawn: tuple[int, Near, list[int], int, int]) -> None:
    count, near, order, split, size = drawn
    names = [f"g{number}" for number in order]
    fixed, free = names[:split], names[split:]
    size = min(size, len(free))
    found = links(near, count)
    every = [[*fixed, *chosen] for chosen in combinations(free, size)]
    best = max(every, key=lambda chosen: quality(found, chosen))
    assert [*fixed, *found.nearest(fixed, free, size)] == best


def blocks(number: int, size: int) -> Near:
    """Blocks of devices; device `n` is in block `n % number`, so that no block is a row."""
    pairs = combinations(range(number * size), 2)
    return {(one, other): NUMA_NODE if one % number == other % number else ACROSS_NODES for one, other in pairs}


def test_a_set_of_many_devices_is_grown() -> None:
    near, names = links(blocks(8, 8), 64), [f"g{number}" for number in range(64)]
    assert math.comb(64, 8) > MOST_SETS
    assert quality(near, near.nearest((), names, 8)) == (NUMA_NODE, NUMA_NODE * 28)
    assert quality(near, near.nearest(("g3",), [name for name in names if name != "g3"], 7))[0] == NUMA_NODE
    wide = near.nearest((), names, 16)
    assert quality(near, wide)[1] == 2 * 28 * NUMA_NODE + 64 * ACROSS_NODES, "two whole blocks"


@pytest.mark.parametrize("near", [blocks(4, 4), dict.fromkeys(combinations(range(16), 2), 28)])
def test_the_search_is_over_at_once(near: Near) -> None:
    """C(16, 8) sets: the branches that cannot win are left out."""
    found, began_s = links(near, 16), time.process_time()
    found.nearest((), [f"g{number}" for number in range(16)], 8)
    assert time.process_time() - began_s < 0.5


def placed(
    policy: str, *jobs: JobSpec, near: Near = PAIRS, count: int = 4, lanes: int = 1, **config: Any
) -> dict[str, list[int]]:
    """Devices of the jobs, which come one after the other and run for long."""
    named = {
        spec.name: (spec, ScriptedJob(arrival_s=float(place), attempts=((60.0, Outcome.COMPLETED),)))
        for place, spec in enumerate(jobs)
    }
    driver = VirtualDriver(Config(policy, lanes, **config), devices(near, count), named).run()
    begun: dict[str, list[int]] = {}
    for event, commands in driver.log:
        for each in commands:
            if isinstance(each, StartJob) and event.at_s < 30.0:
                begun.setdefault(each.job, [lane // lanes for lane in each.lanes])
    return begun


POLICIES = ["fair", "fifo", "energy", "jct", "pal", "pack"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("takes_turns", [False, True])
def test_a_gang_gets_devices_that_are_linked(policy: str, takes_turns: bool) -> None:
    """The first two free devices are not linked."""
    gang = JobSpec("gang", "class", 2, takes_turns=takes_turns)
    assert placed(policy, gang)["gang"] == [0, 2]
    assert placed(policy, gang, near={})["gang"] == [0, 1]


@pytest.mark.parametrize("policy", ["fair", "fifo", "energy", "jct", "pack"])
def test_jobs_of_one_device_leave_linked_devices_to_a_gang(policy: str) -> None:
    """The second job would be on device 1 without links, and no linked pair would be left."""
    jobs = [JobSpec("one", "a"), JobSpec("two", "b"), JobSpec("gang", "c", 2)]
    assert placed(policy, *jobs) == {"one": [0], "two": [2], "gang": [1, 3]}
    assert placed(policy, *jobs, near={}) == {"one": [0], "two": [1], "gang": [2, 3]}


def test_a_gang_that_preempts_gets_linked_devices() -> None:
    jobs = [JobSpec("low", "a", movable=True), JobSpec("gang", "c", 2, priority=3)]
    assert placed("priority", *jobs, preempt=True)["gang"] == [1, 3]


@pytest.mark.parametrize("takes_turns", [False, True])
def test_a_gang_waits_for_no_better_devices(takes_turns: bool) -> None:
    """A gang that takes turns does not share the linked devices, either, while others are free."""
    gangs = [JobSpec(name, name, 2, takes_turns=takes_turns) for name in ("first", "second")]
    assert placed("fair", *gangs, near={(1, 2): over_nvlinks(4)}) == {"first": [1, 2], "second": [0, 3]}


@given(
    policy=st.sampled_from(own_names()),
    gpus=st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.floats(0, 5), st.floats(0, 5)), max_size=8),
    lanes=st.integers(1, 3),
    places=st.integers(1, 3),
    count=st.integers(1, 4),
)
def test_links_that_are_all_equal_change_nothing(
    policy: str, gpus: list[tuple[int, bool, float, float]], lanes: int, places: int, count: int
) -> None:
    """The commands are those of a run without links, for every policy."""
    jobs = {
        f"j{place}": (
            JobSpec(f"j{place}", "class", wide, takes_turns=wide > 1 and turns),
            ScriptedJob(arrival_s=at_s, attempts=((lasts_s, Outcome.COMPLETED),)),
        )
        for place, (wide, turns, at_s, lasts_s) in enumerate(gpus)
    }
    near = {pair: over_nvlinks(18) for pair in combinations(range(count), 2)}
    linked, plain = (
        VirtualDriver(Config(policy, lanes, places), devices(how, count), jobs).run() for how in (near, Near())
    )
    assert linked.log[1:] == plain.log[1:]


@pytest.mark.nightly
@given(seed=st.integers(0, 50), policy=st.sampled_from(own_names()))
def test_runs_with_links_replay_to_the_same_commands(seed: int, policy: str) -> None:
    """`VirtualDriver` replays the log at its end, and checks what must always hold."""
    near = {pair: 1 + (seed * (pair[0] + 3) + pair[1]) % 4 for pair in combinations(range(5), 2)}
    jobs = {
        f"j{place}": (
            JobSpec(f"j{place}", "class", 1 + (place + seed) % 3),
            ScriptedJob(arrival_s=0.3 * place, attempts=((1.0 + place % 2, Outcome.COMPLETED),)),
        )
        for place in range(8)
    }
    driver = VirtualDriver(Config(policy, 1 + seed % 2), devices(near, 5), jobs).run()
    assert all(state.ended for state in driver.states().values())


def test_a_link_that_one_device_names_holds_for_both() -> None:
    found = links({(0, 1): 5}, 2)
    assert (found.between("g0", "g1"), found.between("g1", "g0"), found.between("g0", "g2")) == (5, 5, 0)
    assert not links({}, 3)


def test_the_speed_of_devices_goes_before_their_links() -> None:
    """PAL: device 3 is slow, and a gang is as slow as its slowest device."""
    named = {"gang": (JobSpec("gang", "class", 2), ScriptedJob())}
    slow = tuple(replace(each, speeds=(("class", 0.5 if each.name == "g2" else 1.0),)) for each in devices(PAIRS, 4))
    driver = VirtualDriver(Config("pal"), slow, named).run()
    (start,) = [each for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert start.lanes == (1, 3), "device 2 is slow, so its link to device 0 does not help"
