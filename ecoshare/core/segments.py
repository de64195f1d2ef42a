"""Segments: a fresh scheduler takes over the jobs of a run that stays open.

::

    core.segment  ──► Segment, or None while a job gives way or moves, or a setting or window is under way
    RunOpened(segment) ──► lanes OPEN as they are ──► sweeps with their rules ──► jobs in their states and places
                      ──► lanes of new devices OPENING; those of failed devices are gone

Starts and limits that have no answer yet, and questions to samplers, keep their ids: a sweep that is always open holds
up no segment. Times that the policy goes by, such as arrivals and attained service, go on. Rounds, groups and levels
are decided anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from ecoshare.base.class_profile import KnownResponse
from ecoshare.base.measurement import KnownSetting, class_of
from ecoshare.base.segment import CarriedJob, Segment
from ecoshare.core.commands import (
    AskSampler,
    Command,
    DropJob,
    KillJob,
    LimitMemory,
    ProfileJob,
    SetShares,
    StartJob,
    WakeAt,
)
from ecoshare.core.events import Event, JobArrived, JobExited
from ecoshare.core.placement.allocator_rules import AllocatorRules
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.places import Places
from ecoshare.core.records import Job, JobState, LaneState
from ecoshare.core.run_state import RunState
from ecoshare.core.settings.power_budget import PowerBudget
from ecoshare.core.settings.setting_selection import SettingSelector
from ecoshare.core.sweeps import Sweeps
from ecoshare.core.user_requests import UserRequests

_Packed = TypeVar("_Packed", KnownSetting, KnownResponse)

_CALM = (JobState.QUEUED, JobState.HELD, JobState.RUNNING)
_CARRIED = (JobState.STARTING, JobState.STOPPING, JobState.PAUSED, JobState.PARKED)
"""States that a carried job names. A job that is calm shows its state by its place."""

_NOT_AWAITED = (StartJob, AskSampler, LimitMemory, DropJob, KillJob, SetShares, WakeAt)
"""Commands that a segment does not wait for. The answers to the first three may come in the next segment. A job that is
killed exits, and timers are set anew."""

_OWN = {"lanes", "held", "state", "parked_in", "since_s", "waits_since_s"}
_KEPT = tuple(each.name for each in fields(CarriedJob) if each.name not in _OWN)


class Unanswered:
    """Commands that a segment waits for: the driver has not answered them."""

    def __init__(self) -> None:
        """No command was given."""
        self._commands: dict[int, Command] = {}

    def __bool__(self) -> bool:
        """Whether any command has no answer."""
        return bool(self._commands)

    def heard(self, event: Event) -> None:
        """Note the answer that an event is, if it is one."""
        if isinstance(event, JobArrived):
            self._commands.pop(event.answers, None)
        elif isinstance(event, JobExited):  # about an attempt that has ended, only a window is still answered
            about = [number for number, each in self._commands.items() if getattr(each, "job", None) == event.job]
            for number in about:
                if not isinstance(self._commands[number], ProfileJob):
                    del self._commands[number]
        else:
            self._commands.pop(getattr(event, "command", 0), None)

    def drop(self, device: str, dropped: Collection[int]) -> None:
        """Wait no more for answers of a device that has failed.

        Args:
            device: Name of the device.
            dropped: Ids of commands that only failed devices could answer.
        """
        of_device = [number for number, each in self._commands.items() if getattr(each, "device", None) == device]
        for number in (*of_device, *dropped):
            self._commands.pop(number, None)

    def gave(self, commands: Sequence[Command]) -> None:
        """Note commands that were given."""
        self._commands.update({each.id: each for each in commands if not isinstance(each, _NOT_AWAITED)})


class Segments:
    """Facts that a run takes over from one segment of its log to the next.

    Attributes:
        unanswered: Commands without an answer.
    """

    def __init__(
        self,
        placement: PlacementStrategy,
        places: Places,
        memory: AllocatorRules,
        settings: SettingSelector | PowerBudget,
        requests: UserRequests,
        sweeps: Sweeps,
        state: RunState,
    ) -> None:
        """Segment that has just begun."""
        self._placement, self._places, self._memory, self._settings = placement, places, memory, settings
        self._requests, self._sweeps, self._state = requests, sweeps, state
        self.unanswered = Unanswered()
        self._lanes_made = 0

    def present(self, commands: int) -> Segment | None:
        """Facts that another segment would take over now; None if something holds it up.

        Lanes of failed devices are not taken over. Under a power budget that sets limits they have to be, since such a
        device may still draw power: then there is no such moment any more.

        Args:
            commands: Id of the last command.
        """
        if self.unanswered or self._state.is_ending or self._state.draining:
            return None
        lanes, settings = self._placement.lane_index.lanes, self._settings
        kept = [lane for lane in lanes.values() if lane.state is LaneState.OPEN]
        if not kept or (isinstance(settings, PowerBudget) and len(kept) < len(lanes)):
            return None
        devices = {lane.device.name for lane in kept}
        jobs = [job for job in self._state.jobs.values() if not job.state.ended]
        if not all(job.state in _CALM or (job.state in _CARRIED and not job.again) for job in jobs):
            return None
        return Segment(
            jobs=tuple(map(_carried, sorted(jobs, key=attrgetter("number")))),
            settings=tuple(sorted(each for each in settings.in_force.items() if each[0] in devices)),
            limits_w=settings.shown_w if isinstance(settings, PowerBudget) else (),
            emptied=tuple(name for name in self._memory.emptied if name in devices),
            commands=commands,
            lanes=tuple((lane.number, lane.device.name) for lane in kept),
            lanes_made=max(self._lanes_made, max(lanes) + 1),
            dropped=tuple(sorted(self._state.dropped)),
            had_work=self._state.had_work,
            sweeps=self._sweeps.carried(),
            limits=self._memory.asked,
            left=self._memory.shared,
            others=self._placement.profiling.others,
        )

    def known(self, classes: Collection[str]) -> dict[str, Any]:
        """Fields of the next `RunOpened` with what is known of packings of these classes, from this run and earlier."""
        settings, groups = self._settings, self._placement.groups
        return {
            "known_settings": _about(classes, settings.known.values()) if isinstance(settings, SettingSelector) else (),
            "known_responses": _about(classes, settings.responses) if isinstance(settings, PowerBudget) else (),
            "colocations": tuple(each for each in groups.seen if all(name in classes for name in each.classes))
            if groups
            else (),
        }

    def go_on(self, segment: Segment, next_number: Callable[[], int], at_s: float) -> list[Job]:
        """Take over jobs, settings and caches. The lanes are open by now.

        Args:
            segment: Facts that are taken over.
            next_number: Returns the number of the next job in the order of arrival.
            at_s: Present time (s).

        Returns:
            The jobs that run.
        """
        self._lanes_made = segment.lanes_made
        self._state.dropped = set(segment.dropped)
        self._state.had_work = segment.had_work
        self._memory.go_on(segment.emptied, segment.left)
        self._placement.profiling.others = segment.others
        self._settings.go_on(segment)
        self._sweeps.go_on(segment.sweeps)
        running, lanes = [], self._placement.lane_index.lanes
        for each in segment.jobs:
            job = _revived(each, next_number())
            self._state.jobs[each.spec.name] = job
            self._state.arrived(each.spec)
            job.iterations_until_rung = self._sweeps.iterations_until_rung(job)
            self._placement.arrived(job)
            if each.held:
                self._requests.keep_held(job, at_s)
                continue
            if each.state and not each.lanes:
                job.state = JobState(each.state)
            if each.parked_in is not None:
                job.parked_in = lanes[each.parked_in]
                self._placement.host.reserve(job)
            if job.state.waits:
                self._placement.waits(job, at_s)
                job.waits_since_s = at_s if each.waits_since_s is None else each.waits_since_s
            if each.lanes:
                since_s = at_s if each.since_s is None else each.since_s
                self._places.keep(job, tuple(lanes[number] for number in each.lanes), each.state, since_s)
                if job.state is JobState.RUNNING:
                    running.append(job)
        self._memory.await_limits(segment.limits)
        return running


def _about(classes: Collection[str], found: Iterable[_Packed]) -> tuple[_Packed, ...]:
    """Those of which the packing has classes of these alone."""
    return tuple(each for each in found if all(class_of(name) in classes for lane in each.packing for name in lane))


def _carried(job: Job) -> CarriedJob:
    kept = {name: getattr(job, name) for name in _KEPT}
    state = job.state.value if job.state in _CARRIED else ""
    lanes = tuple(lane.number for lane in job.lanes)
    parked_in = job.parked_in.number if job.state is JobState.PARKED and job.parked_in is not None else None
    return CarriedJob(
        **kept,
        lanes=lanes,
        held=job.state is JobState.HELD,
        state=state,
        parked_in=parked_in,
        since_s=job.history[-1].at_s if job.history else None,
        waits_since_s=job.waits_since_s,
    )


def _revived(carried: CarriedJob, number: int) -> Job:
    """Record of a job from the segment before, which waits for a place."""
    return Job(number=number, **{name: getattr(carried, name) for name in _KEPT})
