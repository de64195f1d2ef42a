"""Steps of a live chain: what the queue says of its allocations, and whether to submit another one. Pure.

::

    squeue ──► reconciled: allocations that were lost, withdrawn, requeued or submitted without a record
                   │
                   ▼
               end_of ──► the chain has ended
                   │
                   ▼
               covered_s ──► Provisioner.decide: submit the successor now, or look again later
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ecoshare.contrib.chains.allocation_chain import AllocationChain, AllocationEnd, ChainAllocation, ChainOutcome
from ecoshare.contrib.chains.own_jobs import OwnJob, in_queue

MOST_LOST = 3
"""Number of allocations in a row that may be lost, or be too short to begin the run. More are no accident."""

_SETTLED_S = 300.0
"""Time (s) that an allocation works before its successor takes over, or half of its time if that is less."""

_VAIN = {AllocationEnd.LOST, AllocationEnd.TOO_SHORT}

_DOUBTFUL_CODES = (1, 5)
"""Exit codes of a run with a job that failed, or a broken limit. A traceback ends with 1, too."""


def changed(chain: AllocationChain, allocation: ChainAllocation) -> AllocationChain:
    """The chain with one allocation in another state."""
    return replace(
        chain,
        allocations=tuple(allocation if each.number == allocation.number else each for each in chain.allocations),
    )


def is_finished(code: int, state: str | None) -> bool:
    """Whether a run has ended all its jobs.

    Args:
        code: Exit code of the run.
        state: State of the run by its summary, such as `failed`; None if it has none.
    """
    return code == 0 or (code in _DOUBTFUL_CODES and state in ("completed", "failed"))


def end_of_run(finished: bool, asked: bool, terminated: bool) -> AllocationEnd:
    """How an allocation has ended after its run.

    Args:
        finished: Whether all jobs have ended.
        asked: Whether the run was to stop.
        terminated: Whether Slurm sent SIGTERM for another reason than the limit.
    """
    if finished:
        return AllocationEnd.FINISHED
    if terminated:
        return AllocationEnd.TERMINATED
    return AllocationEnd.STOPPED if asked else AllocationEnd.BROKEN


def at_work(chain: AllocationChain, own: ChainAllocation, at_s: float) -> AllocationChain:
    """The chain after an idle allocation began to run the jobs. Others ask again once it has worked for a while."""
    for each in chain.allocations:
        if each.is_idle and each.asks_s is not None and each.number != own.number:
            chain = changed(chain, replace(each, asks_s=None))
    return changed(chain, replace(own, works_from_s=at_s))


def with_ends(chain: AllocationChain, there: AllocationChain) -> AllocationChain:
    """The chain with ends of allocations that the record has by now. An allocation at its limit waits for no lock.

    Args:
        chain: The chain to be recorded.
        there: The chain as the record has it.
    """
    ended = {each.number: each for each in there.allocations if not each.is_live}
    for own in chain.live:
        other = ended.get(own.number)
        if other is not None and own.job in (None, other.job):
            chain = changed(chain, other)
            chain = replace(chain, code=there.code)
    return chain


def added(chain: AllocationChain, at_s: float, **fields: float | None) -> AllocationChain:
    """The chain with one more allocation, submitted at `at_s`."""
    own = ChainAllocation(len(chain.allocations) + 1, at_s, **fields)  # type: ignore[arg-type]
    return replace(chain, allocations=(*chain.allocations, own))


def vanished(chain: AllocationChain, jobs: Sequence[OwnJob]) -> list[int]:
    """Slurm jobs that are no longer in the queue, and have not ended as far as the record says."""
    return [each.job for each in chain.live if each.job is not None and in_queue(jobs, each.job) is None]


def reconciled(
    chain: AllocationChain, jobs: Sequence[OwnJob], at_s: float, states: Mapping[int, str | None]
) -> tuple[AllocationChain, tuple[int, ...]]:
    """The chain as the queue has it, and Slurm jobs that have no place in it, to be cancelled.

    Args:
        chain: The chain. No process is submitting for it now.
        jobs: Jobs of the chain in the queue.
        at_s: Now (s).
        states: States that Slurm gives the jobs that have `vanished`, by ID. A user has ended one only if it says
            `CANCELLED`; others have failed.
    """
    known = {each.job for each in chain.allocations}
    strays = []
    for job in jobs:
        if job.job in known:
            continue
        own = next((each for each in chain.allocations if each.number == job.number), None)
        if own is not None and own.job is None and own.is_live:
            chain = changed(chain, replace(own, job=job.job))
        else:
            strays.append(job.job)
    # An entry without a job was written before a submission that never happened. It is the last one.
    kept = tuple(each for each in chain.allocations if each.job is not None or not each.is_live)
    chain = replace(chain, allocations=kept)
    for own in chain.live:
        listed = in_queue(jobs, own.job)
        if listed is None:
            chain = changed(chain, _ended(own, _end_of_vanished(own, states.get(own.job or 0)), at_s))
        elif listed.waits and own.started_s is not None:
            chain = changed(chain, _ended(own, AllocationEnd.LOST, at_s))
    for job in jobs:  # a requeued job is a new allocation with the same ID
        last = chain.of_job(job.job)
        if job.waits and last is not None and not last.is_live:
            chain = added(chain, at_s)
            chain = changed(chain, replace(chain.allocations[-1], job=job.job))
    return chain, tuple(strays)


def started(chain: AllocationChain, job: int, number: int, at_s: float) -> AllocationChain:
    """The chain after the batch script of a Slurm job has started.

    Args:
        chain: The chain.
        job: ID of the Slurm job.
        number: Number of its script.
        at_s: Now (s).
    """
    own = chain.of_job(job)
    if own is None:
        own = next((each for each in chain.allocations if each.number == number and each.job is None), None)
        if own is None or not own.is_live:
            return chain
    if own.started_s is not None:  # Slurm has started the job again
        if own.is_live:
            chain = changed(chain, _ended(own, AllocationEnd.LOST, at_s))
        chain = added(chain, at_s)
        own = chain.allocations[-1]
    return changed(chain, replace(own, job=job, started_s=at_s))


def _end_of_vanished(own: ChainAllocation, state: str | None) -> AllocationEnd:
    """End of an allocation that Slurm has ended before it could say so: SIGTERM may have come at its very start."""
    if state != "CANCELLED":
        return AllocationEnd.LOST
    return AllocationEnd.WITHDRAWN if own.started_s is None else AllocationEnd.TERMINATED


def _ended(own: ChainAllocation, end: AllocationEnd, at_s: float) -> ChainAllocation:
    works_to_s = at_s if own.works_from_s is not None and own.works_to_s is None else own.works_to_s
    return replace(own, end=end, ended_s=at_s, works_to_s=works_to_s)


def may_work(chain: AllocationChain, own: ChainAllocation) -> bool:
    """Whether an idle allocation may run the jobs: none does, and it started first of those that wait for that."""
    if chain.outcome is not None or chain.working is not None:
        return False
    idle = [each for each in chain.allocations if each.is_idle]
    return bool(idle) and min(idle, key=lambda each: (each.started_s, each.number)).number == own.number


def may_take_over(chain: AllocationChain, own: ChainAllocation, at_s: float) -> bool:
    """Whether an idle allocation may ask its predecessor to stop, which has to have worked for a while.

    Each passage costs a start of the run, so a chain must not hop from one allocation to the next.
    """
    front = chain.working
    if not own.is_idle or own.asks_s is not None or front is None or front.works_from_s is None:
        return False
    return at_s - front.works_from_s >= min(_SETTLED_S, chain.work_limit_s / 2.0)


def end_of(chain: AllocationChain, at_s: float, last_state: str | None) -> ChainOutcome | None:
    """How a chain has ended; None if it goes on.

    Args:
        chain: The chain, reconciled.
        at_s: Now (s).
        last_state: State that Slurm gives the job of the last allocation; None if it is not known, or still ends.
    """
    ends = [each.end for each in chain.allocations[chain.past :] if not each.is_live]
    if AllocationEnd.FINISHED in ends:
        return ChainOutcome.DONE
    last = ends[-MOST_LOST:]
    if AllocationEnd.BROKEN in ends or (len(last) == MOST_LOST and _VAIN.issuperset(last)):
        return ChainOutcome.FAILED
    if chain.live:
        return None
    if AllocationEnd.WITHDRAWN in ends:
        return ChainOutcome.CANCELLED
    if ends and ends[-1] is AllocationEnd.TERMINATED and last_state in (None, "CANCELLED", "COMPLETED", "FAILED"):
        return ChainOutcome.CANCELLED
    return ChainOutcome.LIMITED if is_limited(chain, at_s) else None


def is_settling(chain: AllocationChain, jobs: Sequence[OwnJob]) -> bool:
    """Whether Slurm still ends an allocation that it has terminated. `scancel` of all ends one after another."""
    again = {each.job for each in chain.live}  # a requeued job is in the queue for its next allocation
    ended = [each.job for each in chain.allocations if each.end is AllocationEnd.TERMINATED and each.job not in again]
    return any(in_queue(jobs, job) is not None for job in ended)


def is_limited(chain: AllocationChain, at_s: float) -> bool:
    """Whether no further allocation may be submitted."""
    if any(each.end is AllocationEnd.WITHDRAWN for each in chain.allocations[chain.past :]):
        return True  # a user took a successor out of the queue: the chain ends with the allocation that works
    used = len(chain.allocations)
    return (chain.most_allocations is not None and used >= chain.most_allocations) or (
        chain.until_s is not None and at_s >= chain.until_s
    )


def covered_s(chain: AllocationChain, jobs: Sequence[OwnJob], at_s: float) -> float | None:
    """Time (s) from now on that live allocations cover; None if enough successors wait already.

    Args:
        chain: The chain, reconciled.
        jobs: Jobs of the chain in the queue.
        at_s: Now (s).
    """
    live = chain.live
    front = chain.working or next((each for each in live if each.is_idle), None)
    if len(live) - (front is not None) >= chain.ahead:
        return None
    covered_to_s = at_s
    for own in live:
        job = in_queue(jobs, own.job)
        if own.started_s is not None:
            left_s = job.left_s if job is not None else chain.limit_s
            covered_to_s = max(covered_to_s, at_s + left_s - chain.stop_s)
        else:
            begins_s = max(at_s, own.submitted_s + own.predicted_wait_s, covered_to_s)
            covered_to_s = begins_s + chain.work_limit_s
    return max(0.0, covered_to_s - at_s)
