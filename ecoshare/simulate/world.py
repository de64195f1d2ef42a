"""How fast jobs run and what they draw, where they run: what a simulation takes for the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ecoshare.simulate.gpus import Gpu
from ecoshare.simulate.traces.trace import TraceJob

BESIDE = 0.68
"""Speed of a job beside another on the same GPU, over its speed alone, where nothing is known of the two: half of the
median combined speed of 1.37 of all pairs that Gavel measured on a V100 (Narayanan et al., OSDI 2020)."""


@dataclass(frozen=True, slots=True)
class World:
    """The truth about devices and jobs.

    Attributes:
        speeds: By device: work done in a second there, over that on the trace's own.
        beside: Speed of a job while another lane of its device is at work.
        active_w: By class: watts beyond an idle device.
    """

    gpu: Gpu
    speeds: Mapping[str, float] = field(default_factory=dict)
    beside: float = BESIDE
    active_w: Mapping[str, float] = field(default_factory=dict)

    def speed(self, _job: TraceJob, devices: Sequence[str], beside: Sequence[TraceJob]) -> float:
        """Work that a job does in a second of its turn: a gang goes as fast as the slowest of its devices.

        Args:
            beside: Jobs at work in other lanes of its devices.
        """
        slowest = min(self.speeds.get(device, 1.0) for device in devices) if self.speeds else 1.0
        return slowest * self.beside if beside else slowest

    def watts(self, job: TraceJob) -> float:
        """That a job draws alone on each of its devices, beyond an idle one."""
        return self.active_w.get(job.job_class, self.gpu.active_w)

    def device_watts(self, jobs: Sequence[TraceJob]) -> float:
        """Drawn beyond idle by a device where these are at work: jobs beside each other draw by the speed that they
        have, and all together at most what the board may."""
        if len(jobs) == 1:
            return self.watts(jobs[0])
        return min(self.beside * sum(self.watts(job) for job in jobs), self.gpu.limit_w - self.gpu.idle_w)
