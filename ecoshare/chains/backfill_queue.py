"""One partition of a batch cluster in virtual time, with EASY backfill.

::

    GPUs
     4 │ a a a a a . . . . h h h h      h, first in the queue, needs 4 GPUs: reserved for the limit of a
     3 │ a a a a a . . . . h h h h      b asks for less time than is left until then: it starts before h
     2 │ a a a a a . . . . h h h h      c would still hold a GPU then: it waits
     1 │ . b b b b . . . . h h h h
       └──────────────────────────► time

Jobs start in the order of their priority. The first job that does not fit gets a reservation: the earliest moment at
which enough GPUs are free if each running job lasts until its limit. A later job starts before it only if it ends by
then by its limit, or takes GPUs that the first job leaves over (Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995).

Differences to Slurm, which waits should be read with:

* Slurm's backfill reserves GPUs for every job that it looks at (conservative), so it backfills less. EASY reserves for
  the first job alone.
* Slurm looks at intervals (`bf_interval`, 30 s); here each submission and each end leads to a look.
* GPUs are one pool: no nodes, no fragmentation.
* No fair-share, no quality of service, no limits of users. The priority is the age, with a bonus for large jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from heapq import heappop, heappush
from itertools import islice
from math import inf

from ecoshare.chains.batch_job import BatchJob
from ecoshare.chains.queue_sight import REMEMBERED, QueueSight, RunningJob, StartedJob, WaitingJob
from ecoshare.common.plural import counted

DEPTH = 100
"""Number of waiting jobs that backfill looks at, as `bf_max_job_test` in older versions of Slurm."""


class BackfillQueue:
    """Partition of a cluster. The caller moves its clock.

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
