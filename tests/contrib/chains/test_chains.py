"""When a successor is submitted, and what becomes of a chain in a simulated queue."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.contrib.chains.allocation_chain import Overlap
from ecoshare.contrib.chains.chain_rule import back_test, boldest
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.provisioner import Provisioner
from ecoshare.contrib.chains.queue_sight import QueueSight
from ecoshare.contrib.chains.simulated_chain import (
    BackfillQueue,
    ChainResult,
    ChainSpec,
    ChainTotals,
    HandOver,
    QueueReplay,
    run_chain,
)
from ecoshare.contrib.chains.wait_predictor import PlannedWait, Reactive, WaitPredictor
from tests.contrib.chains.made_jobs import GPUS, job, job_lists

EMPTY = QueueSight(0.0, 4, (), (), ())


@dataclass(frozen=True)
class Fixed:
    """Predictor of one wait (s)."""

    value_s: float

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        return self.value_s


@given(st.floats(0.0, 2e5), st.floats(0.0, 1e5), st.floats(0.0, 1e5))
def test_a_steady_prediction_submits_at_the_right_second(limit_s: float, wait_s: float, margin_s: float) -> None:
    rule = Provisioner(Fixed(wait_s), margin_s)
    now_s, looks = 0.0, 0
    while not (decision := rule.decide(EMPTY, limit_s - now_s, 1, limit_s)).submit:
        assert decision.look_again_s > 0.0
        now_s, looks = now_s + decision.look_again_s, looks + 1
    assert now_s == pytest.approx(max(0.0, limit_s - wait_s - margin_s), abs=1.01)
    assert looks < 100


def test_looks_are_rare_while_much_time_is_left() -> None:
    rule = Provisioner(Fixed(0.0))
    assert rule.decide(EMPTY, 86400.0, 1, 86400.0).look_again_s == rule.most_s
    assert rule.decide(EMPTY, 1000.0, 1, 86400.0).look_again_s == rule.least_s
    assert rule.decide(EMPTY, 100.0, 1, 86400.0).look_again_s == 100.0


def chain(predictor: WaitPredictor) -> ChainResult:
    """Chain of 250 s with a limit of 100 s on all GPUs, beside a job of 30 s that comes after 10 s, and 110 s later."""
    jobs = [job("other", 10.0, 2, 30.0), job("later", 120.0, 2, 30.0)]
    replay = QueueReplay(BackfillQueue(2), jobs)
    replay.advance(0.0)
    return run_chain(replay, ChainSpec(2, 100.0, 250.0, Overlap.IDLE), Provisioner(predictor, least_s=1.0))


def test_a_reactive_chain_is_interrupted_by_the_jobs_that_wait() -> None:
    """At 100 the other job comes first, until 130; at 230 the later one, until 260."""
    found = chain(Reactive())
    assert [each.interruption_s for each in found.hand_overs] == [pytest.approx(30.0, abs=1.0)] * 2
    assert found.overlap_s == 0.0
    assert found.span_s == pytest.approx(310.0, abs=2.0)
    assert found.is_interrupted


def test_a_successor_before_the_other_jobs_leaves_no_gap() -> None:
    found = chain(Fixed(100.0))
    # The first successor comes before `other`, so it starts when the first allocation ends.
    assert found.hand_overs[0].interruption_s == 0.0
    assert found.hand_overs[0].ahead_s == pytest.approx(100.0)
    assert found.hand_overs[0].wait_s == pytest.approx(100.0)


def wide(overlap: Overlap, wait_s: float) -> ChainResult:
    """Chain of 250 s with a limit of 100 s in an empty cluster, with successors `wait_s` too early."""
    replay = QueueReplay(BackfillQueue(8), [])
    replay.advance(0.0)
    spec = ChainSpec(2, 100.0, 250.0, overlap, load_s=5.0, checkpoint_s=20.0, idle_w=50.0)
    return run_chain(replay, spec, Provisioner(Fixed(wait_s), least_s=1.0))


def test_an_idle_successor_waits_for_the_limit_and_has_less_time_left() -> None:
    """Links work from 0 to 100, 100 to 160 (it idled 40 s), 160 to 220, 220 to 250."""
    found = wide(Overlap.IDLE, 40.0)
    assert [each.overlap_s for each in found.hand_overs] == [pytest.approx(40.0, abs=1.0)] * 3
    assert found.interruption_s == 0.0
    assert found.span_s == pytest.approx(250.0)
    assert found.overlap_j == pytest.approx(found.overlap_s * 2 * 50.0)


def test_a_successor_takes_over_at_the_first_checkpoint_after_it_has_loaded() -> None:
    """Submitted at 60 and loaded at 65, it takes over at 80: 20 s of overlap. The next starts at 120: 140 - 120."""
    found = wide(Overlap.TAKE_OVER, 40.0)
    assert found.hand_overs[0].overlap_s == pytest.approx(20.0, abs=1.0)
    assert found.span_s == pytest.approx(250.0)
    assert len(found.hand_overs) == 3


def test_a_late_checkpoint_is_the_limit() -> None:
    found = wide(Overlap.TAKE_OVER, 3.0)
    assert [each.overlap_s for each in found.hand_overs] == [pytest.approx(3.0, abs=1.0)] * 2


def test_several_successors_ahead_bridge_waits_that_are_longer_than_a_limit() -> None:
    """A job of 40 s on all GPUs comes each 45 s, so a wait may be longer than the limit of 30 s."""
    jobs = [job(f"j{number}", 1.0 + 45.0 * number, 2, 40.0) for number in range(12)]

    def interruption_s(ahead: int) -> float:
        replay = QueueReplay(BackfillQueue(2), jobs)
        replay.advance(0.0)
        spec = ChainSpec(2, 30.0, 90.0, Overlap.TAKE_OVER, load_s=1.0, checkpoint_s=1.0)
        return run_chain(replay, spec, Provisioner(PlannedWait(), 60.0, least_s=1.0, ahead=ahead)).interruption_s

    assert interruption_s(3) < interruption_s(1)


@given(
    job_lists(),
    st.sampled_from(list(Overlap)),
    st.integers(1, 3),
    st.sampled_from([Reactive(), PlannedWait(), Fixed(7.0), Fixed(inf)]),
    st.integers(1, GPUS),
)
def test_no_work_is_lost_and_no_second_counted_twice(
    jobs: list[BatchJob], overlap: Overlap, ahead: int, predictor: WaitPredictor, gpus: int
) -> None:
    """The span is the work and the interruption. The queue holds nothing of the chain afterwards."""
    replay = QueueReplay(BackfillQueue(GPUS), jobs)
    replay.advance(0.0)
    spec = ChainSpec(gpus, 20.0, 70.0, overlap, load_s=2.0, checkpoint_s=3.0)
    found = run_chain(replay, spec, Provisioner(predictor, least_s=1.0, ahead=ahead))
    assert found.span_s == pytest.approx(70.0 + found.interruption_s)
    assert all(each.interruption_s == 0.0 or each.overlap_s == 0.0 for each in found.hand_overs)
    assert len(found.hand_overs) >= 3
    replay.advance(inf)
    assert replay.queue.sight().free_gpus == GPUS
    assert {each.name for each in jobs} <= set(replay.queue.started_s)


def test_totals_are_those_of_the_chains() -> None:
    hand_over = HandOver(10.0, 5.0, 12.0, 2.0, 0.0)
    early = HandOver(10.0, 5.0, 4.0, 0.0, 6.0)
    results = [ChainResult(2, 100.0, 3.0, 102.0, (hand_over,), 50.0), ChainResult(1, 98.0, 0.0, 98.0, (early,), 50.0)]
    assert ChainTotals.of(results) == ChainTotals(2, 2, 2.0, 6.0 / 200.0, 300.0, 0.5)


def test_the_boldest_rule_within_the_budget_is_taken() -> None:
    """A successor that waits idle holds 2 GPUs from its start to the limit of its predecessor."""
    jobs = [job("other", 10.0, 2, 30.0), job("later", 120.0, 2, 30.0)]
    chains = [(0.0, ChainSpec(2, 100.0, 250.0, Overlap.IDLE))]
    rules = [
        Provisioner(Reactive(), least_s=1.0),
        *(Provisioner(Fixed(wait_s), least_s=1.0) for wait_s in (5.0, 20.0, 60.0)),
    ]
    reactive, *others = back_test(jobs, 4, chains, rules, 200.0)
    assert [each.provisioner for each in (reactive, *others)] == rules
    assert reactive.totals.interruption_s == 0.0 and boldest(reactive, others) is others[0], "nothing is to be gained"
    shares = [each.totals.overlap_share for each in others]
    assert shares == sorted(shares) and shares[0] < shares[-1]
    busy, *_ = back_test(jobs, 2, chains, rules, 200.0)
    assert busy.totals.interruption_s > 0.0
    assert boldest(busy, others, shares[1]) is others[1]
    assert boldest(busy, others, 1.0) is others[2]
    assert boldest(busy, others, shares[0] / 2.0) is others[0], "none keeps the budget"
    with pytest.raises(ValueError, match="no chains"):
        back_test(jobs, 2, [], rules, 200.0)


def test_a_back_test_knows_nothing_after_its_end() -> None:
    known = [job("other", 10.0, 2, 30.0)]
    later = [*known, job("later", 60.0, 2, 500.0)]
    chains = [(0.0, ChainSpec(2, 100.0, 250.0, Overlap.IDLE))]
    rules = [Provisioner(Reactive(), least_s=1.0)]
    assert back_test(later, 2, chains, rules, 50.0) == back_test(known, 2, chains, rules, 50.0)
