"""A chain of allocations of a batch cluster, as its record on the disk has it.

::

    allocation 1  ├─ waits ─┼─ works ────────────────┤ stop
    allocation 2                     ├─ waits ─┼ idle ┼─ works ──────┤
                                     submitted  started  works_from   works_to, ended

All moments are seconds since 1970 on the clock of the machine that saw them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import fsum

IDLE_GPU_W = 60.0
"""Power (W) of a GPU at rest, if nothing tells it: joules of an overlap are modelled with it."""


class Overlap(Enum):
    """Conduct of a successor that starts before its predecessor has ended."""

    IDLE = "idle"
    TAKE_OVER = "take-over"


class AllocationEnd(Enum):
    """End of an allocation of a chain."""

    STOPPED = "stopped"
    """It stopped before its limit, or let its successor take over."""

    TOO_SHORT = "too short"
    """It stopped before its limit, and its run had not even begun."""

    FINISHED = "finished"
    """All jobs of the run have ended."""

    BROKEN = "broken"
    """The run could not begin or go on."""

    TERMINATED = "terminated"
    """Slurm sent SIGTERM: `scancel`, a preemption or a requeue."""

    LOST = "lost"
    """It ended without a word: a machine failed, or the whole allocation was killed."""

    NOT_NEEDED = "not needed"
    """It never worked: the chain had ended."""

    WITHDRAWN = "withdrawn"
    """It was taken out of the queue before it started."""


class ChainOutcome(Enum):
    """End of a chain."""

    DONE = "done"
    """All jobs of the run have ended."""

    FAILED = "failed"
    """The run could not begin or go on."""

    CANCELLED = "cancelled"
    """A user cancelled its allocations."""

    LIMITED = "limited"
    """It had as many allocations, or as much time, as was asked for."""


@dataclass(frozen=True, slots=True)
class ChainAllocation:
    """One allocation of a chain.

    Attributes:
        number: Place in the order of submissions, from 1.
        submitted_s: Moment (s) of the submission.
        predicted_wait_s: Wait (s) that was predicted then.
        due_s: Moment (s) at which its predecessor was to stop; None for the first one.
        job: ID of the Slurm job; None while it is being submitted.
        started_s: Moment (s) at which its batch script started.
        asks_s: Moment (s) from which it asks to take over.
        works_from_s: Moment (s) at which it began to run the jobs.
        works_to_s: Moment (s) at which its jobs had stopped.
        ended_s: Moment (s) at which it had ended.
        end: How it ended.
        code: Exit code of its run.
        idle_j: Joules of its devices before it worked; None if unknown.
        idle_source: `measured` or `modelled`.
    """

    number: int
    submitted_s: float
    predicted_wait_s: float = 0.0
    due_s: float | None = None
    job: int | None = None
    started_s: float | None = None
    asks_s: float | None = None
    works_from_s: float | None = None
    works_to_s: float | None = None
    ended_s: float | None = None
    end: AllocationEnd | None = None
    code: int | None = None
    idle_j: float | None = None
    idle_source: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it waits or runs."""
        return self.ended_s is None

    @property
    def works(self) -> bool:
        """Whether it runs the jobs now."""
        return self.is_live and self.works_from_s is not None

    @property
    def is_idle(self) -> bool:
        """Whether it has started, and waits for the end of its predecessor."""
        return self.is_live and self.started_s is not None and self.works_from_s is None

    @property
    def queued_s(self) -> float | None:
        """Wait (s) in the queue; None if it never started."""
        return None if self.started_s is None else max(0.0, self.started_s - self.submitted_s)


@dataclass(frozen=True, slots=True)
class AllocationChain:
    """Chain of allocations of one run.

    Attributes:
        name: Name of the chain and of its Slurm jobs.
        jobs: Path of the job file.
        digest: Digest of the job file.
        folder: Absolute path of the chain's folder, as its batch scripts have it.
        heading: First lines of each batch script.
        run_options: Options of `ecoshare run` in the first allocation.
        resume_options: Options of `ecoshare run --resume` in the others.
        asked: Options of the user as texts, by name. A chain is taken up again with the same ones.
        overlap: Conduct of a successor that comes early.
        predictor: Name of the predictor of waits.
        margin_s: Time (s) that is added to each predicted wait.
        ahead: Largest number of successors that wait at once.
        limit_s: Time limit (s) of each allocation.
        stop_s: Time (s) before the limit at which an allocation stops its jobs.
        partition: Partition.
        resource: Trackable resource that counts: `gres/gpu` or `cpu`.
        count: Number of it that an allocation has.
        total: Number of it that the partition has.
        nodes: Number of machines of an allocation.
        begun_s: Moment (s) of the beginning.
        most_allocations: Largest number of allocations; None for no bound.
        until_s: Moment (s) from which no allocation is submitted; None for no bound.
        allocations: Allocations in the order of submission.
        past: Number of allocations from before the chain was last taken up again. Their ends no longer count.
        outcome: How the chain ended; None while it goes on.
        code: Exit code of its last run.
        look_s: Moment (s) of the next look at the queue.
        notes: Notes for the user.
    """

    name: str
    jobs: str
    digest: str
    folder: str
    heading: str
    run_options: tuple[str, ...]
    resume_options: tuple[str, ...]
    asked: Mapping[str, str]
    overlap: Overlap
    predictor: str
    margin_s: float
    ahead: int
    limit_s: float
    stop_s: float
    partition: str
    resource: str
    count: int
    total: int
    nodes: int
    begun_s: float
    most_allocations: int | None = None
    until_s: float | None = None
    allocations: tuple[ChainAllocation, ...] = ()
    past: int = 0
    outcome: ChainOutcome | None = None
    code: int | None = None
    look_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def live(self) -> list[ChainAllocation]:
        """Allocations that wait or run."""
        return [each for each in self.allocations if each.is_live]

    @property
    def working(self) -> ChainAllocation | None:
        """Allocation that runs the jobs now."""
        return next((each for each in self.allocations if each.works), None)

    @property
    def work_limit_s(self) -> float:
        """Time (s) that an allocation can work."""
        return self.limit_s - self.stop_s

    def of_job(self, job: int) -> ChainAllocation | None:
        """Last allocation of a Slurm job; a requeued job has several."""
        return next((each for each in reversed(self.allocations) if each.job == job), None)


@dataclass(frozen=True, slots=True)
class Passage:
    """Passage from one allocation to the next one that started.

    Attributes:
        number: Number of the next one.
        ahead_s: Time (s) from its submission to the planned stop of its predecessor; None if that is not known.
        predicted_wait_s: Wait (s) that was predicted at its submission.
        wait_s: Wait (s) that it had.
        interruption_s: Time (s) without an allocation before it.
        overlap_s: Time (s) with two allocations.
        between_s: Time (s) from the end of the run to its next start; None if it did not work. Loading comes on top.
        overlap_j: Joules of its devices while it was idle; None if unknown.
    """

    number: int
    ahead_s: float | None
    predicted_wait_s: float
    wait_s: float
    interruption_s: float
    overlap_s: float
    between_s: float | None
    overlap_j: float | None


@dataclass(frozen=True, slots=True)
class ChainAccount:
    """Cost of the passages of a chain.

    Attributes:
        passages: Passages in the order of starts.
        interruption_s: Time (s) without an allocation.
        overlap_s: Time (s) with two allocations.
        between_s: Time (s) from the end of each run to its next start.
        overlap_j: Joules of idle successors; None if those of one are unknown.
        overlap_source: `measured`, `modelled` or `partly measured`; empty without an overlap or without its joules.
        span_s: Time (s) from the first start to the last end.
    """

    passages: tuple[Passage, ...] = ()
    interruption_s: float = 0.0
    overlap_s: float = 0.0
    between_s: float = 0.0
    overlap_j: float | None = 0.0
    overlap_source: str = ""
    span_s: float = 0.0

    @classmethod
    def of(cls, chain: AllocationChain) -> ChainAccount:
        """Account of a chain, finished or not."""
        started = [(each.started_s, each) for each in chain.allocations if each.started_s is not None]
        started.sort(key=lambda each: each[0])
        passages, sources = list[Passage](), set[str]()
        for place, (start_s, own) in enumerate(started[1:], start=1):
            before = [each for _, each in started[:place]]
            ends_s = [each.ended_s for each in before if each.ended_s is not None]
            held_s = max(ends_s) if len(ends_s) == len(before) else start_s  # one of them still runs
            overlap_s = max(0.0, min(held_s, held_s if own.ended_s is None else own.ended_s) - start_s)
            stops_s = [each.works_to_s for each in before if each.works_to_s is not None]
            passages.append(
                Passage(
                    own.number,
                    None if own.due_s is None else own.due_s - own.submitted_s,
                    own.predicted_wait_s,
                    max(0.0, start_s - own.submitted_s),
                    max(0.0, start_s - held_s),
                    overlap_s,
                    max(0.0, own.works_from_s - max(stops_s)) if own.works_from_s is not None and stops_s else None,
                    own.idle_j if overlap_s > 0.0 else 0.0,
                )
            )
            if overlap_s > 0.0:
                sources.add(own.idle_source)
        joules = [each.overlap_j for each in passages]
        known = [each for each in joules if each is not None]
        is_known = len(known) == len(joules)
        source = sources.pop() if len(sources) == 1 else "partly measured" if sources else ""
        moments_s = [moment for _, each in started for moment in (each.started_s, each.ended_s) if moment is not None]
        return cls(
            tuple(passages),
            fsum(each.interruption_s for each in passages),
            fsum(each.overlap_s for each in passages),
            fsum(each.between_s or 0.0 for each in passages),
            fsum(known) if is_known else None,
            source if is_known else "",
            max(moments_s) - min(moments_s) if moments_s else 0.0,
        )
