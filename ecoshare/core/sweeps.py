"""Sweeps of a run: how many of their trials are live, when another is drawn, and which ones end early.

A sweep is a source of jobs of one script that differ in some values: its *trials*. The sampler chooses these values,
and the core asks it for one trial at a time. So the core holds only a few trials of a sweep of ten thousand, and a
sampler that learns has seen all results so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ecoshare.core.commands import AskSampler
from ecoshare.core.early_stopping import Halving, StoppingRule, rule
from ecoshare.core.events import Exhausted, JobArrived, Reported, SweepOpened
from ecoshare.core.records import Job
from ecoshare.core.states import JobState
from ecoshare.values.job_spec import JobSpec
from ecoshare.values.sweep_spec import SweepSpec

_AT_WORK = (JobState.RUNNING, JobState.STOPPING)


@dataclass(slots=True)
class _Sweep:
    """One sweep.

    Attributes:
        live: Number of trials that have arrived and not ended, without the paused ones.
        drawn: Number of trials that the sampler was asked for, which is also the number of the next trial.
        asked: Ids of the unanswered `AskSampler` commands.
        over: Whether the sampler has no more trials, or is asked for none any more.
        cancelled: Whether the user has cancelled the sweep.
        paused: Names of the paused trials that have left their places; a dict that serves as an ordered set.
    """

    spec: SweepSpec
    rule: StoppingRule | None
    drawn: int
    live: int = 0
    asked: set[int] = field(default_factory=set)
    over: bool = False
    cancelled: bool = False
    paused: dict[str, None] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether more trials are to come."""
        return not self.over or bool(self.asked)


class Sweeps:
    """Sweeps of a run."""

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

    @property
    def are_over(self) -> bool:
        """Whether no sweep has a trial any more, and none is to come."""
        return all(map(self.is_over, self._sweeps))

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
        self._sweeps[spec.name] = _Sweep(spec, early_stopping, spec.drawn)
        self._short[spec.name] = None

    def arrived(self, event: JobArrived) -> None:
        """Count a trial that has arrived, from its sampler or from an earlier session. Other jobs are ignored."""
        if (sweep := self._sweeps.get(event.job.sweep)) is not None:
            sweep.live += 1
            sweep.asked.discard(event.answers)

    def exhausted(self, event: Exhausted) -> None:
        """Note that a sampler has no more trials."""
        for sweep in self._sweeps.values():
            if event.command in sweep.asked:
                sweep.asked.remove(event.command)
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
                sweep.drawn += 1
                sweep.asked.add(command.id)
                commands.append(command)
        self._short.clear()
        return commands
