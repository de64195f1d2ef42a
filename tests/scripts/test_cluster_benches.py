"""Benchmarks of runs on several nodes: the faults that they see, and how their jobs tell of them."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.bench import cluster_kills
from scripts.bench.benchmarking import JOBS
from scripts.bench.cluster_kills import ClusterRound, Rounds

GOOD = ClusterRound(hits=["run", "raylet", "agent"], left_s=0.1)


def test_each_fault_of_a_round_misses_a_bound() -> None:
    assert all(each.met in (True, None) for each in cluster_kills.figures([GOOD], 1.0))
    faults = [
        replace(GOOD, survived="a process stays"),
        replace(GOOD, lost=["j0"]),
        replace(GOOD, twice=["j0"]),
        replace(GOOD, differ=["j0"]),
        replace(GOOD, fault="hangs: for ever"),
    ]
    for fault in faults:
        assert not fault.is_good
        missed = [each.name for each in cluster_kills.figures([GOOD, fault], 1.0) if each.met is False]
        assert len(missed) == 2 and "rounds with a broken promise" in missed
    late = replace(GOOD, left_s=6.0)
    assert [each.met for each in cluster_kills.figures([GOOD, late], 1.0)].count(False) == 1


def test_rounds_go_on_until_each_process_was_hit_often_enough() -> None:
    plan, played = Rounds(2, 0), 0
    while (what := plan.next()) is not None:
        _, sessions = what
        hits = [role for roles in sessions for role in roles]
        plan.over(ClusterRound(hits=hits if played else []))  # the run of the first round was too short
        played += 1
    hits = [role for one in plan.rounds for role in one.hits]
    assert all(hits.count(role) >= 2 for role in ("raylet", "actor", "agent", "run"))
    assert played < 8
    assert Rounds(2, 0, within_s=-1.0).next() is None


@pytest.mark.nightly
def test_a_job_tells_that_another_attempt_of_it_runs(tmp_path: Path) -> None:
    """If it failed, the kills would not see two owners of a job."""
    words = [sys.executable, str(JOBS / "lone_job.py"), str(told := tmp_path / "told"), "1", "0"]
    subprocess.run(words, check=True, capture_output=True)
    assert told.read_text() == "done\n"
    with told.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        subprocess.run(words, check=True, capture_output=True)
    assert told.read_text() == "done\nbeside another\ndone\n"
