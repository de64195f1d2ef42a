"""Description of a job for decisions; the driver alone knows how to start it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.plural import listed
from ecoshare.base.service import ServiceSpec


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """Attempts of a job in earlier sessions of a resumed run.

    Attributes:
        attempts: Number of attempts, including those that were cut off.
        failures: Number of failures that count against the retries of the job.
        out_of_memory: Whether the job ran out of the memory that it was granted.
    """

    attempts: int = 0
    failures: int = 0
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Description of a job for the core. The driver alone knows how to start it.

    Attributes:
        name: Name, unique in the run.
        job_class: Key of the profile: jobs of one class share it.
        gpus: Number of devices that the job needs at once, all or nothing.
        nodes: Most nodes that these devices may span; None for any number.
        priority: Priority; higher goes first.
        iterations: Total number of training iterations, given or learned; None if unknown. A job may do more.
        service_s: Total turn time (s) that the job needs alone at the default setting; None if unknown before it runs.
        phases: Number of epochs and turn time (s) of each epoch, phase by phase, from the profile or the history of the
            job; empty if unknown.
        active_w: Power (W) that the job adds to each of its idle devices; None if unknown.
        movable: Whether the job can be stopped at any boundary and continue elsewhere.
        widest: Most devices that the job can use, at least 1. It exceeds `gpus` only if the job is movable.
        retries: Number of retries after failures.
        memory: Measured memory demand; None before the first profile.
        earlier_attempts: Attempts of the job in earlier sessions of the run.
        profiled: Whether the class has a profile.
        solo: Other measurements of the class alone; None if there are none.
        slowdown_limit: Largest slowdown that the job accepts, at least 1; None for no limit. See
            `ecoshare.jobs.schema.SLOWDOWN`.
        fused: Whether the job may share a process with jobs of its script in its lane.
        sweep: Name of the sweep that the job is a trial of; empty if it is none.
        values: Values, as text, in which the trial differs from other trials of the sweep.
        takes_turns: Whether a job of several devices takes turns with other jobs of its lanes. Otherwise it has its
            lanes to itself.
        cuttable: Whether its turn can be cut inside an iteration.
        service: Service that the job is; None for any other job. The path of arrivals, if there is one, is relative to
            the folder of the job.
    """

    name: str
    job_class: str
    gpus: int = 1
    nodes: int | None = 1
    priority: int = 0
    iterations: int | None = None
    service_s: float | None = None
    phases: tuple[tuple[float, float], ...] = ()
    active_w: float | None = None
    movable: bool = False
    widest: int = 1
    retries: int = 0
    memory: MemoryDemand | None = None
    earlier_attempts: EarlierAttempts = EarlierAttempts()
    profiled: bool = False
    solo: Solo | None = None
    slowdown_limit: float | None = None
    fused: bool = False
    sweep: str = ""
    values: tuple[tuple[str, str], ...] = ()
    takes_turns: bool = False
    cuttable: bool = False
    service: ServiceSpec | None = None

    @property
    def has_lanes_alone(self) -> bool:
        """Whether the job gets empty lanes only, on several devices."""
        return self.gpus > 1 and not self.takes_turns

    @property
    def is_open_ended(self) -> bool:
        """Whether the job is a service without a last request, which ends when all other jobs have ended."""
        return self.service is not None and self.service.is_open_ended


PARTIAL_CLASS = "spb-"
"""Beginning of the classes of jobs that use `ecoshare.contrib.spb`: its policy and the user are told by it."""


def partial_words(classes: Mapping[str, str]) -> list[str]:
    """Note on the jobs that use partial backpropagation, if there are any.

    Args:
        classes: Class of each job, by its name.
    """
    jobs = [name for name, job_class in classes.items() if job_class.startswith(PARTIAL_CLASS)]
    return [f"partial backpropagation (ecoshare.contrib.spb) changes the results of {listed(jobs)}"] if jobs else []


Configuration = tuple[tuple[str, str], ...]
"""Values of a trial by name, without those that only tell repetitions of one configuration apart, such as a seed."""


@dataclass(frozen=True, slots=True)
class StoppingSpec:
    """Early stopping of the trials of a sweep: see `core/sweeps.py`.

    Attributes:
        rule: Name of the rule: `asha`, `median` or `halving`.
        grace: Number of steps that every trial may do.
        reduction: Reduction factor of `asha` and `halving`: one configuration in `reduction` goes on from each rung.
        steps: Number of steps of a whole trial; 0 if unknown.
        least: Configurations that have reached a rung before `asha` ends a trial there.
    """

    rule: str
    grace: int = 1
    reduction: int = 3
    steps: int = 0
    least: int = 1


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """Reports of a trial in an earlier session of the run.

    Attributes:
        name: Name of the trial.
        completed: Whether the trial did all its steps.
        values: Reported values, the first one first. For a trial that `halving` has ended, those up to its last pause.
        pruned: Whether early stopping has ended it.
        goes_on: Whether it has not ended, and counts its steps from there.
        configuration: Configuration that the trial repeats; None if it is one of its own.
    """

    name: str
    completed: bool
    values: tuple[float, ...]
    pruned: bool = False
    goes_on: bool = False
    configuration: Configuration | None = None


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """Description of a sweep for the core. The sampler chooses the values of its trials.

    Attributes:
        name: Name, unique among the jobs of the run.
        parallel: Most trials at once, including those that wait for a place.
        maximise: Whether larger reported values are better.
        early_stopping: Rule of early stopping; None for no rule, or if the sampler has its own.
        replicates: Names of the values that only tell repetitions of one configuration apart.
        drawn: Number of trials that earlier sessions have drawn.
        earlier_trials: Trials of earlier sessions that have ended, or that go on from what they have reported.
    """

    name: str
    parallel: int
    maximise: bool = False
    early_stopping: StoppingSpec | None = None
    replicates: tuple[str, ...] = ()
    drawn: int = 0
    earlier_trials: tuple[EarlierTrial, ...] = ()

    def configuration(self, trial: str, values: Configuration) -> Configuration:
        """Configuration that a trial repeats. A trial without values is one of its own."""
        return tuple(each for each in values if each[0] not in self.replicates) if values else own_configuration(trial)


def own_configuration(trial: str) -> Configuration:
    """Configuration of a trial that no other one repeats."""
    return (("", trial),)
