"""Real agents and remote nodes in virtual time: machines that hang or are cut off for a while, servers that die."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.commands import OpenLane
from tests.virtual.lanes import Fate
from tests.virtual.nodes import LEASE_S, TIMEOUT_S, ClusterWorld, Cut
from tests.virtual.run import check, check_spans, entries, run, states


def test_jobs_run_on_all_nodes(tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, devices=2)
    finished = run(world, [{"name": name} for name in "abcd"], policy="fair")
    check(finished)
    assert set(states(finished).values()) == {"completed"}
    assert sorted(job for job, _ in world.completed) == list("abcd")
    assert len(world._servers) == 2, "the server that has told its torch serves the run"


@pytest.mark.slow
def test_jobs_of_a_node_that_hangs_go_on_elsewhere_after_its_lease(tmp_path: Path) -> None:
    """The agent ends them by itself. If they began elsewhere before, each would run twice at once."""
    endless = {(name, 1): Fate(iterations=10**6) for name in "ab"}
    world = ClusterWorld(tmp_path, endless, devices=2, cuts=[Cut(1, 1010.0, 9e9)], stops_s=(1080.0,))
    finished = run(world, [{"name": name} for name in "ab"], policy="fair")
    check(finished)
    check_spans(world)
    moved = [span for span in world.spans if span.from_s > 1010.0]
    assert len(moved) == 1, "the job of the lost node begins once more"
    assert moved[0].from_s > 1010.0 + TIMEOUT_S + LEASE_S, "its agent may have heard of the run until the loss"
    (before,) = [span for span in world.spans if span.job == moved[0].job and span is not moved[0]]
    assert before.to_s == pytest.approx(1010.0 + LEASE_S, abs=2.0), "the agent has ended it"


def test_a_short_cut_costs_no_node(tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, devices=2, cuts=[Cut(1, 1003.0, 1003.5)])
    finished = run(world, [{"name": name} for name in "ab"])
    assert set(states(finished).values()) == {"completed"}


def test_a_machine_that_comes_takes_jobs(tmp_path: Path) -> None:
    fates = {(name, 1): Fate(iterations=100) for name in "abcd"}
    world = ClusterWorld(tmp_path, fates, devices=1, comes_s=[1005.0])
    finished = run(world, [{"name": name} for name in "abcd"], lanes=1, jobs_per_lane=1)
    check(finished)
    check_spans(world)
    assert world.joined == ["n1/cuda:0"]
    assert set(states(finished).values()) == {"completed"}
    assert {each.device for each in entries(finished.folder.path) if isinstance(each, OpenLane)} == {
        "n0/cuda:0",
        "n1/cuda:0",
    }


@pytest.mark.slow
@given(
    nodes=st.integers(1, 3),
    jobs=st.integers(1, 6),
    iterations=st.integers(1, 80),
    comes=st.lists(st.floats(1000.5, 1030.0), max_size=2),
    cuts=st.lists(st.tuples(st.integers(1, 4), st.floats(1000.0, 1040.0), st.floats(0.1, 60.0)), max_size=3),
    deaths=st.lists(st.floats(1001.0, 1040.0), max_size=2),
    policy=st.sampled_from(["fifo", "fair", "srtf"]),
)
def test_no_job_runs_twice_at_once_or_is_lost(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: int,
    jobs: int,
    iterations: int,
    comes: list[float],
    cuts: list[tuple[int, float, float]],
    deaths: list[float],
    policy: str,
) -> None:
    """One node is always reached, so all jobs complete there at last. Machines that come may be cut off, too."""
    fates = {(f"j{job}", attempt): Fate(iterations=iterations) for job in range(jobs) for attempt in range(1, 9)}
    world = ClusterWorld(
        tmp_path_factory.mktemp("world"),
        fates,
        devices=nodes,
        comes_s=comes,
        cuts=[Cut(node, from_s, from_s + for_s) for node, from_s, for_s in cuts],
        server_dies_s=deaths,
    )
    finished = run(world, [{"name": f"j{job}"} for job in range(jobs)], policy=policy)
    check(finished)
    check_spans(world)
    assert set(states(finished).values()) == {"completed"}
    assert {job for job, _ in world.completed} == {f"j{job}" for job in range(jobs)}
    assert max(Counter(world.completed).values()) == 1
