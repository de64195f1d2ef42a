"""Placement strategy of a run: which jobs get a place, and which give theirs up.

::

    scheduler                                      strategy, one for the whole run
      a job arrived, waits, runs, left, ended ──►    its queue, groups, trials, rounds
      fill the free places                    ──►    Start │ GiveWay │ RankLanes │ ReviewSettings │ a command
      an answer to a command of the strategy  ──►    steps, too

The scheduler carries out each step before it asks for the next. The base class keeps the queue and the timers of the
policy. Hooks about jobs do nothing there: a strategy overrides those that it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ecoshare.core.events import (
    ClassesKnown,
    Done,
    InterferencePredicted,
    Planned,
    Profiled,
    Refused,
    SettingAnswer,
)
from ecoshare.core.memory import HostMemory
from ecoshare.core.moves import JobMoves
from ecoshare.core.placement.device_moves import DeviceMoves
from ecoshare.core.placement.displacement import Displacement, Parting
from ecoshare.core.placement.job_queue import WaitingJobs, demand, queue_key
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.packer import Packer
from ecoshare.core.placement.steps import GiveWay, Park, RankLanes, ReviewSettings, Start, Step
from ecoshare.core.policies.base import LevelPolicy, PackingPolicy, Policy
from ecoshare.core.policy_timers import PolicyTimers
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.core.run_state import RunState
from ecoshare.core.settings.profiling_windows import Profiling
from ecoshare.core.settings.setting_selection import running

Answer = Done | Refused | Planned | InterferencePredicted
"""Answer to a command of a strategy."""


@dataclass(frozen=True, slots=True)
class PlacementParts:
    """Parts of a run that every strategy works with.

    Attributes:
        policy: Policy of the run.
        levels: The policy, if it moves jobs between levels; else None.
        state: Jobs and unanswered commands; read, never changed.
        lane_index: Index of the lanes.
        fit: Memory fit of jobs and lanes.
        profiling: Profiling windows.
        timers: Timers of the policy.
        host: Host memory of parked jobs.
        displacement: Choice of running jobs that give up their places in lanes of several places; None if none does.
        device_moves: Moves of jobs to idle devices; None if no job moves.
    """

    policy: Policy
    levels: LevelPolicy | None
    state: RunState
    lane_index: LaneIndex
    fit: MemoryFit
    profiling: Profiling
    timers: PolicyTimers
    host: HostMemory
    displacement: Displacement | None
    device_moves: DeviceMoves | None


class PlacementStrategy(ABC):
    """Placement strategy of a run.

    Attributes:
        policy: Policy of the run.
        lane_index: Index of the lanes.
        fit: Memory fit of jobs and lanes.
        waiting: Jobs without a place, in the order of the policy.
        host: Host memory of parked jobs.
        watches_neighbours: Whether progress must be told even of a job that has its lane, but not its device, to
            itself.
        learns_speeds: Whether the strategy uses measurements of packings at the default setting.
        parks: Whether running jobs may be parked, and resumed from the queue.
    """

    watches_neighbours: ClassVar[bool] = False
    learns_speeds: ClassVar[bool] = False
    parks: ClassVar[bool] = False

    def __init__(self, parts: PlacementParts, resource_class: Callable[[Job], tuple[object, ...]] = demand) -> None:
        """Strategy without jobs.

        Args:
            parts: Parts of the run.
            resource_class: Key of a waiting job: if one job of a class has no place, none has.
        """
        self.waiting = WaitingJobs(resource_class)
        self.policy, self.lane_index, self.fit = parts.policy, parts.lane_index, parts.fit
        self._levels, self._state = parts.levels, parts.state
        self.profiling, self._timers, self.host = parts.profiling, parts.timers, parts.host
        self._displacement, self._device_moves = parts.displacement, parts.device_moves

    @property
    def groups(self) -> Packer | None:
        """Groups of co-located jobs; None if the strategy forms none."""
        return None

    @property
    def objective(self) -> PackingPolicy | None:
        """Policy with an objective that tells the worth and the cost of work; None if the policy has none."""
        return None

    # Jobs

    def arrived(self, job: Job) -> None:  # noqa: B027
        """Note that a job has arrived."""

    def waits(self, job: Job, at_s: float) -> None:
        """Add a job to the queue."""
        job.place = queue_key(self.policy, job, at_s)
        job.waits_since_s = at_s
        self.waiting.add(job)
        self._timers.look(job, at_s)

    def resumes(self, job: Job, at_s: float) -> None:
        """Add a job that paused to the queue."""
        self.waits(job, at_s)

    def pauses(self, job: Job) -> None:
        """Note that a job pauses: it has no place and does not wait for one."""
        self._timers.forget(job)

    def withdraws(self, job: Job) -> None:
        """Remove a job from the queue, which waits for no place any more until it `resumes`."""
        self.waiting.remove(job)
        self.pauses(job)

    def reorder(self, job: Job, change: Callable[[], None], at_s: float) -> None:
        """Change something of a job that its place in the order of the policy depends on."""
        if job.state.waits:
            self.waiting.remove(job)
        else:
            self.stops(job)
        change()
        if job.state.waits:
            job.place = queue_key(self.policy, job, at_s)
            self.waiting.add(job)
        elif job.state is JobState.RUNNING:
            self.runs(job, at_s)

    def takes(self, job: Job, fused: bool) -> None:
        """Note that a job of the queue has got its places.

        Args:
            job: Job that starts.
            fused: Whether its attempt shares a process with other jobs.
        """
        self.waiting.remove(job)

    def started(self, job: Job, at_s: float) -> Iterator[Step]:
        """Steps after a job has begun to run."""
        self.runs(job, at_s)
        self._timers.look(job, at_s)
        yield from self._timers.wake()
        yield ReviewSettings(job.device_names)

    def runs(self, job: Job, at_s: float) -> None:  # noqa: B027
        """Note that a job runs, or runs on after `stops`: from now on it may be preempted."""

    def stops(self, job: Job) -> None:  # noqa: B027
        """Note that a job stops, has ended, or is about to change its place in the order."""

    def progressed(self, job: Job, settled: bool, at_s: float) -> Iterable[Step]:
        """Steps after a job has told its progress.

        Args:
            job: Job that starts, runs or stops.
            settled: Whether its devices are at the default setting, and no command is about to change that.
            at_s: Present time (s).
        """
        if self._displacement is not None and self._displacement.has_begun(job) and len(self.waiting):
            yield from self.fill(at_s)

    def completed(self, job: Job) -> None:  # noqa: B027
        """Note that a job ran to its end, while it still has its places."""

    def device_failed(self, device: str) -> None:  # noqa: B027
        """Note that a device has failed: its lanes are closed, and its jobs are being killed."""

    def left(self, job: Job) -> None:  # noqa: B027
        """Note that a job is about to leave its places."""

    def ended(self, job: Job) -> None:
        """Forget a job that is about to end."""
        if job.state.waits:
            self.waiting.remove(job)
        self._timers.forget(job)
        if self._displacement is not None:
            self._displacement.ended(job)
        if self._device_moves is not None:
            self._device_moves.ended(job)

    # Places

    def fill(self, at_s: float, newcomer: Job | None = None) -> Iterator[Step]:
        """Steps that use the free places: jobs start, and jobs give way.

        Args:
            at_s: Present time (s).
            newcomer: Job that has just arrived, if nothing else has changed; else None.
        """
        if self._may_start():
            shared: dict[int, Lane] = {}
            for step in self._walk(at_s, newcomer):
                yield step
                if isinstance(step, Start) and step.lanes[0].places > 1:
                    shared.update({lane.number: lane for lane in step.lanes})
            if shared:
                yield RankLanes(shared.values())
        yield from self._timers.wake()

    def _may_start(self) -> bool:
        """Whether jobs may start now."""
        return self._state.may_start

    @abstractmethod
    def _walk(self, at_s: float, newcomer: Job | None) -> Iterable[Step]:
        """Steps that start jobs and let jobs give way; see `fill`."""

    def _move(self, at_s: float) -> Iterable[Step]:
        """Stops of jobs that move to idle devices, for a strategy in which jobs share devices."""
        return () if self._device_moves is None else self._device_moves.walk(self.waiting, at_s)

    def outgrown(self, job: Job) -> Iterator[GiveWay | Park]:
        """Jobs leave a device because those that are there have outgrown its memory.

        A job is parked if it can be. Otherwise it begins again: with all memory of a device if it has taken more than
        it was promised, so that this happens once.

        Args:
            job: Job on the device, with a grant that may have grown.
        """
        while not self._state.stopping and (loser := self.fit.outgrown(job.lanes[0])) is not None:
            if self.parks and self.host.may_park(loser):
                yield Park(loser, None, "the jobs beside it need its memory")
                continue
            loser.whole_device = self.fit.has_outgrown(loser)
            grown = "it has outgrown the memory that it was promised, and its device has no more"
            yield GiveWay([loser], None, grown if loser.whole_device else "the jobs beside it need its memory")

    @property
    def moves(self) -> JobMoves | None:
        """Moves between the lanes of a device; None if the strategy moves no job."""
        return None

    def missed(self, service: Job) -> Iterator[Step]:
        """Steps after a service has missed its target for a minute: jobs leave its lane."""
        return Parting(self.lane_index, self.fit, self.host if self.parks else None, self.moves).of(service)

    # Answers

    def owns(self, command: int) -> bool:
        """Whether a command belongs to the strategy and has no answer yet."""
        return self._timers.owns(command)

    def answered(self, event: Answer) -> Iterator[Step]:
        """Steps after the answer to a command of the strategy."""
        assert isinstance(event, Done), "a timer is never refused"
        names, _ = self._timers.due(event)
        yield from self._change_levels(names, event.at_s)
        yield from self.fill(event.at_s)

    def _change_levels(self, names: Iterable[str], at_s: float) -> Iterator[Step]:
        """Change the levels of these jobs, and with them the places of the jobs in the order."""
        for name in names:
            assert self._levels is not None, "only levels have timers of jobs"
            job = self._state.jobs[name]
            self.reorder(job, partial(self._levels.change, job, at_s), at_s)
            self._timers.look(job, at_s)
            yield RankLanes(job.lanes)

    # Sweeps, measurements and settings

    def knows(self, event: ClassesKnown) -> None:  # noqa: B027
        """Learn what earlier runs have measured of classes that are new in this run."""

    def exhausted(self, at_s: float) -> Iterable[Step]:
        """Steps after a sampler has no more trials."""
        return ()

    def profiled(self, job_class: str, event: Profiled) -> Iterator[Step]:
        """Steps after a profiling window has closed."""
        return self.fill(event.at_s)

    def settings_answered(self, device: str, event: SettingAnswer) -> Iterable[Step]:
        """Steps after an answer to a command of the setting selection."""
        return (ReviewSettings((device,)),)

    def may_profile(self, job: Job) -> bool:
        """Whether the other jobs of the device can bear the pause of a profiling window for `job`."""
        return True

    def bear(self, jobs: Sequence[Job], slower: float) -> bool:
        """Whether co-located jobs keep their limits if all run `slower` times slower than expected."""
        return True

    def present(self, lanes: Iterable[Lane]) -> list[Job]:
        """Jobs of some lanes that make up the packing of their device."""
        return running(lanes)

    @property
    def awaits_estimates(self) -> bool:
        """Whether estimates are on their way that may change which jobs run beside each other."""
        return False

    def is_settled(self, device: str) -> bool:
        """Whether no job of a device will start, come or be profiled, so that a search of settings may begin."""
        lanes = self.lane_index.devices[device]
        may_come = len(self.waiting) and any(len(lane.jobs) < lane.places for lane in lanes)
        present = [job for lane in lanes for job in lane.jobs.values()]
        leaves = any(job.state is JobState.PARKING for job in present)
        return not (self._state.starting or may_come or leaves) and self.profiling.all_settled(present)
