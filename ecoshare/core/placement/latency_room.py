"""Room for latency targets: a job shares a lane with a service only if the service can then keep its target.

::

    request   ▼                         ├──────── target ────────┤
    lane      ▏ longest iteration of a neighbour ▏ hand-over ▏ answer ▏      later than the target: no room

An iteration is never cut, so a request may come at the beginning of the longest one. Numbers that are not known yet
keep no job out: a target that is missed then parts the jobs (`parting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from ecoshare.core.placement.job_queue import WaitingJobs
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState, LaneState
from ecoshare.values.job_spec import JobSpec

HANDOVER_S = 0.001
"""Time (s) that is assumed for a hand-over: many times the measured one, since the process of the service must wake."""

MOST_WAITING = 64
"""Most waiting jobs that are looked at after each walk through the queue."""


class Clash(NamedTuple):
    """Two jobs of which one is a service that could not keep its target beside the other in a lane.

    Attributes:
        service: The service.
        other: The other job.
        takes_s: Time (s) from the arrival of a request to its answer, in the worst case.
    """

    service: Job
    other: Job
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
    iteration_s = other.longest_iteration_s
    if service.spec.service is None or iteration_s is None:
        return None
    takes_s = iteration_s + HANDOVER_S + (service.longest_iteration_s or 0.0)
    return Clash(service, other, takes_s) if takes_s > service.spec.service.p99_s else None


def in_time(jobs: Iterable[Job]) -> bool:
    """Whether the services among these jobs can keep their targets if all take turns in one lane."""
    together = list(jobs)
    if all(job.spec.service is None for job in together):
        return True
    return not any(clash(one, two) for one, two in combinations(together, 2))


class LatencyRoom:
    """Room for latency targets in the lanes of a run."""

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
        f"{found.other.spec.name} holds the turn for up to {_ms(found.other.longest_iteration_s or 0.0)} at a time, so "
        f"answers of {found.service.spec.name} could take {_ms(found.takes_s)} (target: {_ms(found.target_s)})"
    )


def _ms(value_s: float) -> str:
    return f"{1e3 * value_s:.3g} ms"
