"""The view at one moment, whether it comes from a queue or from the record of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, number
from ecoshare.queue.queue_documents import JobStatus, QueueStatus
from ecoshare.record.run_view import DeviceStatus
from ecoshare.reporting.figures import small_energy

MOST_WAITING = 200
"""Most waiting jobs that are listed."""

_RUNS = ("running", "stopping", "parking", "resuming", "starting")
_WAITS = ("parked", "paused", "queued", "held", "arriving")
_ENDINGS = {"drain": "is drained", "stop": "is being stopped"}


@dataclass(frozen=True, slots=True)
class TopView:
    """Devices and jobs at one moment.

    Attributes:
        title: Name of the queue or run.
        policy: Name of the policy.
        now_s: The moment (s), on the clock of the times of the jobs: since 1970, or since a recorded run was opened.
        opened_s: Time (s) of the opening of a queue on this clock; None for a recorded run.
        jobs: Jobs and sweeps: those that run first, then those that wait, then those that have ended, the last first.
        waiting: Number of waiting jobs that are not listed.
        remarks: Facts for the first line, such as that the queue is drained.
        warnings: Present troubles, such as a disk that is full.
    """

    title: str
    policy: str
    now_s: float
    opened_s: float | None
    devices: tuple[DeviceStatus, ...]
    jobs: tuple[JobStatus, ...]
    waiting: int = 0
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of_queue(cls, status: QueueStatus, now_s: float) -> TopView:
        """View of a queue at a time (s since 1970)."""
        remarks = [_ENDINGS[status.ending]] if status.ending else []
        remarks += [] if status.warm else ["torch is being loaded"]
        jobs, waiting = in_order(status.jobs)
        return cls(
            f"queue {status.name}",
            status.policy,
            now_s,
            status.opened_unix_s,
            tuple(status.devices),
            jobs,
            waiting,
            tuple(remarks),
            tuple(status.warnings),
        )

    def facts(self) -> Iterator[str]:
        """Facts for the first line, the most important first."""
        yield self.title
        yield from self.remarks
        if counts := self._counts():
            yield counts
        watts = [each.power_w for each in self.devices if each.power_w is not None]
        joules = [each.energy_j for each in self.devices if each.energy_j is not None]
        if len(self.devices) > 1 and watts:
            yield f"{number(sum(watts))} W"
        if joules:
            yield small_energy(sum(joules))
        if self.opened_s is not None:
            yield f"up {format_duration(max(0.0, round(self.now_s - self.opened_s)))}"
        yield f"policy {self.policy}"

    def _counts(self) -> str:
        states = Counter(_group(job.state) for job in self.jobs)
        states[1] += self.waiting
        words = ((states[0], "running"), (states[1], "waiting"))
        return ", ".join(f"{count} {word}" for count, word in words if count)

    def below(self) -> str:
        """Note about jobs that are not listed; empty if all are."""
        return f"and {counted(self.waiting, 'waiting job')} more" if self.waiting else ""

    def job(self, name: str) -> JobStatus | None:
        """Job or sweep of this name; None if it is not listed."""
        return next((job for job in self.jobs if job.name == name), None)

    def trial_of(self, sweep: str) -> str:
        """Trial of a sweep that is in a lane now; empty if there is none. The one with the turn is preferred."""
        lanes = [lane for device in self.devices for lane in device.lanes]
        names = [*(lane.holder for lane in lanes), *(job for lane in lanes for job in lane.jobs)]
        return next((name for name in names if name.startswith(f"{sweep}.")), "")


def in_order(jobs: Iterable[JobStatus]) -> tuple[tuple[JobStatus, ...], int]:
    """Jobs in the order of the view, and the number of waiting ones for which there is no room."""
    groups: tuple[list[JobStatus], ...] = ([], [], [])
    for job in jobs:
        groups[_group(job.state)].append(job)
    running, waiting, ended = groups
    ended.sort(key=lambda job: job.ended_unix_s or 0.0, reverse=True)
    more = max(0, len(waiting) - MOST_WAITING)
    return (*running, *waiting[:MOST_WAITING], *ended), more


def _group(state: str) -> int:
    """0 for a job that has a place, 1 for one that waits, 2 for one that has ended."""
    return 0 if state in _RUNS else 1 if state in _WAITS else 2


def holders(devices: Sequence[DeviceStatus]) -> frozenset[str]:
    """Jobs that have the turn of a lane."""
    return frozenset(lane.holder for device in devices for lane in device.lanes if lane.holder)
