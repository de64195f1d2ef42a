"""A device in virtual time, with the jobs at work on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ecoshare.simulation.simulated_attempt import SimulatedAttempt
from ecoshare.values.measurement import Setting


@dataclass(slots=True, eq=False)
class VirtualDevice:
    """One device in virtual time.

    Attributes:
        name: Name of the device.
        at_work: Attempt that holds the turn, keyed by lane number; idle lanes are absent.
        watts: Power (W) above idle.
        busy: Whether any job is at work.
        lanes: Numbers of the device's lanes.
        setting: Setting in force.
    """

    name: str
    at_work: dict[int, SimulatedAttempt] = field(default_factory=dict)
    watts: float = 0.0
    busy: bool = False
    lanes: list[int] = field(default_factory=list)
    setting: Setting = ()

    @property
    def seats(self) -> list[SimulatedAttempt]:
        """Attempts at work on the device."""
        return list(self.at_work.values())

    def others(self, lanes: Sequence[int]) -> list[SimulatedAttempt]:
        """Attempts at work on the device in lanes other than `lanes`."""
        return [seat for lane, seat in self.at_work.items() if lane not in lanes]
