"""Ranks of gangs take turns together, with real processes: they agree on the iteration, and no two gangs block."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from ecoshare.lane import gang_turn
from ecoshare.lane.gang_turn import UNEVEN, GangTurn
from ecoshare.lane.tables.gang_table import GangTable, RankState
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_SLOT
from ecoshare.lane.turn import LaneTurn
from tests.lane.forked import ForkedJobs, meet, succeed
from tests.warm import wait_for

STEPS = 150
SHORT_S = 0.0005
AHEAD = 12
"""Most iterations that a rank is ahead of the slowest one."""


class Lanes:
    """Lanes with jobs and gangs, each in processes of its own.

    Attributes:
        meet: Lanes in which nothing goes on before one waits for another.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.tables = [LaneTable.create(folder / f"lane{number}") for number in range(count)]
        self.jobs = ForkedJobs()
        self._used = [0] * count
        self.meet: Collection[int] = ()

    def _take(self, turn: LaneTurn, lane: int, table: LaneTable) -> None:
        turn.take()
        if lane in self.meet:
            meet(table)

    def _seat(self, lane: int) -> int:
        slot = self._used[lane]
        self._used[lane] += 1
        self.tables[lane].seat(slot)
        self.tables[lane].claim({slot: (0, 1.0)})
        return slot

    def single(self, lane: int, steps: int = STEPS) -> int:
        """Job of one process in a lane."""
        slot = self._seat(lane)

        def run() -> None:
            table = LaneTable(self.tables[lane].path)
            turn = LaneTurn(table, slot)
            self._take(turn, lane, table)
            for _ in range(steps):
                time.sleep(SHORT_S)
                turn.count(evaluating=False)
                table.header.quantum_s = 0.004
                turn.offer(lambda: None)
            turn.leave()

        return self.jobs.start(run)

    def gang(
        self,
        name: str,
        lanes: list[int],
        steps: Callable[[int], int] = lambda _rank: STEPS,
        ahead: int = AHEAD,
        after: Callable[[int, int, GangTable], None] = lambda _rank, _step, _table: None,
    ) -> tuple[GangTable, list[int]]:
        """Gang with a rank in each lane; `NAME-RANK.json` gets the iterations after which it handed over.

        Args:
            steps: Number of iterations of a rank.
            ahead: Most iterations that a rank may be ahead of the slowest: a host runs ahead of its collectives.
            after: Called by a rank after each iteration.
        """
        table = GangTable.create(self.folder / name, len(lanes))
        places = [(self.tables[lane].path, self._seat(lane)) for lane in lanes]

        def run(rank: int) -> None:
            own, (path, slot), said = GangTable(self.folder / name), places[rank], list[str]()
            lane = LaneTable(path)
            gang = GangTurn(own, rank, places, said.append)
            turn = LaneTurn(lane, slot, gang=gang)
            draw, handed = random.Random(rank), list[int]()
            self._take(turn, lanes[rank], lane)
            for step in range(1, steps(rank) + 1):
                time.sleep(SHORT_S * draw.uniform(0.2, 2.0))
                _keep_in_step(own, step, ahead)
                turn.count(evaluating=False)
                lane.header.quantum_s = 0.004
                before = own.header.releases
                gang.boundary(turn, lambda: None)
                if own.header.releases != before and not own.keeps:
                    handed.append(step)
                after(rank, step, own)
            turn.leave()
            gang.leave()
            (self.folder / f"{name}-{rank}.json").write_text(json.dumps([handed, said]))

        return table, [self.jobs.start(lambda rank=rank: run(rank)) for rank in range(len(lanes))]  # type: ignore[misc]

    def handed(self, name: str, ranks: int) -> list[list[int]]:
        """Iterations after which each rank handed over. In its last ones it may be alone: others were ahead."""
        found = [json.loads((self.folder / f"{name}-{rank}.json").read_text())[0] for rank in range(ranks)]
        return [[step for step in steps if step < STEPS - AHEAD] for steps in found]


def _keep_in_step(table: GangTable, step: int, ahead: int) -> None:
    """Wait as a collective does: for the slowest rank that goes on, but for those that this host may run ahead."""
    while True:
        others = [each.count for each in table.ranks if each.state != RankState.LEFT]
        if step <= min(others, default=step) + ahead:
            return
        time.sleep(0.0001)


@pytest.fixture
def lanes(tmp_path: Path) -> Callable[[int], Lanes]:
    return lambda count: Lanes(tmp_path, count)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "ahead"), [(2, 1), (2, 12), (4, 6)])
def test_all_ranks_hand_over_after_the_same_iteration(lanes: Callable[[int], Lanes], ranks: int, ahead: int) -> None:
    """A pause at each rank's own next boundary left one rank waiting for its turn and another in a collective."""
    machine = lanes(ranks)
    machine.meet = range(ranks)
    table, pids = machine.gang("gang", list(range(ranks)), ahead=ahead)
    others = [machine.single(lane) for lane in range(ranks)]
    succeed(*pids, *others)
    first, *rest = machine.handed("gang", ranks)
    assert len(first) > 3 and all(each == first for each in rest)
    assert not table.keeps
    assert all(each.header.holder == NO_SLOT for each in machine.tables)


@pytest.mark.slow
def test_gangs_that_share_lanes_never_wait_for_each_other(lanes: Callable[[int], Lanes]) -> None:
    """Three lanes, and gangs on each pair of them: if two held one lane each, no job would ever go on."""
    machine = lanes(3)
    machine.meet = range(3)
    pids: list[int] = []
    for name, pair in (("a", [0, 1]), ("b", [1, 2]), ("c", [0, 2])):
        pids += machine.gang(name, pair)[1]
    succeed(*pids, *(machine.single(lane) for lane in range(3)))
    for name in "abc":
        first, second = machine.handed(name, 2)
        assert first == second and first


def test_without_other_jobs_a_gang_never_hands_over(lanes: Callable[[int], Lanes]) -> None:
    machine = lanes(2)
    table, pids = machine.gang("gang", [0, 1])
    succeed(*pids)
    assert machine.handed("gang", 2) == [[], []] and table.header.releases == 0
    assert [each.count for each in table.ranks] == [STEPS, STEPS]


@pytest.mark.slow
def test_a_rank_that_ends_early_is_not_waited_for(lanes: Callable[[int], Lanes]) -> None:
    machine = lanes(2)
    machine.meet = {1}
    table, pids = machine.gang("gang", [0, 1], steps=lambda rank: (40, 200)[rank])
    succeed(*pids, machine.single(1, 300))
    first, second = machine.handed("gang", 2)
    # The second rank may be a few steps behind when the first one ends, and hands over there alone.
    assert first == second[: len(first)] and second[-1] > 40
    assert not table.keeps


@pytest.mark.nightly
def test_ranks_that_do_not_get_there_together_keep_their_lanes(
    lanes: Callable[[int], Lanes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second rank does something else for very long. The first tries three times, and then goes on for good."""
    monkeypatch.setattr(gang_turn, "_TOGETHER_WITHIN_S", 0.05)
    machine = lanes(2)
    machine.meet = {0}

    def after(rank: int, step: int, own: GangTable) -> None:
        if (rank, step) == (1, 3):
            wait_for(lambda: own.keeps)

    table, pids = machine.gang("gang", [0, 1], ahead=STEPS, after=after)
    succeed(*pids, machine.single(0))
    assert table.keeps
    said = [json.loads((tmp_path / f"gang-{rank}.json").read_text())[1] for rank in (0, 1)]
    assert [UNEVEN] in said


def test_a_proposal_lies_beyond_every_rank(tmp_path: Path) -> None:
    table = GangTable.create(tmp_path / "gang", 3)
    for rank, count in enumerate((7, 9, 4)):
        table.ranks[rank].count = count
    assert table.propose() == table.propose() == 11
    table.ranks[1].count = 99
    assert table.propose() == 11, "there is one target until all have handed over"
    table.leave(1)
    assert (table.park(0), table.header.releases) == (0, 0)
    assert (table.park(2), table.header.releases, table.header.target) == (0, 1, 0)
    assert table.retreat(before=0) is False, "they have handed over meanwhile"
    table.keep()
    assert table.propose() == 0 and table.park(0) is None


def test_a_gang_keeps_its_lanes_after_some_failures_in_a_row(tmp_path: Path) -> None:
    """Before, one long checkpoint of one rank was enough."""
    table = GangTable.create(tmp_path / "gang", 2)
    for failed in (False, False, True):
        assert table.propose() == 2 and table.park(0) == table.header.releases
        assert table.retreat(before=table.header.releases) is failed
        assert table.ranks[0].state == RankState.RUNNING and not table.header.target
    assert table.keeps
    table = GangTable.create(tmp_path / "other", 2)
    for _ in range(5):
        table.propose()
        table.park(0)
        table.retreat(before=table.header.releases)
        table.propose()
        table.park(0)
        table.park(1)
    assert not table.keeps and table.header.releases == 5


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gang").write_bytes(bytes(os.sysconf("SC_PAGE_SIZE")))
    with pytest.raises(ValueError, match="is not a gang table of this version"):
        GangTable(tmp_path / "gang")
    with pytest.raises(OSError, match="a gang has 64 ranks at most"):
        GangTable.create(tmp_path / "other", 65)
