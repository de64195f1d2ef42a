"""Queue: waiting jobs start in the order of the policy.

Running jobs may be parked for a job ahead of them, if there is host memory, or stopped if they are movable. They may
also move to another lane of their device, which makes room for the first job of the queue, or to an idle device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, permutations

from ecoshare.core.commands import MoveJob
from ecoshare.core.events import Done, Refused
from ecoshare.core.memory import lane_bytes
from ecoshare.core.moves import JobMoves
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.lane_index import MOST_COMPARED, LaneIndex
from ecoshare.core.placement.limits import in_time
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.steps import RankLanes, ReviewSettings, Step
from ecoshare.core.placement.strategy import Answer, PlacementParts, PlacementStrategy
from ecoshare.core.records import Job, Lane, LaneState

_Drawing = dict[int, list[Job]]
"""Jobs of each lane of a device, by the number of the lane."""


class LaneShaping:
    """Moves that join and split the lanes of each device. Only one change of a device is under way at a time.

    ::

        join     lane 0: A │ T of A        lane 0: A B │ one T         a waiting job has the room of T of B
                 lane 1: B │ T of B   ──►  lane 1: C
        split    lane 0: A B          ──►  lane 0: A                   no job waits, and lane 1 was idle
                 lane 1:                   lane 1: B

    The lanes of a device are drawn anew with each change in this way. Source: Yu and Chowdhury, "Salus: Fine-Grained
    GPU Sharing Primitives for Deep Learning Applications", MLSys 2020, section 3.3.

    Attributes:
        moves: Moves that are under way.
    """

    def __init__(
        self, lane_index: LaneIndex, fit: MemoryFit, is_held: Callable[[str], bool], next_id: Callable[[], int]
    ) -> None:
        """Shaping of the lanes of an index.

        Args:
            lane_index: Index of the lanes.
            fit: Memory fit of jobs and lanes.
            is_held: Whether a window or a measurement is under way on a device. No job may come, go or move meanwhile.
            next_id: Function that returns the id of the next command.
        """
        self._lane_index, self._fit, self._is_held = lane_index, fit, is_held
        self.moves = JobMoves(lane_index, next_id)
        self._changed: dict[str, None] = {}
        self._joining: tuple[Job, str] | None = None

    def changed(self, devices: Iterable[str]) -> None:
        """Note that jobs have left these devices, or have moved there: their lanes may be split now."""
        self._changed.update(dict.fromkeys(devices))

    def is_shaping(self, device: str) -> bool:
        """Whether a job is on its way to another lane of the device."""
        return any(lane.coming for lane in self._lane_index.devices[device])

    def join(self, job: Job) -> list[MoveJob]:
        """Moves after which a waiting job of one device has room; none if moves do not help, or are under way."""
        if job.spec.gpus > 1 or job.parked_in is not None or self._fit.apart(job):
            return []
        if self._joining is not None and self._joining[0] is job and self.is_shaping(self._joining[1]):
            return []
        for device in islice(self._lane_index.devices, MOST_COMPARED):
            if self._may_shape(device) and self._fit.fits_joined(job, device) and (moves := self._joined(job, device)):
                self._joining = job, device
                return moves
        return []

    def split(self) -> list[MoveJob]:
        """Moves of one job to each empty lane beside a lane of several jobs, if memory allows. No job waits."""
        looked_at = [device for device in self._changed if not self._is_held(device) and not self.is_shaping(device)]
        moves = []
        for device in looked_at:
            emptiest, fullest = self._extremes(device)
            if not self._may_shape(device) or emptiest is None or emptiest.jobs or len(fullest.jobs) < 2:
                del self._changed[device]
            elif (move := self._split(emptiest, fullest)) is not None:
                moves.append(move)
        return moves

    def _extremes(self, device: str) -> tuple[Lane | None, Lane]:
        """Open lanes of a device with the fewest and with the most jobs; None and any lane if no lane is open."""
        lanes = self._lane_index.devices[device]
        opened = sorted((lane for lane in lanes if lane.state is LaneState.OPEN), key=lambda lane: len(lane.jobs))
        return (opened[0], opened[-1]) if opened else (None, lanes[0])

    def _may_shape(self, device: str) -> bool:
        lanes = self._lane_index.devices[device]
        if len(lanes) < 2 or self._is_held(device) or self.is_shaping(device):
            return False
        return all(job.spec.gpus == 1 for lane in lanes for job in lane.jobs.values())

    def _split(self, empty: Lane, fullest: Lane) -> MoveJob | None:
        """Move of a job from the fullest lane to an empty one; None if no job may move there now."""
        free_bytes = self._fit.capacity(fullest.device) - self._fit.needed_bytes(fullest.device.name)
        movable = [job for job in fullest.jobs.values() if self._may_move(job)]
        job = min(movable, key=lambda job: (job.demand.ephemeral_bytes, job.number), default=None)
        if job is None or job.demand.ephemeral_bytes > free_bytes:
            return None
        return self.moves.begin(job, empty)

    def _joined(self, job: Job, device: str) -> list[MoveJob]:
        """Moves of whole lanes into other lanes until `job` fits: each time the move that frees the most memory.

        Jobs go to a lane with as large a T as theirs. So no lane needs more while they are on their way.
        """
        lanes = {lane.number: lane for lane in self._lane_index.devices[device] if lane.state is LaneState.OPEN}
        drawing = {number: list(lane.jobs.values()) for number, lane in lanes.items()}
        while not self._has_room(job, lanes, drawing):
            pairs = [
                (freed_bytes, -len(drawing[of]), -of, -to)
                for of, to in permutations(lanes, 2)
                if 0 < (freed_bytes := _largest(drawing[of])) <= _largest(drawing[to])
                and len(drawing[of]) + len(drawing[to]) <= lanes[to].places
                and all(map(self._may_move, drawing[of]))
                and in_time([*drawing[of], *drawing[to]])
            ]
            if not pairs:
                return []
            *_, of, to = max(pairs)
            drawing[-to] += drawing[-of]
            drawing[-of] = []
        return [
            self.moves.begin(each, lanes[number])
            for number, jobs in drawing.items()
            for each in jobs
            if each.lanes[0] is not lanes[number]
        ]

    def _may_move(self, job: Job) -> bool:
        """Whether a job may be moved, and will: it moves at a boundary between its iterations."""
        return self.moves.may_move(job) and job.usage.done > 0

    def _has_room(self, job: Job, lanes: dict[int, Lane], drawing: _Drawing) -> bool:
        """Whether the job fits into one of the lanes if these are drawn so."""
        for number, lane in lanes.items():
            if len(drawing[number]) < lane.places and in_time([*drawing[number], job]):
                demands = {other: [each.demand for each in jobs] for other, jobs in drawing.items()}
                demands[number].append(self._fit.demand(job, lane))
                if sum(map(lane_bytes, demands.values())) <= self._fit.capacity(lane.device):
                    return True
        return False


def _largest(jobs: Sequence[Job]) -> int:
    """Largest T (bytes) of these jobs."""
    return max((job.demand.ephemeral_bytes for job in jobs), default=0)


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
