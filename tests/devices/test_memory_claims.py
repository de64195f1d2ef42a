"""Runs divide the memory of a GPU by claims in their files, which never exceed it, though runs come, die and lie."""

from __future__ import annotations

import fcntl
import os
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.core.slices import MemoryWish
from ecoshare.devices.control.state_folder import StateFolder, open_lock
from ecoshare.devices.occupancy import DeviceAdmission, MemoryClaim, Occupancy, occupied
from tests.virtual.run import gpu

GIB = 1 << 30
GPU = replace(gpu(), memory_bytes=40 * GIB, total_bytes=48 * GIB)
KEY = str(GPU.uuid or GPU.name)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    return StateFolder.of_this_user()


def run(state: StateFolder) -> tuple[Occupancy, MemoryClaim]:
    occupancy = Occupancy((GPU,), state, takes_turns=True)
    return occupancy, occupancy.claims[GPU.name]


def test_a_claim_grows_by_what_no_other_run_claims(state: StateFolder) -> None:
    (first, one), (second, two) = run(state), run(state)
    one.tell(30 * GIB, MemoryWish(35 * GIB))
    two.tell(30 * GIB, MemoryWish(30 * GIB, 20 * GIB, 7.0))
    assert (one.claimed_bytes, two.claimed_bytes) == (30 * GIB, 10 * GIB)
    (seen,) = one.others()
    assert seen.claimed_bytes == 10 * GIB and seen.wish == MemoryWish(30 * GIB, 20 * GIB, 7.0, os.getpid())
    one.tell(12 * GIB, MemoryWish(12 * GIB))
    two.tell(30 * GIB, MemoryWish(30 * GIB))
    assert two.claimed_bytes == 28 * GIB
    first.end()
    two.tell(40 * GIB, MemoryWish(40 * GIB))
    assert two.claimed_bytes == 40 * GIB and not two.others()
    second.end()


def test_many_runs_that_claim_at_once_never_exceed_the_memory(state: StateFolder) -> None:
    """Each writes only its own file; the lock is between them."""
    claims = [run(state)[1] for _ in range(4)]
    sums = list[int]()

    def play(number: int) -> None:
        draw = random.Random(number)
        for _ in range(300):
            claims[number].tell(draw.randrange(40 * GIB), MemoryWish(draw.randrange(40 * GIB)))
            lock = open_lock(state.claims(KEY))
            fcntl.flock(lock, fcntl.LOCK_EX)
            others_bytes = sum(each.claimed_bytes for each in claims[number].others())
            sums.append(claims[number].claimed_bytes + others_bytes)
            os.close(lock)

    threads = [threading.Thread(target=play, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(sums) == 4 * 300 and 20 * GIB < max(sums) <= 40 * GIB


def test_a_run_that_cannot_lock_keeps_its_claim(state: StateFolder) -> None:
    _, claim = run(state)
    lock = open_lock(state.claims(KEY))
    fcntl.flock(lock, fcntl.LOCK_EX)
    claim.tell(GIB, MemoryWish(GIB))
    assert claim.claimed_bytes == 0
    os.close(lock)
    claim.tell(GIB, MemoryWish(GIB))
    assert claim.claimed_bytes == GIB


@pytest.mark.parametrize(
    ("told", "may_have"),
    [
        (b'{"pid": 7, "run": "x", "processors": [], "takes_turns": true, "claimed_bytes": 10737418240}', 30 * GIB),
        (b'{"pid": 7, "run": "x", "processors": [], "takes_turns": true, "claimed_bytes": 1e300}', 0),
        (b'{"pid": 7, "run": "x", "processors": [], "takes_turns": true, "claimed_bytes": -1}', 0),
        (b'{"pid": 7, "run": "x", "processors": [], "claimed_bytes": 1125899906842624}', 0),
    ],
)
def test_claims_of_another_user_are_numbers_in_their_bounds(state: StateFolder, told: bytes, may_have: int) -> None:
    """One that lies can keep the memory from others, as it could by taking it. It cannot make them exceed it."""
    _, claim = run(state)
    path = state.place(KEY, "0123")
    path.write_bytes(told)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        claim.tell(40 * GIB, MemoryWish(40 * GIB))
    assert claim.claimed_bytes == may_have


def test_the_second_run_plans_with_the_memory_of_all_runs() -> None:
    """Less is free by then, since the first run has a part of it. The driver's total bounds what is believed."""
    notes: list[str] = []
    with occupied(lambda: (GPU,), DeviceAdmission.TURNS, notes.append, takes_turns=True) as first:
        first.tell(Path("/somewhere/runs/first"))
        free = replace(GPU, memory_bytes=9 * GIB)
        with occupied(lambda: (free,), DeviceAdmission.TURNS, notes.append, takes_turns=True) as second:
            assert second.devices[0].memory_bytes == 40 * GIB
            assert second.turns == [KEY] and second.claims[GPU.name].memory_bytes == 40 * GIB
        small = replace(GPU, memory_bytes=9 * GIB, total_bytes=24 * GIB)
        with occupied(lambda: (small,), DeviceAdmission.TURNS, notes.append, takes_turns=True) as third:
            assert third.devices[0].memory_bytes == 24 * GIB
    assert notes[0].startswith(f"takes turns on {GPU.name} with the run /somewhere/runs/first")


def test_the_rest_of_a_gpu_is_what_the_first_run_saw(state: StateFolder) -> None:
    (_, one), (_, two) = run(state), run(state)
    assert one.idle_w(31.0) == 31.0
    assert two.idle_w(240.0) == 31.0, "the first run works by now"


def test_a_gpu_for_one_process_is_had_alone() -> None:
    exclusive = replace(GPU, compute_mode="exclusive_process")
    with occupied(lambda: (exclusive,), DeviceAdmission.TURNS, print, takes_turns=True) as occupancy:
        assert not occupancy.turns and not occupancy.claims
