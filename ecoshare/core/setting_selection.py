"""Which setting each device has, which it should have, and the search for one that is not known.

::

               a packing with a known setting, or none
        ┌──────────────── APPLYING ◄────────────────┐
        ▼                                           │
      IDLE ── a packing to search, warm ──► ASKING ─┴─► (over: the best is known)
                                              ▲  │
                        trial, or void        │  └─► APPLYING ──► MEASURING ─┐
                                              └──────────────────────────────┘

The tuner itself is an adviser: slow, heavy, and asked through the driver. A packing that changes while a trial is under
way voids that trial; nothing is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ecoshare.core.commands import ApplySetting, AskSetting, Command, MeasureSetting
from ecoshare.core.events import (
    Done,
    KnownSetting,
    Measurement,
    MeasurementStatus,
    Packing,
    Refused,
    Setting,
    SettingAdvised,
    SettingMeasured,
)
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState

DEFAULT: Setting = ()
"""The setting that a device was found with."""


class TuningPhase(Enum):
    """What a device waits for."""

    IDLE = "idle"
    APPLYING = "applying"
    ASKING = "asking"
    MEASURING = "measuring"


_MOVES = {
    TuningPhase.IDLE: {TuningPhase.APPLYING, TuningPhase.ASKING, TuningPhase.MEASURING},
    TuningPhase.APPLYING: {TuningPhase.IDLE, TuningPhase.MEASURING, TuningPhase.ASKING},
    TuningPhase.ASKING: {TuningPhase.IDLE, TuningPhase.APPLYING, TuningPhase.MEASURING},
    TuningPhase.MEASURING: {TuningPhase.IDLE, TuningPhase.ASKING},
}


@dataclass(slots=True)
class _Device:
    """One device.

    Attributes:
        setting: In force.
        wanted: That the command under way applies.
        packing: Of the search under way; None where there is none.
        stuck: A setting that was refused; it is not tried again for the same packing.
    """

    name: str
    phase: TuningPhase = TuningPhase.IDLE
    setting: Setting = DEFAULT
    wanted: Setting = DEFAULT
    packing: Packing | None = None
    stuck: tuple[Packing, Setting] | None = None
    history: list[str] = field(default_factory=list)

    def move(self, to: TuningPhase) -> None:
        self.history.append(to.value)
        if to not in _MOVES[self.phase]:
            raise RuntimeError(f"{self.name} cannot go from {self.phase.value} to {to.value}: {self.history[-12:]}")
        self.phase = to


class SettingSelector:
    """The settings of all devices.

    Attributes:
        known: Settings by packing: found in earlier runs, or in this one.
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
        """Nothing is set.

        Args:
            search: Whether packings without a known setting are searched.
            ids: Gives the next command's id.
            present: Those of some lanes that make their packing.
            observe: Whether packings of several jobs that are not searched are measured once, at the default setting.
            bear: Whether these jobs keep their own limits where all are so many times slower than at the default.
        """
        self.known = {each.packing: each for each in known}
        self._search, self._ids, self._present, self._bear = search, ids, present, bear
        self._observe, self._observed = observe, set[Packing]()
        self._devices: dict[str, _Device] = {}
        self._commands: dict[int, _Device] = {}

    @property
    def active(self) -> bool:
        """Whether any device's setting may ever change."""
        return self._search or self._observe or bool(self.known) or bool(self._devices)

    @property
    def tries(self) -> bool:
        """Whether anything is ever measured."""
        return self._search or self._observe

    def is_measuring(self, name: str) -> bool:
        """Whether a trial is under way on a device: who comes or goes now makes it void."""
        device = self._devices.get(name)
        return device is not None and device.phase is TuningPhase.MEASURING

    def at_default(self, lane: Lane) -> bool:
        """Whether a lane's device is as it was found, and nobody is about to change that."""
        device = self._devices.get(lane.device.name)
        return device is None or (device.phase is TuningPhase.IDLE and device.setting == DEFAULT)

    def look(self, name: str, lanes: Sequence[Lane], ready: bool) -> list[Command]:
        """What follows from the packing of a device as it is now.

        Args:
            lanes: All of the device.
            ready: Whether its jobs are warm and known, so that a search may begin.
        """
        device = self._devices.setdefault(name, _Device(name))
        if device.phase is not TuningPhase.IDLE:
            return []
        packing = self._packing_of(lanes)
        if self._search and packing and packing not in self.known and ready:
            device.packing = packing
            return [self._ask(device, None)]
        if self._may_observe(device, packing) and ready:
            device.packing = packing
            self._observed.add(packing)
            return self._measure(device, lanes)
        wanted = self._known_for(packing, lanes)
        if wanted == device.setting or device.stuck == (packing, wanted):
            return []
        device.packing = None
        return [self._apply(device, wanted)]

    def owns(self, command: int) -> bool:
        """Whether a command is one of these, unanswered."""
        return command in self._commands

    def answered(
        self, event: Done | Refused | SettingMeasured | SettingAdvised, lanes: Sequence[Lane]
    ) -> list[Command]:
        """One of these commands has its answer.

        Args:
            lanes: All of the command's device.
        """
        device = self._commands.pop(event.command)
        now = self._packing_of(lanes)
        match event:
            case Done():
                device.setting = device.wanted
                return self._measure(device, lanes) if device.packing == now else self._rest(device)
            case Refused() if device.packing == now:
                return [self._ask(device, Measurement(device.wanted, MeasurementStatus.FAILED, note=event.error))]
            case Refused():
                device.stuck = (now, device.wanted)
                return self._rest(device)
            case SettingMeasured() if device.packing == now and now not in self._observed:
                return [self._ask(device, event.measurement)]
            case SettingMeasured():
                return self._rest(device)
            case SettingAdvised():
                return self._advised(device, event, lanes)

    def _advised(self, device: _Device, event: SettingAdvised, lanes: Sequence[Lane]) -> list[Command]:
        assert device.packing is not None, "who asked had a packing"
        if event.over:
            self.known[device.packing] = KnownSetting(device.packing, event.setting, event.slower)
        if event.over or device.packing != self._packing_of(lanes):
            return self._rest(device)
        if event.setting == device.setting:
            return self._measure(device, lanes)
        return [self._apply(device, event.setting)]

    def _known_for(self, packing: Packing, lanes: Iterable[Lane]) -> Setting:
        """What is known for a packing, unless one of these jobs would be slower than its owner allows."""
        known = self.known.get(packing)
        return DEFAULT if known is None or not self._bear(self._present(lanes), known.slower) else known.setting

    def _may_observe(self, device: _Device, packing: Packing) -> bool:
        several = sum(map(len, packing)) > 1
        return self._observe and several and device.setting == DEFAULT and packing not in self._observed

    def _packing_of(self, lanes: Iterable[Lane]) -> Packing:
        return packing_of(self._present(lanes))

    def device_of(self, command: int) -> str:
        """The device that an unanswered command is about."""
        return self._commands[command].name

    @staticmethod
    def _rest(device: _Device) -> list[Command]:
        device.packing = None
        device.move(TuningPhase.IDLE)
        return []

    def _ask(self, device: _Device, trial: Measurement | None) -> AskSetting:
        assert device.packing is not None, "a search is of a packing"
        command = self._begin(device, TuningPhase.ASKING)
        return AskSetting(command, "tuner", device.name, device.packing, trial)

    def _apply(self, device: _Device, setting: Setting) -> ApplySetting:
        device.wanted = setting
        return ApplySetting(self._begin(device, TuningPhase.APPLYING), device.name, setting)

    def _measure(self, device: _Device, lanes: Sequence[Lane]) -> list[Command]:
        jobs = tuple(sorted(job.spec.name for job in self._present(lanes)))
        return [MeasureSetting(self._begin(device, TuningPhase.MEASURING), device.name, jobs, device.setting)]

    def _begin(self, device: _Device, phase: TuningPhase) -> int:
        command = self._ids()
        device.move(phase)
        self._commands[command] = device
        return command


def packing_of(jobs: Iterable[Job]) -> Packing:
    """The classes of jobs of one device, lane by lane; the same for every order of lanes and jobs."""
    lanes: dict[int, list[str]] = {}
    for job in jobs:
        lanes.setdefault(job.lanes[0].number, []).append(job.spec.job_class)
    return tuple(sorted(tuple(sorted(classes)) for classes in lanes.values()))


def running(lanes: Iterable[Lane]) -> list[Job]:
    """All jobs that run in some lanes."""
    return [job for lane in lanes for job in lane.jobs.values() if job.state is JobState.RUNNING]
