"""Setting selection: the setting that each device has, the one that it should have, and the search for unknown ones.

::

               a packing with a known setting, or none
        ┌──────────────── APPLYING ◄────────────────┐
        ▼                                           │
      IDLE ── a packing to search, warm ──► ASKING ─┴─► (over: the best is known)
                                              ▲  │
                 result, or a refusal         │  └─► APPLYING ──► MEASURING ─┐
                                              ├──────────────────────────────┤
                                              │     the target was missed    │
                                              └─ RECOVERING ◄── APPLYING ◄───┘
                                                                the safe setting

The tuner itself is an adviser. It is slow and heavy, so the core asks it through the driver. If the packing changes
during a measurement, the measurement is void: the device becomes idle, and the adviser hears nothing of it.

A setting at which a service misses its target leaves a queue behind. So the device gets the safe setting at once: the
default, or the best measured one if the default misses the target. The next setting is tried when the service has
recovered, and the search ends if it does not.

A phase of a job is a part of the packing: a job that evaluates counts as one of another class, and a job that is away
does not count. If all jobs are away, the setting stays as it is.

A service that misses its target for a minute at any other setting than the default ends the search of its packing, and
the packing has the default setting from then on. So it does after another setting was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ecoshare.base.measurement import (
    AS_FOUND,
    JobPhase,
    KnownSetting,
    Measurement,
    MeasurementStatus,
    Packing,
    Setting,
    class_in,
)
from ecoshare.base.segment import Segment
from ecoshare.core.commands import ApplySetting, AskSetting, AwaitRequests, Command, MeasureSetting
from ecoshare.core.events import (
    ClassesKnown,
    Done,
    PowerPredicted,
    Refused,
    SettingAdvised,
    SettingAnswer,
    SettingMeasured,
)
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.core.settings.service_targets import MISSED_SHARE

RECOVERY_S = 90.0
"""Longest wait (s) for services to recover from a setting. Misses of a minute ago count no more."""

RECOVERED_SHARE = MISSED_SHARE / 4
"""Largest part of the requests of the last minute that may have missed the target before another setting is tried. The
rest of what the target allows is left to that setting: an overload is seen after some tenths of a second."""


_MOST_VOIDS = 3
"""Measurements in a row that phases make void before their packing is searched no more: it does not last."""


class TuningPhase(Enum):
    """Phase of the setting selection of a device."""

    IDLE = "idle"
    APPLYING = "applying"
    ASKING = "asking"
    MEASURING = "measuring"
    RECOVERING = "recovering"


_MOVES = {
    TuningPhase.IDLE: {TuningPhase.APPLYING, TuningPhase.ASKING, TuningPhase.MEASURING},
    TuningPhase.APPLYING: {
        TuningPhase.IDLE,
        TuningPhase.MEASURING,
        TuningPhase.ASKING,
        TuningPhase.RECOVERING,
    },
    TuningPhase.ASKING: {TuningPhase.IDLE, TuningPhase.APPLYING, TuningPhase.MEASURING},
    TuningPhase.MEASURING: {TuningPhase.IDLE, TuningPhase.ASKING, TuningPhase.APPLYING},
    TuningPhase.RECOVERING: {TuningPhase.IDLE, TuningPhase.ASKING},
}


@dataclass(slots=True)
class _Device:
    """Setting selection of one device.

    Attributes:
        setting: Setting in force.
        wanted: Setting that the last `ApplySetting` command applies.
        packing: Packing that is searched or measured now; None if there is none.
        stuck: Packing and setting of the last refusal. The setting is not applied again for that packing.
        safe: Setting at which services recover during this search.
        safe_missed: Part of the requests that missed their target at the safe setting.
        has_tried: Whether this search has tried another setting than the default.
        missed: Measurement of a setting that the services must recover from; None if there is none.
        evaluating: Names of the jobs of the last measurement that evaluated.
        voids: Number of measurements in a row that a phase made void.
        history: Phases that the device has gone through.
    """

    name: str
    phase: TuningPhase = TuningPhase.IDLE
    setting: Setting = AS_FOUND
    wanted: Setting = AS_FOUND
    packing: Packing | None = None
    stuck: tuple[Packing, Setting] | None = None
    safe: Setting = AS_FOUND
    safe_missed: float = 0.0
    has_tried: bool = False
    missed: Measurement | None = None
    evaluating: tuple[str, ...] = ()
    voids: int = 0
    history: list[str] = field(default_factory=list)

    def move(self, to: TuningPhase) -> None:
        self.history.append(to.value)
        if to not in _MOVES[self.phase]:
            raise RuntimeError(f"{self.name} cannot go from {self.phase.value} to {to.value}: {self.history[-12:]}")
        self.phase = to


class SettingSelector:
    """Setting selection of all devices.

    Attributes:
        known: Best setting of each packing, found in earlier runs or in this one.
    """

    def __init__(
        self,
        known: Iterable[KnownSetting],
        search: bool,
        ids: Callable[[], int],
        present: Callable[[Iterable[Lane]], list[Job]],
        observe: bool = False,
        bear: Callable[[Sequence[Job], float], bool] = lambda _jobs, _slower: True,
    ) -> None:
        """Setting selection with all devices at their default settings.

        Args:
            known: Best settings from earlier runs.
            search: Whether packings without a known setting are searched.
            ids: Function that returns the id of the next command.
            present: Function that returns the jobs of some lanes that make up the packing of their device.
            observe: Whether packings of several jobs that are not searched are measured once, at the default setting.
            bear: Function of jobs and a factor: whether all jobs keep their own slowdown limits if their iterations
                take longer by that factor.
        """
        self.known = {each.packing: each for each in known}
        self._search, self._ids, self._present, self._bear = search, ids, present, bear
        self._observe, self._observed = observe, set[Packing]()
        self._given_up = set[Packing]()
        self._devices: dict[str, _Device] = {}
        self._commands: dict[int, _Device] = {}

    @property
    def in_force(self) -> dict[str, Setting]:
        """Setting of each device that is not at its default setting, by its name, while no command is on the way."""
        return {name: device.setting for name, device in self._devices.items() if device.setting != AS_FOUND}

    def go_on(self, segment: Segment) -> None:
        """Take over the settings in force."""
        for name, setting in segment.settings:
            self._devices[name] = _Device(name, setting=setting, wanted=setting)

    def knows(self, event: ClassesKnown) -> None:
        """Learn the best settings of packings of classes that are new in this run."""
        for each in event.known_settings:
            self.known.setdefault(each.packing, each)

    @property
    def active(self) -> bool:
        """Whether there is anything to do: settings to apply, to search or to measure."""
        return self._search or self._observe or bool(self.known) or bool(self._devices)

    @property
    def tries(self) -> bool:
        """Whether packings are ever measured."""
        return self._search or self._observe

    def is_measuring(self, name: str) -> bool:
        """Whether a measurement is under way on a device. A job that comes or goes now makes it void."""
        device = self._devices.get(name)
        return device is not None and device.phase is TuningPhase.MEASURING

    def at_default(self, lane: Lane) -> bool:
        """Whether the device of a lane is at its default setting and no command is about to change that."""
        device = self._devices.get(lane.device.name)
        return device is None or (device.phase is TuningPhase.IDLE and device.setting == AS_FOUND)

    def look(self, name: str, lanes: Sequence[Lane], ready: bool) -> list[Command]:
        """Commands that follow from the present packing of a device.

        Args:
            name: Name of the device.
            lanes: All lanes of the device.
            ready: Whether its jobs are warm and their classes known, so that a search may begin.
        """
        device = self._devices.setdefault(name, _Device(name))
        packing = self._packing_of(lanes)
        if device.phase is TuningPhase.MEASURING and packing != device.packing is not None:
            device.voids += 1
            if self._search and device.voids >= _MOST_VOIDS:  # it would go on so, and cost in each such phase
                self._given_up.add(device.packing)
            self._observed.discard(device.packing)
            device.packing = None  # the measurement is void, even if this phase of a job is soon over
        if device.phase is not TuningPhase.IDLE or (not packing and self._present(lanes)):
            return []
        is_new = packing not in self.known and packing not in self._given_up
        if self._search and packing and is_new and ready and not self._is_searched(packing):
            device.packing, device.missed, device.has_tried = packing, None, False
            device.safe, device.safe_missed = AS_FOUND, 0.0
            return [self._ask(device, None)]
        if ready and self._may_observe(device, packing, lanes):
            device.packing = packing
            self._observed.add(packing)
            return self._measure(device, lanes)
        wanted = self._known_for(packing, lanes)
        if wanted == device.setting or device.stuck == (packing, wanted):
            return []
        device.packing = None
        return [self._apply(device, wanted)]

    def missed(self, name: str, lanes: Sequence[Lane]) -> list[Command] | None:
        """Give up the setting at which a service has missed its target for a minute.

        Args:
            name: Name of the device of the service.
            lanes: All lanes of the device.

        Returns:
            The commands that follow; None if no other setting than the default can be at fault.
        """
        device = self._devices.get(name)
        if device is None:
            return None
        is_searched = device.packing is not None and device.has_tried
        if device.setting == device.wanted == AS_FOUND and not is_searched:
            return None
        packing = device.packing or self._packing_of(lanes)
        self.known[packing] = KnownSetting(packing, AS_FOUND)
        device.packing = None  # an answer that is still to come is void
        return [self._apply(device, AS_FOUND)] if device.phase is TuningPhase.IDLE else []

    def owns(self, command: int) -> bool:
        """Whether a command belongs to the setting selection and has no answer yet."""
        return command in self._commands

    def answered(self, event: SettingAnswer, lanes: Sequence[Lane], ready: bool) -> list[Command]:
        """Commands that follow from the answer to a command of the setting selection.

        Args:
            event: The answer.
            lanes: All lanes of the device that the command is about.
            ready: Whether all jobs of the device run, so that no other one begins during a measurement.
        """
        device = self._commands.pop(event.command)
        now = self._packing_of(lanes)
        if device.phase is TuningPhase.RECOVERING:
            last = isinstance(event, Refused)
            return [self._ask(device, device.missed, last)] if device.packing == now else self._rest(device)
        match event:
            case Done():
                device.setting = device.wanted
                if device.packing != now:
                    return self._rest(device)
                device.has_tried |= device.setting != AS_FOUND
                if device.missed is not None:
                    return [self._recover(device, lanes)]
                return self._measure(device, lanes) if ready else self._rest(device)
            case Refused() if device.packing == now and device.missed is not None:
                return [self._ask(device, device.missed, last=True)]  # the device cannot be set any more
            case Refused() if device.packing == now:
                return [self._ask(device, Measurement(device.wanted, MeasurementStatus.FAILED, note=event.error))]
            case Refused():
                device.stuck = (now, device.wanted)
                return self._rest(device)
            case SettingMeasured() if device.packing == now and now not in self._observed:
                device.voids = 0
                return [self._after(device, event.measurement)]
            case SettingMeasured():
                return self._rest(device)
            case SettingAdvised():
                return self._advised(device, event, lanes, ready)
            case PowerPredicted():
                raise AssertionError("only a run with a power budget asks for power")

    def _after(self, device: _Device, found: Measurement) -> Command:
        """Command after a measurement: ask for the next setting, or let the services recover from this one first."""
        share = found.missed_share
        if share is None:
            return self._ask(device, found)
        if device.setting == AS_FOUND:
            device.safe, device.safe_missed = AS_FOUND, share
        elif device.safe_missed > MISSED_SHARE and share < device.safe_missed:
            device.safe, device.safe_missed = device.setting, share
        if share <= MISSED_SHARE or device.setting == device.safe:
            return self._ask(device, found)
        device.missed = found
        return self._apply(device, device.safe)

    def _recover(self, device: _Device, lanes: Iterable[Lane]) -> AwaitRequests:
        services = tuple(sorted(job.spec.name for job in self._present(lanes) if job.spec.service is not None))
        # If no setting keeps the target, the misses of a minute say nothing: an empty queue is all there is.
        share = RECOVERED_SHARE if device.safe_missed <= MISSED_SHARE else 1.0
        return AwaitRequests(self._begin(device, TuningPhase.RECOVERING), device.name, services, share, RECOVERY_S)

    def _advised(self, device: _Device, event: SettingAdvised, lanes: Sequence[Lane], ready: bool) -> list[Command]:
        if device.packing is None:
            return self._rest(device)
        if event.over:
            self.known[device.packing] = KnownSetting(device.packing, event.setting, event.slower)
        if event.over or not ready or device.packing != self._packing_of(lanes):
            return self._rest(device)
        if event.setting == device.setting:
            return self._measure(device, lanes)
        return [self._apply(device, event.setting)]

    def _known_for(self, packing: Packing, lanes: Iterable[Lane]) -> Setting:
        """Known setting of a packing, or the default if there is none or a job would break its slowdown limit.

        Phases for which nothing is known have the setting of the jobs in training.
        """
        jobs = self._present(lanes)
        known = self.known.get(packing) or self.known.get(packing_of(jobs))
        return AS_FOUND if known is None or not self._bear(jobs, known.slower) else known.setting

    def _is_searched(self, packing: Packing) -> bool:
        """Whether a device searches the setting of this packing now. Others wait for what it finds."""
        return any(each.packing == packing for each in self._devices.values())

    def _may_observe(self, device: _Device, packing: Packing, lanes: Iterable[Lane]) -> bool:
        """Whether jobs are measured beside each other. The answers of a service say nothing of the speed of others."""
        jobs = self._present(lanes)
        several = len(jobs) > 1 and all(job.phase is JobPhase.TRAINS and job.spec.service is None for job in jobs)
        return self._observe and several and device.setting == AS_FOUND and packing not in self._observed

    def _packing_of(self, lanes: Iterable[Lane]) -> Packing:
        return _in_phases(self._present(lanes))

    def drop(self, name: str) -> list[int]:
        """Forget the setting and the search of a failed device. Returns its unanswered commands."""
        device = self._devices.pop(name, None)
        commands = [command for command, each in self._commands.items() if each is device]
        for command in commands:
            del self._commands[command]
        if device is not None and device.packing is not None:
            self._observed.discard(device.packing)
        return commands

    def device_of(self, command: int) -> str:
        """Name of the device that an unanswered command is about."""
        return self._commands[command].name

    @staticmethod
    def _rest(device: _Device) -> list[Command]:
        device.packing = device.missed = None
        device.move(TuningPhase.IDLE)
        return []

    def _ask(self, device: _Device, measurement: Measurement | None, last: bool = False) -> AskSetting:
        assert device.packing is not None, "a search is of a packing"
        device.missed = None
        command = self._begin(device, TuningPhase.ASKING)
        evaluating = device.evaluating if measurement is not None else ()
        return AskSetting(command, "tuner", device.name, device.packing, measurement, last, evaluating)

    def _apply(self, device: _Device, setting: Setting) -> ApplySetting:
        device.wanted = setting
        return ApplySetting(self._begin(device, TuningPhase.APPLYING), device.name, setting)

    def _measure(self, device: _Device, lanes: Sequence[Lane]) -> list[Command]:
        jobs = sorted(_at_work(self._present(lanes)), key=lambda job: job.spec.name)
        names = tuple(job.spec.name for job in jobs)
        device.evaluating = tuple(job.spec.name for job in jobs if job.phase is JobPhase.EVALUATES)
        command = self._begin(device, TuningPhase.MEASURING)
        return [MeasureSetting(command, device.name, names, device.setting, device.evaluating)]

    def _begin(self, device: _Device, phase: TuningPhase) -> int:
        command = self._ids()
        device.move(phase)
        self._commands[command] = device
        return command


def packing_of(jobs: Iterable[Job]) -> Packing:
    """Packing of the jobs of one device, all in training. It does not depend on the order of lanes and jobs."""
    return tuple(sorted(tuple(sorted(job.spec.job_class for job in lane)) for lane in by_lane(jobs)))


def _in_phases(jobs: Iterable[Job]) -> Packing:
    """Packing of the jobs of one device in their present phases."""
    lanes = by_lane(_at_work(jobs))
    return tuple(sorted(tuple(sorted(class_in(job.spec.job_class, job.phase) for job in lane)) for lane in lanes))


def _at_work(jobs: Iterable[Job]) -> list[Job]:
    return [job for job in jobs if job.phase is not JobPhase.AWAY]


def by_lane(jobs: Iterable[Job]) -> tuple[tuple[Job, ...], ...]:
    """The jobs of each lane of a device."""
    lanes: dict[int, list[Job]] = {}
    for job in jobs:
        lanes.setdefault(job.lanes[0].number, []).append(job)
    return tuple(map(tuple, lanes.values()))


def running(lanes: Iterable[Lane]) -> list[Job]:
    """Jobs that run in the given lanes."""
    return [job for lane in lanes for job in lane.jobs.values() if job.state is JobState.RUNNING]
