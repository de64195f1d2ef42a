"""Records which jobs run at once on each device, as the log of a run keeps it.

The packing of a device follows from decisions of the scheduler: the members of its group, and the profiling windows. A
later version of the scheduler may decide otherwise, so the run that decided writes its packings down::

    {"event": "JobExited", ...}            an event of the core
    {"command": "SetShares", ...}          the commands that followed
    {"record": "PackingChanged", ...}      the packing of a device from this event on

A log without these lines is replayed: `PackingRecorder` then watches the core of the replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from ecoshare.base.measurement import Packing
from ecoshare.core.commands import Command
from ecoshare.core.events import Event, InterferencePredicted, IterationsDone, Profiled, RunOpened
from ecoshare.core.records import Job, JobState, Lane

if TYPE_CHECKING:
    from ecoshare.core.scheduler import Scheduler, SchedulerView


class PackingEnding(Enum):
    """Reason why a packing ended."""

    PARTED = "parted"
    """The scheduler chose another group although all jobs could have continued."""
    JOINED = "joined"
    """Another job joined."""
    LEFT = "left"
    """At least one of the jobs ended or was stopped."""
    WINDOW = "window"
    """A job was measured alone."""
    CUT_OFF = "cut off"
    """The rest is not known: the session ended, or the core could no longer follow its log."""


@dataclass(frozen=True, slots=True)
class PackingChanged:
    """Packing of a device from the last event on, or a new forecast for the packing that goes on.

    Under a policy that packs, only members of the group count. While a job is measured alone, no job counts.

    Attributes:
        jobs: Lane of each job; empty if no job counts.
        ending: Reason why the previous packing of the device ended; None if none ended.
        speeds: Expected relative speed of each job: rate together / rate alone; empty without a forecast.
        power_w: Expected power (W) of the device; None if watts are not known.
    """

    device: str
    jobs: dict[str, int] = field(default_factory=dict)
    ending: PackingEnding | None = None
    speeds: tuple[float, ...] = ()
    power_w: float | None = None

    def packing(self, classes: Mapping[str, str]) -> Packing:
        """Packing of the jobs; `classes` maps each job to its class."""
        lanes: dict[int, list[str]] = {}
        for job, lane in self.jobs.items():
            lanes.setdefault(lane, []).append(classes[job])
        return tuple(sorted(tuple(sorted(names)) for names in lanes.values()))


class PackingRecorder:
    """Watches a scheduler, and tells the packings that changed with each event."""

    def __init__(self) -> None:
        """Recorder before the first event, which must be `RunOpened`."""
        self._last: dict[str, PackingChanged] = {}

    def changes(self, event: Event, commands: Sequence[Command], core: Scheduler) -> list[PackingChanged]:
        """Changes that an event brought, in order.

        With `RunOpened`, every device is told, so that a recorded session differs from one without records. The jobs
        of a segment run already.

        Args:
            event: Event that the scheduler has just handled.
            commands: Commands that the scheduler gave.
            core: The scheduler.
        """
        if isinstance(event, RunOpened):
            self._last = {device.name: PackingChanged(device.name) for device in event.devices}
            if event.segment is not None:
                self._last = {name: _forecast(_present(name, core), core) for name in self._last}
            return list(self._last.values())
        found, view = list[PackingChanged](), core.view
        if isinstance(event, IterationsDone) and not commands and view.placement.groups is None:
            return []  # every job runs on where it was, and such events are most of a run on many nodes
        if isinstance(event, InterferencePredicted | Profiled):
            found += self._forecasts(core)
        for device, lanes in view.lane_index.devices.items():
            found += self._look(device, lanes, core, view)
        return found

    def _look(self, device: str, lanes: list[Lane], core: Scheduler, view: SchedulerView) -> list[PackingChanged]:
        before = self._last[device]
        is_window = view.profiling.occupies(lanes[0])
        jobs = [] if is_window else view.placement.present(lanes)
        if len(jobs) == len(before.jobs) and all(before.jobs.get(job.spec.name) == job.lanes[0].number for job in jobs):
            return []
        now = {job.spec.name: job.lanes[0].number for job in jobs}
        if now.keys() == before.jobs.keys():  # a job has changed its lane
            moved = {name: now[name] for name in before.jobs}
            self._last[device] = replace(before, jobs=moved, ending=None)
            return [self._last[device]]
        ending = None if not before.jobs else PackingEnding.WINDOW if is_window else _ending(before, jobs, core)
        if not jobs:
            self._last[device] = PackingChanged(device, ending=ending)
            return [self._last[device]]
        self._last[device] = _forecast(PackingChanged(device, now, ending), core)
        return [self._last[device], *self._forecasts(core)]

    def _forecasts(self, core: Scheduler) -> list[PackingChanged]:
        """Packings with another forecast than the last one that was told."""
        found = []
        for device, last in self._last.items():
            now = _forecast(last, core)
            if (now.speeds, now.power_w) != (last.speeds, last.power_w):
                self._last[device] = replace(now, ending=None)
                found.append(self._last[device])
        return found


def _present(device: str, core: Scheduler) -> PackingChanged:
    """Packing of a device on which no window is open."""
    jobs = core.view.placement.present(core.view.lane_index.devices[device])
    return PackingChanged(device, {job.spec.name: job.lanes[0].number for job in jobs})


def _forecast(change: PackingChanged, core: Scheduler) -> PackingChanged:
    """The same packing with the present forecast of the scheduler, if its policy makes forecasts."""
    if not change.jobs or (packer := core.view.placement.groups) is None:
        return change
    knows_watts = any(solo.power_w is not None for solo in packer.outlook.solos.values())
    forecast = packer.outlook.forecast([core.jobs[name].spec.job_class for name in change.jobs])
    return replace(change, speeds=forecast.speeds, power_w=forecast.power_w if knows_watts else None)


def _ending(before: PackingChanged, now: list[Job], core: Scheduler) -> PackingEnding:
    """Reason for the end of a packing that no window ended."""
    if any(core.jobs[name].state is not JobState.RUNNING for name in before.jobs):
        return PackingEnding.LEFT
    return PackingEnding.JOINED if before.jobs.keys() < {job.spec.name for job in now} else PackingEnding.PARTED
