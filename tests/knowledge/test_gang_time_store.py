"""Times of gangs on one machine and over several."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.knowledge.calibration_store import MOST_TIMES, IterationTime
from ecoshare.knowledge.gang_time_store import GangTimeStore


def time(seconds: float, run: str = "r") -> IterationTime:
    return IterationTime(seconds=seconds, iterations=100, run=run)


def test_slowdowns_are_ratios_of_medians(tmp_path: Path) -> None:
    store = GangTimeStore(tmp_path)
    assert store.find("ddp-1") is None
    for run, seconds in (("a", 0.1), ("b", 0.9), ("c", 0.1)):
        store.add("ddp-1", 1, time(seconds, run))
    store.add("ddp-1", 2, time(0.15))
    store.add("ddp-1", 4, time(0.3))
    found = GangTimeStore(tmp_path).find("ddp-1")
    assert found is not None and found.slowdowns == pytest.approx({2: 1.5, 4: 3.0})
    assert store.forget("ddp-1") == 5 and store.find("ddp-1") is None and store.forget("ddp-1") == 0


def test_without_a_time_on_one_machine_nothing_is_known(tmp_path: Path) -> None:
    store = GangTimeStore(tmp_path)
    store.add("ddp-1", 2, time(0.15))
    found = store.find("ddp-1")
    assert found is not None and found.slowdowns == {}


def test_a_run_counts_once_and_few_runs_are_kept(tmp_path: Path) -> None:
    store = GangTimeStore(tmp_path)
    for number in range(2 * MOST_TIMES):
        store.add("ddp-1", 2, time(1.0 + number, f"r{number}"))
        store.add("ddp-1", 2, time(2.0 + number, f"r{number}"))
    found = store.find("ddp-1")
    assert found is not None
    (over,) = found.over
    assert [each.seconds for each in over.times] == [2.0 + number for number in range(MOST_TIMES, 2 * MOST_TIMES)]


def test_a_damaged_file_is_set_aside_and_told(tmp_path: Path) -> None:
    store = GangTimeStore(tmp_path)
    store.add("ddp-1", 1, time(0.1))
    (tmp_path / "gangs" / "ddp-1.json").write_text("{")
    assert store.find("ddp-1") is None and len(store.notes) == 1
    with pytest.raises(ValueError, match="not the name of a class"):
        store.add("../ddp", 1, time(0.1))
