"""Why a job waits, shares its device or has it to itself: asked of a scheduler at one moment, which it does not change.

::

    core.handle(event)        what happened
    Reasons(core.inside, event.at_s).of(job)
        waits    because  somebody is measured │ no place │ memory │ a limit │ a worse group │ others are first
        behind   because  a limit │ a worse group                    than that which has its device
        alone    because  the same of whom it would go best with; or nobody is there
        shares            with whom, and how fast each is expected to be

The answers are those that the scheduler's own parts give, so they say what a decision was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import Protocol

from ecoshare.core.placement.group_choice import Explanation, GroupChoice, ReasonKind, demands, names, short
from ecoshare.core.placement.packer import MEMBER, Packer
from ecoshare.core.records import Job, Lane
from ecoshare.core.scheduler_view import SchedulerView
from ecoshare.core.states import JobState

MOST_NAMED = 3
"""Jobs that are named of those that are before another one."""


_NEARNESS = {why: place for place, why in enumerate(ReasonKind)}


class Doing(Enum):
    """What a job does."""

    WAITS = "waits"
    STARTS = "starts"
    ALONE = "alone"
    SHARES = "shares"
    BEHIND = "behind"
    """It runs behind its device's group: it has the turn where a member of it is away."""
    MEASURED = "measured"
    PAUSED = "paused"
    """Another one is measured alone on its device."""
    STOPS = "stops"


@dataclass(frozen=True, slots=True)
class Reason:
    """What a job does at a moment, and why.

    Attributes:
        device: Where; of a job that waits, where it was nearest to running.
        beside: Others of its group, or whom it is behind; or who is measured.
        mates: Others of its lane, with whom it takes turns, where nobody groups jobs.
        speeds: Expected of it and of `beside`, over those alone; empty where nothing is foreseen.
    """

    doing: Doing
    device: str = ""
    beside: tuple[str, ...] = ()
    mates: tuple[str, ...] = ()
    speeds: tuple[float, ...] = ()
    because: Explanation | None = None


class Queue(Protocol):
    """The jobs that wait, in the policy's order."""

    def first(self, count: int) -> list[Job]:
        """The first of them, at most so many."""
        ...

    def place(self, job: Job) -> int:
        """Number of jobs before a job."""
        ...


class Reasons:
    """Answers about one moment; to be made anew for the next."""

    def __init__(self, inside: SchedulerView, at_s: float, queue: Queue | None = None) -> None:
        """The moment after an event at this time.

        Args:
            queue: The jobs that wait, where somebody keeps up their order; else it is made when it is needed.
        """
        self._inside, self._at_s = inside, at_s
        self._queue = queue or _Listed(inside.seating.waiting)
        self._choices: dict[str, GroupChoice] = {}
        self._closed: dict[str, Explanation | None] = {}

    def of(self, job: Job) -> Reason | None:
        """What a job does and why; None for one that has ended."""
        match job.state:
            case JobState.QUEUED:
                return self._waits(job)
            case JobState.STARTING:
                return Reason(Doing.STARTS, job.lanes[0].device.name)
            case JobState.RUNNING:
                return self._runs(job)
            case JobState.STOPPING:
                return Reason(Doing.STOPS, job.lanes[0].device.name)
        return None

    def measured(self, device: str) -> Job | None:
        """Who is measured alone on a device; None where nobody is."""
        if not self._inside.profiling.occupies(self._inside.room.devices[device][0]):
            return None
        windows = self._inside.profiling.windows.values()
        return next(job for job in windows if any(lane.device.name == device for lane in job.lanes))

    # Those that wait

    def _waits(self, job: Job) -> Reason:
        if self._inside.opening:
            return Reason(Doing.WAITS, because=Explanation(ReasonKind.OPENING))
        if apart := self._inside.fit.apart(job):
            return Reason(Doing.WAITS, because=Explanation(ReasonKind.SUSPECT, names(apart)))
        if job.spec.gpus > 1:
            free = Explanation(ReasonKind.DEVICES, needs=job.spec.gpus, free=self._inside.room.free)
            enough = job.spec.gpus <= self._inside.room.free
            return Reason(Doing.WAITS, because=self._behind_others(job) if enough else free)
        found = [(device, self._why_not(job, device)) for device in self._inside.room.devices]
        device, because = max(found, key=lambda each: _NEARNESS[each[1].why])
        return Reason(Doing.WAITS, device, because=because)

    def _why_not(self, job: Job, device: str) -> Explanation:
        """Why a job of one device does not start there now."""
        if device not in self._closed:
            self._closed[device] = self._why_closed(device)
        if (closed := self._closed[device]) is not None:
            return closed
        packer, lanes = self._inside.packer, self._inside.room.devices[device]
        if packer is not None:
            return self._no_member(job, device, packer)
        if not any(self._inside.fit.fits(job, lane) for lane in lanes):
            return self._memory(job, lanes)
        return self._behind_others(job)

    def _why_closed(self, device: str) -> Explanation | None:
        """Why no job of one device starts there now; None where one may."""
        lanes = self._inside.room.devices[device]
        here = [each for lane in lanes for each in lane.jobs.values()]
        if (window := self.measured(device)) is not None:
            return Explanation(ReasonKind.WINDOW, (window.spec.name,))
        if any(each.spec.gpus > 1 for each in here):
            return Explanation(ReasonKind.GANG, names(here))
        packer = self._inside.packer
        if packer is not None and self._inside.tuning.is_measuring(device):
            return Explanation(ReasonKind.TRIAL, names(packer.present(lanes)))
        if all(len(lane.jobs) >= lane.places for lane in lanes):
            return Explanation(ReasonKind.PLACES, names(here))
        return None

    def _behind_others(self, job: Job) -> Explanation:
        """Who is before it in the queue."""
        place = self._queue.place(job)
        return Explanation(ReasonKind.ORDER, names(self._queue.first(min(place, MOST_NAMED))), ahead=place)

    def _no_member(self, job: Job, device: str, packer: Packer) -> Explanation:
        """Why a job that waits does not belong to the group that should run on a device."""
        choice = self._choice(device, packer)
        if job not in choice.window:
            return self._behind_others(job)
        if job not in choice.candidates:
            return self._memory(job, self._inside.room.devices[device])
        if choice.group is None or job in choice.members:
            return Explanation(ReasonKind.CHOSEN)
        return choice.against(job)

    def _memory(self, job: Job, lanes: Sequence[Lane]) -> Explanation:
        """What it would take of the memory, and what is free: of the device where its lanes share it."""
        fit = self._inside.fit
        if self._inside.packer is not None:
            return short(fit.demand(job, lanes[0]), demands(lanes), len(lanes), lanes[0].device.memory_bytes)
        with_place = [lane for lane in lanes if len(lane.jobs) < lane.places]
        each = (short(fit.demand(job, lane), demands([lane]), 1, lane.budget_bytes) for lane in with_place)
        return max(each, key=lambda because: because.free_bytes or 0)

    # Those that run

    def _runs(self, job: Job) -> Reason:
        device = job.lanes[0].device.name
        lanes = self._inside.room.devices[device]
        if (window := self.measured(device)) is not None:
            if window is job:
                return Reason(Doing.MEASURED, device)
            return Reason(Doing.PAUSED, device, (window.spec.name,))
        if self._inside.packer is None or job.spec.gpus > 1:
            return _in_turn(job, device, lanes)
        return self._grouped(job, device, self._inside.packer)

    def _grouped(self, job: Job, device: str, packer: Packer) -> Reason:
        lanes = self._inside.room.devices[device]
        group = packer.present(lanes)
        choice = self._choice(device, packer)
        others = [each for each in group if each is not job]
        if job.level != MEMBER:
            because = choice.against(job) if job not in choice.members and choice.group is not None else None
            return Reason(Doing.BEHIND, device, names(others), because=because)
        if others:
            return Reason(Doing.SHARES, device, names(others), speeds=choice.forecast([job, *others]).speeds)
        held = Explanation(ReasonKind.TRIAL, (job.spec.name,)) if self._inside.tuning.is_measuring(device) else None
        return Reason(Doing.ALONE, device, because=held or choice.why_alone(job) or self._no_mate(device, choice))

    def _no_mate(self, device: str, choice: GroupChoice) -> Explanation:
        """Why nobody comes beside a job that would: the first of those that wait has no room."""
        lanes = self._inside.room.devices[device]
        waiting = [job for job in choice.window if job not in choice.candidates]
        if not waiting:
            return Explanation(ReasonKind.NOBODY)
        return replace(self._memory(waiting[0], lanes), jobs=names(waiting[:1]))

    def _choice(self, device: str, packer: Packer) -> GroupChoice:
        if device not in self._choices:
            self._choices[device] = GroupChoice(self._inside, packer, device, self._at_s)
        return self._choices[device]


class _Listed:
    """A queue at one moment."""

    def __init__(self, waiting: Iterable[Job]) -> None:
        self._waiting = waiting

    @cached_property
    def _places(self) -> dict[Job, int]:
        return {job: place for place, job in enumerate(self._waiting)}

    def first(self, count: int) -> list[Job]:
        return list(islice(self._places, count))

    def place(self, job: Job) -> int:
        return self._places[job]


def _in_turn(job: Job, device: str, lanes: Sequence[Lane]) -> Reason:
    """Of a policy that groups nobody, or of a gang: who takes turns with it, and who runs in other lanes."""
    mates = [each for lane in job.lanes for each in lane.jobs.values() if each is not job]
    beside = [each for lane in lanes if lane not in job.lanes for each in lane.jobs.values()]
    doing = Doing.SHARES if mates or beside else Doing.ALONE
    return Reason(doing, device, names(beside), names(mates))
