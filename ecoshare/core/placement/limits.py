"""Limits that a group of jobs keeps: the slowdown of each job, the targets of services, the power budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from ecoshare.base.class_profile import Solo
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.placement.job_queue import WaitingJobs
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.records import Job, JobState, Lane, LaneState
from ecoshare.core.settings.power_allocation import TOLERANCE_W
from ecoshare.core.turns import HANDOVER_S

HORIZON_S = 60.0
"""Least work (s alone) that a job of unknown length is assumed to have left."""


def least_speed(job: Job, iteration_s: float | None, lost_s: float = 0.0) -> float:
    """Least relative speed that a job must keep, in (0, 1]; 0 for a job without a limit.

    Pauses for the windows of other jobs, waits for the turn and slower settings all count as wall time. A job makes up
    for lost time later: a job behind its limit gets fewer neighbours. No job may use up in advance the time that it
    gained.

    The value follows from the usage that was told last, because the progress since then depends on the neighbours. It
    is 1 / limit, whatever the job lost before, if `iteration_s` is unknown or the job did inference iterations: their
    time alone is unknown.

    Args:
        job: Job with or without a slowdown limit.
        iteration_s: Time (s) of a training iteration alone at the default setting; None if unknown.
        lost_s: Wall time (s) that the job has lost since then, or is about to lose.
    """
    limit = job.spec.slowdown_limit
    if limit is None:
        return 0.0
    least = min(1.0, 1.0 / limit)
    if not iteration_s or job.usage.eval_iterations:
        return least
    done_s = job.usage.iterations * iteration_s
    left_s = max(done_s, HORIZON_S)
    if job.spec.iterations is not None and not job.exceeds_its_length:
        left_s = max(0, job.spec.iterations - job.usage.iterations) * iteration_s
    since_s = job.told_s if job.boundary_s is None else job.boundary_s
    wall_s = limit * (done_s + left_s) - (job.told_s - since_s) - lost_s
    return min(1.0, max(least, left_s / wall_s)) if wall_s > 0.0 else 1.0


MOST_WAITING = 64
"""Most waiting jobs that are looked at after each walk through the queue."""


class Clash(NamedTuple):
    """Two jobs of which one is a service that could not keep its target beside the other in a lane.

    Attributes:
        service: The service.
        other: The other job.
        turn_s: Time (s) for which the other job holds the turn at most.
        takes_s: Time (s) from the arrival of a request to its answer, in the worst case.
    """

    service: Job
    other: Job
    turn_s: float
    takes_s: float

    @property
    def target_s(self) -> float:
        """Target (s) of the service."""
        assert self.service.spec.service is not None, "it is a service"
        return self.service.spec.service.p99_s


def clash(one: Job, two: Job) -> Clash | None:
    """Clash of two jobs that would take turns in one lane; None if each can be what it is."""
    return _clash(one, two) or _clash(two, one)


def _clash(service: Job, other: Job) -> Clash | None:
    empties = any(lane.empties for lane in (*service.lanes, *other.lanes))
    turn_s = other.longest_iteration_s if empties else other.longest_turn_s
    if service.spec.service is None or turn_s is None:
        return None
    takes_s = turn_s + HANDOVER_S + (service.longest_iteration_s or 0.0)
    return Clash(service, other, turn_s, takes_s) if takes_s > service.spec.service.p99_s else None


def in_time(jobs: Iterable[Job]) -> bool:
    """Whether the services among these jobs can keep their targets if all take turns in one lane."""
    together = list(jobs)
    if all(job.spec.service is None for job in together):
        return True
    return not any(clash(one, two) for one, two in combinations(together, 2))


class LatencyRoom:
    """Room for latency targets in the lanes of a run.

    ::

        request   ▼                         ├──────── target ────────┤
        lane      ▏ longest iteration of a neighbour ▏ hand-over ▏ answer ▏      later than the target: no room

    A request may come at the beginning of the longest iteration. Where iterations can be cut, the time to a cut counts
    in its place. Numbers that are not known yet keep no job out: a target that is missed then parts the jobs
    (`parting`).
    """

    def __init__(self, lane_index: LaneIndex) -> None:
        """Room in the lanes of an index."""
        self._lane_index = lane_index

    def admits(self, job: Job, beside: Iterable[Job]) -> bool:
        """Whether a job may take turns in one lane with these jobs, which have places."""
        if not self._lane_index.services and job.spec.service is None:
            return True
        return not any(clash(job, each) for each in beside)

    def has_lane(self, job: Job, lanes: Sequence[Lane]) -> bool:
        """Whether a job may share one of these lanes, full or not."""
        return any(self.admits(job, lane.jobs.values()) for lane in lanes)

    def keeps_out(self, job: Job) -> bool:
        """Whether a job is kept out of a lane that has a free place."""
        if not self._lane_index.services and job.spec.service is None:
            return False
        lanes = self._lane_index.lanes.values()
        return any(lane.has_place and not self.admits(job, lane.jobs.values()) for lane in lanes)

    def kept_out(self, waiting: WaitingJobs) -> list[Job]:
        """Jobs that wait and are kept out, of the first `MOST_WAITING`. Iterations change, so they may be let in later.

        Args:
            waiting: Jobs without a place, in the order of the policy.
        """
        if not self._lane_index.services and not waiting.services:
            return []
        return [job for job in islice(waiting, MOST_WAITING) if job.state is JobState.QUEUED and self.keeps_out(job)]

    def clashes(self, job: Job, lanes: Sequence[Lane]) -> Iterator[Clash]:
        """Clashes of a job with the jobs of these lanes."""
        for lane in lanes:
            for each in lane.jobs.values():
                if each is not job and (found := clash(job, each)) is not None:
                    yield found

    def never(self, job: Job) -> str | None:
        """Reason in words why a job has no lane even if all but open-ended services have ended; None if it has one.

        An open-ended service serves until all other jobs have ended. So a job that may not share its lane would wait
        for ever if there were no other lane.
        """
        first: Clash | None = None
        for lane in self._lane_index.lanes.values():
            if lane.state is LaneState.CLOSED:
                continue
            here = [each for each in lane.jobs.values() if each.spec.is_open_ended and each is not job]
            found = next((each for other in here if (each := clash(job, other)) is not None), None)
            if found is None:
                return None
            first = first or found
        return None if first is None else f"there is no lane for it: {clash_words(first)}"


def too_slow(spec: JobSpec) -> str:
    """Reason in words why a service cannot keep its target even alone; empty if it can, as far as known."""
    service, answer_s = spec.service, spec.solo.longest_s if spec.solo is not None else None
    if service is None or answer_s is None or answer_s <= service.p99_s:
        return ""
    return f"its answers take up to {_ms(answer_s)} alone, and its target is {_ms(service.p99_s)}"


def clash_words(found: Clash) -> str:
    """Clash in words, such as `a holds the turn for up to 80 ms at a time, so answers of s could take 95 ms (...)`."""
    return (
        f"{found.other.spec.name} holds the turn for up to {_ms(found.turn_s)} at a time, so "
        f"answers of {found.service.spec.name} could take {_ms(found.takes_s)} (target: {_ms(found.target_s)})"
    )


def _ms(value_s: float) -> str:
    return f"{1e3 * value_s:.3g} ms"


class PowerRoom:
    """Room for the power of further jobs.

    No limit is set. The expected power of a device is that at rest, and for each lane the largest that one of its jobs
    adds: jobs of a lane take turns. A class of unknown power adds all that the device can draw.
    """

    def __init__(self, budget_w: float, devices: Mapping[str, Sequence[Lane]]) -> None:
        """Room on idle devices.

        Args:
            budget_w: Power (W) that the devices together are expected to draw at most.
            devices: Lanes by the names of their devices, which the caller keeps up to date.
        """
        self._budget_w, self._devices = budget_w, devices

    def admits(self, job: Job, lane: Lane) -> bool:
        """Whether the devices are expected to stay within the budget with the job in this lane.

        A gang counts with as many lanes as it needs, all like this one.
        """
        name = lane.device.name
        more_w = self._device_w(name, lane, job) - self._device_w(name)
        now_w = sum(map(self._device_w, self._devices))
        return now_w + job.spec.gpus * more_w <= self._budget_w + TOLERANCE_W

    def never(self, job: Job) -> str | None:
        """Reason in words why the job exceeds the budget even if no other job runs; None if it does not."""
        idle_w = sum(lanes[0].device.draws_w[0] for lanes in self._devices.values())
        open_w = [
            lanes[0].device.draws_w
            for lanes in self._devices.values()
            if any(lane.state is not LaneState.CLOSED for lane in lanes)
        ]
        with_it_w = idle_w + (adds_alone_w(job.spec, open_w) if open_w else 0.0)
        if with_it_w <= self._budget_w + TOLERANCE_W:
            return None
        return f"the devices would draw {with_it_w:.0f} W with it alone, and the power budget is {self._budget_w:g} W"

    def _device_w(self, name: str, lane: Lane | None = None, newcomer: Job | None = None) -> float:
        """Expected power (W) of a device, with a newcomer in one of its lanes."""
        lanes = self._devices[name]
        draws_w = lanes[0].device.draws_w
        drawn_w, most_w = draws_w
        for each in lanes:
            jobs = [*each.jobs.values(), *([newcomer] if newcomer is not None and each is lane else [])]
            drawn_w += max((adds_w(job.spec.solo, draws_w) for job in jobs), default=0.0)
        return min(drawn_w, most_w)


def adds_alone_w(job: JobSpec, draws_w: Sequence[tuple[float, float]]) -> float:
    """Power (W) that a job adds to idle devices, at least. A gang counts as `PowerRoom.admits` counts it.

    Args:
        job: The job.
        draws_w: Power (W) of each device at rest, and the most that it can draw; at least one device.
    """
    each_w = sorted(adds_w(job.solo, each) for each in draws_w)
    return job.gpus * each_w[min(job.gpus, len(each_w)) - 1]


def adds_w(solo: Solo | None, draws_w: tuple[float, float]) -> float:
    """Power (W) that a job adds to an idle device: as its class was measured alone, else all that the device can draw.

    Args:
        solo: Measurements of the class alone; None if there are none.
        draws_w: Power (W) of the device at rest, and the most that it can draw.
    """
    idle_w, most_w = draws_w
    if solo is None or solo.power_w is None:
        return most_w - idle_w
    return max(0.0, min(most_w, solo.power_w) - (idle_w if solo.idle_w is None else solo.idle_w))
