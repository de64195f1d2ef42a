"""Steps of a live chain: what the queue says of its allocations, what it costs, and what is submitted next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ecoshare.cluster.slurm_script import fields
from ecoshare.contrib.chains import chain_steps
from ecoshare.contrib.chains.allocation_chain import AllocationEnd, ChainAccount, ChainAllocation, ChainOutcome
from ecoshare.contrib.chains.own_jobs import read
from tests.contrib.chains.made_chains import chain, idle, listed, over, waits, works


def test_a_job_without_a_record_is_found_again() -> None:
    """A process was killed between `sbatch` and its note of the ID. Otherwise the next one would submit twice."""
    cut = chain(works(1, 5.0), ChainAllocation(2, 50.0))
    found, strays = chain_steps.reconciled(cut, [listed(1), listed(2, "PENDING", job=77)], 60.0, {})
    assert (found.allocations[1].job, strays) == (77, ())


def test_a_submission_that_never_happened_is_forgotten() -> None:
    found, strays = chain_steps.reconciled(chain(works(1, 5.0), ChainAllocation(2, 50.0)), [listed(1)], 60.0, {})
    assert (found.allocations, strays) == ((works(1, 5.0),), ())


def test_a_second_job_for_one_place_is_cancelled() -> None:
    found, strays = chain_steps.reconciled(
        chain(works(1, 5.0), waits(2)), [listed(1), listed(2, "PENDING"), listed(2, "PENDING", job=77)], 60.0, {}
    )
    assert (found, strays) == (chain(works(1, 5.0), waits(2)), (77,))


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("CANCELLED", AllocationEnd.WITHDRAWN),
        ("FAILED", AllocationEnd.LOST),
        ("NODE_FAIL", AllocationEnd.LOST),
        (None, AllocationEnd.LOST),
    ],
)
def test_what_the_queue_no_longer_has_is_lost_or_withdrawn(state: str | None, end: AllocationEnd) -> None:
    """Only a user takes a job out of the queue. One that died at its launch must not end the chain."""
    before = chain(works(1, 5.0), waits(2))
    assert chain_steps.vanished(before, []) == [10, 20]
    found, _ = chain_steps.reconciled(before, [], 60.0, {10: "NODE_FAIL", 20: state})
    assert [each.end for each in found.allocations] == [AllocationEnd.LOST, end]
    assert found.allocations[0].works_to_s == 60.0 and not found.live


def test_an_allocation_that_is_cancelled_before_it_can_say_so_is_not_lost() -> None:
    """SIGTERM may come before it is handled, and SIGKILL 30 s later. Another allocation would be submitted."""
    before = chain(over(1, 5.0, 50.0, AllocationEnd.TERMINATED), idle(2, 20.0))
    found, _ = chain_steps.reconciled(before, [], 60.0, {20: "CANCELLED"})
    assert found.allocations[1].end is AllocationEnd.TERMINATED
    assert chain_steps.end_of(found, 60.0, "CANCELLED") is ChainOutcome.CANCELLED


def test_nothing_is_submitted_while_slurm_ends_an_allocation() -> None:
    """`scancel` of both jobs ends one after the other, and a third one in between would keep the chain alive."""
    first = over(1, 5.0, 50.0, AllocationEnd.TERMINATED)
    both = chain(first, idle(2, 20.0))
    assert chain_steps.is_settling(both, [listed(1, "COMPLETING"), listed(2)])
    assert not chain_steps.is_settling(both, [listed(2)])
    requeued, _ = chain_steps.reconciled(chain(first), [listed(1, "PENDING")], 60.0, {})
    assert not chain_steps.is_settling(requeued, [listed(1, "PENDING")])


@pytest.mark.parametrize("first", [works(1, 5.0), over(1, 5.0, 50.0, AllocationEnd.TERMINATED)])
def test_a_requeued_job_is_a_further_allocation(first: ChainAllocation) -> None:
    found, strays = chain_steps.reconciled(chain(first), [listed(1, "PENDING")], 60.0, {})
    assert [each.job for each in found.allocations] == [10, 10] and strays == ()
    assert not found.allocations[0].is_live and found.allocations[1].started_s is None
    begun = chain_steps.started(found, 10, 1, 70.0)
    assert begun.allocations[1].started_s == 70.0 and len(begun.allocations) == 2
    # Nothing may have looked between the two starts.
    assert [each.started_s for each in chain_steps.started(chain(first), 10, 1, 70.0).allocations] == [5.0, 70.0]


def test_a_job_that_another_one_has_replaced_does_not_start() -> None:
    before = chain(works(1, 5.0), waits(2))
    assert chain_steps.started(before, 77, 2, 70.0) == before
    begun = chain_steps.started(chain(ChainAllocation(1, 0.0)), 10, 1, 7.0)
    assert (begun.allocations[0].job, begun.allocations[0].started_s) == (10, 7.0)


def test_one_allocation_works_at_a_time() -> None:
    assert not chain_steps.may_work(chain(works(1, 0.0), idle(2, 5.0)), idle(2, 5.0))
    both = chain(over(1, 0.0, 9.0), idle(2, 5.0), idle(3, 4.0))
    assert chain_steps.may_work(both, idle(3, 4.0)) and not chain_steps.may_work(both, idle(2, 5.0))
    assert not chain_steps.may_work(replace(both, outcome=ChainOutcome.DONE), idle(3, 4.0))


def test_a_chain_does_not_hop() -> None:
    two = chain(works(1, 100.0), idle(2, 110.0))
    assert not chain_steps.may_take_over(two, two.allocations[1], 399.0)
    assert chain_steps.may_take_over(two, two.allocations[1], 400.0)
    short = replace(two, limit_s=300.0)
    assert chain_steps.may_take_over(short, short.allocations[1], 200.0), "half of its 200 s"
    asked = replace(two.allocations[1], asks_s=400.0)
    assert not chain_steps.may_take_over(two, asked, 500.0)


def test_others_that_asked_before_a_take_over_ask_again_later() -> None:
    """Otherwise the allocation that has just begun would be stopped at once, and the chain would hop."""
    asking = [replace(idle(number, 5.0), asks_s=9.0) for number in (2, 3)]
    found = chain_steps.at_work(chain(over(1, 0.0, 9.0), *asking), asking[0], 10.0)
    assert found.working is not None and found.working.number == 2 and found.allocations[2].asks_s is None
    assert not chain_steps.may_take_over(found, found.allocations[2], 20.0)


@pytest.mark.parametrize(
    ("code", "state", "finished"),
    [
        (0, "completed", True),
        (1, "failed", True),
        (5, "completed", True),
        (1, "interrupted", False),
        (1, None, False),
        (130, "interrupted", False),
        (4, "failed", False),
    ],
)
def test_a_run_that_breaks_with_a_traceback_has_not_finished(code: int, state: str | None, finished: bool) -> None:
    assert chain_steps.is_finished(code, state) is finished


def test_the_end_of_a_run() -> None:
    assert chain_steps.end_of_run(True, False, True) is AllocationEnd.FINISHED
    assert chain_steps.end_of_run(False, True, True) is AllocationEnd.TERMINATED
    assert chain_steps.end_of_run(False, True, False) is AllocationEnd.STOPPED
    assert chain_steps.end_of_run(False, False, False) is AllocationEnd.BROKEN


def test_a_record_from_before_an_end_does_not_undo_it() -> None:
    stale = chain(works(1, 0.0), waits(2))
    there = chain(over(1, 0.0, 9.0, AllocationEnd.FINISHED), waits(2), code=0)
    found = chain_steps.with_ends(stale, there)
    assert (found.allocations[0], found.code, found.live) == (there.allocations[0], 0, [waits(2)])
    requeued = chain(replace(works(1, 0.0), job=99))
    assert chain_steps.with_ends(requeued, there) == requeued, "another job"


@pytest.mark.parametrize(
    ("ends", "state", "outcome"),
    [
        ([AllocationEnd.STOPPED], None, None),
        ([AllocationEnd.STOPPED, AllocationEnd.FINISHED], None, ChainOutcome.DONE),
        ([AllocationEnd.BROKEN], None, ChainOutcome.FAILED),
        ([AllocationEnd.LOST] * 2, None, None),
        ([AllocationEnd.LOST, AllocationEnd.TOO_SHORT, AllocationEnd.LOST], None, ChainOutcome.FAILED),
        ([AllocationEnd.LOST, AllocationEnd.STOPPED, AllocationEnd.LOST, AllocationEnd.LOST], None, None),
        ([AllocationEnd.TERMINATED], "CANCELLED", ChainOutcome.CANCELLED),
        ([AllocationEnd.TERMINATED], "PREEMPTED", None),
        ([AllocationEnd.TERMINATED], "COMPLETING", None),
        ([AllocationEnd.STOPPED, AllocationEnd.WITHDRAWN], None, ChainOutcome.CANCELLED),
    ],
)
def test_ends_of_a_chain(ends: list[AllocationEnd], state: str | None, outcome: ChainOutcome | None) -> None:
    found = chain(*(over(number, 1.0, 2.0, end) for number, end in enumerate(ends, start=1)))
    assert chain_steps.end_of(found, 10.0, state) is outcome
    assert chain_steps.end_of(replace(found, past=len(ends)), 10.0, state) in (None, ChainOutcome.CANCELLED)


def test_bounds_of_a_chain() -> None:
    one = chain(over(1, 0.0, 900.0))
    assert not chain_steps.is_limited(one, 1000.0)
    assert chain_steps.is_limited(replace(one, most_allocations=1), 1000.0)
    assert chain_steps.is_limited(replace(one, until_s=999.0), 1000.0)
    assert chain_steps.end_of(replace(one, most_allocations=1), 1000.0, None) is ChainOutcome.LIMITED
    running = chain(works(1, 0.0), over(2, 1.0, 2.0, AllocationEnd.WITHDRAWN))
    assert chain_steps.is_limited(running, 10.0), "a user has taken the successor out of the queue"
    assert chain_steps.end_of(running, 10.0, None) is None, "the allocation that works goes on"


def test_time_that_allocations_cover() -> None:
    assert chain_steps.covered_s(chain(), [], 0.0) == 0.0
    assert chain_steps.covered_s(chain(works(1, 0.0)), [listed(1, left_s=400.0)], 600.0) == 300.0
    assert chain_steps.covered_s(chain(waits(1)), [listed(1, "PENDING")], 5.0) is None, "one successor waits"
    two = chain(works(1, 0.0), waits(2, 500.0), ahead=2)
    jobs = [listed(1, left_s=400.0), listed(2, "PENDING")]
    assert chain_steps.covered_s(two, jobs, 600.0) == 300.0 + 900.0
    assert chain_steps.covered_s(replace(two, ahead=1), jobs, 600.0) is None


def test_the_account_of_a_chain() -> None:
    second = ChainAllocation(
        2, 500.0, 300.0, 900.0, 20, 880.0, None, 905.0, 1800.0, 1800.0, AllocationEnd.STOPPED, 130, 50.0, "measured"
    )
    third = ChainAllocation(
        3, 1700.0, 100.0, 1800.0, 30, 1900.0, None, 1901.0, 2000.0, 2000.0, AllocationEnd.FINISHED, 0
    )
    found = ChainAccount.of(chain(over(1, 10.0, 900.0), second, third))
    assert (found.interruption_s, found.overlap_s, found.overlap_j, found.overlap_source) == (
        100.0,
        20.0,
        50.0,
        "measured",
    )
    assert (found.between_s, found.span_s) == (5.0 + 101.0, 1990.0)
    first, last = found.passages
    assert (first.ahead_s, first.wait_s, first.predicted_wait_s) == (400.0, 380.0, 300.0)
    assert (last.interruption_s, last.overlap_s, last.overlap_j) == (100.0, 0.0, 0.0)
    unknown = replace(second, idle_j=None, idle_source="")
    assert ChainAccount.of(chain(over(1, 10.0, 900.0), unknown)).overlap_j is None


def test_a_successor_that_was_not_needed_is_overlap() -> None:
    never = replace(idle(2, 700.0), ended_s=905.0, end=AllocationEnd.NOT_NEEDED, idle_j=7.0, idle_source="modelled")
    found = ChainAccount.of(chain(over(1, 0.0, 900.0, AllocationEnd.FINISHED), never))
    assert (found.overlap_s, found.overlap_j, found.passages[0].between_s) == (200.0, 7.0, None)
    assert ChainAccount.of(chain()).span_s == 0.0


def test_jobs_of_a_chain_are_those_of_its_scripts() -> None:
    folder = "/home/ann/runs/chain-train"
    listing = (
        f"12  |RUNNING|4:59|5:00|None|cpu=1,gres/gpu=4|{folder}/allocation-3.sh   \n"
        f"13  |PENDING|INVALID|1-00:00:00|Priority|cpu=1|{folder}/allocation-4.sh\n"
        f"14  |RUNNING|4:59|5:00|None|cpu=1|{folder}-2/allocation-1.sh\n"
        "15  |RUNNING|4:59|5:00|None|cpu=1|(null)\n"
        "slurm: something else\n"
    )
    running, pending = read(listing, folder)
    assert (running.job, running.number, running.left_s, running.count("gres/gpu")) == (12, 3, 299.0, 4)
    assert pending.waits and not running.waits and pending.limit_s == 86400.0


def test_fields_of_scontrol() -> None:
    found = fields("PartitionName=main MaxTime=1-00:00:00 TRES=cpu=16,gres/gpu=8 State=UP\n")
    assert (found["MaxTime"], found["TRES"]) == ("1-00:00:00", "cpu=16,gres/gpu=8")


@pytest.mark.parametrize(
    ("reason", "never"), [("AssocMaxJobsLimit", False), ("PartitionNodeLimit", False), ("PartitionTimeLimit", True)]
)
def test_a_limit_that_passes_does_not_end_a_chain(reason: str, never: bool) -> None:
    assert replace(listed(1, "PENDING"), reason=reason).never_starts is never


def test_joules_that_were_not_told_are_not_known() -> None:
    second = ChainAllocation(2, 5.0, 3.0, 900.0, 20, 880.0, None, 905.0, 1800.0, 1800.0, AllocationEnd.FINISHED, 0)
    found = ChainAccount.of(chain(over(1, 10.0, 900.0), second))
    assert (found.overlap_s, found.overlap_j, found.overlap_source) == (20.0, None, "")
