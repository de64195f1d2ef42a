"""Moves between devices in many random runs: scripted ends, and shared turns with the costs of restarts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, KillJob
from ecoshare.core.events import Config, Event
from ecoshare.core.placement.device_moves import LEAST_COST_S, REST, DeviceMoves
from ecoshare.core.policies import own_names
from ecoshare.core.records import JobState
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS
from ecoshare.simulation.traces.job_trace import Phase, TraceJob
from ecoshare.simulation.world import World
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver
from tests.core.test_device_failures import advice
from tests.simulation.simulating import Simulated, made, simulate

GIB = 1 << 30
STOP_S, RESTART_S = 0.5, 1.5
"""Time (s) that a stop and another start cost in the simulations."""


def moves_of(log: Iterable[tuple[Event, Sequence[Command]]]) -> Iterator[tuple[float, str]]:
    """Time (s) and job of each move."""
    for event, commands in log:
        for each in commands:
            if isinstance(each, KillJob) and each.reason.startswith("moves to "):
                yield event.at_s, each.job


@pytest.mark.slow
@given(
    policy=st.sampled_from(own_names()),
    jobs=st.lists(
        st.tuples(st.floats(0, 20), st.floats(0.5, 80), st.booleans(), st.sampled_from([1, 1, 1, 2]), st.booleans()),
        min_size=2,
        max_size=8,
    ),
    lanes=st.integers(1, 3),
    places=st.integers(1, 4),
    devices=st.integers(2, 3),
    profile=st.booleans(),
    search=st.booleans(),
    host_bytes=st.sampled_from([0, 64 * GIB]),
    failures=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 1)), max_size=1),
    stop_s=st.none() | st.floats(0, 40),
)
def test_every_job_ends_and_rests_between_its_moves(
    policy: str,
    jobs: list[tuple[float, float, bool, int, bool]],
    lanes: int,
    places: int,
    devices: int,
    profile: bool,
    search: bool,
    host_bytes: int,
    failures: list[tuple[float, int]],
    stop_s: float | None,
) -> None:
    """Each attempt here takes the whole length of its job again, so a job that moved for ever would never end.

    Policies that go by the time left would stop jobs of unknown lengths for each other all the time, with no end here.
    """
    named = {}
    for number, (arrival_s, length_s, movable, gpus, known) in enumerate(jobs):
        memory = None if profile else MemoryDemand(GIB)
        spec = JobSpec(f"j{number}", "ab"[number % 2], gpus, movable=movable and gpus == 1, memory=memory)
        tells = known or policy in ("srtf", "srsf")
        spec = replace(spec, service_s=length_s if tells else None, profiled=not profile)
        named[spec.name] = spec, ScriptedJob(arrival_s, ((length_s, Outcome.COMPLETED),), profile=MemoryDemand(GIB))
    config = Config(policy, lanes, places, profile=profile, search=search, host_bytes=host_bytes, displaces=True)
    machines = tuple(Device(f"d{number}", "here", 8 * GIB) for number in range(devices))
    failing = tuple((at_s, f"d{number}") for at_s, number in failures)
    driver = VirtualDriver(config, machines, named, stop_s, failing, advises=advice).run()
    assert all(state.ended for state in driver.states().values())
    if stop_s is None and not any(spec.gpus > 1 for spec, _ in named.values()):
        assert set(driver.states().values()) == {JobState.COMPLETED}
    last_s: dict[str, float] = {}
    for at_s, name in moves_of(driver.log):
        assert named[name][0].movable
        assert at_s - last_s.get(name, -1e9) >= REST * LEAST_COST_S
        last_s[name] = at_s


@contextmanager
def without_moves() -> Iterator[None]:
    with mock.patch.object(DeviceMoves, "walk", lambda *_: iter(())):
        yield


def last_end_s(policy: str, lanes: int, places: int, jobs: list[int]) -> tuple[float, list[tuple[float, str]]]:
    """Makespan (s) of jobs of so many iterations of 0.1 s on two devices, and the moves."""
    trace = made(
        [
            TraceJob(f"j{number}", "ab"[number % 2], 0.0, (Phase(iterations, 0.1),), memory=MemoryDemand(GIB))
            for number, iterations in enumerate(jobs)
        ]
    )
    config, gpu = Config(policy, lanes, places, displaces=True), GPUS["v100"]
    costs = replace(NO_COSTS, stop_s=STOP_S, restart_s=RESTART_S)
    done: Simulated = simulate(trace, Cluster(1, 2, gpu), config, World(gpu), costs)
    return max(each.finish_s for each in done.result.finished), list(moves_of(done.log))


@pytest.mark.nightly
@given(
    policy=st.sampled_from(["fair", "pack", "priority", "tiresias", "gittins", "energy", "jct", "makespan", "edp"]),
    lanes=st.integers(1, 3),
    places=st.sampled_from([1, 2, 4]),
    jobs=st.lists(st.integers(10, 600), min_size=3, max_size=6),
)
def test_moves_never_cost_more_than_their_stops_and_starts(
    policy: str, lanes: int, places: int, jobs: list[int]
) -> None:
    """The simulator shares turns as live lanes do, and slows jobs of other lanes."""
    with_s, moves = last_end_s(policy, lanes, places, jobs)
    with without_moves():
        without_s, none = last_end_s(policy, lanes, places, jobs)
    assert not none
    assert with_s <= without_s + len(moves) * (STOP_S + RESTART_S) + 0.1


@pytest.mark.parametrize(
    ("policy", "lanes", "places", "jobs"), [("fair", 1, 4, [600, 20, 600]), ("energy", 3, 1, [600, 20, 600, 600])]
)
def test_moves_shorten_the_run(policy: str, lanes: int, places: int, jobs: list[int]) -> None:
    """Long jobs share a device, and a short one has the other device for 2 s."""
    with_s, moves = last_end_s(policy, lanes, places, jobs)
    with without_moves():
        without_s, _ = last_end_s(policy, lanes, places, jobs)
    assert moves[0][0] == pytest.approx(2.0, abs=2.0)
    assert with_s < 0.95 * without_s
