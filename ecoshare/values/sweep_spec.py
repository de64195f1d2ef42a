"""Description of a sweep for decisions; its sampler chooses the values of trials."""

from __future__ import annotations

from dataclasses import dataclass

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
