"""Random jobs on random lanes of a device with one memory: no job lacks memory that it was promised, and all end.

The figure over 10,000 schedules is in docs/figures.md (`scripts/bench_memory.py`).
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ecoshare.core.commands import LimitMemory
from ecoshare.core.events import Config
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from tests.driver.memory_world import Load, MemoryWorld, drawn, short_stays

GIB = 1 << 30


@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["fifo", "srtf", "pack", "fair", "priority", "energy"]),
    lanes=st.integers(1, 3),
    jobs=st.integers(2, 8),
    gib=st.integers(8, 16),
    devices=st.integers(1, 2),
)
def test_no_job_lacks_memory_that_it_was_promised(
    seed: int, policy: str, lanes: int, jobs: int, gib: int, devices: int
) -> None:
    config = Config(policy, lanes, 4, enforces_memory=True)
    world = MemoryWorld(seed, config, gib * GIB, drawn(seed, gib * GIB, jobs), devices=devices).run()
    assert not world.failures
    assert world.states() == {JobState.COMPLETED}, "each job fits the device alone"
    assert world.most_bytes <= gib * GIB
    core = Scheduler()
    assert all(core.handle(event) == commands for event, commands in world.log), "it does not replay"


@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["fifo", "srtf", "pack", "fair", "priority", "energy"]),
    lanes=st.integers(1, 3),
    jobs=st.integers(2, 8),
    gib=st.integers(8, 24),
    parks=st.booleans(),
)
def test_no_job_lacks_memory_if_turns_are_cut_inside_iterations(
    seed: int, policy: str, lanes: int, jobs: int, gib: int, parks: bool
) -> None:
    """A job that was cut keeps the memory of its iteration, while caches come to be emptied, and jobs move and park."""
    config = Config(policy, lanes, 3, enforces_memory=True, host_bytes=16 * GIB if parks else 0)
    with short_stays():
        world = MemoryWorld(seed, config, gib * GIB, drawn(seed, gib * GIB, jobs), cut_share=0.6).run()
    assert not world.failures
    assert world.states() == {JobState.COMPLETED}
    assert world.most_bytes <= gib * GIB


def test_many_turns_of_these_worlds_are_cut_and_without_the_rule_jobs_lack_memory() -> None:
    """If this failed, the test above would show little."""
    config = Config("fair", 2, 4, enforces_memory=True)

    def worlds(without_memory: bool) -> list[MemoryWorld]:
        return [
            MemoryWorld(
                seed,
                config,
                14 * GIB,
                drawn(seed, 14 * GIB, 6),
                cut_share=0.6,
                cuts_without_memory=without_memory,
            ).run()
            for seed in range(20)
        ]

    kept = worlds(False)
    assert sum(world.cuts for world in kept) > 150 and not any(world.failures for world in kept)
    assert sum(1 for world in worlds(True) if world.failures) >= 3


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["fifo", "srtf", "pack", "fair", "priority", "energy"]),
    lanes=st.integers(1, 3),
    jobs=st.integers(1, 6),
    gib=st.integers(8, 24),
)
@example(seed=1, policy="srtf", lanes=1, jobs=3, gib=13)  # a higher limit was refused
def test_jobs_that_outgrow_their_profiles_go_on_while_memory_is_free(
    seed: int, policy: str, lanes: int, jobs: int, gib: int
) -> None:
    """Jobs of which a profile says too little. Their neighbours get what they were promised all the same."""
    config = Config(policy, lanes, 4, enforces_memory=True)
    world = MemoryWorld(seed, config, gib * GIB, drawn(seed, gib * GIB, jobs, growing=True)).run()
    assert not world.failures, "a neighbour lacks memory that it was promised"
    assert not world.hasty, "a job has ended while memory was free"
    assert max(world.restarts.values(), default=0) <= 2, "a job that outgrew its memory begins again once"
    assert world.states() == {JobState.COMPLETED}, "each job fits the device alone"
    core = Scheduler()
    assert all(core.handle(event) == commands for event, commands in world.log), "it does not replay"


@pytest.mark.nightly
def test_many_jobs_of_these_worlds_grow_to_a_multiple() -> None:
    """If this failed, the test above would show little."""
    config = Config("fair", 2, 4, enforces_memory=True)
    worlds = [MemoryWorld(seed, config, 16 * GIB, drawn(seed, 16 * GIB, 4, growing=True)).run() for seed in range(20)]
    raised = [
        each for world in worlds for _, commands in world.log for each in commands if isinstance(each, LimitMemory)
    ]
    assert len(raised) > 50 and sum(sum(world.restarts.values()) for world in worlds) < 20


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["srtf", "pack", "fair", "priority"]),
    lanes=st.integers(1, 3),
    places=st.integers(1, 3),
    jobs=st.integers(4, 8),
    gib=st.integers(8, 16),
)
def test_no_resumed_job_lacks_memory(seed: int, policy: str, lanes: int, places: int, jobs: int, gib: int) -> None:
    config = Config(policy, lanes, places, enforces_memory=True, host_bytes=16 * GIB)
    with short_stays():
        world = MemoryWorld(seed, config, gib * GIB, drawn(seed, gib * GIB, jobs)).run()
        core = Scheduler()
        assert all(core.handle(event) == commands for event, commands in world.log), "it does not replay"
    assert not world.failures
    assert world.states() == {JobState.COMPLETED}
    assert world.most_bytes <= gib * GIB


def test_many_jobs_of_these_worlds_are_parked() -> None:
    """If this failed, the test above would show little."""
    config = Config("fair", 1, 2, enforces_memory=True, host_bytes=16 * GIB)
    with short_stays():
        worlds = [MemoryWorld(seed, config, 10 * GIB, drawn(seed, 10 * GIB, 6)).run() for seed in range(10)]
    assert sum(world.parks for world in worlds) > 100


def test_without_emptied_caches_jobs_lack_memory() -> None:
    """If this failed, the test above could not fail."""
    worlds = (
        MemoryWorld(seed, Config("fair", 2, 4), 10 * GIB, drawn(seed, 10 * GIB, 6), obeys=False).run()
        for seed in range(40)
    )
    assert any(world.failures for world in worlds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_jobs_on_their_way_to_another_lane_take_no_more_than_there_is(seed: int) -> None:
    """Fails if jobs of a large T move beside jobs of a small one: two of them have a T each until both have arrived."""
    mib = 1 << 20

    def load(kept_gib: float, work_gib: float, iterations: int) -> Load:
        kept, work = (int(each * 1024) // 2 * 2 * mib for each in (kept_gib, work_gib))
        return Load(300 * mib, (kept - 300 * mib,), (work,) if work else (), iterations)

    loads = {"a": load(2.0, 6.2, 150), "z1": load(1.0, 0.1, 150), "b": load(2.0, 6.2, 150), "z2": load(1.0, 0.1, 150)}
    loads["j"] = load(1.6, 0.1, 20)
    world = MemoryWorld(seed, Config("fair", 2, 8, enforces_memory=True), 16 * GIB, loads).run()
    assert not world.failures and world.states() == {JobState.COMPLETED}
