"""Packed: jobs run beside each other in groups that the packer chooses, and running jobs move between lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ecoshare.core.events import (
    ClassesKnown,
    InterferencePredicted,
    Profiled,
    Refused,
    RunOpened,
    SettingAnswer,
    SettingMeasured,
)
from ecoshare.core.moves import JobMoves
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.packer import Packer, packing_class
from ecoshare.core.placement.steps import RankLanes, ReviewSettings, Step
from ecoshare.core.placement.strategy import Answer, PlacementParts, PlacementStrategy
from ecoshare.core.policies.base import PackingPolicy
from ecoshare.core.records import Job, Lane


class PackedPlacement(PlacementStrategy):
    """Strategy of a policy that packs. After each change, the groups of all devices are chosen again."""

    learns_speeds = True

    def __init__(
        self,
        parts: PlacementParts,
        packing: PackingPolicy,
        opened: RunOpened,
        is_held: Callable[[str], bool],
        next_id: Callable[[], int],
        on_processors: bool,
    ) -> None:
        """Strategy without jobs.

        Args:
            parts: Parts of the run.
            packing: The policy.
            opened: First event of the run. A group has at most as many jobs as a device has lanes.
            is_held: Whether a window or a measurement is under way on a device. No job may come, go or move meanwhile.
            next_id: Function that returns the id of the next command.
            on_processors: Whether the devices are processors.
        """
        super().__init__(parts, packing_class)
        self._packing = packing
        self._packer = Packer(
            parts.policy,
            packing,
            self.lane_index,
            self.fit,
            self.waiting,
            is_held,
            opened.config.lanes_per_device,
            next_id,
            on_processors,
            opened.colocations,
            opened.config.counts_jobs,
        )
        if parts.device_moves is not None:
            parts.device_moves.outlook = self._packer.outlook
        self._admission = Admission(
            self.policy, self.waiting, self.lane_index, self.fit, self._packer, moves=parts.device_moves
        )

    @property
    def groups(self) -> Packer:
        """Groups of co-located jobs."""
        return self._packer

    @property
    def moves(self) -> JobMoves:
        """Moves between the lanes of a device."""
        return self._packer.moves

    @property
    def objective(self) -> PackingPolicy:
        return self._packing

    # Jobs

    def arrived(self, job: Job) -> None:
        """Note that a job has arrived."""
        self._packer.arrived(job)

    def takes(self, job: Job, fused: bool) -> None:
        """Note that a job of the queue has got its places. It cannot move if it shares a process."""
        super().takes(job, fused)
        if fused:
            self._packer.moves.stays(job)

    def started(self, job: Job, at_s: float) -> Iterator[Step]:
        """Steps after a job has begun to run."""
        self._timers.look(job, at_s)
        yield from self.fill(at_s)

    def progressed(self, job: Job, settled: bool, at_s: float) -> Iterator[Step]:
        """Steps after a job has told its progress: memory is free, or a job is urgent, gets warm or may move."""
        # A job that ends before it is measured keeps what it was granted on a GPU: a guess as its limit could end it.
        is_limited = self.fit.limits_allocators(job.lanes[0].device)
        gives_back = not is_limited and self.profiling.too_short(job, at_s) and self.fit.regrant(job)
        if gives_back:
            yield from self.outgrown(job)
        if gives_back or self._packer.holds_up(job) or self._packer.is_crowded(job, at_s):
            yield from self.fill(at_s)
        yield from self._move(at_s)

    def completed(self, job: Job) -> None:
        """Note that a job ran to its end: how busy it kept the processors is known."""
        self._packer.took(job, job.usage)

    def left(self, job: Job) -> None:
        """Note that a job is about to leave its places."""
        self._packer.left(job)

    def ended(self, job: Job) -> None:
        """Forget a job that is about to end."""
        super().ended(job)
        self._packer.ended(job)

    # Places

    def fill(self, at_s: float, newcomer: Job | None = None) -> Iterator[Step]:
        """Steps that use the free places and rearrange the running jobs. The adviser is asked for more."""
        return self._pack(at_s)

    def _pack(self, at_s: float, answered: bool = False) -> Iterator[Step]:
        """Choose the groups of all devices again.

        Args:
            at_s: Present time (s).
            answered: Whether the adviser has just answered. The groups are then rearranged before the next question;
                otherwise a stream of questions could put that off for ever.
        """
        if not self._state.may_start:
            return
        self._packer.look(at_s)
        yield from super().fill(at_s)
        if not answered:
            yield from self._packer.ask()
        if not self._packer.awaits:  # until the answer comes, running jobs stay as they are
            yield from self._rearrange(at_s)
        yield from self._packer.ask()
        yield ReviewSettings()

    def _rearrange(self, at_s: float) -> Iterator[Step]:
        for name, lanes in self.lane_index.devices.items():
            moves, is_new = self._packer.rearrange(name, at_s)
            yield from moves
            if is_new:
                yield RankLanes(lanes)

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        yield from self._admission.walk(at_s)
        yield from self._move(at_s)

    # Answers

    def owns(self, command: int) -> bool:
        """Whether a command is a move, a question to the adviser or a timer, and has no answer yet."""
        return self._packer.owns(command) or super().owns(command)

    def answered(self, event: Answer) -> Iterator[Step]:
        """Steps after a move, its refusal, the adviser's answer or a timer."""
        if isinstance(event, InterferencePredicted):
            self._packer.foreseen(event)
            yield from self._pack(event.at_s, answered=True)
        elif isinstance(event, Refused):
            self._packer.moves.refused(event.command)
            yield from self.fill(event.at_s)
        elif self._timers.owns(event.command):
            yield from super().answered(event)
        else:
            yield RankLanes(self._packer.moves.done(event.command))
            yield from self.fill(event.at_s)

    # Measurements and settings

    def knows(self, event: ClassesKnown) -> None:
        """Learn co-locations of classes that are new in this run."""
        self._packer.knows(event.colocations)

    def profiled(self, job_class: str, event: Profiled) -> Iterator[Step]:
        """Steps after a profiling window has closed: jobs of the class give back memory that they do not need.

        A job of the class that started during the window may need more than it was granted. If the memory of its device
        no longer suffices, jobs give way.
        """
        if event.solo is not None:
            speed = self.profiling.speed_where_measured(job_class)
            self._packer.learned(job_class, event.solo.on_typical_device(speed))
        placed = [job for job in self.lane_index.placed_jobs() if job.spec.job_class == job_class]
        for job in placed:
            self.fit.regrant(job)
        for job in placed:
            yield from self.outgrown(job)
        yield from self.fill(event.at_s)

    def settings_answered(self, device: str, event: SettingAnswer) -> Iterator[Step]:
        """Steps after an answer to a command of the setting selection. A measurement tells speeds of its jobs."""
        if isinstance(event, SettingMeasured):
            self._packer.measured(event.measurement, self.lane_index.devices[device])
        yield from self.fill(event.at_s)

    def may_profile(self, job: Job) -> bool:
        """Whether the other jobs of the device can bear the pause of a profiling window for `job`."""
        return not job.lanes or self._packer.may_measure(job)

    def bear(self, jobs: Sequence[Job], slower: float) -> bool:
        """Whether co-located jobs keep their limits if all run `slower` times slower than expected."""
        return self._packer.bear(jobs, slower)

    def present(self, lanes: Iterable[Lane]) -> list[Job]:
        """Running members of the group in these lanes."""
        return self._packer.present(lanes)

    @property
    def awaits_estimates(self) -> bool:
        """Whether the adviser has not answered yet."""
        return self._packer.awaits

    def is_settled(self, device: str) -> bool:
        """Whether all jobs of a device run, none is about to move, and the members of the group are known."""
        present = self._packer.present(self.lane_index.devices[device])
        return self._packer.is_settled(device) and self.profiling.all_settled(present)
