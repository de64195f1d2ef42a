"""EASY backfill in virtual time, against a reference that looks at each second anew."""

from __future__ import annotations

import pytest
from hypothesis import given

from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.simulated_chain import BackfillQueue, QueueReplay, replayed
from tests.contrib.chains.made_jobs import GPUS, job, job_lists, most_held


def reference(jobs: list[BatchJob]) -> tuple[dict[str, float], dict[str, float]]:
    """Starts of the jobs, and the first reservation of each job that was first in the queue."""
    started: dict[str, float] = {}
    reserved: dict[str, float] = {}
    second = 0
    while len(started) < len(jobs):
        # Submissions of one second come one by one, and each leads to a look.
        comes = [each.name for each in jobs if each.submit_s == second]
        for number in range(max(1, len(comes))):
            late = set(comes[number + 1 :])
            there = [each for each in jobs if each.submit_s <= second and each.name not in late]
            _look(there, second, started, reserved)
        second += 1
    return started, reserved


def _look(there: list[BatchJob], now: int, started: dict[str, float], reserved: dict[str, float]) -> None:
    def free(at: float, by_limit: bool) -> int:
        held = 0
        for each in there:
            if each.name in started:
                lasts_s = each.limit_s if by_limit else each.lasts_s
                held += each.gpus if started[each.name] <= at < started[each.name] + lasts_s else 0
        return GPUS - held

    def free_then(at: float) -> int:
        """GPUs free at a later moment, if running jobs last until their limits; ended ones hold none."""
        held = 0
        for each in there:
            if each.name in started and now < started[each.name] + each.lasts_s:
                held += each.gpus if at < started[each.name] + each.limit_s else 0
        return GPUS - held

    waiting = [each for each in there if each.name not in started]
    while waiting and waiting[0].gpus <= free(now, by_limit=False):
        started[waiting.pop(0).name] = now
    if not waiting:
        return
    first = waiting[0]
    moment = float(now)
    while free_then(moment) < first.gpus:
        moment += 1
    reserved.setdefault(first.name, moment)
    for each in waiting[1:]:
        fits = each.gpus <= free(now, by_limit=False)
        spare = free_then(moment) - first.gpus
        if fits and (now + each.limit_s <= moment or each.gpus <= spare):
            started[each.name] = now


def starts(jobs: list[BatchJob]) -> dict[str, float]:
    replay = QueueReplay(BackfillQueue(GPUS), jobs)
    replay.advance(float("inf"))
    return replay.queue.started_s


@given(job_lists())
def test_it_starts_each_job_when_the_reference_does(jobs: list[BatchJob]) -> None:
    assert starts(jobs) == reference(jobs)[0]


@given(job_lists())
def test_no_gpu_is_used_twice_and_each_job_starts_after_its_submission(jobs: list[BatchJob]) -> None:
    started_s = starts(jobs)
    assert most_held(jobs, started_s) <= GPUS
    assert all(started_s[each.name] >= each.submit_s for each in jobs)


@given(job_lists())
def test_a_backfilled_job_never_delays_the_reservation_of_the_first_one(jobs: list[BatchJob]) -> None:
    """If it failed, a large job could wait for ever behind small ones. It holds also where jobs end early."""
    _, reserved = reference(jobs)
    started_s = starts(jobs)
    assert all(started_s[name] <= moment for name, moment in reserved.items())


@given(job_lists())
def test_a_copy_goes_its_own_way(jobs: list[BatchJob]) -> None:
    replay = QueueReplay(BackfillQueue(GPUS), jobs)
    replay.advance(jobs[len(jobs) // 2].submit_s)
    fork = replay.copy()
    fork.queue.submit(job("extra", fork.queue.now_s, GPUS, 50.0))
    fork.advance(float("inf"))
    replay.advance(float("inf"))
    assert replay.queue.started_s == starts(jobs)
    assert "extra" in fork.queue.started_s


def test_a_short_job_goes_before_a_large_one_and_a_long_job_does_not() -> None:
    queue = BackfillQueue(4)
    for each in (job("a", 0.0, 3, 5.0), job("h", 1.0, 4, 4.0), job("b", 1.0, 1, 4.0), job("c", 1.0, 1, 5.0)):
        queue.submit(each)
    queue.advance(100.0)
    assert queue.started_s == {"a": 0.0, "b": 1.0, "h": 5.0, "c": 9.0}


def test_a_job_ends_at_its_limit() -> None:
    queue = BackfillQueue(1)
    queue.submit(job("long", 0.0, 1, 100.0, 10.0))
    queue.submit(job("next", 0.0, 1, 1.0))
    queue.advance(50.0)
    assert queue.started_s["next"] == 10.0


def test_cancelled_jobs_leave_their_gpus_and_their_place() -> None:
    queue = BackfillQueue(2)
    for each in (job("runs", 0.0, 2, 50.0), job("waits", 0.0, 2, 5.0), job("last", 0.0, 2, 5.0)):
        queue.submit(each)
    queue.end("waits")
    queue.advance(3.0)
    queue.end("runs")
    assert queue.started_s == {"runs": 0.0, "last": 3.0}
    queue.advance(60.0)
    assert queue.sight().free_gpus == 2
    with pytest.raises(KeyError):
        queue.end("waits")


def test_a_large_job_with_a_bonus_goes_before_an_older_small_one() -> None:
    def first(bonus_s: float) -> str:
        queue = BackfillQueue(4, size_bonus_s=bonus_s)
        for each in (job("runs", 0.0, 4, 9.0), job("small", 1.0, 1, 9.0), job("large", 2.0, 4, 9.0)):
            queue.submit(each)
        queue.advance(9.0)
        return list(queue.started_s)[1]

    assert (first(0.0), first(10.0)) == ("small", "large")


def test_jobs_beyond_the_depth_are_not_backfilled() -> None:
    def starts_now(depth: int) -> bool:
        queue = BackfillQueue(2, depth=depth)
        for each in (job("runs", 0.0, 1, 9.0), job("large", 0.0, 2, 9.0), job("no", 0.0, 1, 50.0)):
            queue.submit(each)
        queue.submit(job("fits", 0.0, 1, 5.0))
        return "fits" in queue.started_s

    assert starts_now(3) is True
    assert starts_now(2) is False


@pytest.mark.parametrize(
    "wrong", [job("wide", 1.0, 5, 1.0), job("a", 1.0, 1, 1.0), job("early", 0.5, 1, 1.0)], ids=lambda each: each.name
)
def test_wrong_submissions_are_refused(wrong: BatchJob) -> None:
    queue = BackfillQueue(4)
    queue.submit(job("a", 1.0, 1, 1.0))
    with pytest.raises(ValueError, match=wrong.name):
        queue.submit(wrong)


def test_a_replayed_log_has_the_waits_of_the_queue() -> None:
    first, second = replayed([job("a", 0.0, 1, 7.0), job("b", 2.0, 1, 1.0)], BackfillQueue(1))
    assert (first.wait_s, second.wait_s) == (0.0, 5.0)


@pytest.mark.parametrize("values", [(0, 1.0, 1.0), (1, -1.0, 1.0), (1, 1.0, 0.0), (1, float("nan"), 1.0)])
def test_a_job_with_wrong_numbers_is_refused(values: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="a job needs"):
        BatchJob("x", 0.0, *values)
