"""Benchmarks of several devices: the kills that they make, and the figures that they give for faults."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from scripts.bench import kills
from scripts.bench.eight import most_at_once
from scripts.bench.kills import ROLES, Bench, Kill


def test_each_fault_of_a_kill_misses_a_bound() -> None:
    good = Kill(role="guard", left_s=0.1)
    assert all(each.met in (True, None) for each in kills.figures([good], 1.0))
    faults = [
        Kill(role="guard", survived="a process stays"),
        Kill(role="guard", lost=["left"]),
        Kill(role="guard", differ=["left"]),
        Kill(role="guard", fault="hangs: for ever"),
        Kill(role="guard", left_s=6.0),
    ]
    for fault in faults:
        assert [each.met for each in kills.figures([good, fault], 1.0)].count(False) == 1
    assert not any(each.is_good for each in faults[:4])


def test_jobs_alive_at_once() -> None:
    spans = [(0.0, 2.0), (1.0, 3.0), (1.5, 1.7), (2.0, 4.0)]
    assert most_at_once([{"start_s": start, "finish_s": finish} for start, finish in spans]) == 3
    assert most_at_once([]) == 0


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_a_kill_finds_its_process_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("profiles", "state"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(f"ECOSHARE_{name.upper()}", str(tmp_path / name))
    bench = Bench(tmp_path)
    bench.learn()
    assert set(bench.alone) == {"gang", "gang, rank 1", "left", "right"} and all(bench.alone.values())
    assert bench.alone["gang"] != bench.alone["gang, rank 1"]
    made = [bench.kill(number) for number in (0, 4)]
    assert all(one.is_good for one in made), made
    assert {one.role for one in made} <= {"", ROLES[0], ROLES[4]} and any(one.role for one in made)


def test_a_claim_that_is_held_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path))
    token = f"test-{os.getpid()}"
    (tmp_path / "ecoshare-cpu.free.run").touch()
    assert kills.still_there(token) == ""
    with (tmp_path / "ecoshare-cpu.held.run").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kills.still_there(token) == "a claim stays: ['ecoshare-cpu.held.run']"
