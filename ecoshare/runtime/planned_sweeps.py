"""The sweeps of a plan: what their trials are, and who chooses them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ecoshare.core.events import StoppingSpec, SweepSpec
from ecoshare.core.states import JobState
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.sweep import Sweep, filled, names_in, trial_name
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.sampling.sweep_space import Choice, Dimension, Values
from ecoshare.sampling.trial_sampler import Grid, Random, TrialSampler


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial of an earlier session of the run, with the last value that it reported."""

    name: str
    state: JobState
    value: float | None


@dataclass(frozen=True, slots=True)
class PlannedSweep:
    """A sweep of the job file.

    Attributes:
        template: What its trials have in common.
        options: As in the file.
        spec: What the core must know of it.
        ended: Its trials of earlier sessions that need not run again.
    """

    template: PlannedJob
    options: Sweep
    spec: SweepSpec
    ended: tuple[EndedTrial, ...] = ()

    @property
    def name(self) -> str:
        """Of the job that it makes trials of."""
        return self.spec.name

    def trial(self, number: int, values: Values) -> PlannedJob:
        """One of its trials; their numbers count from 0."""
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
        """Who chooses its trials; what it must remember is in `folder`.

        Raises:
            UsageError: The options of Optuna's sampler or pruner are not as it wants them.
        """
        options = self.options
        if options.grid is not None:
            return Grid(options.grid, options.trials)
        if options.random is not None:
            return Random(options.random, options.count, options.seed)
        assert options.optuna is not None, "a sweep has one of the three"
        from ecoshare.sampling.with_optuna import OptunaSampler

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

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        options = self.options
        way = "grid" if options.grid is not None else "random" if options.random is not None else "optuna"
        return {
            **self.template.as_dict(),
            "by": way if options.optuna is None else f"optuna, {options.optuna.sampler[0]}",
            "space": {name: words(dimension) for name, dimension in options.space.items()},
            "trials": options.count,
            "metric": options.metric.text if options.metric is not None else None,
            "goal": options.goal,
            "target": options.target,
            "stop": options.stop.rule if options.stop is not None else None,
            "parallel": self.spec.parallel,
        }


def plan(template: PlannedJob, places: int, at_once: int) -> PlannedSweep:
    """Decide how to run a sweep.

    Args:
        template: Of the job that it is under.
        places: That its trials may have at most; those that wait for one cost nothing where the sampler learns nothing.
        at_once: Trials that can be in progress at a time, for one that learns.

    Raises:
        UnfitEnvironment: Optuna is not installed, and the sweep asks for it.
    """
    job, options = template.source, template.source.sweep
    assert options is not None, "the job has a sweep"
    if options.optuna is not None and find_spec("optuna") is None:
        raise UnfitEnvironment(f"the sweep {job.name} asks for optuna", "pip install 'ecoshare[optuna]'")
    stop = options.stop
    spec = SweepSpec(
        name=job.name,
        parallel=options.parallel or (places if options.optuna is None else at_once),
        maximise=options.goal == "maximize",
        early_stopping=StoppingSpec(stop.rule, stop.grace, stop.reduction) if stop is not None else None,
    )
    return PlannedSweep(template, options, spec)


def classified(job: JobConfig) -> JobConfig:
    """The job as its class is told by: where it has a sweep, what that varies counts as arguments do."""
    if job.sweep is None:
        return job
    varied = (f"--{name}={words(dimension)}" for name, dimension in job.sweep.space.items())
    return job.model_copy(update={"args": (*job.args, *varied), "sweep": None})


def words(dimension: Dimension) -> str:
    """A dimension in a few words: `0.1|0.01`, or `0.0001..0.1`."""
    if isinstance(dimension, Choice):
        return "|".join(dimension.words)
    return f"{dimension.low:g}..{dimension.high:g}"
