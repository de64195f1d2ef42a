"""Chain of allocations in a simulated queue: its own jobs wait there among those of the log, and take GPUs.

::

    idle        predecessor ├────────────────────────┤
                successor                    ├╌╌╌╌╌╌╌╌╌┼───────────────┤      waits for its limit to pass: shorter work
                                             └ overlap ┘
    take-over   predecessor ├──────────────────┤                              ends at a checkpoint, before its limit
                successor                    ├╌┼───────────────────────┤
                                             └─┘ overlap: loads, and waits for the checkpoint
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice
from math import ceil, inf

from ecoshare.base.plural import counted
from ecoshare.contrib.chains.allocation_chain import IDLE_GPU_W, Overlap
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.provisioner import Provisioner
from ecoshare.contrib.chains.queue_sight import REMEMBERED, QueueSight, RunningJob, StartedJob, WaitingJob


@dataclass(frozen=True, slots=True)
class HandOver:
    """Passage from one allocation to the next.

    Attributes:
        ahead_s: Time (s) from the submission of the successor to the limit of its predecessor.
        predicted_wait_s: Wait (s) that was predicted at the submission.
        wait_s: Wait (s) of the successor.
        interruption_s: Time (s) without an allocation.
        overlap_s: Time (s) with two allocations.
    """

    ahead_s: float
    predicted_wait_s: float
    wait_s: float
    interruption_s: float
    overlap_s: float


@dataclass(frozen=True, slots=True)
class ChainResult:
    """Chain from the start of its first allocation to the end of its work.

    Attributes:
        gpus: Number of GPUs of each allocation.
        work_s: Time (s) of the work.
        first_wait_s: Wait (s) of the first allocation, which no way of submitting successors changes.
        span_s: Time (s) from the first start to the end of the work.
        hand_overs: Passages in order; one fewer than there were allocations.
        idle_w: Power (W) of a GPU that waits with an allocation. The joules are modelled with it.
    """

    gpus: int
    work_s: float
    first_wait_s: float
    span_s: float
    hand_overs: tuple[HandOver, ...]
    idle_w: float

    @property
    def interruption_s(self) -> float:
        """Time (s) without an allocation between the first start and the end."""
        return sum(each.interruption_s for each in self.hand_overs)

    @property
    def overlap_s(self) -> float:
        """Time (s) with two allocations."""
        return sum(each.overlap_s for each in self.hand_overs)

    @property
    def overlap_share(self) -> float:
        """Time with two allocations / time from the first start to the end."""
        return self.overlap_s / self.span_s

    @property
    def overlap_j(self) -> float:
        """Joules, modelled: the GPUs of one of the two allocations idle during an overlap."""
        return self.overlap_s * self.gpus * self.idle_w

    @property
    def is_interrupted(self) -> bool:
        """Whether there was a second or more without an allocation."""
        return self.interruption_s >= 1.0


@dataclass(frozen=True, slots=True)
class ChainTotals:
    """Sums over chains.

    Attributes:
        chains: Number of chains.
        hand_overs: Number of hand-overs.
        interruption_s: Time (s) without an allocation.
        overlap_share: Time with two allocations / time of all chains.
        overlap_j: Joules of overlap, modelled.
        uninterrupted_share: Share of chains without an interruption.
    """

    chains: int
    hand_overs: int
    interruption_s: float
    overlap_share: float
    overlap_j: float
    uninterrupted_share: float

    @classmethod
    def of(cls, results: Sequence[ChainResult]) -> ChainTotals:
        """Sums over `results`, at least one."""
        return cls(
            len(results),
            sum(len(each.hand_overs) for each in results),
            sum(each.interruption_s for each in results),
            sum(each.overlap_s for each in results) / sum(each.span_s for each in results),
            sum(each.overlap_j for each in results),
            sum(not each.is_interrupted for each in results) / len(results),
        )


DEPTH = 100
"""Number of waiting jobs that backfill looks at, as `bf_max_job_test` in older versions of Slurm."""


class BackfillQueue:
    """Partition of a cluster. The caller moves its clock.

    ::

        GPUs
         4 │ a a a a a . . . . h h h h      h, first in the queue, needs 4 GPUs: reserved for the limit of a
         3 │ a a a a a . . . . h h h h      b asks for less time than is left until then: it starts before h
         2 │ a a a a a . . . . h h h h      c would still hold a GPU then: it waits
         1 │ . b b b b . . . . h h h h
           └──────────────────────────► time

    Jobs start in the order of their priority. The first job that does not fit gets a reservation: the earliest moment
    at which enough GPUs are free if each running job lasts until its limit. A later job starts before it only if it
    ends by then by its limit, or takes GPUs that the first job leaves over (Lifka, "The ANL/IBM SP Scheduling System",
    JSSPP 1995).

    Differences to Slurm, which waits should be read with:

    * Slurm's backfill reserves GPUs for every job that it looks at (conservative), so it backfills less. EASY reserves
      for the first job alone.
    * Slurm looks at intervals (`bf_interval`, 30 s); here each submission and each end leads to a look.
    * GPUs are one pool: no nodes, no fragmentation.
    * No fair-share, no quality of service, no limits of users. The priority is the age, with a bonus for large jobs.

    Attributes:
        gpus: Number of GPUs.
        now_s: Virtual time (s).
        started_s: Start (s) of each job that has started, by name.
    """

    def __init__(self, gpus: int, *, depth: int = DEPTH, size_bonus_s: float = 0.0) -> None:
        """Empty queue at time minus infinity.

        Args:
            gpus: Number of GPUs.
            depth: Number of waiting jobs that one look considers.
            size_bonus_s: Age (s) that a job of all GPUs has at its submission; smaller jobs have their part of it. 0
                gives first come, first served.
        """
        self.gpus, self.now_s = gpus, -inf
        self.started_s: dict[str, float] = {}
        self._depth, self._bonus_s = depth, size_bonus_s
        self._free, self._submitted, self._names = gpus, 0, set[str]()
        self._waiting: list[tuple[float, int, BatchJob]] = []  # key, order of submission
        self._running: dict[str, tuple[BatchJob, float]] = {}  # job, start
        self._limits: list[tuple[float, str, int]] = []  # end by limit, name, GPUs; ascending
        self._ends: list[tuple[float, str]] = []  # heap; entries of jobs that were ended early stay until their time
        self._last: deque[StartedJob] = deque(maxlen=REMEMBERED)
        self._ended_jobs, self._shares = 0, 0.0

    def copy(self) -> BackfillQueue:
        """Queue in the same state, which goes its own way from here."""
        other = BackfillQueue(self.gpus, depth=self._depth, size_bonus_s=self._bonus_s)
        other.now_s, other.started_s = self.now_s, self.started_s.copy()
        other._free, other._submitted, other._names = self._free, self._submitted, self._names.copy()
        other._waiting, other._running = self._waiting.copy(), self._running.copy()
        other._limits, other._ends = self._limits.copy(), self._ends.copy()
        other._last, other._ended_jobs, other._shares = self._last.copy(), self._ended_jobs, self._shares
        return other

    @property
    def next_end_s(self) -> float:
        """Time (s) of the next end of a job; infinite if none runs."""
        while self._ends and not self._is_end(*self._ends[0]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else inf

    def advance(self, to_s: float) -> None:
        """Move the clock to `to_s`, with all ends up to then and the starts that follow from them.

        With an infinite `to_s` it stays at the last end.
        """
        while (end_s := self.next_end_s) <= to_s and end_s < inf:
            self.now_s = end_s
            while self._ends and self._ends[0][0] == end_s:
                _, name = heappop(self._ends)
                if self._is_end(end_s, name):
                    self._release(name)
            self._start_jobs()
        if to_s < inf:
            self.now_s = max(self.now_s, to_s)

    def submit(self, job: BatchJob) -> None:
        """Take a job, which starts at once if it may. The clock moves to its submission first.

        Raises:
            ValueError: The job asks for more GPUs than there are, its name is taken, or its submission has passed.
        """
        if job.gpus > self.gpus:
            raise ValueError(f"{job.name} asks for {counted(job.gpus, 'GPU')} of {self.gpus}")
        if job.submit_s < self.now_s:
            raise ValueError(f"{job.name} comes at {job.submit_s}, before {self.now_s}")
        self.advance(job.submit_s)
        if job.name in self._names:
            raise ValueError(f"there is a job {job.name} already")
        self._names.add(job.name)
        self._submitted += 1
        key = job.submit_s - self._bonus_s * job.gpus / self.gpus
        insort(self._waiting, (key, self._submitted, job))
        self._start_jobs()

    def end(self, name: str) -> None:
        """End a running job now, or take a waiting one out of the queue, as `scancel` does.

        Raises:
            KeyError: No such job waits or runs.
        """
        if name in self._running:
            self._release(name)
        else:
            place = next((n for n, (_, _, job) in enumerate(self._waiting) if job.name == name), None)
            if place is None:
                raise KeyError(name)
            del self._waiting[place]
        self._start_jobs()

    def holds(self, name: str) -> bool:
        """Whether a job waits or runs."""
        return name in self._running or any(job.name == name for _, _, job in self._waiting)

    def sight(self) -> QueueSight:
        """Queue as a user sees it now."""
        return QueueSight(
            self.now_s,
            self.gpus,
            tuple(RunningJob(gpus, end_s - self.now_s) for end_s, _, gpus in self._limits),
            tuple(WaitingJob(job.gpus, job.limit_s, self.now_s - job.submit_s) for _, _, job in self._waiting),
            tuple(self._last),
            max(0.01, self._shares / self._ended_jobs) if self._ended_jobs else 1.0,
        )

    def _is_end(self, end_s: float, name: str) -> bool:
        """Whether an entry of the heap is the end of a job that still runs."""
        held = self._running.get(name)
        return held is not None and held[1] + held[0].lasts_s == end_s

    def _start_jobs(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][2].gpus <= self._free:
            self._start(waiting.pop(0)[2])
        if not waiting or not self._free:
            return
        reserved_s, spare = self._reservation(waiting[0][2].gpus)
        place = 1
        for _, _, job in list(islice(waiting, 1, self._depth)):
            ends_before = self.now_s + job.limit_s <= reserved_s
            if job.gpus <= self._free and (ends_before or job.gpus <= spare):
                spare -= 0 if ends_before else job.gpus
                del waiting[place]
                self._start(job)
                if not self._free:
                    return
            else:
                place += 1

    def _reservation(self, gpus: int) -> tuple[float, int]:
        """Moment (s) from which `gpus` GPUs are free by the limits, and the number of GPUs left over then."""
        free = self._free
        for place, (end_s, _, released) in enumerate(self._limits):
            free += released
            following_s = self._limits[place + 1][0] if place + 1 < len(self._limits) else None
            if free >= gpus and following_s != end_s:
                return end_s, free - gpus
        raise AssertionError("all GPUs are free when all jobs have ended")

    def _start(self, job: BatchJob) -> None:
        self._free -= job.gpus
        self._running[job.name] = job, self.now_s
        insort(self._limits, (self.now_s + job.limit_s, job.name, job.gpus))
        heappush(self._ends, (self.now_s + job.lasts_s, job.name))
        self.started_s[job.name] = self.now_s
        self._last.append(StartedJob(job.gpus, self.now_s - job.submit_s))

    def _release(self, name: str) -> None:
        job, start_s = self._running.pop(name)
        self._free += job.gpus
        del self._limits[bisect_left(self._limits, (start_s + job.limit_s, name, job.gpus))]
        if job.limit_s < inf:
            self._ended_jobs += 1
            self._shares += (self.now_s - start_s) / job.limit_s


class QueueReplay:
    """Queue that gets the jobs of a log at their recorded submissions.

    Attributes:
        queue: The queue. Callers may submit and end jobs of their own in it.
    """

    def __init__(self, queue: BackfillQueue, jobs: Sequence[BatchJob], place: int = 0) -> None:
        """Replay from the job at `place` on.

        Args:
            queue: The queue.
            jobs: Jobs in the order of their submission; it is not copied.
            place: Index of the next job.
        """
        self.queue = queue
        self._jobs, self._place = jobs, place

    def copy(self) -> QueueReplay:
        """Replay in the same state, which goes its own way from here."""
        return QueueReplay(self.queue.copy(), self._jobs, self._place)

    def advance(self, to_s: float, watched: str | None = None) -> None:
        """Move the clock to `to_s`, or to the start of the job `watched` if that comes before.

        With an infinite `to_s` it stays at the last start or end.
        """
        queue = self.queue
        while watched is None or watched not in queue.started_s:
            arrival_s = self._jobs[self._place].submit_s if self._place < len(self._jobs) else inf
            end_s = queue.next_end_s
            following_s = min(arrival_s, end_s)
            if following_s > to_s or following_s == inf:
                queue.advance(to_s)
                return
            if end_s <= arrival_s:
                queue.advance(end_s)
            else:
                self._place += 1
                queue.submit(self._jobs[self._place - 1])

    def advance_to_start(self, name: str) -> float:
        """Move the clock to the start of a job that waits, and return it (s).

        Raises:
            ValueError: The job never starts: the log has ended, and no job runs.
        """
        self.advance(inf, name)
        if name not in self.queue.started_s:
            raise ValueError(f"{name} never starts")
        return self.queue.started_s[name]


def replayed(jobs: Sequence[BatchJob], queue: BackfillQueue) -> list[BatchJob]:
    """Jobs with the waits that they have in a simulated queue, in the order of the log."""
    replay = QueueReplay(queue, jobs)
    replay.advance(inf)
    started_s = queue.started_s
    return [replace(job, wait_s=started_s[job.name] - job.submit_s) for job in jobs]


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """Work that is longer than the limit of its partition.

    Attributes:
        gpus: Number of GPUs of each allocation.
        limit_s: Time limit (s) of each allocation.
        work_s: Time (s) that the work takes on these GPUs.
        overlap: Conduct of a successor that comes early.
        load_s: Time (s) after its start at which a successor can take over.
        checkpoint_s: Time (s) between two checkpoints. At its limit, an allocation always has a checkpoint.
        idle_w: Power (W) of a GPU that waits with an allocation, for modelled joules.
    """

    gpus: int
    limit_s: float
    work_s: float
    overlap: Overlap = Overlap.TAKE_OVER
    load_s: float = 300.0
    checkpoint_s: float = 1800.0
    idle_w: float = IDLE_GPU_W


def run_chain(replay: QueueReplay, spec: ChainSpec, provisioner: Provisioner, name: str = "chain") -> ChainResult:
    """Result of a chain that is submitted now.

    The provisioner is asked about the first successor once an allocation works, and about more while one waits.

    Args:
        replay: The queue with its log. The call moves its clock and leaves it at the end of the chain.
        spec: The chain.
        provisioner: Rule that says when to submit each successor.
        name: Begin of the names of its jobs, which the log must not have.
    """
    links = _Links(replay, spec, provisioner, name)
    first = links.begin()
    start_s = first_start_s = replay.queue.started_s[first.name]
    works_from_s, left_s = start_s, spec.work_s
    running, hand_overs = first, []
    while works_from_s + left_s > start_s + spec.limit_s:
        end_s = start_s + spec.limit_s
        successor = links.await_start(works_from_s, left_s, end_s)
        start_s = replay.queue.started_s[successor.name]
        over_s = end_s
        if spec.overlap is Overlap.TAKE_OVER and start_s < end_s:
            over_s = _checkpoint_s(spec, works_from_s, start_s, end_s)
            replay.advance(over_s)
            if over_s < end_s:
                replay.queue.end(running.name)
        hand_overs.append(
            HandOver(
                end_s - successor.submit_s,
                successor.wait_s,
                start_s - successor.submit_s,
                max(0.0, start_s - end_s),
                max(0.0, over_s - start_s),
            )
        )
        left_s -= over_s - works_from_s
        works_from_s, running = max(start_s, over_s), successor
    done_s = works_from_s + left_s
    replay.advance(done_s)
    links.end(running if done_s < start_s + spec.limit_s else None)
    return ChainResult(
        spec.gpus,
        spec.work_s,
        first_start_s - first.submit_s,
        done_s - first_start_s,
        tuple(hand_overs),
        spec.idle_w,
    )


def _checkpoint_s(spec: ChainSpec, works_from_s: float, start_s: float, end_s: float) -> float:
    """Moment (s) at which a successor that started early takes over: a checkpoint, or the limit."""
    ready_s = start_s + spec.load_s
    checkpoints = max(0, ceil((ready_s - works_from_s) / spec.checkpoint_s))
    return min(end_s, works_from_s + checkpoints * spec.checkpoint_s)


@dataclass(frozen=True, slots=True)
class _Link:
    """Job of a chain, its submission (s), and the wait (s) that was predicted then."""

    name: str
    submit_s: float
    wait_s: float


@dataclass(slots=True)
class _Links:
    """Jobs of a chain in the queue."""

    replay: QueueReplay
    spec: ChainSpec
    provisioner: Provisioner
    name: str
    waiting: list[_Link] = field(default_factory=list)
    _count: int = 0

    def begin(self) -> _Link:
        """Submit the first job now and move the clock to its start; its successors may come into the queue before."""
        queue, spec = self.replay.queue, self.spec
        first = self.submit(self.provisioner.predictor.wait_s(queue.sight(), spec.gpus, spec.limit_s))
        self.waiting.append(first)
        return self.await_start(first.submit_s, first.wait_s + spec.work_s, first.submit_s)

    def submit(self, wait_s: float) -> _Link:
        """Submit the next job now; `wait_s` is the predicted wait."""
        self._count += 1
        queue, spec = self.replay.queue, self.spec
        link = _Link(f"{self.name} {self._count}", queue.now_s, wait_s)
        queue.submit(BatchJob(link.name, queue.now_s, spec.gpus, spec.limit_s, spec.limit_s))
        return link

    def await_start(self, works_from_s: float, left_s: float, end_s: float) -> _Link:
        """Move the clock to the start of the next job, and submit jobs on the way.

        Args:
            works_from_s: Moment (s) from which the present allocation works.
            left_s: Time (s) of work that is left from then on.
            end_s: Limit (s) of the present allocation.
        """
        replay = self.replay
        look_s = works_from_s
        while True:
            first = self.waiting[0].name if self.waiting else None
            replay.advance(look_s, first)
            if first in replay.queue.started_s:
                return self.waiting.pop(0)
            if first is not None and look_s == inf:
                replay.advance_to_start(first)
                return self.waiting.pop(0)
            look_s = self._look(works_from_s + left_s, end_s)

    def _look(self, work_end_s: float, end_s: float) -> float:
        """Submit a successor now, or not; moment (s) of the next look."""
        now_s = self.replay.queue.now_s
        covered_s = end_s
        if self.waiting:
            last = self.waiting[-1]
            covered_s = max(now_s, last.submit_s + last.wait_s, end_s) + self.spec.limit_s
        if self.waiting and (len(self.waiting) >= self.provisioner.ahead or covered_s >= work_end_s):
            return inf
        sight = self.replay.queue.sight()
        decision = self.provisioner.decide(sight, max(0.0, covered_s - now_s), self.spec.gpus, self.spec.limit_s)
        if not decision.submit:
            return now_s + decision.look_again_s
        self.waiting.append(self.submit(decision.wait_s))
        return now_s

    def end(self, running: _Link | None) -> None:
        """End the job that runs, if one is given, and all that come after it."""
        for link in [*self.waiting, running]:
            if link is not None and self.replay.queue.holds(link.name):
                self.replay.queue.end(link.name)
