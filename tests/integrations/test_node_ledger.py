"""The ledger of a node's devices: order of admission, and the places of dead trials."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.memory import promised
from ecoshare.errors import UnfitEnvironment
from ecoshare.integrations.ray.node_ledger import NodeLedger, TrialPlace, Wish
from ecoshare.lane.tables.table_layout import NO_SLOT
from ecoshare.lane.turn import LaneTurn

UNIT, BUDGET = 16 << 20, 1000
"""Unit (bytes) of the demands of these tests, and the budget of a lane in this unit."""


def units(*demand: int) -> MemoryDemand:
    return MemoryDemand(*(each * UNIT for each in demand))


def wish(*demand: int, kind: str = "train", devices: tuple[str, ...] = ("cpu",), most: int | None = None) -> Wish:
    return Wish(kind, {each: lambda: BUDGET * UNIT for each in devices}, units(*demand) if demand else None, most)


def enter(ledger: NodeLedger, wanted: Wish) -> TrialPlace:
    place = ledger.enter(ledger.queue(), wanted)
    assert place is not None
    return place


@pytest.mark.nightly
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 700), st.integers(0, 500), st.booleans())))
def test_no_lane_is_ever_over_committed(steps: list[tuple[str, int, int, bool]]) -> None:
    """Each step admits a trial, if possible, or ends the oldest one."""
    with tempfile.TemporaryDirectory() as folder:
        ledger, inside = NodeLedger(Path(folder, "ledger")), []
        for kind, persistent, ephemeral, comes in steps:
            if comes and persistent + ephemeral <= BUDGET:
                number = ledger.queue()
                place = ledger.enter(number, wish(persistent, ephemeral, kind=kind, devices=("cpu", "GPU-1")))
                if place is not None:
                    inside.append((place, persistent, ephemeral))
                ledger.withdraw(number)
            elif inside:
                ledger.leave(inside.pop(0)[0])
            for device in ("cpu", "GPU-1"):
                there = [(kept, more) for place, kept, more in inside if place.device == device]
                assert sum(kept for kept, _ in there) + max((more for _, more in there), default=0) <= BUDGET
            assert len({(place.device, place.slot) for place, *_ in inside}) == len(inside)


def test_a_trial_goes_where_fewest_are(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path / "ledger")
    taken = [enter(ledger, wish(100, devices=("GPU-1", "GPU-2"))).device for _ in range(4)]
    assert sorted(taken) == ["GPU-1", "GPU-1", "GPU-2", "GPU-2"]


def test_the_first_of_a_kind_is_alone_until_it_is_measured(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path / "ledger")
    first = enter(ledger, wish())
    second = ledger.queue()
    assert not first.measured
    assert ledger.enter(second, wish()) is None
    ledger.update(first, units(300, 200))
    place = ledger.enter(second, wish())
    assert place is not None
    assert place.measured
    assert place.demand == promised(units(300, 200), BUDGET * UNIT)
    assert ledger.enter(ledger.queue(), wish()) is None, (
        "three of 300 and one of 325, with its allowance, do not fit into 1000"
    )


def test_one_that_grows_keeps_others_out(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path / "ledger")
    grown = enter(ledger, wish(100))
    ledger.update(grown, units(950))
    assert ledger.enter(ledger.queue(), wish(100)) is None


def test_a_kind_that_was_seen_to_need_more_than_there_is_still_runs_alone(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path / "ledger")
    first = enter(ledger, wish())
    ledger.update(first, units(2 * BUDGET))
    ledger.leave(first)
    assert enter(ledger, wish()).demand.peak_bytes == BUDGET * UNIT


def test_no_trial_overtakes_another(tmp_path: Path) -> None:
    """Else small trials that keep arriving would keep a large one out for ever."""
    ledger = NodeLedger(tmp_path / "ledger")
    small = enter(ledger, wish(600))
    large, late = ledger.queue(), ledger.queue()
    assert ledger.enter(large, wish(900)) is None
    assert ledger.enter(late, wish(100)) is None
    ledger.withdraw(large)
    assert ledger.enter(late, wish(100)) is not None
    ledger.leave(small)


def test_what_never_fits_is_refused_in_one_line(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path / "ledger")
    with pytest.raises(UnfitEnvironment, match=r"^a trial needs 31.2 GiB of memory, .* 15.6 GiB of cpu$"):
        ledger.enter(ledger.queue(), wish(2 * BUDGET))


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UnfitEnvironment, match="which others may write"):
        NodeLedger(folder)


HOLDER = """
import sys, time
from pathlib import Path
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.integrations.ray.node_ledger import NodeLedger, Wish
from ecoshare.lane.turn import LaneTurn
ledger = NodeLedger(Path(sys.argv[1]))
place = ledger.enter(ledger.queue(), Wish("train", {"cpu": lambda: 1000 << 24}, MemoryDemand(700 << 24)))
LaneTurn(place.table, place.slot).take()
ledger.queue()
print("holds", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_the_dead_lose_turn_memory_and_their_place_in_the_queue(tmp_path: Path) -> None:
    """A killed worker must keep no other trial from the device."""
    folder = tmp_path / "ledger"
    ledger = NodeLedger(folder)
    mine = enter(ledger, wish(100))
    other = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "holds\n"
    table = mine.table
    assert table.header.holder not in (NO_SLOT, mine.slot)
    ledger.look(mine)
    assert table.header.holder not in (NO_SLOT, mine.slot), "it lives"
    later = ledger.queue()
    assert ledger.enter(later, wish(700)) is None
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped: a zombie has nothing
    ledger.look(mine)
    assert table.header.holder == NO_SLOT
    LaneTurn(table, mine.slot).take()
    assert ledger.enter(later, wish(700)) is not None
    other.communicate()
