"""Moves between devices: a running job that shares its device stops, and goes on alone on an idle device.

::

    cuda:0   A B A B A B A B A A A A A A       A and B take turns until C ends
    cuda:1   C C C C C C     ░ B B B B B       B saves its state at a boundary, and begins again from there

A job moves only if it is movable, no waiting job could use the device, and the move pays:

* gain: the turn time that other jobs of its device would still take from it. In its lane it waits for all jobs of lower
  rank, and gives equal time to each job of equal rank, until one of the two has ended. A job in another lane makes it
  slower for as long as both run. The speed of the class on both devices counts, too.
* cost: the time from the start of the present attempt to its first boundary. The next start will take as long.

The remaining times may be wrong, so the gain must be more than `GAIN` times the cost. A job that has moved stays for
`REST` times the cost, so that even wrong times cost it no more than a tenth of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ecoshare.base.device import Device
from ecoshare.core.placement.colocation_estimates import ColocationEstimates
from ecoshare.core.placement.displacement import may_be_stopped
from ecoshare.core.placement.job_queue import WaitingJobs
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.steps import GiveWay, Start
from ecoshare.core.policies.base import Policy
from ecoshare.core.policies.orders import expected_s
from ecoshare.core.records import Job, JobState, Lane, LaneState
from ecoshare.core.run_state import RunState

GAIN = 2.0
"""Least gain of a move / its cost."""

REST = 10.0
"""Shortest time from the start of a job that has moved to its next move / cost of that move."""

LEAST_COST_S = 2.0
"""Least cost (s) of a move: the job saves its state, its process ends, and another one loads the state."""


class DeviceMoves:
    """Moves of jobs to idle devices. At most one job moves to an idle device.

    Attributes:
        outlook: Estimates of how co-located classes slow each other down. A packer puts its own in their place.
    """

    def __init__(
        self,
        policy: Policy,
        state: RunState,
        lane_index: LaneIndex,
        fit: MemoryFit,
        is_held: Callable[[str], bool],
        trials_coming: Callable[[], bool],
    ) -> None:
        """No job has moved.

        Args:
            policy: Policy of the run.
            state: Jobs and unanswered commands, which the scheduler keeps up to date.
            lane_index: All lanes.
            fit: Memory fit of jobs and lanes.
            is_held: Whether a window or a measurement is under way on a device. No job may come, go or move meanwhile.
            trials_coming: Whether a sampler was asked for a trial and has not answered.
        """
        self.outlook = ColocationEstimates()
        self._policy, self._state, self._lane_index, self._fit = policy, state, lane_index, fit
        self._is_held, self._trials_coming = is_held, trials_coming
        self._expected: dict[Job, str] = {}  # jobs that stop, and the devices where they go on
        self._moved: set[Job] = set()

    def starts(self) -> Iterator[Start]:
        """Starts of jobs that have stopped in order to move. One stays in the queue if its device is not idle now."""
        for job, device in list(self._expected.items()):
            if job.state is JobState.QUEUED:
                del self._expected[job]
                lanes = self._lane_index.devices[device]
                lane = next((lane for lane in lanes if self._fit.fits(job, lane)), None)
                if lane is not None and self._lane_index.is_idle(device):
                    yield Start(job, (lane,))

    def comes_to(self, job: Job) -> set[int]:
        """Lanes, by number, of the devices to which other jobs than `job` are about to move: its last choice."""
        devices = [device for each, device in self._expected.items() if each is not job]
        return {lane.number for device in devices for lane in self._lane_index.devices[device]}

    def ended(self, job: Job) -> None:
        """Forget a job that has ended."""
        self._expected.pop(job, None)
        self._moved.discard(job)

    def walk(self, waiting: WaitingJobs, at_s: float) -> Iterator[GiveWay]:
        """Stops of jobs that move. The caller has started all waiting jobs that have room."""
        while self._state.may_start and (idle := self._idle()) and not self._is_wanted(waiting, idle):
            best = max(self._moves(idle, at_s), key=lambda move: (move[0], move[1].number), default=None)
            if best is None:
                return
            _, job, device = best
            self._expected[job] = device
            self._moved.add(job)
            yield GiveWay([job], None, f"moves to {device}, which is idle")

    def _idle(self) -> dict[str, Lane]:
        """Devices without a job that no job is expected on, each with an open lane."""
        idle = {}
        for name, lanes in self._lane_index.devices.items():
            if not self._lane_index.is_idle(name) or name in self._expected.values() or self._is_held(name):
                continue
            if (lane := next((each for each in lanes if each.state is LaneState.OPEN), None)) is not None:
                idle[name] = lane
        return idle

    def _is_wanted(self, waiting: WaitingJobs, idle: dict[str, Lane]) -> bool:
        """Whether another job will need an idle device: a gang or a suspect that waits, or a trial that is coming."""
        elsewhere = (job.parked_in is not None and job.parked_in.device.name not in idle for job in waiting)
        return not all(elsewhere) or self._trials_coming()

    def _moves(self, idle: dict[str, Lane], at_s: float) -> Iterator[tuple[float, Job, str]]:
        """Moves that pay: the gain beyond `GAIN` times the cost (s), the job and the device where it goes on."""
        for name, lanes in self._lane_index.devices.items():
            jobs = [job for lane in lanes for job in lane.jobs.values() if not job.state.is_leaving]
            if len(jobs) < 2 or self._is_held(name) or any(lane.coming for lane in lanes):
                continue
            for job in jobs:
                if not may_be_stopped(job) or job.state is not JobState.RUNNING or job.usage.keeps_lane:
                    continue
                since_s, cost_s = _started_s(job), _cost_s(job)
                if job in self._moved and at_s < since_s + REST * cost_s:
                    continue
                for device, lane in idle.items():
                    more_s = self._gain_s(job, lanes, lane.device, at_s) - GAIN * cost_s
                    if more_s > 0.0 and self._fit.fits(job, lane):
                        yield more_s, job, device

    def _gain_s(self, job: Job, lanes: Sequence[Lane], to: Device, at_s: float) -> float:
        """Time (s) by which a job ends earlier alone on the device `to` than among the jobs of its own device."""
        own_s, rank = expected_s(job, at_s), self._policy.rank(job)
        waits_s, beside = 0.0, list[tuple[str, float]]()
        for lane in lanes:
            jobs = [each for each in lane.jobs.values() if each is not job and not each.state.is_leaving]
            if lane is not job.lanes[0]:
                if jobs:
                    first = min(jobs, key=self._policy.rank)
                    beside.append((first.spec.job_class, sum(expected_s(each, at_s) for each in jobs)))
                continue
            for each in jobs:
                left_s, other_rank = expected_s(each, at_s), self._policy.rank(each)
                if other_rank < rank or each.usage.keeps_lane:
                    waits_s += left_s
                elif other_rank == rank:
                    waits_s += min(own_s, left_s)
        slowed_s = self._slowed_s(job, own_s, beside)
        faster = 1.0 - job.lanes[0].device.speed(job.spec.job_class) / to.speed(job.spec.job_class)
        return waits_s + slowed_s + (own_s - slowed_s) * faster

    def _slowed_s(self, job: Job, own_s: float, beside: Sequence[tuple[str, float]]) -> float:
        """Part of the remaining time (s) that the jobs of other lanes cost.

        Args:
            job: Job that is slowed down.
            own_s: Remaining time (s) of the job at its present speed.
            beside: Class of the job that has the turn in each other lane, and time (s) until that lane is empty.
        """
        # A neighbour adds a delay to each second of work, and delays add up (`ColocationEstimates.forecast`).
        speeds = [self.outlook.forecast((job.spec.job_class, each)).speeds[0] for each, _ in beside]
        delays = [1.0 / speed - 1.0 for speed in speeds]
        shares = [delay / (1.0 + sum(delays)) for delay in delays]
        return sum(share * min(own_s, left_s) for share, (_, left_s) in zip(shares, beside, strict=True))


def _started_s(job: Job) -> float:
    """Time (s) of the start of the present attempt."""
    return next(step.at_s for step in reversed(job.history) if step.after is JobState.STARTING)


def _cost_s(job: Job) -> float:
    """Time (s) that a stop and another start cost. The first boundary of a job that may be stopped is known."""
    assert job.boundary_s is not None, "a job without an iteration is not stopped"
    return max(LEAST_COST_S, job.boundary_s - _started_s(job))
