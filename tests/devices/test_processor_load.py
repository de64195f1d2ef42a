"""Load of other programs on the processors, from /proc/stat; only a load that matters is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ecoshare.devices.processor_load import QUIET, LoadWatch, OtherLoad, ProcessorTimes


@pytest.fixture(autouse=True)
def _looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(QUIET)


@pytest.fixture
def busy_loops() -> Iterator[None]:
    """One program for each processor, which keeps it busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_totals_grow_with_time_and_count_the_processors_that_may_be_used() -> None:
    before = ProcessorTimes.now()
    time.sleep(0.3)
    after = ProcessorTimes.now()
    assert before is not None and after is not None
    assert before.processors == after.processors == len(os.sched_getaffinity(0))
    wall_s = (after.busy_s + after.idle_s - before.busy_s - before.idle_s) / after.processors
    assert wall_s == pytest.approx(0.3, rel=0.5), "each processor is busy or idle all of the time"


@pytest.mark.usefixtures("busy_loops")
def test_programs_that_leave_no_processor_idle_are_noticed() -> None:
    watch = LoadWatch.begin()
    time.sleep(0.5)
    words = watch.words()
    assert words.startswith("other programs keep ") and f"of {len(os.sched_getaffinity(0))} processors busy" in words


def test_the_own_work_is_not_that_of_other_programs() -> None:
    before = ProcessorTimes(100.0, 100.0, 2)
    alone = ProcessorTimes(102.0, 102.0, 2).others_since(before, own_s=2.0)
    assert alone is not None and not alone.disturbs and alone.busy == 0.0
    beside = ProcessorTimes(103.9, 100.1, 2).others_since(before, own_s=2.0)
    assert beside is not None and beside.disturbs
    assert beside.busy == pytest.approx(0.95) and beside.idle == pytest.approx(0.05)
    assert ProcessorTimes(100.02, 100.02, 2).others_since(before, 0.0) is None, "two ticks tell nothing"


@pytest.mark.parametrize(
    ("load", "disturbs"),
    [
        (OtherLoad(0.2, 0.1, 2), False),
        (OtherLoad(1.0, 0.0, 2), True),
        (OtherLoad(1.0, 0.9, 2), False),
        (OtherLoad(40.0, 20.0, 64), False),
        (OtherLoad(40.0, 2.0, 64), True),
    ],
)
def test_a_load_matters_where_it_is_more_than_a_little_and_little_is_left(load: OtherLoad, disturbs: bool) -> None:
    assert load.disturbs is disturbs


def test_a_user_may_say_that_the_machine_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the totals may be those of a larger host."""
    monkeypatch.setenv(QUIET, "1")
    assert ProcessorTimes.now() is None and LoadWatch.begin().words() == ""
