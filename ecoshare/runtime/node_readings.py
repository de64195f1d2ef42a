"""Readings of a node at one moment, for the displays and the metrics of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ecoshare.devices.knob import KnobSpec
from ecoshare.values.attempt import Usage
from ecoshare.values.setting import Setting


@dataclass(frozen=True, slots=True)
class AttemptReading:
    """Attempt in progress.

    Attributes:
        usage: Usage so far.
        lanes: Lane on each device of the job; the first one has its counters.
        turns: Lanes of which the attempt has the turn.
        waits_s: Time (s) for which it has waited for its turn so far; 0 if it has it or does not want it.
        silent_s: Time (s) for which it has held its turn without the end of an iteration; 0 without the turn.
    """

    usage: Usage
    lanes: tuple[int, ...]
    turns: tuple[int, ...]
    waits_s: float = 0.0
    silent_s: float = 0.0

    @property
    def holding(self) -> bool:
        """Whether the attempt has the turn of its first lane."""
        return bool(self.lanes) and self.lanes[0] in self.turns


@dataclass(frozen=True, slots=True)
class LaneReading:
    """Lane of a device.

    Attributes:
        holder: Job that has the turn; empty if none has it.
        waits: Number of waits for the turn in each bucket of `WAIT_BOUNDS_S`, and above the last bound.
        waited_s: Sum (s) of these waits.
    """

    holder: str
    waits: tuple[int, ...]
    waited_s: float


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """Device of a node.

    Attributes:
        setting: Setting in force, with the knobs of services.
        failed: Reason why it has failed; empty if it works.
        lanes: Lanes of the device, by number.
    """

    setting: Setting
    failed: str
    lanes: Mapping[int, LaneReading]


class NodeReadings(Protocol):
    """Gives the readings of a node."""

    @property
    def knobs(self) -> Mapping[str, Sequence[KnobSpec]]:
        """Knobs of each device that may be set, by its name."""
        ...

    @property
    def in_progress(self) -> Collection[str]:
        """Jobs with an attempt in progress."""
        ...

    def attempt(self, name: str) -> AttemptReading:
        """Reading of a job in progress."""
        ...

    def device(self, name: str) -> DeviceReading:
        """Reading of a device."""
        ...
