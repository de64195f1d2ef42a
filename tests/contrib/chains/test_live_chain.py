"""Parts of a live chain that need no Slurm: its lock, its looks beside the run, and what a request changes."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.contrib.chains import chain_keeper, slurm_queue
from ecoshare.contrib.chains.allocation_chain import AllocationChain, AllocationEnd, ChainOutcome
from ecoshare.contrib.chains.chain_allocation import Looks, is_early
from ecoshare.contrib.chains.chain_folder import ChainFolder
from ecoshare.contrib.chains.chain_keeper import log_moment_s
from ecoshare.contrib.chains.new_chain import bounds, going_on
from ecoshare.errors import UnfitEnvironment, UsageError
from tests.contrib.chains.made_chains import chain, over, waits, works


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ChainFolder]:
    """Folder of a chain with a lock that is never released."""
    found = ChainFolder(tmp_path)
    found.write(chain(works(1, 5.0)))
    with (tmp_path / "chain.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield found


def ended(now: AllocationChain) -> AllocationChain:
    return replace(now, allocations=(over(1, 5.0, 50.0), *now.allocations[1:]))


def test_a_lock_is_awaited_for_a_while_only(folder: ChainFolder) -> None:
    with pytest.raises(UnfitEnvironment, match=r"another process holds .*chain.lock for 0.2 s"):
        folder.change(ended, within_s=0.2)
    assert folder.read().live


def test_an_end_is_recorded_while_a_look_is_stuck(folder: ChainFolder) -> None:
    """The look knows the record from before, and must not bring the allocation back to life."""
    stale = folder.read()
    assert not folder.end(ended, within_s=0.2).live
    folder.write(replace(stale, allocations=(*stale.allocations, waits(2))))
    assert [each.end for each in folder.read().allocations] == [AllocationEnd.STOPPED, None]


def test_a_look_that_is_stuck_holds_nothing_up() -> None:
    said, stuck = list[str](), threading.Event()
    looks = Looks(said.append)
    assert looks.join(0.0) and looks.start(stuck.wait)
    assert not looks.start(stuck.wait) and not looks.join(0.05)
    stuck.set()
    assert looks.join(5.0)

    def fails() -> None:
        raise OSError(116, "Stale file handle")

    assert looks.start(fails) and looks.join(5.0)
    assert said == ["[Errno 116] Stale file handle"]


def test_a_signal_long_before_the_limit_is_not_that_of_the_limit() -> None:
    assert is_early(980.0, 1000.0) and not is_early(996.0, 1000.0) and not is_early(None, 1000.0)


def test_a_chain_that_goes_on_keeps_allocations_that_live() -> None:
    before = chain(over(1, 0.0, 9.0), works(2, 9.0), over(3, 9.0, 10.0), outcome=ChainOutcome.FAILED, code=4)
    assert (going_on(before).past, going_on(before).outcome, going_on(before).code) == (1, None, None)
    assert going_on(replace(before, allocations=before.allocations[:1])).past == 1


def test_a_date_without_hyphens_is_no_number_of_allocations() -> None:
    assert bounds("10000", 0.0) == (10_000, None)
    with pytest.raises(UsageError, match="--until 20261201: expected at most 10000 allocations"):
        bounds("20261201", 0.0)


def test_the_log_is_read_again_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = ChainFolder(tmp_path), list[str]()

    def answer(partition: str) -> str:
        asked.append(partition)
        if len(asked) > 1:
            raise UnfitEnvironment("sacct does not answer")
        return "new"

    monkeypatch.setattr(slurm_queue, "log_text", answer)
    assert log_moment_s(found, "main") == 0.0 and not asked, "a cluster without a log"
    found.log.write_text("old")
    assert log_moment_s(found, "main") > 0.0 and not asked
    old_s = time.time() - 2.0 * chain_keeper.LOG_AGE_S
    os.utime(found.log, (old_s, old_s))
    assert log_moment_s(found, "main") > old_s and found.log.read_text() == "new"
    os.utime(found.log, (old_s, old_s))
    assert log_moment_s(found, "main") == old_s and log_moment_s(found, "main") > old_s, "not asked at each look"
    assert len(asked) == 2 and found.log.read_text() == "new"


@pytest.mark.parametrize(("says", "known"), [("Invalid job id specified", True), ("Socket timed out", False)])
def test_silence_of_slurm_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, known: bool) -> None:
    """A job that Slurm cannot tell about for now must not count as lost."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho 'scontrol: error: {says}' >&2; exit 1\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with nullcontext() if known else pytest.raises(UnfitEnvironment, match=says):
        assert slurm_queue.job_facts(10) == {}
