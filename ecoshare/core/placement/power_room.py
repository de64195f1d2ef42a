"""Power budget by placement: a job starts only if the devices are then expected to draw no more than the budget.

No limit is set. The expected power of a device is that at rest, and for each lane the largest that one of its jobs
adds: jobs of a lane take turns. A class of unknown power adds all that the device can draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ecoshare.core.power_allocation import TOLERANCE_W
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import LaneState
from ecoshare.values.class_profile import Solo
from ecoshare.values.job_spec import JobSpec


class PowerRoom:
    """Room for the power of further jobs."""

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
