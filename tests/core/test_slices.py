"""Slices of runs that share devices, in virtual time: shares, waits, and members that do not answer."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.slices import (
    ANSWERS_WITHIN_S,
    ENDS_WITHIN_S,
    SLICE_S,
    Member,
    MemberState,
    SliceTable,
)

DRAINS_S = 0.02


@dataclass
class Run:
    """Run in virtual time.

    Attributes:
        work_s: Device time (s) that is left of its work; infinity for a run without an end.
        dies_s: Time (s) at which it is gone.
        hangs_s: Time (s) from which it does not answer; what it does by then goes on.
        held_s: Time (s) for which it had a slice.
        longest_wait_s: Longest wait (s) for one.
    """

    name: str
    user: int
    devices: tuple[str, ...] = ("gpu",)
    comes_s: float = 0.0
    work_s: float = math.inf
    dies_s: float = math.inf
    hangs_s: float = math.inf
    held_s: float = 0.0
    longest_wait_s: float = 0.0
    waits_from_s: float = 0.0
    began_s: float | None = None
    finished_s: float = math.inf


@dataclass
class World:
    """Runs that share devices under one table.

    Attributes:
        together: Times (s) for which two members that answer ran on one device.
    """

    runs: Sequence[Run]
    seed: int = 0
    drains_s: float = DRAINS_S
    table: SliceTable = field(default_factory=SliceTable)
    together: list[float] = field(default_factory=list)

    def play(self, until_s: float) -> World:
        """Play until a time (s)."""
        draw = random.Random(self.seed)
        by_name = {run.name: run for run in self.runs}
        events: list[tuple[float, int, str, str]] = []
        for number, run in enumerate(self.runs):
            events.append((run.comes_s, number, "comes", run.name))
            if run.dies_s < math.inf:
                events.append((run.dies_s, number, "dies", run.name))
        order, now_s = len(events), 0.0

        def later(after_s: float, what: str, name: str) -> None:
            nonlocal order
            order += 1
            events.append((now_s + after_s, order, what, name))

        while now_s < until_s:
            events.sort()
            look_s = self.table.next_look_s(now_s)
            if min(events[0][0] if events else math.inf, look_s) > until_s:
                now_s = until_s
                break
            if events and events[0][0] <= look_s:
                now_s, _, what, name = events.pop(0)
                run = by_name[name]
                if name in self.table.members or what == "comes":
                    self._act(run, what, now_s, later)
            else:
                now_s = max(now_s, look_s)
            for order_ in self.table.look(now_s):
                later(0.001 * draw.random(), "begins" if order_.begins else "ends", order_.member.name)
            self._check()
        for run in self.runs:
            self._stop(run, now_s)
            if self.table.members.get(run.name, Member("", 0, frozenset())).state is MemberState.WAITS:
                run.longest_wait_s = max(run.longest_wait_s, now_s - run.waits_from_s)
        return self

    def _act(self, run: Run, what: str, now_s: float, later) -> None:  # type: ignore[no-untyped-def]
        is_silent = now_s >= run.hangs_s
        if what == "comes":
            self.table.join(run.name, run.user, run.devices, now_s)
            self.table.wants(run.name, now_s)
            run.waits_from_s = now_s
        elif what == "dies":
            self._stop(run, now_s)
            self.table.leave(run.name, now_s)
        elif what == "begins" and not is_silent:
            run.longest_wait_s = max(run.longest_wait_s, now_s - run.waits_from_s)
            run.began_s = now_s
            self.table.took(run.name, now_s)
            if run.work_s - run.held_s < math.inf:
                later(run.work_s - run.held_s, "done", run.name)
        elif what == "ends" and not is_silent:
            later(self.drains_s, "drained", run.name)
        elif what == "drained" and run.began_s is not None:
            self._stop(run, now_s)
            run.waits_from_s = now_s
            self.table.ended(run.name, now_s, wants=True)
        elif what == "done" and run.began_s is not None and now_s - run.began_s + run.held_s >= run.work_s - 1e-9:
            self._stop(run, now_s)
            run.finished_s = now_s
            self.table.leave(run.name, now_s)

    def _stop(self, run: Run, now_s: float) -> None:
        if run.began_s is not None:
            run.held_s += now_s - run.began_s
            run.began_s = None

    def _check(self) -> None:
        at_work = [
            each
            for each in self.table.members.values()
            if each.state in (MemberState.GIVEN, MemberState.RUNS, MemberState.ENDS)
        ]
        keys = [key for each in at_work for key in each.devices]
        assert len(keys) == len(set(keys)), "two members have one device"


def test_one_run_has_its_devices_all_the_time() -> None:
    run = Run("a", 1)
    World([run]).play(100.0)
    assert run.held_s == pytest.approx(100.0, abs=0.1) and run.longest_wait_s < 0.01


@pytest.mark.parametrize(
    ("users", "shares"),
    [
        ((1, 1), (1 / 2, 1 / 2)),
        ((1, 2), (1 / 2, 1 / 2)),
        ((1, 1, 1, 1), (1 / 4,) * 4),
        ((1, 1, 1, 2), (1 / 6, 1 / 6, 1 / 6, 1 / 2)),
        ((1, 1, 2, 3), (1 / 6, 1 / 6, 1 / 3, 1 / 3)),
    ],
)
def test_users_share_and_then_their_runs(users: tuple[int, ...], shares: tuple[float, ...]) -> None:
    runs = [Run(f"r{number}", user) for number, user in enumerate(users)]
    World(runs).play(1200.0)
    whole_s = sum(run.held_s for run in runs)
    assert whole_s > 0.97 * 1200.0
    assert [run.held_s / whole_s for run in runs] == pytest.approx(shares, rel=0.03)
    most = max(1.0 / share for share in shares)
    assert all(run.longest_wait_s <= most * (SLICE_S + DRAINS_S + 0.01) for run in runs)


def test_what_a_user_does_not_use_others_get_at_once() -> None:
    short, long = Run("short", 1, work_s=5.0, comes_s=10.0), Run("long", 2)
    World([short, long]).play(60.0)
    assert short.finished_s <= 10.0 + 2 * 5.0 + SLICE_S + 0.2
    assert long.held_s == pytest.approx(60.0 - 5.0, abs=0.5)
    assert short.longest_wait_s <= SLICE_S + DRAINS_S + 0.01


def test_one_that_comes_does_not_catch_up_on_the_past() -> None:
    first, second = Run("first", 1), Run("second", 2, comes_s=500.0)
    World([first, second]).play(600.0)
    assert second.held_s == pytest.approx(50.0, abs=3.0) and first.longest_wait_s < 2 * SLICE_S


def test_a_run_of_several_devices_is_not_starved_by_those_of_one() -> None:
    both = Run("both", 1, ("a", "b"))
    ones = [Run(f"{key}{number}", 2 + number, (key,)) for key in "ab" for number in range(2)]
    World([both, *ones]).play(600.0)
    assert both.held_s > 0.12 * 600.0 and both.longest_wait_s < 8 * SLICE_S
    assert all(run.held_s > 100.0 for run in ones)


def test_runs_on_different_devices_do_not_wait_for_each_other() -> None:
    runs = [Run("a", 1, ("a",)), Run("b", 1, ("b",))]
    World(runs).play(100.0)
    assert all(run.held_s > 99.9 for run in runs)


def test_one_that_does_not_take_its_slice_costs_a_moment() -> None:
    silent, well = Run("silent", 1, hangs_s=10.0), Run("well", 2)
    world = World([silent, well]).play(100.0)
    assert well.held_s > 85.0
    assert well.longest_wait_s <= SLICE_S + max(ENDS_WITHIN_S, ANSWERS_WITHIN_S) + 0.1
    assert world.table.members["silent"].state in (MemberState.SILENT, MemberState.BESIDE)


def test_one_that_is_heard_again_has_slices_again() -> None:
    table = SliceTable()
    for name in "ab":
        table.join(name, ord(name), ["gpu"], 0.0)
        table.wants(name, 0.0)
    (order,) = table.look(0.0)
    assert order.member.name == "a" and order.begins
    (other,) = table.look(ANSWERS_WITHIN_S)
    assert other.member.name == "b" and table.members["a"].state is MemberState.SILENT
    table.took("b", 0.6)
    table.took("a", 0.7)
    assert table.members["a"].state.value == "beside", "it took the slice too late, and both run"
    table.ended("a", 0.8, wants=True)
    assert [each.begins for each in table.look(3.0)] == [False], "the slice of b is over"


def test_one_that_got_its_slice_from_another_table_keeps_it() -> None:
    table = SliceTable()
    table.join("a", 1, ["gpu"], 5.0, runs=True)
    table.join("b", 2, ["gpu"], 5.0)
    table.wants("b", 5.0)
    assert table.look(5.1) == []
    assert [(each.member.name, each.begins) for each in table.look(7.0)] == [("a", False)]


def test_one_that_never_takes_its_slices_is_charged_for_them() -> None:
    """Else another user could have the least time for ever, and others no slice."""
    table = SliceTable()
    for name in ("x", "y", "well"):
        table.join(name, 2 if name == "well" else 1, ["gpu"], 0.0)
        table.wants(name, 0.0)
    now_s = had_s = 0.0
    while now_s < 120.0:
        for order in table.look(now_s):
            if order.member.name == "well" and order.begins:
                table.took("well", now_s)
            elif order.member.name == "well":
                table.ended("well", now_s, wants=True)
        for name in ("x", "y"):
            table.wants(name, now_s)
        had_s += 0.1 if table.members["well"].state is MemberState.RUNS else 0.0
        now_s += 0.1
    assert had_s > 60.0


def test_a_slice_of_which_the_table_does_not_know_comes_to_an_end() -> None:
    table = SliceTable()
    table.join("a", 1, ["gpu"], 0.0)
    table.wants("a", 0.0)
    table.took("a", 0.1)
    assert [(each.member.name, each.begins) for each in table.look(0.2)] == [("a", False)]


def test_two_that_got_slices_from_two_tables_do_not_go_on_together() -> None:
    table = SliceTable()
    for at_s, name in enumerate("ab"):
        table.join(name, at_s, ["gpu"], float(at_s), runs=True)
    assert [(each.member.name, each.begins) for each in table.look(1.0)] == [("b", False)]
    table.ended("b", 1.1, wants=True)
    assert [(each.member.name, each.begins) for each in table.look(2.0)] == [("a", False)]


def test_a_run_is_not_starved_because_its_user_has_another_device_all_the_time() -> None:
    """User 1 has had more than user 2 at any time, on `b`. The run on `a` must have some slices all the same."""
    runs = [Run("r0", 1, ("a",), 0.0), Run("r1", 1, ("b",), 0.0), Run("r2", 2, ("a",), 0.0)]
    World(runs, 0).play(200.0)
    assert runs[0].longest_wait_s <= 3 * 2 * SLICE_S + SLICE_S + 0.5
    assert runs[0].held_s > 20.0 and runs[2].held_s > 2 * runs[0].held_s and runs[1].held_s > 190.0


faults = st.tuples(st.sampled_from(["dies", "hangs", "ends"]), st.floats(0.0, 60.0))
keys = st.sampled_from([("a",), ("b",), ("a", "b")])


@given(
    st.lists(st.tuples(st.integers(1, 3), keys, st.floats(0.0, 20.0), st.none() | faults), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_no_run_waits_for_ever_whatever_others_do(
    given_runs: list[tuple[int, tuple[str, ...], float, tuple[str, float] | None]], seed: int
) -> None:
    runs = []
    for number, (user, devices, comes_s, fault) in enumerate(given_runs):
        run = Run(f"r{number}", user, devices, comes_s)
        if fault is not None:
            kind, at_s = fault
            run.dies_s = comes_s + at_s if kind == "dies" else math.inf
            run.hangs_s = comes_s + at_s if kind == "hangs" else math.inf
            run.work_s = at_s if kind == "ends" else math.inf
        runs.append(run)
    world = World(runs, seed).play(150.0)
    well = [run for run in runs if run.hangs_s == math.inf]
    for run in well:
        assert run.longest_wait_s <= 2 * len(runs) * len(runs) * (SLICE_S + ENDS_WITHIN_S), "it is starved"
    for run in well:
        if run.work_s < 10.0 and run.dies_s == math.inf:
            assert run.finished_s < math.inf
    assert world.table.members.keys() <= {run.name for run in runs}
