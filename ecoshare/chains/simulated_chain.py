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

from dataclasses import dataclass, field
from math import ceil, inf

from ecoshare.chains.batch_job import BatchJob
from ecoshare.chains.chain_result import ChainResult, HandOver
from ecoshare.chains.provisioner import Provisioner
from ecoshare.chains.queue_replay import QueueReplay
from ecoshare.values.allocation_chain import IDLE_GPU_W, Overlap


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
