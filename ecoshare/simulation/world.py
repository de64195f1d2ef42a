"""True speed and power of jobs and devices in a simulation."""

from __future__ import annotations

import math
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import Setting
from ecoshare.core.placement.colocation_estimates import BESIDE
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import GpuModel
from ecoshare.simulation.traces.job_trace import TraceJob
from ecoshare.simulation.traces.measured_speeds import read as read_speeds
from ecoshare.simulation.traces.measured_speeds import speed_of

IN_TURN = 0.5
"""Speed of each of two jobs that do not fit beside each other (a pair of zeros): one of them waits at any time. The
hand-over between them is free here, which favours policies that pack such pairs."""

_Kind = tuple[str, int]
"""Type of a job and its number of GPUs."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured speeds of two jobs beside each other on each of their GPUs.

    ::

        {"v100": {"('ResNet-18 (batch size 32)', 1)": {"null": 40.1, "('LM (batch size 5)', 1)": [21.0, 9.3]}}}
          GPU          type of job, number of GPUs      alone         beside this job: own speed, speed of the other

    `traces/measured_speeds.py` describes the form; speeds are in iterations a second. Source: Narayanan et al.,
    "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020.

    Attributes:
        file: Path of the table.
        known: Relative speed of the first job beside the second: rate beside it / rate alone; at most 1.
    """

    file: str
    known: Mapping[tuple[_Kind, _Kind], float]

    def speed(self, job: TraceJob, other: TraceJob) -> float | None:
        """Relative speed of a job beside another: rate beside it / rate alone; None if the pair was not measured."""
        return self.known.get(((job.job_class, job.gpus), (other.job_class, other.gpus)))


def read(path: Path, gpu_model: str) -> Pairs:
    """Pairs on `gpu_model` in the file at `path`.

    Raises:
        UsageError: The file cannot be read, has another form, or has no pairs on this model.
    """
    known = {}
    for name, row in read_speeds(path, gpu_model).table.items():
        cells = row if isinstance(row, dict) else {}
        alone = speed_of(cells.get("null"))
        for other, pair in cells.items():
            if other == "null" or not alone:
                continue
            both = [speed_of(each) for each in pair] if isinstance(pair, list) else []
            if len(both) != 2 or None in both:
                hint = "expected two speeds in iterations a second, its own first"
                raise UsageError(f"{path}: {name} beside {other} is {pair!r}"[:200], hint)
            # A job beside another is faster than alone only by measurement error.
            known[_kind(name), _kind(other)] = min(1.0, (both[0] or 0.0) / alone) if all(both) else IN_TURN
    if not known:
        raise UsageError(f"{path} has no pairs of jobs on {gpu_model!r}", "Gavel's simulation_throughputs.json has")
    return Pairs(str(path), known)


def _kind(name: str) -> _Kind:
    """Type and GPUs from `('A3C', 1)`, or from a bare type, which has one GPU."""
    try:
        job_type, gpus = literal_eval(name)
        return str(job_type), int(gpus)
    except (SyntaxError, ValueError, TypeError, OverflowError, MemoryError, RecursionError):  # the text can be anything
        return name, 1


class Truth(Protocol):
    """Protocol for the true behaviour of devices and jobs in a simulation.

    Attributes:
        changes_s: Interval (s) at which the behaviour changes by itself; infinite for never.
    """

    @property
    def changes_s(self) -> float:
        """Interval (s) between changes of the world; infinite for never."""
        ...

    @property
    def idle_w(self) -> float:
        """Power (W) of an idle device."""
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
        """Power (W) above idle that a job draws alone on each of its devices."""
        ...

    def device_watts(self, jobs: Sequence[TraceJob], device: str, setting: Setting, at_s: float) -> float:
        """Power (W) above idle of a device on which `jobs` are at work."""
        ...

    def solo(self, job: TraceJob, device: str, at_s: float) -> Solo:
        """Result of a profiling window of a job alone, with measurement errors."""
        ...

    def measured(self, value: float, what: str, at_s: float) -> float:
        """Measured value of a true `value`, with its measurement error."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Devices and jobs that never change, that no setting affects, and that are measured without error.

    Attributes:
        gpu: Model of all devices.
        speeds: Relative speed, keyed by device and job class: rate on this device / rate on the trace's device. Key ""
            holds the speed of classes without an entry; 1 if that is missing, too.
        beside: Relative speed of a job beside a busy lane of its device: rate beside it / rate alone.
        active_w: Power (W) above idle, keyed by job class.
        pairs: Measured relative speeds of pairs, used instead of `beside` for the pairs they hold; None for none.
    """

    gpu: GpuModel
    speeds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    beside: float = BESIDE
    active_w: Mapping[str, float] = field(default_factory=dict)
    pairs: Pairs | None = None

    @property
    def changes_s(self) -> float:
        """Infinite: the world never changes."""
        return math.inf

    @property
    def idle_w(self) -> float:
        """Power (W) of an idle device."""
        return self.gpu.idle_w

    def speed(
        self,
        job: TraceJob,
        devices: Sequence[str],
        beside: Sequence[TraceJob],
        setting: Setting = (),
        at_s: float = 0.0,
    ) -> float:
        """Work that a job does in a second of its turn.

        A gang runs at the speed of its slowest device. A job with more devices than it asks for has its own speedup.

        Args:
            beside: Jobs at work in other lanes of its devices.
        """
        slowest = min(self._alone(job, device) for device in devices) if self.speeds else 1.0
        slowest *= job.speedup(len(devices))
        return slowest * self._shared(job, beside) if beside else slowest

    def _shared(self, job: TraceJob, beside: Sequence[TraceJob]) -> float:
        """Relative speed beside other jobs: the neighbour that slows the job most decides."""
        if self.pairs is None and job.share is None:
            return self.beside
        return min(self._pair(job, other) for other in beside)

    def _pair(self, job: TraceJob, other: TraceJob) -> float:
        known = None if self.pairs is None else self.pairs.speed(job, other)
        if known is not None:
            return known
        # Parts of a GPU fit together, see `Cluster.with_share`: a job got its duration with such neighbours.
        return self.beside if job.share is None or other.share is None else 1.0

    def _alone(self, job: TraceJob, device: str) -> float:
        known = self.speeds.get(device, {})
        return known.get(job.job_class, known.get("", 1.0))

    def watts(self, job: TraceJob) -> float:
        """Power (W) above idle that a job draws alone on each of its devices."""
        return self.active_w.get(job.job_class, self.gpu.active_w) * (1.0 if job.share is None else job.share)

    def solo(self, job: TraceJob, device: str, at_s: float) -> Solo:
        """True iteration time (s) and power (W) of a job alone."""
        iteration_s = job.phases[0].iteration_s / self.speed(job, [device], [])
        return Solo(job.job_class, iteration_s, self.gpu.idle_w + self.watts(job), self.gpu.idle_w)

    def measured(self, value: float, what: str, at_s: float) -> float:
        """Return `value` without an error."""
        return value

    def device_watts(
        self, jobs: Sequence[TraceJob], device: str = "", setting: Setting = (), at_s: float = 0.0
    ) -> float:
        """Power (W) above idle of a device on which `jobs` are at work.

        Power of jobs beside each other is proportional to their relative speeds. The board's limit caps the sum.
        """
        if len(jobs) == 1:
            return self.watts(jobs[0])
        drawn_w = [
            self.watts(job) * self._shared(job, [*jobs[:place], *jobs[place + 1 :]]) for place, job in enumerate(jobs)
        ]
        return min(sum(drawn_w), self.gpu.limit_w - self.gpu.idle_w)
