"""What a simulation is fed with: jobs, when they came, and how long their parts take alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ecoshare.core.events import StoppingSpec
from ecoshare.core.memory import MemoryDemand


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a job whose iterations are alike.

    Attributes:
        iterations: At least one.
        iteration_s: Seconds that each takes alone, at the default setting of the device that the trace was made on.
        epoch_iterations: How many of them are a pass over the job's data; None where that is not known.
    """

    iterations: int
    iteration_s: float
    epoch_iterations: int | None = None


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        name: Unique in its trace: the trace's own, or the job's place in the file, counted from 0.
        job_class: Jobs of one class behave alike.
        arrival_s: Since the trace began.
        phases: In order; at least one.
        gpus: That it needs at once, all or nothing.
        priority: Higher first.
        memory: On each GPU; None where the trace does not say.
        startup_s: Time with its turn in which it does no iteration: until the first begins, and after the last.
        launch_s: Until it wants its turn, from the decision to start it; None where the trace does not say.
        announced: Whether its length is known before it runs, as by a profile of its class.
        skew: Share of the largest tensor in the model's parameters, 0 to 1; None where the model is not known.
        speedups: Speed on 2, 3, ... GPUs over that on one, where it can use more than the one that it asks for.
        slowdown: Most that it may be slower than alone, while it has a place; None for any.
        line: In its file, from 1; 0 where there is none. A job is the same wherever it stands.
    """

    name: str
    job_class: str
    arrival_s: float
    phases: tuple[Phase, ...]
    gpus: int = 1
    priority: int = 0
    memory: MemoryDemand | None = None
    startup_s: float = 0.0
    launch_s: float | None = None
    skew: float | None = None
    announced: bool = True
    speedups: tuple[float, ...] = ()
    slowdown: float | None = None
    line: int = field(default=0, compare=False)

    @property
    def iterations(self) -> int:
        """Of all phases."""
        return sum(phase.iterations for phase in self.phases)

    @property
    def service_s(self) -> float:
        """How long it takes alone, once it is launched."""
        return self.startup_s + sum(phase.iterations * phase.iteration_s for phase in self.phases)

    def speedup(self, gpus: int) -> float:
        """Its speed on so many GPUs, over that on those that it asks for."""
        return self.speedups[gpus - 2] if self.speedups and gpus > 1 else 1.0


@dataclass(frozen=True, slots=True)
class TraceTrial:
    """A trial of a sweep.

    Attributes:
        job: Which runs; it arrives when the sweep's sampler is asked for it, whatever it says.
        curve: What it reports, the first value first: as many as there are, evenly over its iterations.
    """

    job: TraceJob
    curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TraceSweep:
    """A sweep.

    Attributes:
        name: Unique in its trace.
        trials: In the order in which its sampler gives them.
        parallel: Most of them at once, those that pause left out.
        halting: By which they end early or pause; None for never.
        opens_s: Since the trace began; `after`: the sweep that must be over before, in place of that.
    """

    name: str
    trials: tuple[TraceTrial, ...]
    parallel: int
    halting: StoppingSpec | None = None
    opens_s: float = 0.0
    after: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs, in the order in which they arrive.

    Attributes:
        file: As the user named it, or how it was generated.
        kind: Whose form it has.
        note: What had to be assumed, in one sentence.
        sweeps: Whose trials come when the scheduler asks for them; the smaller a value, the better.
    """

    file: str
    kind: str
    jobs: tuple[TraceJob, ...]
    note: str
    sweeps: tuple[TraceSweep, ...] = ()

    @property
    def all_jobs(self) -> tuple[TraceJob, ...]:
        """Its jobs, and all trials that its sweeps could have."""
        return (*self.jobs, *(trial.job for sweep in self.sweeps for trial in sweep.trials))


def in_order(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs by arrival; those of one moment stay as they were."""
    return tuple(sorted(jobs, key=lambda job: job.arrival_s))
