"""How fast jobs run and what they draw, where they run: what a simulation takes for the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ecoshare.core.events import Setting, Solo
from ecoshare.core.placement.colocation_estimates import BESIDE
from ecoshare.simulate.gpus import GpuModel
from ecoshare.simulate.pairs import Pairs
from ecoshare.simulate.traces.job_trace import TraceJob


class Truth(Protocol):
    """What a simulation takes for the truth about devices and jobs.

    Attributes:
        changes_s: How often it changes by itself; infinite for never.
    """

    @property
    def changes_s(self) -> float: ...

    @property
    def idle_w(self) -> float:
        """Of an idle device."""
        ...

    def speed(
        self, job: TraceJob, devices: Sequence[str], beside: Sequence[TraceJob], setting: Setting, at_s: float
    ) -> float:
        """Work that a job does in a second of its turn.

        Args:
            beside: Jobs at work in other lanes of its devices.
        """
        ...

    def watts(self, job: TraceJob) -> float:
        """That a job draws alone on each of its devices, beyond an idle one."""
        ...

    def device_watts(self, jobs: Sequence[TraceJob], device: str, setting: Setting, at_s: float) -> float:
        """Drawn beyond idle by a device where these are at work."""
        ...

    def solo(self, job: TraceJob, device: str, at_s: float) -> Solo:
        """What a window measures of a job alone, errors of measuring included."""
        ...

    def measured(self, value: float, what: str, at_s: float) -> float:
        """A value with the error that measuring it has."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Devices and jobs that stay as they are, and can be measured without an error; no setting changes them.

    Attributes:
        speeds: By device, and there by class: work done in a second, over that on the trace's own device; under "" that
            of all classes that are not named, 1 where that is missing too.
        beside: Speed of a job while another lane of its device is at work, over that alone.
        pairs: The same by what the two jobs are, of those that were measured.
        active_w: By class: watts beyond an idle device.
    """

    gpu: GpuModel
    speeds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    beside: float = BESIDE
    active_w: Mapping[str, float] = field(default_factory=dict)
    pairs: Pairs | None = None

    @property
    def changes_s(self) -> float:
        """Never."""
        return math.inf

    @property
    def idle_w(self) -> float:
        """Of an idle device."""
        return self.gpu.idle_w

    def speed(
        self,
        job: TraceJob,
        devices: Sequence[str],
        beside: Sequence[TraceJob],
        setting: Setting = (),
        at_s: float = 0.0,
    ) -> float:
        """Work that a job does in a second of its turn: a gang goes as fast as the slowest of its devices, and one that
        has more devices than it asks for by its own speedup.

        Args:
            beside: Jobs at work in other lanes of its devices.
        """
        slowest = min(self._alone(job, device) for device in devices) if self.speeds else 1.0
        slowest *= job.speedup(len(devices))
        return slowest * self._shared(job, beside) if beside else slowest

    def _shared(self, job: TraceJob, beside: Sequence[TraceJob]) -> float:
        """Speed that it has left beside others: the worst of them decides, as does the slowest device of a gang."""
        if self.pairs is None:
            return self.beside
        known = (self.pairs.speed(job, other) for other in beside)
        return min(self.beside if speed is None else speed for speed in known)

    def _alone(self, job: TraceJob, device: str) -> float:
        known = self.speeds.get(device, {})
        return known.get(job.job_class, known.get("", 1.0))

    def watts(self, job: TraceJob) -> float:
        """That a job draws alone on each of its devices, beyond an idle one."""
        return self.active_w.get(job.job_class, self.gpu.active_w)

    def solo(self, job: TraceJob, device: str, at_s: float) -> Solo:
        """What is true of it."""
        iteration_s = job.phases[0].iteration_s / self.speed(job, [device], [])
        return Solo(job.job_class, iteration_s, self.gpu.idle_w + self.watts(job), self.gpu.idle_w)

    def measured(self, value: float, what: str, at_s: float) -> float:
        """The value."""
        return value

    def device_watts(
        self, jobs: Sequence[TraceJob], device: str = "", setting: Setting = (), at_s: float = 0.0
    ) -> float:
        """Drawn beyond idle by a device where these are at work: jobs beside each other draw by the speed that they
        have, and all together at most what the board may."""
        if len(jobs) == 1:
            return self.watts(jobs[0])
        drawn_w = [
            self.watts(job) * self._shared(job, [*jobs[:place], *jobs[place + 1 :]]) for place, job in enumerate(jobs)
        ]
        return min(sum(drawn_w), self.gpu.limit_w - self.gpu.idle_w)
