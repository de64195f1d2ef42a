"""Sweeps: their trials, drawn one by one, and the rules that end some of them early."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol

from ecoshare.base.job_spec import Configuration, EarlierTrial, JobSpec, StoppingSpec, SweepSpec, own_configuration
from ecoshare.base.plural import counted
from ecoshare.base.segment import CarriedSweep, RuleState
from ecoshare.core.commands import AskSampler
from ecoshare.core.events import Exhausted, JobArrived, Reported, SweepOpened
from ecoshare.core.records import Job, JobState

LEAST_CONFIGURATIONS = 5
"""`StoppingSpec.least` of live sweeps. The best of one or two is no standard: whichever trials happened to come first
would decide."""


class StoppingRule(Protocol):
    """Rule of early stopping for one sweep."""

    def carried(self) -> RuleState:
        """State from which `go_on` makes the same rule."""
        ...

    def told(self, trial: str, configuration: Configuration, step: int, value: float) -> str:
        """Reason for ending a trial that has reported `value` at `step` (from 1); empty if the trial goes on."""
        ...

    def ended(self, trial: str, completed: bool) -> None:
        """Note that a trial reports no more.

        Args:
            trial: Name of the trial.
            completed: Whether the trial did all its steps.
        """
        ...


def rule(spec: StoppingSpec, past: Sequence[EarlierTrial] = ()) -> StoppingRule:
    """Rule of a sweep, with the reports of the trials of earlier sessions replayed into it."""
    if spec.rule == "halving":
        return Halving.going_on(spec, past)
    made: StoppingRule = {"asha": Asha, "median": Median}[spec.rule](spec)
    for trial in past:
        of = own_configuration(trial.name) if trial.configuration is None else trial.configuration
        for step, value in enumerate(trial.values, start=1):
            made.told(trial.name, of, step, value)
        if not trial.goes_on:
            made.ended(trial.name, trial.completed)
    return made


def go_on(spec: StoppingSpec, state: RuleState) -> StoppingRule:
    """Rule that goes on from a state of it, in another segment of the log."""
    match spec.rule:
        case "asha":
            return Asha(spec, [_Ranking.of(each) for each in state.rungs], dict(state.passed))
        case "median":
            values = {name: list(own) for name, own in state.values}
            return Median(spec, [list(each) for each in state.means], values)
        case _:
            waiting = {name: value for name, value, _ in state.waiting}
            of = {name: configuration for name, _, configuration in state.waiting}
            return Halving(spec, waiting, dict(state.passed), of)


@dataclass(slots=True)
class _Ranking:
    """Configurations in the order of the means of their trials.

    Attributes:
        means: Means in ascending order, one for each configuration.
        trials: Number of trials of all configurations.
    """

    means: list[float] = field(default_factory=list)
    trials: int = 0
    _sums: dict[Configuration, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Iterable[tuple[Configuration, float, int]]) -> _Ranking:
        """Ranking of configurations, each with the sum of its values and their number."""
        sums = {configuration: (total, trials) for configuration, total, trials in told}
        means = sorted(_ordered(total / trials) for total, trials in sums.values())
        return cls(means, sum(trials for _, trials in sums.values()), sums)

    def told(self) -> tuple[tuple[Configuration, float, int], ...]:
        """Configurations as `of` takes them."""
        return tuple((configuration, *sums) for configuration, sums in self._sums.items())

    def add(self, configuration: Configuration, value: float) -> float:
        """Add the value of a trial, and return the mean of its configuration."""
        total, trials = self._sums.get(configuration, (0.0, 0))
        if trials:
            del self.means[bisect_left(self.means, _ordered(total / trials))]
        self._sums[configuration] = total + value, trials + 1
        self.trials += 1
        mean = _ordered((total + value) / (trials + 1))
        insort(self.means, mean)
        return mean

    @property
    def words(self) -> str:
        """Number of configurations; with the number of trials if that is another."""
        number = len(self.means)
        return f"{number}" if self.trials == number else f"{number} configurations ({counted(self.trials, 'trial')})"


@dataclass(slots=True)
class Asha:
    """Asynchronous successive halving.

    The rungs are at `grace`, `grace * reduction`, `grace * reduction**2`, ... steps. A trial that reaches a rung goes
    on if its configuration is among the best `1 / reduction` of all that have reached the rung so far, of at least one,
    or if these are fewer than `least`.

    Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, in the variant that stops
    trials instead of promoting them, so no trial pauses. Means over seeds, and `least`, are ours.
    """

    spec: StoppingSpec
    _rungs: list[_Ranking] = field(default_factory=list)
    _passed: dict[str, int] = field(default_factory=dict)

    def told(self, trial: str, configuration: Configuration, step: int, value: float) -> str:
        reached = _reached(self.spec, self._passed, trial, step)
        if reached is None:
            return ""
        rung, at_step = reached
        if rung == len(self._rungs):
            self._rungs.append(_Ranking())
        ranking = self._rungs[rung]
        mean = ranking.add(configuration, _ordered(value))
        good = max(1, len(ranking.means) // self.spec.reduction)
        place = bisect_left(ranking.means, mean)
        if place < good or len(ranking.means) < self.spec.least:
            return ""
        return f"place {place + 1} of the {ranking.words} that reached step {at_step}, of which {good} go on (asha)"

    def carried(self) -> RuleState:
        return RuleState(rungs=tuple(each.told() for each in self._rungs), passed=tuple(self._passed.items()))

    def ended(self, trial: str, completed: bool) -> None:
        self._passed.pop(trial, None)


@dataclass(slots=True)
class Halving:
    """Successive halving: at each rung all trials wait for each other.

    ::

        asha, reduction 3, grace 1                     median
        step 1    ████ ████ ████ ████ ████ ████        step 4: the best value of a trial so far is worse
        step 3    ████████████ ██████████              than the median of the means that the completed
        step 9    ████████████████████████             trials had at step 4

        halving, reduction 3, grace 1
        step 1    ████ ████ ████ ████ ████ ████        all six pause; when the last one arrives, the best two go on
        step 3    ████████████ ████████████

    `asha` and `halving` compare configurations. Trials of one configuration differ in their seed alone, so they tell
    how good it is only together: the rules go by the mean over those that have done as many steps. In a sweep without
    seeds a configuration is one trial. docs/decisions/0016 has the reasons, and what was measured.

    Smaller values are better for every rule. NaN counts as the worst value.

    The rungs are those of `Asha`. A trial that reaches a rung pauses there. When no trial is on its way to the rung any
    more, the trials of the best `1 / reduction` of the configurations go on, of at least one, and the rest end.

    Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
    AISTATS 2016.

    Attributes:
        waiting: Paused trials by name, each with the value that it reported at its rung.
    """

    spec: StoppingSpec
    waiting: dict[str, float] = field(default_factory=dict)
    _passed: dict[str, int] = field(default_factory=dict)
    _configurations: dict[str, Configuration] = field(default_factory=dict)

    @classmethod
    def going_on(cls, spec: StoppingSpec, past: Sequence[EarlierTrial]) -> Halving:
        """Rule that goes on with the trials of earlier sessions.

        A rung at which trials have ended is decided. Trials that paused at the next one pause there once more, with
        their next report.
        """
        decided = max((_rungs(spec, len(trial.values)) for trial in past if trial.pruned), default=0)
        going_on = (trial for trial in past if trial.goes_on)
        return cls(spec, _passed={trial.name: min(decided, _rungs(spec, len(trial.values))) for trial in going_on})

    def told(self, trial: str, configuration: Configuration, step: int, value: float) -> str:
        """See `StoppingRule`; the text is the reason for the pause, not for an end."""
        reached = _reached(self.spec, self._passed, trial, step)
        if reached is None:
            return ""
        self._passed[trial] = _rungs(self.spec, step)  # a trial of short steps may have run past several
        self.waiting[trial], self._configurations[trial] = _ordered(value), configuration
        return f"pauses at step {reached[1]} until all others are there (halving)"

    def decide(self) -> dict[str, str]:
        """Reason for the end of each paused trial; empty if it goes on. Among equal means the earliest trial wins."""
        ranking, means = _Ranking(), dict[Configuration, float]()
        for trial, value in self.waiting.items():
            means[self._configurations[trial]] = ranking.add(self._configurations[trial], value)
        good = max(1, len(means) // self.spec.reduction)
        places = {each: place for place, each in enumerate(sorted(means, key=means.__getitem__), start=1)}
        order = sorted(self.waiting, key=lambda trial: places[self._configurations[trial]])
        self.waiting.clear()
        words = f"of the {ranking.words} of its rung, of which {good} go on (halving)"
        found = {trial: places[self._configurations.pop(trial)] for trial in order}
        return {trial: f"place {place} {words}" if place > good else "" for trial, place in found.items()}

    def carried(self) -> RuleState:
        waiting = tuple((trial, value, self._configurations[trial]) for trial, value in self.waiting.items())
        return RuleState(passed=tuple(self._passed.items()), waiting=waiting)

    def ended(self, trial: str, completed: bool) -> None:
        self._passed.pop(trial, None)
        self.waiting.pop(trial, None)
        self._configurations.pop(trial, None)

    def next_step(self, trial: str) -> int | None:
        """Step of the next rung, at which the trial will pause; None if there is none before its end."""
        return _rung(self.spec, self._passed.get(trial, 0))


LEAST_COMPLETED = 5
"""Completed trials that are needed before the median rule ends a trial."""


@dataclass(slots=True)
class Median:
    """The median stopping rule.

    A trial ends at a step if its best value so far is worse than the median over the completed trials, whatever their
    seeds are. The median is taken over the means of their values up to that step. Source: Golovin et al., "Google
    Vizier", KDD 2017, 3.2.2.
    """

    spec: StoppingSpec
    _means: list[list[float]] = field(default_factory=list)
    """Sorted means of the completed trials, one list for each step."""
    _values: dict[str, list[float]] = field(default_factory=dict)

    def told(self, trial: str, configuration: Configuration, step: int, value: float) -> str:
        values = self._values.setdefault(trial, [])
        if step <= len(values):  # the trial was started again
            del values[step - 1 :]
        values.append(_ordered(value))
        means = self._means[step - 1] if step <= len(self._means) else []
        if step < self.spec.grace or len(means) < LEAST_COMPLETED:
            return ""
        median = (means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2
        if min(values) <= median:
            return ""
        through = f"{counted(len(means), 'trial')} that {'is' if len(means) == 1 else 'are'} through"
        return f"worse at step {step} than the median of {through} (median)"

    def carried(self) -> RuleState:
        values = tuple((trial, tuple(own)) for trial, own in self._values.items())
        return RuleState(means=tuple(map(tuple, self._means)), values=values)

    def ended(self, trial: str, completed: bool) -> None:
        values = self._values.pop(trial, [])
        if not completed:
            return
        total = 0.0
        for step, value in enumerate(values, start=1):
            total += value
            if step > len(self._means):
                self._means.append([])
            insort(self._means[step - 1], total / step)


def _rung(spec: StoppingSpec, number: int) -> int | None:
    """Step of a rung; the number counts from 0. None if a trial is over by then."""
    step = spec.grace * spec.reduction**number
    return None if 0 < spec.steps <= step else step


def _rungs(spec: StoppingSpec, steps: int) -> int:
    """Number of the rungs up to a number of steps."""
    return next(number for number in count() if (step := _rung(spec, number)) is None or step > steps)


def _reached(spec: StoppingSpec, passed: dict[str, int], trial: str, step: int) -> tuple[int, int] | None:
    """Number and step of the rung that the trial reaches, and passes, with this step; None if it reaches none."""
    rung = passed.get(trial, 0)
    at_step = _rung(spec, rung)
    if at_step is None or step < at_step:
        return None
    passed[trial] = rung + 1
    return rung, at_step


def _ordered(value: float) -> float:
    return math.inf if math.isnan(value) else value


_AT_WORK = (JobState.RUNNING, JobState.STOPPING)


@dataclass(slots=True)
class _Sweep:
    """One sweep.

    Attributes:
        live: Number of trials that have arrived and not ended, without the paused ones.
        drawn: Number of trials that the sampler was asked for, which is also the number of the next trial.
        asked: Unanswered `AskSampler` commands: the number of the trial, by the id of the command.
        over: Whether the sampler has no more trials, or is asked for none any more.
        cancelled: Whether the user has cancelled the sweep.
        paused: Names of the paused trials that have left their places; a dict that serves as an ordered set.
        returning: Number of trials of an earlier session that arrive next. They come before new ones.
    """

    spec: SweepSpec
    rule: StoppingRule | None
    drawn: int
    live: int = 0
    asked: dict[int, int] = field(default_factory=dict)
    over: bool = False
    cancelled: bool = False
    paused: dict[str, None] = field(default_factory=dict)
    returning: int = 0

    @property
    def is_open(self) -> bool:
        """Whether more trials are to come."""
        return not self.over or bool(self.asked)


class Sweeps:
    """Sweeps of a run.

    A sweep is a source of jobs of one script that differ in some values: its *trials*. The sampler chooses these
    values, and the core asks it for one trial at a time. So the core holds only a few trials of a sweep of ten
    thousand, and a sampler that learns has seen all results so far.
    """

    def __init__(self, next_id: Callable[[], int]) -> None:
        """No sweeps so far; `next_id` returns the id of the next command."""
        self._next_id = next_id
        self._sweeps: dict[str, _Sweep] = {}
        self._short: dict[str, None] = {}
        self._decided: dict[str, str] = {}

    @property
    def open(self) -> int:
        """Number of sweeps that have more trials to come."""
        return sum(sweep.is_open for sweep in self._sweeps.values())

    @property
    def coming(self) -> bool:
        """Whether a sampler was asked for a trial and has not answered, or is about to be asked."""
        return any(
            sweep.asked or (not sweep.over and sweep.live < sweep.spec.parallel) for sweep in self._sweeps.values()
        )

    def __contains__(self, name: str) -> bool:
        """Whether there is a sweep of this name."""
        return name in self._sweeps

    def is_over(self, name: str) -> bool:
        """Whether a sweep has no trial any more, and none is to come."""
        sweep = self._sweeps[name]
        return not (sweep.is_open or sweep.live or sweep.paused)

    def close(self) -> None:
        """Draw no more trials of any sweep."""
        for sweep in self._sweeps.values():
            self._close(sweep)

    def cancel(self, name: str) -> None:
        """Draw no more trials of a sweep that the user cancels."""
        self._sweeps[name].cancelled = True
        self._close(self._sweeps[name])

    def _close(self, sweep: _Sweep) -> None:
        sweep.over = True
        self._look(sweep)

    def is_cancelled(self, job: JobSpec) -> bool:
        """Whether a job is a trial of a sweep that the user has cancelled."""
        return job.sweep in self._sweeps and self._sweeps[job.sweep].cancelled

    def opened(self, event: SweepOpened) -> None:
        """Add a sweep that begins, or continues in another session."""
        spec = event.sweep
        early_stopping = rule(spec.early_stopping, spec.earlier_trials) if spec.early_stopping is not None else None
        self._sweeps[spec.name] = _Sweep(spec, early_stopping, spec.drawn, returning=event.returning)
        if not event.returning:
            self._short[spec.name] = None

    @property
    def names(self) -> list[str]:
        """Names of the sweeps that are not over."""
        return [name for name in self._sweeps if not self.is_over(name)]

    def carried(self) -> tuple[CarriedSweep, ...]:
        """Sweeps that are not over, as another segment takes them over."""
        found = []
        for name in self.names:
            sweep = self._sweeps[name]
            found.append(
                CarriedSweep(
                    spec=replace(sweep.spec, drawn=sweep.drawn, earlier_trials=()),
                    rule=None if sweep.rule is None else sweep.rule.carried(),
                    asked=tuple(sweep.asked.items()),
                    live=sweep.live,
                    over=sweep.over,
                    cancelled=sweep.cancelled,
                    paused=tuple(sweep.paused),
                )
            )
        return tuple(found)

    def go_on(self, carried: Iterable[CarriedSweep]) -> None:
        """Take over sweeps from the segment before. Their trials are taken over apart."""
        for each in carried:
            spec = each.spec
            stopping = (
                None if spec.early_stopping is None or each.rule is None else go_on(spec.early_stopping, each.rule)
            )
            paused = dict.fromkeys(each.paused)
            asked = dict(each.asked)
            self._sweeps[spec.name] = _Sweep(
                spec, stopping, spec.drawn, each.live, asked, each.over, each.cancelled, paused
            )
            self._short[spec.name] = None

    def arrived(self, event: JobArrived) -> None:
        """Count a trial that has arrived, from its sampler or from an earlier session. Other jobs are ignored."""
        if (sweep := self._sweeps.get(event.job.sweep)) is not None:
            sweep.live += 1
            if event.answers in sweep.asked:
                del sweep.asked[event.answers]
            elif sweep.returning:
                sweep.returning -= 1
                if not sweep.returning:
                    self._short[event.job.sweep] = None

    def exhausted(self, event: Exhausted) -> None:
        """Note that a sampler has no more trials."""
        for sweep in self._sweeps.values():
            if event.command in sweep.asked:
                del sweep.asked[event.command]
                self._close(sweep)

    def reported(self, job: Job, event: Reported) -> str:
        """Reason why a trial ends early or pauses (`pauses`) after its report; empty if it goes on."""
        sweep = self._sweeps[job.spec.sweep]
        if event.halt:
            return event.halt
        if sweep.rule is None or (isinstance(sweep.rule, Halving) and (job.state not in _AT_WORK or self.pauses(job))):
            return ""  # a late report: the trial is about to pause, or waits for a place on its way to the next rung
        value = -event.value if sweep.spec.maximise else event.value
        configuration = sweep.spec.configuration(job.spec.name, job.spec.values)
        reason = sweep.rule.told(job.spec.name, configuration, event.step, value)
        if not reason or not isinstance(sweep.rule, Halving) or job.state is not JobState.RUNNING:
            return reason
        if sweep.live == 1 and not sweep.is_open:  # all other trials of the rung pause already, so this one need not
            self._decide(sweep, sweep.rule)
            return self._decided.pop(job.spec.name)
        return reason

    def iterations_until_rung(self, job: Job) -> int | None:
        """Number of iterations after which a job pauses; None if it never pauses or the number is unknown."""
        sweep = self._sweeps.get(job.spec.sweep)
        if sweep is None or not isinstance(sweep.rule, Halving) or job.spec.iterations is None:
            return None
        step, steps = sweep.rule.next_step(job.spec.name), sweep.rule.spec.steps
        return -(-job.spec.iterations * step // steps) if step is not None and steps else None

    def pauses(self, job: Job) -> bool:
        """Whether a trial is at a rung and waits for the other trials of its sweep."""
        sweep = self._sweeps.get(job.spec.sweep)
        return sweep is not None and isinstance(sweep.rule, Halving) and job.spec.name in sweep.rule.waiting

    @property
    def paused(self) -> list[str]:
        """Names of the paused trials that have left their places."""
        return [name for sweep in self._sweeps.values() for name in sweep.paused]

    def left(self, job: Job) -> None:
        """Note that a paused trial has left its place. Another trial may be drawn."""
        sweep = self._sweeps[job.spec.sweep]
        sweep.live -= 1
        sweep.paused[job.spec.name] = None
        self._short[job.spec.sweep] = None
        self._look(sweep)

    def ended(self, job: Job) -> None:
        """Note that a job has ended. If it was a trial, another trial may be drawn."""
        if (sweep := self._sweeps.get(job.spec.sweep)) is not None:
            if job.spec.name in sweep.paused:
                del sweep.paused[job.spec.name]
            else:
                sweep.live -= 1
            self._short[job.spec.sweep] = None
            if sweep.rule is not None:
                sweep.rule.ended(job.spec.name, job.state is JobState.COMPLETED)
            self._look(sweep)

    def decided(self) -> dict[str, str]:
        """Trials that pause no longer: the reason why each one ends, or an empty text if it goes on."""
        decided, self._decided = self._decided, {}
        for name in decided:
            sweep = next(sweep for sweep in self._sweeps.values() if name in sweep.paused)
            if not decided[name]:
                del sweep.paused[name]
                sweep.live += 1
        return decided

    def _look(self, sweep: _Sweep) -> None:
        """Decide which paused trials go on, if no trial is on its way to the rung any more."""
        is_alive = sweep.live or sweep.is_open or sweep.cancelled
        if isinstance(sweep.rule, Halving) and sweep.rule.waiting and not is_alive:
            self._decide(sweep, sweep.rule)

    def _decide(self, sweep: _Sweep, rule: Halving) -> None:
        self._decided.update(rule.decide())

    def draw(self) -> list[AskSampler]:
        """Questions to the samplers of the sweeps that have room for more trials."""
        commands = []
        for name in self._short:
            sweep = self._sweeps[name]
            while not sweep.over and sweep.live + len(sweep.asked) < sweep.spec.parallel:
                command = AskSampler(self._next_id(), name, sweep.drawn)
                sweep.asked[command.id] = sweep.drawn
                sweep.drawn += 1
                commands.append(command)
        self._short.clear()
        return commands
