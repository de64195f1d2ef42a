"""Lanes of a run: opened at its beginning, or taken over from the segment of the log before."""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.commands import OpenLane
from ecoshare.core.events import RunOpened
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.places import CARRIED
from ecoshare.core.records import Lane
from ecoshare.core.run_state import RunState
from ecoshare.core.states import LaneState


class LaneOpening:
    """Makes the lanes of all devices, numbered as `RunOpened.lanes` says."""

    def __init__(
        self, opened: RunOpened, placement: PlacementStrategy, state: RunState, next_id: Callable[[], int]
    ) -> None:
        """No lane is made yet.

        Args:
            opened: Opening of the run or segment.
            placement: Placement strategy of the run.
            state: State of the run.
            next_id: Function that returns the id of the next command.
        """
        self._opened, self._placement, self._state, self._next_id = opened, placement, state, next_id

    def begin(self) -> list[OpenLane]:
        """Take over the lanes that are open, and return the commands that open the others."""
        opened, index = self._opened, self._placement.lane_index
        places = self._placement.policy.places or opened.config.places_per_lane
        kept = dict(opened.segment.lanes) if opened.segment is not None else {}
        commands = []
        for number, device in opened.lanes.items():
            lane = Lane(number, device, places)
            index.add(lane)
            if number in kept:
                lane.move(LaneState.OPEN, opened.at_s, CARRIED)
                index.opened(lane)
            else:
                lane.command = self._next_id()
                self._state.opening[lane.command] = lane
                commands.append(OpenLane(lane.command, number, device.name, device.memory_bytes))
        return commands
