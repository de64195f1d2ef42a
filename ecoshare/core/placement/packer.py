"""Groups of jobs that run beside each other on a device, updated as jobs come, go and become better known.

::

    lane 0   A ═══════════════════════════╗            the group: A, which is first in the order, and B
             D ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─╚══════════   D has the turn while A is away, and follows A
    lane 1   B ════════════════╗
             C                 ╚══════════════════════   C suits A better than D does: it came when B had ended

A waiting job starts when it belongs to the best group of a device; empty devices are asked first. The packer never
stops or restarts a running job that is outside the group. Such a job gets the level behind the group. If its lane has
no member, it moves to one that has.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import ColocationMeasurement, JobPhase, Measurement, MeasurementStatus
from ecoshare.core.commands import AskInterference, MoveJob
from ecoshare.core.events import InterferencePredicted
from ecoshare.core.moves import JobMoves
from ecoshare.core.placement.colocation_estimates import GPU_GUESS, PROCESSORS_GUESS, ColocationEstimates
from ecoshare.core.placement.job_groups import EXPLORE, HOPE, Candidate, Grouping, JobGroup
from ecoshare.core.placement.job_queue import WaitingJobs, demand, queue_key
from ecoshare.core.placement.lane_index import Fits, LaneIndex
from ecoshare.core.placement.limits import in_time, least_speed
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.policies.base import PackingPolicy, Policy
from ecoshare.core.records import Job, JobState, Key, Lane
from ecoshare.core.settings.profiling_windows import WARM_UP_S


class WarmingUp:
    """How busy jobs keep the processors, as far as it is known or assumed until their windows.

    ::

        A, never seen   loads its data ──► first iterations ──► window ──► known: it joins the best group
                        beside others      alone, or beside
                                           jobs that wait

    Most scripts keep all processors busy. Two of them that get warm beside each other are slow, and both their windows
    are late. So the device is theirs one after the other. A job that loads its data is not in the way of another one
    yet.
    """

    def __init__(self, outlook: ColocationEstimates, fit: MemoryFit, on_processors: bool, counts_power: bool) -> None:
        """No job is looked at.

        Args:
            outlook: Measurements of each class alone.
            fit: Knows which classes are new.
            on_processors: Whether the devices are processors. On other devices no job counts as one that gets warm.
            counts_power: Whether the objective counts power. Then a job gets warm from its first iteration on, and else
                after a second: jobs that turn out to leave the processors idle have come further by then.
        """
        self._least_s = 0.0 if counts_power else WARM_UP_S
        self._outlook, self._fit, self._on_processors = outlook, fit, on_processors

    def is_of(self, job: Job) -> bool:
        """Whether a job gets warm: it has begun, and its class will have its first window as soon as it is warm."""
        return self._on_processors and job.usage.held_s >= self._least_s and self._fit.gets_warm(job)

    def busy(self, job: Job) -> float:
        """Part of the processors that a job keeps busy: see `job_groups.Candidate`.

        A profile in doubt does not count until the class was measured again. With it, a busy job would never begin
        beside others, and so never be measured.
        """
        if not self._on_processors:
            return 0.0
        solo = self._outlook.solos.get(job.spec.job_class)
        if solo is None or solo.busy is None or self._fit.is_new(job):
            return float(self.is_of(job))
        return solo.busy


SEARCH_WIDTH = 32
"""Number of waiting jobs that the packer looks at, from the head of the queue."""

MOST_CLASSES = 48
"""Most job classes in one question to the adviser."""

MOST_SEEN = 60
"""Most measured packings in one question to the adviser, the latest ones: its time grows with their cube."""

WORK_S = 60.0
"""Assumed work (s) of a job without a known length. It weighs classes against each other, and trials of groups against
what they may save."""

MARGIN = 0.2
"""Relative lead in the order that a job needs to replace the first job of a group. Both keys have an error: without the
margin the two jobs would change places for ever."""

SHORTEST_S = 0.2
"""Shortest turn time (s) that says how busy a job is: a shorter one shows only its start."""

PAUSE_S, EASY = 10.0, 0.95
"""Pause (s) that a window costs the other jobs, and the largest required speed at which a job can make up for it."""

URGENT = 0.1
"""Lead in required speed (relative to its speed alone) that a job needs to replace a member of the group."""

MOST_BEHIND = 48
"""Most jobs of a lane that another job moves behind. A lane has 64 slots, and a parked job keeps its own."""

MEMBER, _BEHIND = 0, 1
"""Levels of a job: in the group of its device, or behind it."""

_HERE = frozenset({JobState.STARTING, JobState.RUNNING})


class Packer:
    """Finds places for a policy that packs, and rearranges the running jobs.

    Attributes:
        outlook: Estimates of how co-located classes slow each other down.
        grouping: Chooses groups.
        largest: Most jobs in a group.
    """

    def __init__(
        self,
        policy: Policy,
        packing: PackingPolicy,
        lane_index: LaneIndex,
        fit: MemoryFit,
        waiting: WaitingJobs,
        is_held: Callable[[str], bool],
        largest: int,
        ids: Callable[[], int],
        on_processors: bool,
        seen: Sequence[ColocationMeasurement] = (),
        counts_jobs: bool = False,
    ) -> None:
        """Create a packer without jobs.

        Args:
            policy: Policy of the run.
            packing: The policy, with its methods that choose groups.
            lane_index: All lanes.
            fit: Memory that each job needs, and whether a device has it.
            waiting: Queue.
            is_held: Whether a device must stay as it is for now, because a measurement is under way there.
            largest: Most jobs in a group: the lanes of a device.
            ids: Returns the id of the next command.
            on_processors: Whether the devices are processors.
            seen: Earlier co-location measurements, the oldest first.
            counts_jobs: Whether the adviser is told how many jobs each class has.
        """
        self._counts_jobs = counts_jobs
        self.outlook = ColocationEstimates(PROCESSORS_GUESS if on_processors else GPU_GUESS)
        self._policy, self._packing, self._lane_index, self._fit = policy, packing, lane_index, fit
        self._waiting, self._is_held, self._ids, self.largest = waiting, is_held, ids, largest
        self.grouping = Grouping(self.outlook, packing.spent, largest)
        self._warming_up = WarmingUp(self.outlook, fit, on_processors, self.grouping.counts_power)
        self.moves = JobMoves(lane_index, ids)
        self._work_s: dict[str, tuple[int, float]] = {}
        self._seen = list(seen)
        self._asked: int | None = None
        self._is_stale = False
        self._best: dict[str, frozenset[Job]] = {}
        self._orders: dict[str, list[str]] = {}  # devices without a job first; by class if devices differ
        self._first: dict[str, Job] = {}  # first job of the group, by device
        self._now_s = 0.0

    @property
    def seen(self) -> Sequence[ColocationMeasurement]:
        """Co-locations that were measured, the oldest first."""
        return self._seen

    # Jobs that exist

    def arrived(self, job: Job) -> None:
        """Count a job that arrived, and learn its class from the profile in its specification."""
        name, solo = job.spec.job_class, job.spec.solo
        if solo is not None and name not in self.outlook.solos:
            self.outlook.learn(name, solo)
        jobs, work_s = self._work_s.get(name, (0, 0.0))
        self._is_stale |= not jobs or (self._counts_jobs and jobs < self.largest)
        self._work_s[name] = jobs + 1, work_s + self._length_s(job)

    def knows(self, seen: Sequence[ColocationMeasurement]) -> None:
        """Learn co-locations that earlier runs have measured; those of this run count as newer."""
        self._seen = [*seen, *self._seen]
        self._is_stale = True

    def ended(self, job: Job) -> None:
        """Forget a job that is over."""
        name = job.spec.job_class
        jobs, work_s = self._work_s[name]
        self._work_s[name] = jobs - 1, work_s - self._length_s(job)
        self._is_stale |= jobs == 1 or (self._counts_jobs and jobs <= self.largest)
        if jobs == 1:
            del self._work_s[name]

    def left(self, job: Job) -> None:
        """Note that a job leaves its places: it is no longer first, and its pending move is dropped."""
        for lane in job.lanes:
            if self._first.get(lane.device.name) is job:
                del self._first[lane.device.name]
        _put(job, True, self._now_s)
        self.moves.left(job)

    def _length_s(self, job: Job) -> float:
        return WORK_S if job.spec.service_s is None else job.spec.service_s

    # Knowledge of classes

    def learned(self, job_class: str, solo: Solo) -> None:
        """Store the profile of a class that was measured alone."""
        self.outlook.learn(job_class, solo)
        self._is_stale = True

    def took(self, job: Job, usage: Usage) -> None:
        """Learn how busy a finished job kept the processors, if its class has no measured value."""
        name, threads = job.spec.job_class, job.lanes[0].device.threads
        known = self.outlook.solos.get(name)
        if threads and usage.held_s >= SHORTEST_S and (known is None or known.busy is None):
            busy = min(1.0, usage.cpu_s / (usage.held_s * threads))
            self.learned(name, replace(known or Solo(), busy=busy))

    def measured(self, found: Measurement, lanes: Iterable[Lane]) -> None:
        """Store the relative speeds that a measurement at the default setting shows for co-located classes.

        Nothing is stored if other jobs are on the device: they may have come while it was measured.

        Args:
            found: The measurement.
            lanes: All lanes of the measured device.
        """
        jobs = self.present(lanes)
        if found.status is not MeasurementStatus.MEASURED or found.setting or len(jobs) < 2:
            return
        if any(job.phase is not JobPhase.TRAINS for job in jobs):
            return
        if {job.spec.name for job in jobs} != set(found.times_s):
            return
        if found.services:  # they took some of the time, which the speeds of the others would be blamed for
            return
        classes, speeds = [], []
        for job in jobs:
            solo = self.outlook.solos.get(job.spec.job_class)
            time_s = found.times_s.get(job.spec.name)
            if solo is None or solo.iteration_s is None or not time_s:
                return
            classes.append(job.spec.job_class)
            speeds.append(solo.iteration_s / (time_s * job.lanes[0].device.speed(job.spec.job_class)))
        self._seen.append(ColocationMeasurement(tuple(classes), tuple(speeds), found.drawn_w))
        self._is_stale = True

    def ask(self) -> list[AskInterference]:
        """Question to the adviser; empty if nothing is new or an answer is still awaited."""
        if not self._is_stale or self._asked is not None or not self._work_s:
            return []
        self._is_stale = False
        self._asked = self._ids()
        seen = tuple(self._seen[-MOST_SEEN:])
        met = {name for each in seen for name in each.classes}
        left = {name: work_s for name, (_, work_s) in self._work_s.items()}
        work_s = self.outlook.asked_about(left, met, MOST_CLASSES)
        solos = tuple((name, self.outlook.solos[name]) for name in work_s if name in self.outlook.solos)
        counts = {name: jobs for name, (jobs, _) in self._work_s.items()} if self._counts_jobs else {}
        jobs = tuple(self.outlook.counted(counts).items())
        return [AskInterference(self._asked, solos, seen, tuple(work_s.items()), self.largest, jobs)]

    @property
    def awaits(self) -> bool:
        """Whether a question to the adviser has no answer yet."""
        return self._asked is not None

    def foreseen(self, event: InterferencePredicted) -> None:
        """Store the answer of the adviser."""
        self._asked = None
        self.outlook.foreseen(event.pairs, event.prices, self._seen)

    # Places for waiting jobs: the `Finder` protocol of `admission.Admission`

    def look(self, at_s: float) -> None:
        """Drop the cached groups, because something has changed."""
        self._best.clear()
        self._orders.clear()
        self._now_s = at_s

    @property
    def has_room(self) -> bool:
        """Whether any lane has a free place."""
        return self._lane_index.has_places

    def find(self, job: Job, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes for a job where it belongs to the best group of a device; a gang gets lanes of empty devices.

        Devices without a job are asked first, and among equal ones those that are faster for the class of the job.
        """
        if job.spec.gpus > 1:
            return self._lane_index.find(
                job, lambda lane: self._lane_index.is_idle(lane.device.name) and fits(lane), kept
            )
        for device in self._order(job.spec.job_class):
            if device not in self._best:
                self._best[device] = self._best_of(device, self._now_s)
            if job not in self._best[device]:
                continue
            lane = self._free_lane(device, lambda lane: lane.number not in kept and fits(lane))
            if lane is not None and not self._has_gang(device):
                del self._best[device]  # the best group may change once this job has started
                self._orders.clear()
                return (lane,)
        return ()

    def _order(self, job_class: str) -> list[str]:
        """Devices in the order in which a job of a class asks them."""
        index = self._lane_index
        key = job_class if index.differ else ""
        if (order := self._orders.get(key)) is None:
            # A device that is on costs its idle power in any case. A job is better off alone there than slowed here.
            order = self._orders[key] = sorted(
                index.spare_first(),
                key=lambda name: (index.is_idle(name), index.devices[name][0].device.speed(job_class)),
                reverse=True,
            )
        return order

    def _best_of(self, device: str, at_s: float) -> frozenset[Job]:
        """Best group of a device, from its running jobs and the waiting jobs that fit; empty if it is held."""
        if self._is_held(device):
            return frozenset()
        here = self.here(device)
        waiting = [job for job in islice(self._waiting, SEARCH_WIDTH) if job.spec.gpus == 1]
        could = self._fit.joining(device, waiting)
        group = self.choose([*here, *could], device, at_s)
        return frozenset(group[1]) if group is not None else frozenset()

    def _free_lane(self, device: str, fits: Fits) -> Lane | None:
        """Lane for a new member: the one with the fewest members, then with the fewest jobs; None if there is none.

        Jobs behind a group may be more than the places of their lane, but not more than those of their device.
        """
        here = self._lane_index.devices[device]
        if sum(len(lane.jobs) for lane in here) >= sum(lane.places for lane in here):
            return None
        lanes = [lane for lane in here if lane.has_place and fits(lane)]
        return min(lanes, key=lambda lane: (self._members(lane), len(lane.jobs), lane.number), default=None)

    def _members(self, lane: Lane) -> int:
        here = sum(job.level == MEMBER and not self.moves.is_moving(job) for job in lane.jobs.values())
        return here + len(lane.coming)

    # Arrangement of the running jobs

    def rearrange(self, device: str, at_s: float) -> tuple[list[MoveJob], bool]:
        """Let the best group of a device's running jobs have the turns.

        Returns:
            Moves for the lanes of the members and of the jobs behind them, and whether the group has changed.
        """
        here = self.here(device)
        if not here or self._is_held(device) or self._has_gang(device):
            return [], False
        found = self.choose(here, device, at_s)
        assert found is not None, "a group exists for at least one job"
        group, members = found
        if not self._warming_up.is_of(members[0]):
            self._first[device] = members[0]
        now = [job for job in here if job.level == MEMBER]
        if set(now) != set(members) and members[0] in now:
            jobs = [job for job in now if job.spec.service is None] or now
            kept = self.grouping.of([self.candidate(job, at_s) for job in jobs])
            if (
                len(jobs) <= self.largest
                and set(_services(now)) == set(_services(here))
                and not group.beats(kept)
                and kept.keeps_limits
                and kept.tries_few
            ):
                members = now
        is_new = set(now) != set(members)
        for job in here:
            _put(job, job in members, at_s)
        return self._moves_for(device, members, [job for job in here if job not in members]), is_new

    def _moves_for(self, device: str, members: Sequence[Job], behind: Sequence[Job]) -> list[MoveJob]:
        """Moves after which each lane has one member, if places allow, and no other job is in a lane without one.

        A job in a lane without a member would have the turn there all the time, beside the group. So jobs behind the
        group may be more than the places of their lane.
        """
        lanes = self._lane_index.devices[device]
        by_lane: dict[int, Job] = {}
        crowded = []
        for job in members:
            lane = self.moves.goes_on_in(job)
            if by_lane.setdefault(lane.number, job) is not job:
                crowded.append(job)
        moves = []
        for job in crowded:
            free = [lane for lane in lanes if lane.number not in by_lane and lane.has_place]
            to = min(free, key=lambda lane: (len(lane.jobs), lane.number), default=None)
            if to is not None and self.moves.may_move(job):
                by_lane[to.number] = job
                moves.append(self.moves.begin(job, to))
        for job in behind:
            if self.moves.goes_on_in(job).number not in by_lane and self.moves.may_move(job):
                free = [
                    lane
                    for lane in lanes
                    if lane.number in by_lane and lane.taken <= MOST_BEHIND and in_time([*lane.jobs.values(), job])
                ]
                to = min(free, key=lambda lane: (len(lane.jobs), lane.number), default=None)
                if to is not None:
                    moves.append(self.moves.begin(job, to))
        return moves

    def owns(self, command: int) -> bool:
        """Whether a command is a move or a question to the adviser, and has no answer yet."""
        return self.moves.owns(command) or command == self._asked

    # Limits

    def may_measure(self, job: Job) -> bool:
        """Whether all other jobs of the device can make up for the pause of a window for `job`."""
        here = self.here(job.lanes[0].device.name)
        return all(self._least(each, PAUSE_S) <= EASY for each in here if each is not job)

    def holds_up(self, job: Job) -> bool:
        """Whether a job with a slowdown limit is behind the group on a device of `job`: it becomes urgent soon."""
        here = [each for lane in job.lanes for each in self.here(lane.device.name)]
        return any(each.level != MEMBER and each.spec.slowdown_limit is not None for each in here)

    def is_crowded(self, job: Job, at_s: float) -> bool:
        """Whether a job gets warm, and the group of its device is one that would not be chosen any more."""
        if not self._warming_up.is_of(job):
            return False
        here = self.here(job.lanes[0].device.name)
        members = [self.candidate(each, at_s) for each in here if each.level == MEMBER]
        return not self.grouping.of(members).tries_few

    def bear(self, jobs: Sequence[Job], slower: float) -> bool:
        """Whether co-located jobs keep their limits if all run `slower` times slower than expected."""
        speeds = self.outlook.forecast([job.spec.job_class for job in jobs]).speeds
        return all(speed / slower >= self._least(job) for job, speed in zip(jobs, speeds, strict=True))

    # Jobs of a device

    def present(self, lanes: Iterable[Lane]) -> list[Job]:
        """Running members of the group in these lanes."""
        return [
            job for lane in lanes for job in lane.jobs.values() if job.state is JobState.RUNNING and job.level == MEMBER
        ]

    def is_settled(self, device: str) -> bool:
        """Whether all jobs of a device run and none of them is about to move."""
        jobs = [job for lane in self._lane_index.devices[device] for job in lane.jobs.values()]
        return all(job.state is JobState.RUNNING and not self.moves.is_moving(job) for job in jobs)

    def choose(self, jobs: Sequence[Job], device: str, at_s: float) -> tuple[JobGroup, list[Job]] | None:
        """Best group of `jobs` on a device, and its members; None if `jobs` is empty.

        Services are members of every group, the last ones, and the others are chosen as if there were none: services
        have the device when they are due, and a job without an end is never to be waited for.
        """
        services = _services(jobs)
        ordered = self.in_order([job for job in jobs if job.spec.service is None] or services, device, at_s)
        more = services if len(services) < len(jobs) else []
        by_number = {job.number: job for job in ordered}

        def fits(members: Sequence[Candidate]) -> bool:
            chosen = [*(by_number[each.number] for each in members), *more]
            return self._fit.joins(device, [job for job in chosen if job.state not in _HERE])

        group = self.grouping.best([self.candidate(job, at_s) for job in ordered], fits)
        if group is None:
            return None
        if not more:
            return group, ordered if services else [by_number[each.number] for each in group.members]
        return group, [*(by_number[each.number] for each in group.members), *more]

    def in_order(self, jobs: Sequence[Job], device: str, at_s: float) -> list[Job]:
        """Jobs in the order of the policy; the present first job stays first unless another leads by `MARGIN`.

        On processors, jobs that get warm for their first window go before all others.
        """
        keys = {job: self._place(job, at_s) for job in jobs}
        ordered = sorted(jobs, key=keys.__getitem__)
        first = self._first.get(device)
        if first in keys and keys[first][0] - keys[ordered[0]][0] <= MARGIN * abs(keys[first][0]):
            ordered.remove(first)
            ordered.insert(0, first)
        return sorted(ordered, key=self._warming_up.is_of, reverse=True)

    def candidate(self, job: Job, at_s: float) -> Candidate:
        """Values of a job that the choice of a group needs."""
        spec = job.spec
        least = self._least(job)
        return Candidate(
            job.number,
            spec.job_class,
            self._packing.worth(job, self.outlook.price(spec.job_class), at_s),
            least,
            spec.slowdown_limit is not None and job.state in _HERE,
            least + (URGENT if job.level == MEMBER else 0.0),
            EXPLORE if self._fit.is_new(job) else HOPE,
            self._warming_up.busy(job),
            self._left_s(job),
        )

    def _left_s(self, job: Job) -> float:
        """Work (s alone) that is left of all jobs of a class: see `Candidate`.

        A job of unknown length has `WORK_S` in all, and after half of that as much left as it has had.
        """
        _, work_s = self._work_s[job.spec.job_class]
        left_s, had_s = job.remaining_s(job.told_s), job.attained_s(job.told_s)
        own_s = max(had_s, WORK_S - had_s) if left_s is None else left_s
        return max(0.0, work_s - self._length_s(job)) + own_s

    def _least(self, job: Job, lost_s: float = 0.0) -> float:
        """Relative speed that a job must keep to meet its limit; the time that it stood behind the group is lost."""
        if job.spec.slowdown_limit is None:
            return 0.0
        solo = self.outlook.solos.get(job.spec.job_class)
        lost_s += job.stood_s
        if job.behind_since_s is not None:
            lost_s += max(0.0, self._now_s - job.behind_since_s)
        return least_speed(job, None if solo is None else solo.iteration_s, lost_s)

    def _place(self, job: Job, at_s: float) -> Key:
        return job.place if job.state is JobState.QUEUED else queue_key(self._policy, job, at_s)

    def here(self, device: str) -> list[Job]:
        """Jobs of a device that run or start."""
        return [job for lane in self._lane_index.devices[device] for job in lane.jobs.values() if job.state in _HERE]

    def _has_gang(self, device: str) -> bool:
        return any(job.spec.gpus > 1 for lane in self._lane_index.devices[device] for job in lane.jobs.values())


def packing_class(job: Job) -> tuple[object, ...]:
    """Resource class of a waiting job: its demand, its class and its limit."""
    return (*demand(job), job.spec.job_class, job.spec.slowdown_limit, job.spec.service is None)


def _services(jobs: Iterable[Job]) -> list[Job]:
    return [job for job in jobs if job.spec.service is not None]


def _put(job: Job, is_member: bool, at_s: float) -> None:
    """Put a job into the group of its device or behind it, and add the time that it stood behind to `stood_s`."""
    job.level = MEMBER if is_member else _BEHIND
    if is_member and job.behind_since_s is not None:
        job.stood_s += at_s - job.behind_since_s
        job.behind_since_s = None
    elif not is_member and job.behind_since_s is None:
        job.behind_since_s = at_s
