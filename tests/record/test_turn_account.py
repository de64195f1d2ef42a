"""Time of jobs, and the cost of their neighbours, as the turns that were held tell them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import OpenLane, StartJob
from ecoshare.core.events import Config, Done, JobArrived, JobExited, RunOpened
from ecoshare.knowledge.profile import IterationTimes
from ecoshare.lane.trace import Kind
from ecoshare.record.accounts.alone_time import AloneTime, alone_times
from ecoshare.record.accounts.turn_account import Spent, TurnAccount, length_s
from ecoshare.record.run_history import RunHistory
from ecoshare.record.samples import Line, OthersLoad, Sample, Session
from tests.reporting.profiles import PROFILE

Turns = list[tuple[float, float, int]]
"""Begin and end (s) of each turn, and the number of iterations in it, which are of equal length."""

GIB = 1 << 30


def made(**jobs: tuple[int, Turns]) -> tuple[TurnAccount, RunHistory]:
    """Run of jobs that arrive at 0 s, start at 1 s, want turn after turn, and end 1 s after their last turn.

    Args:
        jobs: Lane and turns of each job.
    """
    lanes = 1 + max(lane for lane, _ in jobs.values())
    entries: list[Any] = [
        RunOpened(0.0, 1, Config("fair", lanes), (Device("cpu", "local", GIB),)),
        *(OpenLane(lane, lane, "cpu", GIB // lanes) for lane in range(lanes)),
    ]
    marks = {}
    for place, (name, (lane, turns)) in enumerate(jobs.items()):
        told: list[tuple[Kind, float]] = [(Kind.WAITS, 2.0)]
        for from_s, to_s, count in turns:
            ends = [from_s + (to_s - from_s) * (each + 1) / count for each in range(count)]
            told += [(Kind.TURN_BEGINS, from_s), *((Kind.TRAIN, each) for each in ends), (Kind.TURN_ENDS, to_s)]
        kinds, times_s = zip(*told, strict=True)
        marks[name, 1] = np.array(kinds, np.uint8), np.array(times_s)
        ended_s = turns[-1][1] + 1.0
        ends_s = [at_s for kind, at_s in told if kind is Kind.TRAIN]
        gaps = [(before[1], after[0]) for before, after in pairwise(turns)]
        inside = [(from_s, to_s) for from_s, to_s in gaps if ends_s and from_s >= ends_s[0]]
        usage = Usage(
            iterations=len(ends_s),
            held_s=sum(to_s - from_s for from_s, to_s, _ in turns),
            span_s=ends_s[-1] - ends_s[0] if ends_s else 0.0,
            waited_s=sum(to_s - from_s for from_s, to_s in inside),
        )
        entries += [JobArrived(0.0, JobSpec(name, name)), StartJob(100 + place, name, 1, (lane,), GIB)]
        entries += [Done(1.0, 100 + place), JobExited(ended_s, name, 1, Outcome.COMPLETED, 0, "", usage)]
    # The log is in order of time; a start command is of the time of the event before it.
    times = [getattr(each, "at_s", 0.0) for each in entries]
    history = RunHistory([entries[place] for place in sorted(range(len(entries)), key=lambda place: times[place])])
    return TurnAccount.of_marks(history, marks), history


def alone_of(account: TurnAccount, history: RunHistory, busy: float = 0.0) -> dict[str, AloneTime]:
    return alone_times(account, history, {}, lambda _from_s, _to_s: busy)


def test_a_job_that_meets_no_other_costs_nothing_however_its_iterations_vary() -> None:
    """Another program makes some of them four times slower: no neighbour did, also if a job came and went before."""
    account, history = made(a=(0, [(2.0, 6.0, 40), (6.0, 22.0, 40)]), early=(1, [(1.0, 2.0, 10)]))
    found = alone_of(account, history, busy=0.8)["a"]
    assert (found.slowdown, found.interference, found.error_s, found.guessed_s) == (1.0, 1.0, 0.0, 0.0)


def test_jobs_that_take_turns_wait_and_do_not_slow_each_other() -> None:
    account, history = made(
        a=(0, [(2.0 + 2 * each, 3.0 + 2 * each, 10) for each in range(20)]),
        b=(0, [(3.0 + 2 * each, 4.0 + 2 * each, 10) for each in range(20)]),
    )
    for found in alone_of(account, history).values():
        assert found.slowdown == pytest.approx(2.0, rel=0.05) and found.interference == pytest.approx(1.0)
        assert found.error_s == pytest.approx(0.0)
    assert account.of_job("a")[Spent.WAITS] == pytest.approx(19.0)
    assert account.holders("a", Spent.WAITS) == {"b": pytest.approx(19.0)}


def test_iterations_beside_another_job_are_compared_with_own_ones_alone() -> None:
    """100 iterations of 0.1 s alone, 50 of 0.2 s beside b. Other programs make an error of these only."""
    account, history = made(a=(0, [(2.0, 12.0, 100), (12.0, 22.0, 50)]), b=(1, [(12.0, 22.0, 100)]))
    found = alone_of(account, history)["a"]
    assert found.beside_s == pytest.approx(10.0)
    assert found.alone_s == pytest.approx(15.0, rel=0.01) and found.slowdown == pytest.approx(4 / 3, rel=0.01)
    assert found.error_s < 0.1
    assert alone_of(account, history, busy=0.3)["a"].error_s == pytest.approx(3.0, rel=0.05)
    assert alone_of(account, history)["b"].slowdown is None, "no iteration of it was alone"
    assert alone_of(account, history)["b"].guessed_s == pytest.approx(7.4, rel=0.1)
    times = IterationTimes(count=80, mean_s=0.05, standard_error_s=0.001, median_s=0.05, p95_s=0.05)
    profiles = {"b": PROFILE.model_copy(update={"job_class": "b", "train": times, "eval": None, "doubt": ""})}
    known = alone_times(account, history, profiles, lambda _from_s, _to_s: 0.0)["b"]
    assert known.guessed_s == 0.0, "the remedy that is named: a profile of its class"
    assert known.interference == pytest.approx(9.9 / 5.4), (
        "all but the first ten of its iterations are compared with it"
    )


def test_a_job_without_iterations_holds_its_turn_to_its_end() -> None:
    """The one behind it waits, whatever was decided: its wait for the first turn is a cost of sharing, too."""
    account, history = made(holds=(0, [(2.0, 100.0, 0)]), waits=(0, [(100.0, 102.0, 20)]))
    assert account.of_job("holds") == pytest.approx(
        {**dict.fromkeys(Spent, 0.0), Spent.QUEUED: 0.0, Spent.STARTS: 2.0, Spent.ALONE: 98.0, Spent.ENDS: 1.0}
    )
    assert account.of_job("waits")[Spent.WAITS] == pytest.approx(98.0)
    assert account.holding("cpu", 0.0, 100.0) == {"holds": pytest.approx(98.0)}
    waits_s, behind = account.wait("waits", 42.0)
    assert waits_s == pytest.approx(40.0) and behind == ("holds",)
    assert account.wait("waits", 101.0) == account.wait("holds", 42.0) == (0.0, ())
    slower = alone_of(account, history)["waits"].slowdown
    assert slower is not None and slower > 40.0


def test_the_load_of_other_programs_is_that_between_the_samples_of_a_time() -> None:
    """Two partitions of a processor each; on the second, other programs take a half from 2 s to 4 s."""
    about = ("a meter", "modelled", "cpu", "", 1.0, 1.0)
    lines: list[Line] = [Session(0.0, device, *about, cores=1) for device in ("cpu:0", "cpu:1")]
    for at_s, others_s in ((0.0, 0.0), (2.0, 0.0), (4.0, 1.0), (6.0, 1.0)):
        lines += [Sample(at_s, 0.0, others_s=0.0, device="cpu:0"), Sample(at_s, 0.0, others_s=others_s, device="cpu:1")]
    load = OthersLoad(lines)
    assert load.busy(0.0, 6.0) == pytest.approx(1 / 12) and load.busy(2.5, 3.0) == pytest.approx(1 / 4)
    assert load.busy(0.0, 2.0) == load.busy(4.0, 6.0) == load.busy(9.0, 10.0) == OthersLoad([]).busy(0.0, 1.0) == 0.0


@st.composite
def runs(draw: st.DrawFn) -> dict[str, tuple[int, Turns]]:
    """Jobs in up to three lanes; those of a lane take turns."""
    found: dict[str, tuple[int, Turns]] = {}
    for lane in range(draw(st.integers(1, 3))):
        turns: list[Turns] = [[] for _ in range(draw(st.integers(1, 3)))]
        at_s = 2.0
        for _ in range(draw(st.integers(0, 8))):
            at_s += draw(st.sampled_from((0.0, 0.0, 0.7)))
            to_s = at_s + draw(st.floats(0.01, 3.0))
            draw(st.sampled_from(turns)).append((at_s, to_s, draw(st.integers(1, 12))))
            at_s = to_s
        found |= {f"{lane}-{place}": (lane, own) for place, own in enumerate(turns) if own}
    return found or {"one": (0, [(2.0, 3.0, 4)])}


@given(runs())
def test_the_parts_of_a_jobs_time_add_up_and_no_cost_is_claimed_without_a_neighbour(
    jobs: dict[str, tuple[int, Turns]],
) -> None:
    account, history = made(**jobs)
    found = alone_of(account, history)
    for name, (_, turns) in jobs.items():
        spent = account.of_job(name)
        assert min(spent.values()) >= 0.0
        finish_s = history.jobs[name].finish_s
        assert finish_s is not None and sum(spent.values()) == pytest.approx(finish_s)
        held_s = spent[Spent.ALONE] + spent[Spent.BESIDE]
        assert held_s == pytest.approx(sum(to_s - from_s for from_s, to_s, _ in turns))
        (times,) = account.attempts(name)
        assert length_s(times.held) == pytest.approx(held_s)
        assert sum(account.holders(name, Spent.BESIDE).values()) >= spent[Spent.BESIDE] - 1e-6
        if not account.holders(name, Spent.BESIDE) and not spent[Spent.WAITS]:
            assert found[name].slowdown in (None, 1.0)
        assert 0.0 <= found[name].alone_s <= found[name].working_s + 1e-9, "no neighbour makes a job faster"
