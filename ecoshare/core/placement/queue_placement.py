"""Queue: waiting jobs start in the order of the policy.

Running jobs may be parked for a job ahead of them, if there is host memory, or stopped if they are movable. They may
also move to another lane of their device, which makes room for the first job of the queue, or to an idle device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ecoshare.core.events import Done, Refused
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.job_moves import JobMoves
from ecoshare.core.placement.lane_shaping import LaneShaping
from ecoshare.core.placement.steps import RankLanes, ReviewSettings, Step
from ecoshare.core.placement.strategy import Answer, PlacementParts, PlacementStrategy
from ecoshare.core.records import Job


class QueuePlacement(PlacementStrategy):
    """Strategy of a policy that only orders jobs, and of a run in which jobs share lanes by turns."""

    parks = True

    def __init__(self, parts: PlacementParts, is_held: Callable[[str], bool], next_id: Callable[[], int]) -> None:
        """Strategy without jobs.

        Args:
            parts: Parts of the run.
            is_held: Whether a window or a measurement is under way on a device. No job may come, go or move meanwhile.
            next_id: Function that returns the id of the next command.
        """
        super().__init__(parts)
        self._admission = Admission(
            self.policy,
            self.waiting,
            self.lane_index,
            self.fit,
            displacement=parts.displacement,
            moves=parts.device_moves,
        )
        self._shaping = LaneShaping(self.lane_index, self.fit, is_held, next_id)

    @property
    def moves(self) -> JobMoves:
        """Moves between the lanes of a device."""
        return self._shaping.moves

    def takes(self, job: Job, fused: bool) -> None:
        """Note that a job of the queue has got its places. It cannot move if it shares a process."""
        super().takes(job, fused)
        if fused:
            self._shaping.moves.stays(job)

    def left(self, job: Job) -> None:
        """Note that a job is about to leave its places."""
        self._shaping.moves.left(job)
        self._shaping.changed(job.device_names)

    def progressed(self, job: Job, settled: bool, at_s: float) -> Iterator[Step]:
        """Steps after a job has told its progress: a move may pay now."""
        yield from super().progressed(job, settled, at_s)
        yield from self._move(at_s)

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        yield from self._admission.walk(at_s)
        first = self.waiting.walk().job
        yield from self._shaping.split() if first is None else self._shaping.join(first)
        yield from self._move(at_s)

    def owns(self, command: int) -> bool:
        """Whether a command is a move or a timer, and has no answer yet."""
        return self._shaping.moves.owns(command) or super().owns(command)

    def answered(self, event: Answer) -> Iterator[Step]:
        """Steps after a move, a refused move or a timer."""
        if self._timers.owns(event.command):
            yield from super().answered(event)
            return
        if isinstance(event, Refused):
            self._shaping.moves.refused(event.command)
        else:
            assert isinstance(event, Done), "only moves and timers have answers"
            lanes = self._shaping.moves.done(event.command)
            self._shaping.changed(lane.device.name for lane in lanes)
            yield RankLanes(lanes)
            yield ReviewSettings((lanes[0].device.name,))
        yield from self.fill(event.at_s)

    def is_settled(self, device: str) -> bool:
        """Whether no job of a device will start, come, move or be profiled."""
        return not self._shaping.is_shaping(device) and super().is_settled(device)
