"""Sweeps of a plan: their trials, and the samplers that choose the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from ecoshare.base.job_spec import Configuration, StoppingSpec, SweepSpec
from ecoshare.core.records import JobState
from ecoshare.core.sweeps import LEAST_CONFIGURATIONS
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.fields import Isolation
from ecoshare.jobs.load import LoadedJobs, mistake_of
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.sweep import Sweep, filled, names_in, trial_name
from ecoshare.jobs.trial_sampler import Choice, Dimension, Grid, Random, TrialSampler, Values
from ecoshare.record.plan_document import SweepDocument
from ecoshare.runtime.planning.planned_job import PlannedJob


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that ended in an earlier session of the run.

    Attributes:
        name: Name of the trial.
        state: State in which the trial ended.
        value: Last value that the trial reported; None if it reported none.
        configuration: Configuration that the trial repeats.
    """

    name: str
    state: JobState
    value: float | None
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class PlannedSweep:
    """A sweep of the job file.

    Attributes:
        template: The job that has the sweep: the common part of all trials.
        options: Options of the sweep in the file.
        spec: Description of the sweep for the core.
        ended: Trials of earlier sessions that need not run again.
    """

    template: PlannedJob
    options: Sweep
    spec: SweepSpec
    ended: tuple[EndedTrial, ...] = ()

    @property
    def name(self) -> str:
        """Name of the sweep, which is the name of its job in the file."""
        return self.spec.name

    def trial(self, number: int, values: Values) -> PlannedJob:
        """Trial of the sweep.

        Args:
            number: Number of the trial, from 0.
            values: Value of each name in the space of the sweep.
        """
        job, text = self.template.source, dict(values)
        name = trial_name(self.name, number, self.options.count)
        used = set().union(*map(names_in, (*job.args, *job.resume_args, *job.env.values())))
        changes = {
            "name": name,
            "args": (
                *(filled(word, text) for word in job.args),
                *(f"--{key}={value}" for key, value in values if key not in used),
            ),
            "env": {key: filled(value, text) for key, value in job.env.items()},
            "resume_args": tuple(filled(word, text) for word in job.resume_args),
            "sweep": None,
        }
        spec = replace(self.template.spec, name=name, sweep=self.name, values=values)
        return replace(self.template, spec=spec, source=job.model_copy(update=changes), metric=self.options.metric)

    def sampler(self, folder: Path) -> TrialSampler:
        """Sampler that chooses the trials.

        Args:
            folder: Folder for the memory of the sampler.

        Raises:
            UsageError: Optuna refuses the options of its sampler or pruner.
        """
        options = self.options
        if options.grid is not None:
            return Grid(options.grid, options.trials)
        if options.random is not None:
            return Random(options.random, options.count, options.seed)
        assert options.optuna is not None, "a sweep has one of the three"
        from ecoshare.jobs.with_optuna import OptunaSampler

        try:
            return OptunaSampler.open(
                folder / f"optuna-{self.name}.log",
                self.name,
                options.optuna.space,
                options.count,
                self.spec.maximise,
                options.optuna.sampler,
                options.optuna.pruner,
                options.seed,
            )
        except ValueError as error:
            raise UsageError(f"sweep {self.name}: {error}") from error

    def document(self) -> SweepDocument:
        """The sweep as `plan.json` has it."""
        options = self.options
        way = "grid" if options.grid is not None else "random" if options.random is not None else "optuna"
        return SweepDocument(
            **dict(self.template.document()),
            by=way if options.optuna is None else f"optuna, {options.optuna.sampler[0]}",
            space={name: dimension_words(dimension) for name, dimension in options.space.items()},
            replicates=list(self.spec.replicates),
            trials=options.count,
            metric=options.metric.text if options.metric is not None else None,
            goal=options.goal,
            target=options.target,
            stop=options.stop.rule if options.stop is not None else None,
            parallel=self.spec.parallel,
        )


def check_sweeps(loaded: LoadedJobs, jobs: Sequence[PlannedJob]) -> None:
    """Check that trials which pause can go on later.

    Raises:
        InvalidJobFile: The trials of a sweep cannot, with its place in the file.
    """
    for job in jobs:
        sweep = job.source.sweep
        if sweep is None or sweep.stop is None or sweep.stop.rule != "halving":
            continue
        words = "with `stop: halving` a trial is stopped at each rung, and goes on later"
        if not job.source.preemptible:
            hint = "give `preemptible: true` if the script saves its state on SIGTERM"
            raise mistake_of(loaded, job.spec.name, "sweep", words, hint)
        if job.source.isolation is Isolation.LANE:
            raise mistake_of(loaded, job.spec.name, "sweep", words, "leave out `isolation: lane`")


def plan_sweeps(template: PlannedJob, places: int, at_once: int) -> PlannedSweep:
    """Decide how to run a sweep.

    Args:
        template: The job that has the sweep.
        places: Most trials at once if the sampler does not learn. Then trials that wait for a place cost nothing.
        at_once: Most trials at once if the sampler learns: those that can be in progress.

    Raises:
        UnfitEnvironment: Optuna is not installed, and the sweep asks for it.
    """
    job, options = template.source, template.source.sweep
    assert options is not None, "the job has a sweep"
    if options.optuna is not None and find_spec("optuna") is None:
        raise UnfitEnvironment(f"the sweep {job.name} asks for optuna", "pip install 'ecoshare[optuna]'")
    stop, rule = options.stop, None
    if stop is not None:
        rule = StoppingSpec(stop.rule, stop.grace, stop.reduction, stop.steps or 0, LEAST_CONFIGURATIONS)
    spec = SweepSpec(
        name=job.name,
        parallel=options.parallel or (places if options.optuna is None else at_once),
        maximise=options.goal == "maximize",
        early_stopping=rule,
        replicates=options.replicates,
    )
    return PlannedSweep(template, options, spec)


def classified(job: JobConfig) -> JobConfig:
    """The job for the lookup of its class: the space of its sweep counts like arguments."""
    if job.sweep is None:
        return job
    varied = (f"--{name}={dimension_words(dimension)}" for name, dimension in job.sweep.space.items())
    return job.model_copy(update={"args": (*job.args, *varied), "sweep": None})


def dimension_words(dimension: Dimension) -> str:
    """Short text for a dimension, such as `0.1|0.01` or `0.0001..0.1`."""
    if isinstance(dimension, Choice):
        return "|".join(dimension.words)
    return f"{dimension.low:g}..{dimension.high:g}"
