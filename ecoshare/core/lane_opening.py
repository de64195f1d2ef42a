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
from ecoshare.values.segment import Segment


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

    def open_all(self) -> list[OpenLane]:
        """Commands that open the lanes."""
        return [self._open(lane) for lane in self._made()]

    def go_on(self, segment: Segment) -> list[OpenLane]:
        """Take over the lanes that are open, and return the commands that open those of new devices."""
        kept = dict(segment.lanes)
        commands = []
        for lane in self._made():
            if lane.number not in kept:
                commands.append(self._open(lane))
                continue
            self._placement.lane_index.add(lane)
            lane.move(LaneState.OPEN, self._opened.at_s, CARRIED)
            self._placement.lane_index.opened(lane)
        return commands

    def _open(self, lane: Lane) -> OpenLane:
        lane.command = self._next_id()
        self._state.opening[lane.command] = lane
        self._placement.lane_index.add(lane)
        return OpenLane(lane.command, lane.number, lane.device.name, lane.device.memory_bytes)

    def _made(self) -> list[Lane]:
        config = self._opened.config
        places = self._placement.policy.places or config.places_per_lane
        return [Lane(number, device, places) for number, device in self._opened.lanes.items()]
