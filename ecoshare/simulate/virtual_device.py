"""A device in virtual time: who is at work there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ecoshare.core.events import Setting
from ecoshare.simulate.virtual_lane import SimulatedAttempt


@dataclass(slots=True, eq=False)
class VirtualDevice:
    """One device.

    Attributes:
        at_work: By lane, who has the turn there.
        watts: Drawn beyond idle.
        busy: Whether anybody is at work.
        lanes: Their numbers.
        setting: In force.
    """

    name: str
    at_work: dict[int, SimulatedAttempt] = field(default_factory=dict)
    watts: float = 0.0
    busy: bool = False
    lanes: list[int] = field(default_factory=list)
    setting: Setting = ()

    @property
    def seats(self) -> list[SimulatedAttempt]:
        """Those at work."""
        return list(self.at_work.values())

    def others(self, lanes: Sequence[int]) -> list[SimulatedAttempt]:
        """Those at work in other lanes."""
        return [seat for lane, seat in self.at_work.items() if lane not in lanes]

    def work(self, lane: int, seat: SimulatedAttempt | None) -> None:
        """A job has the turn of one of its lanes, or nobody has."""
        if seat is None:
            del self.at_work[lane]
        else:
            self.at_work[lane] = seat
