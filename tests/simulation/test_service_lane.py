"""A simulated lane with services: turns by deadlines, whole iterations, and training under overload."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.turns import WAIT_PER_JOB_S, expected_cut_s
from ecoshare.simulation.simulated_attempt import ServiceAttempt, SimulatedAttempt, SimulatedRequests
from ecoshare.simulation.traces.job_trace import AnswerTime, Phase, TraceJob
from ecoshare.simulation.virtual_lanes import VirtualLane

HANDOVER_S = 40e-6


@dataclass(frozen=True)
class Turn:
    """One turn. `due_s` has the times at which answers of the services that waited at its begin were due."""

    job: str
    from_s: float
    to_s: float
    due_s: dict[str, float]
    iterations: float


def service(name: str, rate: float, answer_s: float, target_s: float, sizes: tuple[int, ...] = (1, 2, 4)) -> TraceJob:
    source = RequestSource(rate_per_s=rate, seed=len(name) + ord(name[-1]))
    answer = AnswerTime(answer_s / 2, answer_s / 2)
    spec = ServiceSpec(target_s, sizes, 64, source)
    return TraceJob(name, name, 0.0, (Phase(1, answer_s),), service=spec, answer=answer, spread=0.2)


def training(name: str, iteration_s: float, spread: float = 0.0) -> TraceJob:
    return TraceJob(name, name, 0.0, (Phase(10**6, iteration_s),), spread=spread)


def attempt(job: TraceJob) -> SimulatedAttempt:
    if job.service is not None:
        return ServiceAttempt(job, 1, (0,), 0.0, 0.0, 0.0, 0, requests=SimulatedRequests(job, job.name))
    return SimulatedAttempt(job, 1, (0,), job.service_s, job.service_s, job.service_s, 0)


def play(jobs: list[TraceJob], until_s: float) -> list[Turn]:
    """Turns of these jobs in one lane, as the simulator drives it."""
    lane, turns = VirtualLane(HANDOVER_S), list[Turn]()
    seats = [attempt(job) for job in jobs]
    services = [seat for seat in seats if isinstance(seat, ServiceAttempt)]
    for seat in seats:
        lane.join(seat, 0.0)
    for seat in services:
        seat.requests.open(0.0)
    began_s, due_s, now_s = 0.0, dict[str, float](), 0.0
    while now_s < until_s:
        away = [seat for seat in services if not seat.wants_turn]
        comes = min(away, key=lambda seat: seat.requests.next_s, default=None)
        before = lane.holder
        waiting = {seat.job.name: seat.due_s for seat in services if seat.wants_turn and seat is not before}
        if comes is not None and comes.requests.next_s <= lane.next_s:
            now_s = comes.requests.next_s
            claim = comes.requests.claim(now_s)
            assert claim is not None, "the request has come"
            lane.want(comes, claim, now_s)
        else:
            now_s = lane.next_s
            if lane.ends:
                assert isinstance(before, ServiceAttempt), "no training job ends"
                lane.answered(before, now_s)
                if before.wants_turn:
                    waiting[before.job.name] = before.due_s
            else:
                lane.go_on(now_s)
        if lane.holder is not before:
            if before is not None:
                done = before.job.service_s - before.left_s
                turns.append(Turn(before.job.name, began_s, now_s, due_s, done / before.job.phases[0].iteration_s))
            began_s, due_s = now_s, waiting
    return turns


rates = st.floats(1.0, 120.0)
answers = st.floats(0.001, 0.02)
targets = st.floats(0.02, 0.3)
loads = st.builds(lambda *each: each, rates, answers, targets)


@pytest.mark.nightly
@given(st.lists(loads, min_size=1, max_size=3), st.floats(0.002, 0.06), st.sampled_from([0.0, 0.3]), st.booleans())
def test_turns_keep_their_rules(
    given_loads: list[tuple[float, float, float]], iteration_s: float, spread: float, cuttable: bool
) -> None:
    """If it failed, the simulator would promise latencies, or a speed of training, that no live lane has."""
    jobs = [service(f"s{number}", *load) for number, load in enumerate(given_loads)]
    turns = play([replace(training("t", iteration_s, spread), speedups=() if cuttable else (1.0,)), *jobs], 3.0)
    longest_s = {"t": iteration_s} | {job.name: 0.0 for job in jobs}
    waits_from_s = 0.0
    for turn in turns:
        if turn.job == "t":
            is_whole = turn.iterations == pytest.approx(round(turn.iterations), abs=1e-4)
            assert is_whole or cuttable, "an iteration is cut where it can be"
            longest_s["t"] = max(longest_s["t"], turn.to_s - turn.from_s)
            others = sum(longest for name, longest in longest_s.items() if name != "t")
            bound_s = (len(jobs) + 1) * WAIT_PER_JOB_S
            assert turn.from_s - waits_from_s <= bound_s + others + 0.1, "training goes on under overload"
            waits_from_s = turn.to_s
        else:
            own_s = turn.due_s.get(turn.job, math.inf)
            assert own_s <= min(turn.due_s.values()) + 1e-9, "the service that is due first goes first"
            longest_s[turn.job] = max(longest_s[turn.job], turn.to_s - turn.from_s)


def test_equal_jobs_have_equal_turns() -> None:
    jobs = [training("t", 0.02, 0.3), service("s1", 60.0, 0.004, 0.05), service("s2", 30.0, 0.008, 0.1)]
    assert play(jobs, 2.0) == play(jobs, 2.0)


def test_a_request_waits_for_one_iteration_at_most() -> None:
    job = service("s", 10.0, 0.002, 0.05, (1,))
    seat = attempt(job)
    assert isinstance(seat, ServiceAttempt)
    turns = play([training("t", 0.02), job], 5.0)
    begins = [turn.from_s for turn in turns if turn.job == "s"]
    arrivals_s = [turn.due_s["s"] - 0.05 for turn in turns if turn.job == "s"]
    assert len(begins) > 30
    # A service that was never in its lane before has no share to claim: its first request waits until it presses.
    waits_s = [begin - arrived for begin, arrived in zip(begins, arrivals_s, strict=True)][1:]
    assert max(waits_s) <= 0.02 + 2 * HANDOVER_S + 0.004, "one iteration, and an answer to an earlier request"
    assert max(waits_s) > 0.01, "an iteration is not cut"


def test_a_long_iteration_is_cut_for_a_request_and_goes_on_where_it_was() -> None:
    turns = play([training("t", 1.0, 0.2), service("s", 10.0, 0.002, 0.05, (1,))], 20.0)
    arrivals_s = [(turn.from_s, turn.due_s["s"] - 0.05) for turn in turns if turn.job == "s"]
    waits_s = [begin_s - arrived_s for begin_s, arrived_s in arrivals_s]
    assert len(waits_s) > 100 and max(waits_s) <= expected_cut_s(2.0) + 2 * HANDOVER_S + 0.004
    parts = [turn for turn in turns if turn.job == "t"]
    done = [after.iterations - before.iterations for before, after in pairwise(parts)]
    assert all(0.0 <= each < 1.5 for each in done) and sum(1 for each in done if each % 1.0 > 0.01) > 50
    assert parts[-1].iterations == pytest.approx(20.0 - sum(t.to_s - t.from_s for t in turns if t.job == "s"), rel=0.2)


def test_training_has_what_the_service_leaves() -> None:
    jobs = [training("t", 0.01), replace(service("s", 50.0, 0.004, 0.1, (1,)), spread=0.0)]
    turns = play(jobs, 10.0)
    held_s = sum(turn.to_s - turn.from_s for turn in turns if turn.job == "t")
    served_s = sum(turn.to_s - turn.from_s for turn in turns if turn.job == "s")
    assert served_s == pytest.approx(50 * 10 * 0.004, rel=0.15)
    assert held_s + served_s == pytest.approx(10.0, abs=0.1)
