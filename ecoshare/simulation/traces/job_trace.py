"""Input of a simulation: jobs, their arrival times, and the durations of their phases alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, log1p, sqrt
from random import Random

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.job_spec import StoppingSpec
from ecoshare.base.service import ServiceSpec


@dataclass(frozen=True, slots=True)
class Phase:
    """Part of a job in which all iterations are alike.

    Attributes:
        iterations: Number of iterations; at least one.
        iteration_s: Time (s) of an iteration alone, at the default setting of the device that the trace was made on.
        epoch_iterations: Number of iterations in a pass over the job's data; None if unknown.
    """

    iterations: int
    iteration_s: float
    epoch_iterations: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """Mean time that a service works on a batch of requests: a straight line over their number.

    Attributes:
        fixed_s: Part (s) that does not depend on the number of requests.
        each_s: Part (s) for each request.
        wake_up_s: Time (s) until an idle service asks for its turn after a request has come. It works on nothing then.
    """

    fixed_s: float
    each_s: float = 0.0
    wake_up_s: float = 0.0

    def mean_s(self, size: int) -> float:
        """Mean time (s) of a batch of `size` requests alone, without the wake-up."""
        return self.fixed_s + self.each_s * size


def drawn_ratio(spread: float, draws: Random) -> float:
    """Time of one batch or iteration / the mean time: drawn from the log-normal distribution with this spread."""
    if not spread:
        return 1.0
    variance = log1p(spread**2)
    return draws.lognormvariate(-variance / 2, sqrt(variance))


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        name: Name, unique in its trace: given by the trace, or the job's place in the file, counted from 0.
        job_class: Class of the job; jobs of one class behave alike.
        arrival_s: Arrival (s) since the trace began.
        phases: Phases in order; at least one.
        gpus: Number of GPUs that the job needs at once, all or nothing.
        priority: Priority; higher comes first.
        memory: Memory on each GPU; None if the trace does not say.
        share: Part of each of its GPUs that the job asks for, in (0, 1]; None if the trace does not say. See
            `Cluster.with_share`.
        startup_s: Turn time (s) without iterations: before the first and after the last.
        launch_s: Time (s) from the decision to start the job until it wants its turn; None if the trace does not say.
        skew: Share of the largest tensor in the model's parameters, 0 to 1; None if the model is unknown.
        announced: Whether the length is known before the job runs, for example from a profile of its class.
        speedups: Speed on 2, 3, ... GPUs / speed on one, for a job that asks for one GPU and can use more.
        slowdown_limit: Largest slowdown that the job accepts while it has a place, at least 1; None for no limit.
        service: Service that the job is; None for any other job. It answers requests and does no iterations: the first
            phase only tells the time of a batch of one request.
        answer: Time that a batch of a service takes alone; None for that of the first phase, for batches of any size.
        spread: Standard deviation of the time of a batch, or of an iteration beside a service / its mean. In a lane
            without services, the mean is enough.
        line: Line in its file, from 1; 0 if it has none. Comparisons of jobs ignore it.
    """

    name: str
    job_class: str
    arrival_s: float
    phases: tuple[Phase, ...]
    gpus: int = 1
    priority: int = 0
    memory: MemoryDemand | None = None
    share: float | None = None
    startup_s: float = 0.0
    launch_s: float | None = None
    skew: float | None = None
    announced: bool = True
    speedups: tuple[float, ...] = ()
    slowdown_limit: float | None = None
    service: ServiceSpec | None = None
    answer: AnswerTime | None = None
    spread: float = 0.0
    line: int = field(default=0, compare=False)

    @property
    def iterations(self) -> int:
        """Number of iterations of all phases."""
        return sum(phase.iterations for phase in self.phases)

    @property
    def service_s(self) -> float:
        """Duration (s) of the job alone, after its launch."""
        return self.startup_s + sum(phase.iterations * phase.iteration_s for phase in self.phases)

    @property
    def wanted_gpus(self) -> float:
        """GPUs that the job asks for, with parts of a GPU as such."""
        return self.gpus * (1.0 if self.share is None else self.share)

    @property
    def is_cuttable(self) -> bool:
        """Whether its turn can be cut inside an iteration, as that of a job in one process on one device."""
        return self.gpus == 1 and not self.speedups and self.service is None

    def speedup(self, gpus: int) -> float:
        """Speed on `gpus` GPUs / speed on the number that the job asks for."""
        return self.speedups[gpus - 2] if self.speedups and gpus > 1 else 1.0


@dataclass(frozen=True, slots=True)
class TraceTrial:
    """One trial of a sweep of a trace.

    Attributes:
        job: Job of the trial. It arrives when the sweep's sampler is asked for it; its `arrival_s` has no effect.
        curve: Values that the trial reports, in order, evenly spaced over its iterations.
    """

    job: TraceJob
    curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TraceSweep:
    """One sweep of a trace.

    Attributes:
        name: Name, unique in its trace.
        trials: Trials in the order in which the sampler gives them.
        parallel: Most trials at once, without paused ones.
        early_stopping: Early-stopping rule by which trials end early or pause; None for never.
        opens_s: Time (s) since the trace began at which the sweep opens.
        after: Name of the sweep that must end before this one opens, in place of `opens_s`; empty for none.
    """

    name: str
    trials: tuple[TraceTrial, ...]
    parallel: int
    early_stopping: StoppingSpec | None = None
    opens_s: float = 0.0
    after: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs, in the order in which they arrive.

    Attributes:
        file: Path that the user gave, or a description of how the trace was generated.
        kind: Name of the form, such as "Philly".
        jobs: Jobs in the order of arrival.
        note: Assumptions that the reader made, in one sentence.
        sweeps: Sweeps; their trials arrive when the scheduler asks for them. Smaller reported values are better.
    """

    file: str
    kind: str
    jobs: tuple[TraceJob, ...]
    note: str
    sweeps: tuple[TraceSweep, ...] = ()

    @property
    def all_jobs(self) -> tuple[TraceJob, ...]:
        """Jobs of the trace, and the jobs of all possible trials of its sweeps."""
        return (*self.jobs, *(trial.job for sweep in self.sweeps for trial in sweep.trials))

    @property
    def begins_s(self) -> float:
        """Time (s) of the first arrival of a job or sweep; infinite without any."""
        arrivals_s = [job.arrival_s for job in self.jobs[:1]]
        return min([*arrivals_s, *(sweep.opens_s for sweep in self.sweeps if not sweep.after)], default=inf)


def in_order(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """Jobs in the order of arrival; jobs that arrive together keep their order."""
    return tuple(sorted(jobs, key=lambda job: job.arrival_s))
